//! `ctk doctor` against the real kernel: what is wrong is found with its numbers, and a healthy node has nothing above info.
//!
//! Every test has network namespaces of its own.

mod alarms;
mod cases;
mod healthy;
mod packets;
mod status;

use ctk_cluster::testing as shorthand;
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use testkit::ctk_binary::ctk;
use testkit::lab;
use testkit::lab::cluster::ClusterFile;
use testkit::tools::Outcome;

/// This node and a neighbour.
const NODES: [&str; 2] = [
    "node node1 192.0.2.11 podCIDR=10.244.1.0/24",
    "node node2 192.0.2.12 podCIDR=10.244.2.0/24",
];

/// A cluster file with these objects (see [`shorthand`]), two nodes, and what every cluster has.
fn cluster<L: AsRef<str>>(lines: &[L]) -> ClusterFile {
    let lines = lines.iter().map(AsRef::as_ref);
    let all: Vec<&str> = shorthand::API
        .into_iter()
        .chain(NODES)
        .chain(lines)
        .collect();
    ClusterFile::of_text(&shorthand::list(&all))
}

/// Moves the calling thread into a new, empty namespace that is node1's.
fn new_node() {
    unshare(CloneFlags::CLONE_NEWNET).expect("one could be made a moment ago");
    lab::be_the_node();
}

/// Runs `ctk doctor -o json` with this cluster and these flags.
fn doctor(file: &ClusterFile, more: &str) -> Outcome {
    let mut args = vec!["doctor", "--cluster", file.path(), "-o", "json"];
    args.extend(more.split_whitespace());
    ctk(args)
}

/// Findings beside those of what the settings of a new namespace hide.
#[track_caller]
fn beside_settings(said: &Outcome) -> Vec<Value> {
    let mut items = said.items();
    items.retain(|item| item["check"] != "settings");
    items
}

/// Findings of one check.
#[track_caller]
fn of(said: &Outcome, check: &str) -> Vec<Value> {
    let mut items = said.items();
    items.retain(|item| item["check"] == check);
    for item in &items {
        assert!(
            item["message"]
                .as_str()
                .is_some_and(|m| m.contains(|c: char| c.is_ascii_digit())),
            "no number: {item}"
        );
        assert!(
            item["evidence"].as_object().is_some_and(|e| !e.is_empty()),
            "no evidence: {item}"
        );
    }
    items
}

/// The only finding of one check.
#[track_caller]
fn only(said: &Outcome, check: &str) -> Value {
    let found = of(said, check);
    assert_eq!(found.len(), 1, "{check}: {said:#?}");
    found[0].clone()
}
