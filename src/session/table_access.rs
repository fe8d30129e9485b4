//! Errors of the conntrack table, with hints, and the note on an empty one.

use crate::error::{CommandError, ExitStatus};
use crate::terminal::messages::note;
use ctnetlink::netns::Netns;
use ctnetlink::{ErrorKind, NetlinkError};

/// Hint where CAP_NET_ADMIN is missing.
pub const RUN_AS_ROOT: &str =
    "run it as root, or with CAP_NET_ADMIN in the user namespace that owns the network namespace";

/// Explains an empty table in a namespace that is not the initial one, such as a pod's.
pub fn note_empty(netns: &Netns) {
    if netns.is_initial() == Some(false) {
        note(format!(
            "{} has no entries; the node's own are in the host network namespace (hostNetwork: true, or --netns 1)",
            netns.name()
        ));
    }
}

/// An error of the kernel's table, with a hint.
pub fn netlink_error(error: NetlinkError) -> CommandError {
    match error.kind() {
        ErrorKind::NotPermitted => {
            CommandError::of(ExitStatus::NotPermitted, error).hint(RUN_AS_ROOT)
        }
        ErrorKind::NotAvailable => CommandError::of(ExitStatus::Failed, error)
            .hint("load the modules: modprobe nf_conntrack nf_conntrack_netlink"),
        _ => CommandError::of(ExitStatus::Failed, error),
    }
}
