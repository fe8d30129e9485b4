//! `ctk purge` against the real kernel: it deletes exactly what it says, and says what happened to each.
//!
//! Every test has network namespaces of its own.

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

/// Address of the node that the namespace is made to be.
const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 11));
/// Its object, and that of a neighbour.
const NODES: [&str; 2] = ["node node1 192.0.2.11", "node node2 192.0.2.12"];

/// A cluster file with these objects (see [`shorthand`]), two nodes, and what every cluster has.
fn cluster(lines: &[&str]) -> ClusterFile {
    let all: Vec<&str> = shorthand::API
        .iter()
        .chain(&NODES)
        .chain(lines)
        .copied()
        .collect();
    ClusterFile::of_text(&shorthand::list(&all))
}

/// Moves the calling thread into a new, empty namespace that is node1's.
fn new_node() {
    unshare(CloneFlags::CLONE_NEWNET).expect("one could be made a moment ago");
    ctnetlink::rtnetlink::add_loopback_address(&Netns::current(), NODE)
        .expect("lo takes addresses");
}

/// Arguments of a purge that asks nobody, waits for nothing and does not look again.
fn at_once<'a>(file: &'a ClusterFile, more: &'a str) -> Vec<&'a str> {
    let mut args = vec!["purge", "--cluster", file.path(), "--yes"];
    args.extend(["--settle", "0", "--verify", "0"]);
    args.extend(more.split_whitespace());
    args
}
