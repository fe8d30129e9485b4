//! Deletes that race with new entries: clients replace their entries to a dead endpoint by entries to a live one, and back, as fast as
//! the kernel allows, while `ctk purge --stale` repeats. No entry to the live endpoint may be deleted.
//!
//! `cargo bench --bench raced [-- RACES]` (default 100,000 entries that were deleted or replaced under a purge; several minutes).
//! Runs in a network namespace of its own, so it needs root.

use std::time::{Duration, Instant};

use ctk_cluster::testing as shorthand;
use ctnetlink::netns::Netns;
use testkit::alternating::{LIVE, race};
use testkit::bench::{enter_netns, number_argument};
use testkit::lab::cluster::ClusterFile;
use testkit::tools::sysctl;

const NODE: &str = "192.0.2.11";
const TIMEOUT: Duration = Duration::from_secs(3600);

fn main() {
    let races = u64::from(number_argument().unwrap_or(100_000));
    if !enter_netns() {
        return;
    }
    ctnetlink::rtnetlink::add_loopback_address(
        &Netns::current(),
        NODE.parse().expect("an address"),
    )
    .expect("lo takes addresses");
    // Without start times an entry may be older than the cluster file, so that its verdict is not open.
    sysctl("timestamp", "0");
    let slice = format!("slice kube-system/kube-dns dns:53/UDP {LIVE}(ready)");
    let cluster = [
        "node node1 192.0.2.11",
        "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
        &slice,
    ];
    let lines: Vec<&str> = shorthand::API.iter().chain(&cluster).copied().collect();
    let file = ClusterFile::of_text(&shorthand::list(&lines));
    let began = Instant::now();
    let race = race(&file, TIMEOUT, |race| race.deleted + race.replaced >= races);
    println!(
        "{} purges in {:.0?}: {} deleted, {} replaced before their delete and left, {} already gone",
        race.purges,
        began.elapsed(),
        race.deleted,
        race.replaced,
        race.already_gone
    );
    println!(
        "{} entries to the dead endpoint and {} to the live one made; {} live ones deleted",
        race.clients.dead, race.clients.live, race.clients.live_lost
    );
    assert!(
        race.deleted + race.replaced >= races,
        "too few races in {TIMEOUT:?}"
    );
    assert_eq!(race.clients.live_lost, 0, "live entries were deleted");
}
