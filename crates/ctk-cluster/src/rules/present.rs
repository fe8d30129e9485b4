//! Checks with the kernel whether this network namespace can hold rules, and whether they changed since a reading. Running the
//! tools takes ten times as long as a small listing, and most machines that are no node have no rules.

use std::fs;
use std::io;

use super::nf_tables;

/// Returns false only where the namespace of the calling thread certainly has no tables of nftables (those of iptables-nft
/// included), no nat table of iptables-legacy, and no IPVS.
pub fn can_be() -> bool {
    let balanced = match proc_net("ip_vs") {
        // The title is present without any server.
        Ok(text) => text.lines().nth(3).is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    balanced || has_legacy() || nf_tables::tables().map_or(true, |tables| !tables.is_empty())
}

/// State of the rules, which is compared with a later one without running a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Generation of nf_tables; `None` in a kernel without it.
    generation: Option<u32>,
    /// Servers of IPVS and their weights, without the counters.
    servers: Vec<String>,
}

impl Revision {
    /// Reads the state of the calling thread's namespace. `None` where changes are not detectable: iptables-legacy counts none.
    pub fn now() -> Option<Self> {
        if has_legacy() {
            return None;
        }
        let servers = match proc_net("ip_vs") {
            Ok(text) => servers(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(_) => return None,
        };
        Some(Revision {
            generation: nf_tables::generation().ok()?,
            servers,
        })
    }
}

/// Lines of `/proc/net/ip_vs`. Servers (`->`) keep address, method and weight only, because their connection counts always change.
fn servers(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| {
        let words = line.split_whitespace();
        let kept = match line.trim_start().starts_with("->") {
            true => 4,
            false => usize::MAX,
        };
        words.take(kept).collect::<Vec<_>>().join(" ")
    });
    lines.collect()
}

/// Reports whether iptables-legacy has a nat table, or that is unknown.
fn has_legacy() -> bool {
    ["ip_tables_names", "ip6_tables_names"]
        .into_iter()
        .any(|name| match proc_net(name) {
            Ok(text) => text.lines().any(|table| table == "nat"),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        })
}

/// Path for the namespace of the calling thread; `/proc/net` is that of the first thread of the process.
pub(super) fn proc_net(name: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/thread-self/net/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_weight_changes_the_ipvs_state_and_a_connection_count_does_not() {
        let text = |weight: u32, connections: u32| {
            format!(
                "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
UDP  0A60000A:0035 rr
  -> 0AF40107:0035      Masq    {weight}      {connections}          7
"
            )
        };
        assert_eq!(servers(&text(1, 0)), servers(&text(1, 90)));
        assert_ne!(servers(&text(1, 0)), servers(&text(0, 0)));
        assert_ne!(
            servers(&text(1, 0)),
            servers(&text(1, 0).replace("0107", "0108"))
        );
    }
}
