//! Clients whose entries alternate between a dead and a live endpoint while `ctk purge --stale` runs.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ctnetlink::flow::{Direction, Flow};
use ctnetlink::{DeleteTarget, Table};
use rustix::io::Errno;

use crate::{at_once, cluster, new_node};
use testkit::ctk_binary::ctk;
use testkit::private_netns::private_netns;
use testkit::rows::{flow, table};
use testkit::tools::sysctl;

/// Races that one run has at least: planned entries in whose place a new one is found at the delete.
const MIN_RACES: u64 = 1_000;
/// A run that has not enough races by then fails.
const TIMEOUT: Duration = Duration::from_secs(120);
const GROUPS: u16 = 40;
const GROUP_SIZE: u16 = 16;
const DEAD: &str = "10.244.2.9";
const LIVE: &str = "10.244.2.30";

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
        let stop = AtomicBool::new(false);
        let (mut purges, mut totals) = (0, [0; 3]);
        let clients = std::thread::scope(|scope| {
            let clients = scope.spawn(|| alternate(&stop));
            let began = Instant::now();
            while totals[1] < MIN_RACES && began.elapsed() < TIMEOUT && !clients.is_finished() {
                let said = ctk(at_once(&file, "--stale -o json")).exits(0);
                for item in said.items() {
                    assert_eq!(item["reply"]["src"], DEAD, "{item}");
                }
                let summary = &said.json()["summary"];
                for (total, key) in totals
                    .iter_mut()
                    .zip(["deleted", "replaced", "already_gone"])
                {
                    *total += summary[key].as_u64().unwrap();
                }
                purges += 1;
            }
            stop.store(true, Ordering::Relaxed);
            clients.join().expect("the clients run to their end")
        });
        let [deleted, replaced, already_gone] = totals;
        eprintln!(
            "{purges} purges: {deleted} deleted, {replaced} replaced, {already_gone} already gone; {} dead and {} live entries \
             made, {} live ones lost",
            clients.dead, clients.live, clients.live_lost
        );
        assert_eq!(clients.live_lost, 0, "live entries were deleted");
        assert!(replaced >= MIN_RACES, "only {replaced} races were run");
        assert!(deleted > 0, "no entry was deleted");
    });
}

/// Entries that the clients made, and live ones that were gone when their client came back to them.
#[derive(Default)]
struct Alternation {
    dead: u64,
    live: u64,
    live_lost: u64,
}

/// Replaces the entries of one group after the other by entries to the other endpoint, until `stop`.
fn alternate(stop: &AtomicBool) -> Alternation {
    let mut table = table();
    let mut counts = Alternation::default();
    let mut groups: Vec<Vec<Flow>> = (0..GROUPS).map(|group| flows(group, DEAD)).collect();
    for group in &groups {
        make(&mut table, group, &mut counts);
    }
    'all: loop {
        for (number, group) in (0..).zip(&mut groups) {
            if stop.load(Ordering::Relaxed) {
                break 'all;
            }
            let live = is_live(group);
            counts.live_lost += end(&mut table, group);
            *group = flows(number, if live { DEAD } else { LIVE });
            make(&mut table, group, &mut counts);
        }
    }
    for group in &groups {
        counts.live_lost += end(&mut table, group);
    }
    counts
}

fn flows(group: u16, endpoint: &str) -> Vec<Flow> {
    let first = 40_000 + group * GROUP_SIZE;
    let ports = first..first + GROUP_SIZE;
    let lines = ports.map(|port| {
        format!(
            "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport={port} dport=53 [ASSURED] src={endpoint} dst=10.244.1.5 sport=53 dport={port}"
        )
    });
    lines.map(|line| flow(&line)).collect()
}

fn is_live(group: &[Flow]) -> bool {
    let live: IpAddr = LIVE.parse().expect("an address");
    group.iter().all(|flow| flow.reply.src == live)
}

fn make(table: &mut Table, group: &[Flow], counts: &mut Alternation) {
    assert!(table.insert_all(group).iter().all(Result::is_ok));
    let count = match is_live(group) {
        true => &mut counts.live,
        false => &mut counts.dead,
    };
    *count += group.len() as u64;
}

/// Deletes the entries of a group; gives the number of live ones that were not there any more.
fn end(table: &mut Table, group: &[Flow]) -> u64 {
    let keys = group
        .iter()
        .map(|flow| (&flow.original, Direction::Original, flow.zone));
    let found = table.get_all(keys);
    let found: Vec<Flow> = found.into_iter().filter_map(|one| one.unwrap()).collect();
    let targets: Vec<DeleteTarget> = found.iter().filter_map(DeleteTarget::of).collect();
    let answers = table.delete(&targets);
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Ok(()) | Err(Errno::NOENT))),
        "{answers:?}"
    );
    let ended = answers.iter().filter(|answer| answer.is_ok()).count();
    match is_live(group) {
        true => (group.len() - ended) as u64,
        false => 0,
    }
}
