//! Whether this network namespace can hold rules at all, and whether they are still those that were read, asked of the
//! kernel: running the tools takes ten times as long as a small listing, and most machines that are no node have nothing to
//! show.

use std::fs;
use std::io;

use super::nf_tables;

/// False only where it is certain that there are neither tables of nftables (iptables-nft's among them), nor a nat table of
/// iptables-legacy, nor IPVS. Of the calling thread's namespace.
pub fn can_be() -> bool {
    let balanced = match proc_net("ip_vs") {
        // The title is there without any server.
        Ok(text) => text.lines().nth(3).is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    balanced || has_legacy() || nf_tables::tables().map_or(true, |tables| !tables.is_empty())
}

/// A state of the rules that can be compared with a later one without running a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Of nf_tables; `None` in a kernel without.
    generation: Option<u32>,
    /// Servers of IPVS and their weights, without the counters.
    servers: Vec<String>,
}

impl Revision {
    /// The present one, of the calling thread's namespace. `None` where changes cannot be told: iptables-legacy counts none.
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

/// Lines of `/proc/net/ip_vs`; of servers (`->`) address, method and weight: the connections behind them always change.
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

/// iptables-legacy has a nat table, or it is not known.
fn has_legacy() -> bool {
    ["ip_tables_names", "ip6_tables_names"]
        .into_iter()
        .any(|name| match proc_net(name) {
            Ok(text) => text.lines().any(|table| table == "nat"),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        })
}

/// Of the calling thread's namespace; `/proc/net` is that of the process's first thread.
pub(super) fn proc_net(name: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/thread-self/net/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_ipvs_do_not_change_its_servers_and_weights_do() {
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
