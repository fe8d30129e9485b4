//! `ctk purge` on the real kernel: it deletes exactly what it announces and reports the result for each entry.
//!
//! Every test has network namespaces of its own.

mod alternating;
mod cases;
mod incident;
mod output;
mod plain;
mod prompt;
mod races;
mod range;
mod refused;
mod second_look;
mod started;
mod zones;

use ctk_cluster::testing as shorthand;
use std::net::{IpAddr, Ipv4Addr};

use ctnetlink::netns::Netns;
use nix::sched::{CloneFlags, unshare};
use testkit::lab::cluster::ClusterFile;

/// Address of the node that owns the namespace.
const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 11));
/// Node object, and that of a neighbour.
const NODES: [&str; 2] = ["node node1 192.0.2.11", "node node2 192.0.2.12"];

/// Cluster file with these objects (see [`shorthand`]), two nodes, and the objects of every cluster.
fn cluster(lines: &[&str]) -> ClusterFile {
    let all: Vec<&str> = shorthand::API
        .iter()
        .chain(&NODES)
        .chain(lines)
        .copied()
        .collect();
    ClusterFile::of_text(&shorthand::list(&all))
}

/// Moves the calling thread into a new, empty namespace that belongs to node1.
fn new_node() {
    unshare(CloneFlags::CLONE_NEWNET).expect("one could be made a moment ago");
    ctnetlink::rtnetlink::add_loopback_address(&Netns::current(), NODE)
        .expect("lo takes addresses");
}

/// Arguments of a purge without questions, waits and verification.
fn at_once<'a>(file: &'a ClusterFile, more: &'a str) -> Vec<&'a str> {
    let mut args = vec!["purge", "--cluster", file.path(), "--yes"];
    args.extend(["--settle", "0", "--verify", "0"]);
    args.extend(more.split_whitespace());
    args
}
