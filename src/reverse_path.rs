//! Reverse-path filter: it drops packets that arrive on an interface other than the one that answers would leave by. This
//! happens before the entry is confirmed, so that dropped packets leave no entry in the table.

use std::collections::HashSet;
use std::fs;
use std::net::IpAddr;

use crate::stat::counters::Counters;
use crate::stat::proc_file;
use crate::sysctl;
use ctnetlink::netns::{Netns, NetnsError};
use ctnetlink::rtnetlink;

const CONF: &str = "/proc/sys/net/ipv4/conf";

/// Reverse-path filters of a namespace. A value that could not be read is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReversePathFilter {
    /// Every interface but loopback.
    pub interfaces: Vec<Interface>,
    /// Packets dropped since the namespace was made (`IPReversePathFilter` of /proc/net/netstat).
    pub filtered: Option<u64>,
    /// Packets with an impossible source since the machine started, in all namespaces (`in_martian_src` of rt_cache).
    pub martian_src: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Effective value: the larger one of its own and that of `all`. 0 is off, 1 strict, 2 loose.
    pub rp_filter: u64,
    /// On an interface without an IPv4 address, loose acts like strict (`__fib_validate_source` of net/ipv4/fib_frontend.c).
    /// `None` if addresses are not known.
    pub has_ipv4: Option<bool>,
}

impl Interface {
    /// Whether a packet whose answer would leave by another interface is dropped.
    pub fn is_strict(&self) -> bool {
        match self.rp_filter {
            1 => true,
            2 => self.has_ipv4 == Some(false),
            _ => false,
        }
    }
}

/// Reads the filters of a namespace.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered.
pub fn read(netns: &Netns) -> Result<ReversePathFilter, NetnsError> {
    let addresses = rtnetlink::local_addresses(netns).ok();
    let with_ipv4: Option<HashSet<String>> = addresses.map(|all| {
        let ipv4 = all
            .into_iter()
            .filter(|address| matches!(address.address(), IpAddr::V4(_)));
        ipv4.map(|address| address.interface).collect()
    });
    netns.run(|| {
        let all = setting("all").unwrap_or(0);
        let folders = fs::read_dir(CONF).into_iter().flatten().flatten();
        let names = folders.filter_map(|folder| folder.file_name().into_string().ok());
        let names = names.filter(|name| !matches!(name.as_str(), "all" | "default" | "lo"));
        let interfaces = names.filter_map(|name| {
            Some(Interface {
                rp_filter: setting(&name)?.max(all),
                has_ipv4: with_ipv4.as_ref().map(|with| with.contains(&name)),
                name,
            })
        });
        let mut interfaces: Vec<_> = interfaces.collect();
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        ReversePathFilter {
            interfaces,
            filtered: proc_net("netstat").and_then(|text| filtered(&text)),
            martian_src: proc_net("stat/rt_cache").and_then(|text| martian_src(&text)),
        }
    })
}

fn setting(interface: &str) -> Option<u64> {
    sysctl::read_number(&format!("{CONF}/{interface}/rp_filter"))
}

/// A file of /proc/net in the calling thread's namespace.
fn proc_net(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok()
}

/// `IPReversePathFilter` of netstat, which has a line of names and one of values for each group.
fn filtered(netstat: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut columns = names.split_whitespace().zip(values.split_whitespace());
    columns
        .find(|(name, _)| *name == "IPReversePathFilter")
        .and_then(|(_, value)| value.parse().ok())
}

/// `in_martian_src` of rt_cache, which has the format of conntrack's file of counters.
fn martian_src(rt_cache: &str) -> Option<u64> {
    Counters::from_iter(&proc_file::parse(rt_cache)?).get("in_martian_src")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loose_filter_is_strict_on_an_interface_without_address() {
        for (rp_filter, has_ipv4, strict) in [
            (0, Some(false), false),
            (1, Some(true), true),
            (1, None, true),
            (2, Some(true), false),
            (2, Some(false), true),
            (2, None, false),
        ] {
            let interface = Interface {
                name: "eth0".to_owned(),
                rp_filter,
                has_ipv4,
            };
            assert_eq!(interface.is_strict(), strict, "{interface:?}");
        }
    }

    #[test]
    fn counters_are_found_by_their_names() {
        let netstat = "TcpExt: SyncookiesSent IPReversePathFilter TCPTimeWaitOverflow\nTcpExt: 1 12 3\n\
                       IpExt: InNoRoutes InTruncatedPkts\nIpExt: 0 0\n";
        assert_eq!(filtered(netstat), Some(12));
        assert_eq!(filtered("TcpExt: SyncookiesSent\nTcpExt: 1\n"), None);
        assert_eq!(filtered(""), None);
        let rt_cache = "entries  in_hit in_slow_tot in_martian_dst in_martian_src\n\
                        00000000  00000000 0000000a 00000001 00000010\n00000000  00000000 00000003 00000000 00000001\n";
        assert_eq!(martian_src(rt_cache), Some(17));
        assert_eq!(martian_src("odd\n"), None);
    }
}
