//! `ctk doctor` on the real kernel: faults are found with their numbers, and a healthy node has no finding above info.
//!
//! Every test has network namespaces of its own.

mod alarms;
mod cases;
mod found;
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

/// Node of the test and its neighbour.
const NODES: [&str; 2] = [
    "node node1 192.0.2.11 podCIDR=10.244.1.0/24",
    "node node2 192.0.2.12 podCIDR=10.244.2.0/24",
];

/// Cluster file with these objects (see [`shorthand`]), two nodes, and the objects of every cluster.
fn cluster<L: AsRef<str>>(lines: &[L]) -> ClusterFile {
    let lines = lines.iter().map(AsRef::as_ref);
    let all: Vec<&str> = shorthand::API
        .into_iter()
        .chain(NODES)
        .chain(lines)
        .collect();
    ClusterFile::of_text(&shorthand::list(&all))
}

/// Moves the calling thread into a new, empty namespace that belongs to node1.
fn new_node() {
    unshare(CloneFlags::CLONE_NEWNET).expect("one could be made a moment ago");
    lab::add_node_address();
}

/// Runs `ctk doctor -o json` with this cluster and these flags.
fn doctor(file: &ClusterFile, more: &str) -> Outcome {
    let mut args = vec!["doctor", "--cluster", file.path(), "-o", "json"];
    args.extend(more.split_whitespace());
    ctk(args)
}

/// Findings except those about the settings of a new namespace.
#[track_caller]
fn findings_except_settings(outcome: &Outcome) -> Vec<Value> {
    let mut items = outcome.items();
    items.retain(|item| item["check"] != "settings");
    items
}

/// Findings of one check.
#[track_caller]
fn findings_of(outcome: &Outcome, check: &str) -> Vec<Value> {
    let mut items = outcome.items();
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
fn only_finding(outcome: &Outcome, check: &str) -> Value {
    let found = findings_of(outcome, check);
    assert_eq!(found.len(), 1, "{check}: {outcome:#?}");
    found[0].clone()
}
