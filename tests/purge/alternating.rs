//! Clients whose entries alternate between a dead and a live endpoint while `ctk purge --stale` runs.

use std::time::Duration;

use crate::{cluster, new_node};
use testkit::alternating::{LIVE, race};
use testkit::private_netns::private_netns;
use testkit::tools::sysctl;

/// Races that one run has at least: planned entries in whose place a new one is found at the delete.
const MIN_RACES: u64 = 1_000;
/// A run that has not enough races by then fails.
const TIMEOUT: Duration = Duration::from_secs(120);

#[test]
fn a_purge_deletes_no_live_entry_of_clients_that_alternate_between_endpoints() {
    private_netns(|| {
        new_node();
        // Without start times an entry may be older than the cluster file, so that its verdict is not open.
        sysctl("timestamp", "0");
        let file = cluster(&[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            &format!("slice kube-system/kube-dns dns:53/UDP {LIVE}(ready)"),
        ]);
        let race = race(&["--cluster", file.path()], TIMEOUT, |race| {
            race.replaced >= MIN_RACES
        });
        eprintln!(
            "{} purges: {} deleted, {} replaced, {} already gone; {} dead and {} live entries made, {} live ones lost",
            race.purges,
            race.deleted,
            race.replaced,
            race.already_gone,
            race.clients.dead,
            race.clients.live,
            race.clients.live_lost
        );
        assert_eq!(race.clients.live_lost, 0, "live entries were deleted");
        assert!(
            race.replaced >= MIN_RACES,
            "only {} races were run",
            race.replaced
        );
        assert!(race.deleted > 0, "no entry was deleted");
    });
}
