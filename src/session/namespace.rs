//! The network namespace whose table is meant, and errors of that table.

use crate::error::{CommandError, Status, chain};
use crate::terminal::messages::note;
use ctnetlink::netns::Netns;
use ctnetlink::{ErrorKind, NetlinkError};

/// What helps where CAP_NET_ADMIN is missing.
pub const RUN_AS_ROOT: &str =
    "run it as root, or with CAP_NET_ADMIN in the user namespace that owns the network namespace";

/// An empty table is what a pod's own namespace usually has.
pub fn note_empty(netns: &Netns) {
    if netns.is_initial() == Some(false) {
        note(format!(
            "{} has no entries; the node's own are in the host network namespace (hostNetwork: true, or --netns 1)",
            netns.name()
        ));
    }
}

/// An error of the kernel's table, with what helps.
pub fn netlink_error(error: NetlinkError) -> CommandError {
    let text = chain(&error);
    match error.kind() {
        ErrorKind::NotPermitted => CommandError::new(Status::NotPermitted, text).hint(RUN_AS_ROOT),
        ErrorKind::NotAvailable => CommandError::failed(text)
            .hint("load the modules: modprobe nf_conntrack nf_conntrack_netlink"),
        _ => CommandError::failed(text),
    }
}
