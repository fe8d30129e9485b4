//! Conntrack's sysctls, as one network namespace sees them.

use std::fs;

use crate::netns::{Netns, NetnsError};

/// `net.netfilter.nf_conntrack_*`; `None` where the kernel has no such file.
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
    /// 0: no events, 1: all entries, 2: entries made while somebody listens.
    pub events: Option<u64>,
}

/// Reads them all.
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
    })
}

/// /proc/sys/net shows the namespace of the thread that opens a file there.
fn read(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{name}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_that_is_there_is_read_as_the_kernel_prints_it() {
        let all = conntrack(&Netns::current()).unwrap();
        let max = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max");
        assert_eq!(
            all.max.map(|n| n.to_string()),
            max.ok().map(|text| text.trim().to_owned())
        );
        assert_eq!(read("no_such_sysctl"), None);
    }
}
