//! Sysctls of connection tracking in a network namespace.

use std::collections::BTreeMap;
use std::fs;

use ctnetlink::netns::{Netns, NetnsError};

/// Values of `net.netfilter.nf_conntrack_*`; `None` if the kernel has no such file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Entries in this namespace.
    pub count: Option<u64>,
    /// Limit for the entries of each namespace; one value for the whole machine.
    pub max: Option<u64>,
    /// Size of the hash table that all namespaces share.
    pub buckets: Option<u64>,
    /// 1: new entries count packets and bytes.
    pub acct: Option<u64>,
    /// 1: new entries carry their start time.
    pub timestamp: Option<u64>,
    /// 0: no events, 1: events of all entries, 2: of entries made while a listener exists.
    pub events: Option<u64>,
    /// 1: TCP segments out of the window are not marked as invalid.
    pub tcp_be_liberal: Option<u64>,
    /// 1: packets with a bad checksum are marked as invalid.
    pub checksum: Option<u64>,
    /// 0: established TCP flows are not picked up.
    pub tcp_loose: Option<u64>,
    /// Limit for the expectations of each namespace; one value for the whole machine.
    pub expect_max: Option<u64>,
}

/// Reads the sysctls of a namespace.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered.
pub fn conntrack(netns: &Netns) -> Result<Conntrack, NetnsError> {
    netns.run(|| Conntrack {
        count: read("count"),
        max: read("max"),
        buckets: read("buckets"),
        acct: read("acct"),
        timestamp: read("timestamp"),
        events: read("events"),
        tcp_be_liberal: read("tcp_be_liberal"),
        checksum: read("checksum"),
        tcp_loose: read("tcp_loose"),
        expect_max: read("expect_max"),
    })
}

/// Every `net.netfilter.nf_conntrack_*_timeout*` in seconds, by the part of its name after `nf_conntrack_`. The set depends on
/// the kernel and its modules.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered.
pub fn timeouts(netns: &Netns) -> Result<BTreeMap<String, u64>, NetnsError> {
    netns.run(|| {
        let files = fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let names = files.filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            name.strip_prefix(PREFIX).map(str::to_owned)
        });
        let timeouts = names.filter(|name| name.contains("_timeout"));
        timeouts
            .filter_map(|name| read(&name).map(|seconds| (name, seconds)))
            .collect()
    })
}

const FOLDER: &str = "/proc/sys/net/netfilter";
const PREFIX: &str = "nf_conntrack_";

/// Reads a sysctl of the calling thread's namespace.
fn read(name: &str) -> Option<u64> {
    read_number(&format!("{FOLDER}/{PREFIX}{name}"))
}

/// The number that a file of `/proc/sys` holds; `None` where there is no such file or no number in it.
pub(crate) fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctls_have_the_value_of_their_file() {
        let all = conntrack(&Netns::current()).unwrap();
        let max = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max");
        assert_eq!(
            all.max.map(|n| n.to_string()),
            max.ok().map(|text| text.trim().to_owned())
        );
        assert_eq!(read("no_such_sysctl"), None);
        let timeouts = timeouts(&Netns::current()).unwrap();
        assert_eq!(timeouts.contains_key("udp_timeout"), all.max.is_some());
        assert!(!timeouts.contains_key("tcp_max_retrans"), "{timeouts:?}");
    }
}
