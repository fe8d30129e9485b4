//! Fuzz targets: every reader of bytes that this machine's kernel, a cluster or a user supplies.
//!
//! A target is a plain function that panics where one of its invariants does not hold. cargo-fuzz runs it without end
//! (`fuzz_targets`), and `tests/fuzz` of the program runs it on its corpus, on mutations of that, and on inputs that grow.
//!
//! | target | reader | invariants beside "no panic" |
//! |---|---|---|
//! | `entry` | entries, expectations and counters of ctnetlink | every format prints it; the printed item and the encoded request are read back equal |
//! | `events` | datagrams of events, the queue and the view of a watch | every message is an event or unreadable; the queue keeps its bound |
//! | `rules_iptables`, `rules_nft`, `rules_ipvs` | saved rules | equal at the second reading; no change against itself; every verdict is printed |
//! | `cluster` | lists of objects | equal in pieces of any size; every name and verdict is printed |
//! | `watch_stream` | streams of the API | equal in pieces of any size |
//! | `saved_table` | saved entries | printed and read back, an entry is equal |
//! | `undo` | output of a purge as the input of a restore | the request that is sent names the entry of the line |
//! | `selectors` | command lines | an error is printable; filter and selection answer for every entry |
//! | `metrics` | metrics of kube-proxy | none |
#![forbid(unsafe_code)]

mod cluster;
mod entry;
mod events;
mod metrics;
mod print;
mod rules;
mod samples;
mod saved_table;
mod selectors;
mod watch_stream;

/// A target.
pub struct Target {
    /// Name of its folder in `corpus`, and of its program.
    pub name: &'static str,
    /// Runs the reader, and returns the number of things that it read.
    pub body: fn(&[u8]) -> usize,
    /// Make inputs of this many pieces that the reader accepts.
    pub grown: &'static [fn(usize) -> Vec<u8>],
}

/// All targets.
pub const TARGETS: [Target; 11] = [
    target("entry", entry::target, entry::GROWN),
    target("events", events::target, events::GROWN),
    target("rules_iptables", rules::iptables, rules::GROWN_IPTABLES),
    target("rules_nft", rules::nft, rules::GROWN_NFT),
    target("rules_ipvs", rules::ipvs, rules::GROWN_IPVS),
    target("cluster", cluster::target, cluster::GROWN),
    target("watch_stream", watch_stream::target, watch_stream::GROWN),
    target("saved_table", saved_table::target, saved_table::GROWN),
    target("undo", saved_table::undo, saved_table::GROWN_UNDO),
    target("selectors", selectors::target, selectors::GROWN),
    target("metrics", metrics::target, metrics::GROWN),
];

const fn target(
    name: &'static str,
    body: fn(&[u8]) -> usize,
    grown: &'static [fn(usize) -> Vec<u8>],
) -> Target {
    Target { name, body, grown }
}

/// Runs a target on one input.
pub fn run(name: &str, data: &[u8]) -> usize {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| unreachable!("no target {name}"));
    (target.body)(data)
}
