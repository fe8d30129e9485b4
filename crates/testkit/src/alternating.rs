//! Clients whose entries alternate between a dead and a live endpoint while `ctk purge --stale` runs.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ctnetlink::flow::{Direction, Flow};
use ctnetlink::{DeleteTarget, Table};
use rustix::io::Errno;

use crate::ctk_binary::ctk;
use crate::rows::{flow, table};

const GROUPS: u16 = 40;
const GROUP_SIZE: u16 = 16;
const DEAD: &str = "10.244.2.9";
/// The only endpoint of the Service at 10.96.0.10.
pub const LIVE: &str = "10.244.2.30";

/// Result of [`race`].
pub struct Race {
    pub purges: u32,
    pub deleted: u64,
    /// Planned entries in whose place a new one was found at the delete.
    pub replaced: u64,
    pub already_gone: u64,
    pub clients: Alternation,
}

/// Repeats purges with this cluster source (arguments) until `enough` or until the time is over, in the network namespace of the calling thread. Every
/// entry that a purge reports must lead to the dead endpoint.
pub fn race(source: &[&str], timeout: Duration, enough: impl Fn(&Race) -> bool) -> Race {
    let stop = AtomicBool::new(false);
    let mut race = Race {
        purges: 0,
        deleted: 0,
        replaced: 0,
        already_gone: 0,
        clients: Alternation::default(),
    };
    let mut args = vec!["purge", "--yes", "--settle", "0", "--verify", "0"];
    args.extend(["--stale", "-o", "json"]);
    args.extend(source);
    race.clients = std::thread::scope(|scope| {
        let clients = scope.spawn(|| alternate(&stop));
        let began = Instant::now();
        while !enough(&race) && began.elapsed() < timeout && !clients.is_finished() {
            let said = ctk(&args).exits(0);
            for item in said.items() {
                assert_eq!(item["reply"]["src"], DEAD, "{item}");
            }
            let summary = &said.json()["summary"];
            let number = |key: &str| summary[key].as_u64().unwrap();
            race.deleted += number("deleted");
            race.replaced += number("replaced");
            race.already_gone += number("already_gone");
            race.purges += 1;
        }
        stop.store(true, Ordering::Relaxed);
        clients.join().expect("the clients run to their end")
    });
    race
}

/// Entries that the clients made, and live ones that were gone when their client came back to them.
#[derive(Default)]
pub struct Alternation {
    /// Entries that were made to the dead endpoint.
    pub dead: u64,
    pub live: u64,
    /// Entries to the live endpoint that somebody else deleted.
    pub live_lost: u64,
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
