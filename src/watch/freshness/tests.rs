//! Entries that are too young for the cluster source, by given times.

use super::*;
use crate::attribution::FrontendMatch;
use crate::this_node::{NetnsOwner, ThisNode};
use crate::verdict::{Judge, Reason};
use ctk_cluster::index::Index;
use ctk_cluster::testing::world;
use ctnetlink::flow::{Flow, L4, Status, Tuple};

const SECOND: u64 = 1_000_000_000;

/// A flow from this client port to an endpoint that no slice lists.
fn flow(port: u16) -> Flow {
    let tuple = |src: [u8; 4], sport, dst: [u8; 4], dport| Tuple {
        src: src.into(),
        dst: dst.into(),
        protocol: 17,
        l4: L4::Ports {
            src: sport,
            dst: dport,
        },
    };
    let client = [10, 244, 2, 9];
    let mut flow = Flow::new(
        tuple(client, port, [10, 96, 0, 10], 53),
        tuple([10, 244, 1, 7], 53, client, port),
    );
    flow.status = Status::CONFIRMED;
    flow
}

fn key(port: u16) -> FlowKey {
    let flow = flow(port);
    (flow.zone, flow.original)
}

struct Fixture {
    index: Index,
    guard: FreshnessGuard,
}

impl Fixture {
    fn new() -> Self {
        let lines = [
            "node n 192.168.7.1",
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.1.8(ready)@n->coredns-8",
        ];
        let mut guard = FreshnessGuard::default();
        guard.record_complete_look();
        let index = world(&lines);
        Fixture { index, guard }
    }

    /// Sets a followed source that is true as of this second.
    fn follow(&mut self, second: u64) {
        let source = SourceFreshness::FollowedUntil(second * SECOND);
        self.guard.set_source(source);
    }

    /// Sets a source that was read in this second.
    fn read(&mut self, second: u64) {
        self.guard
            .set_source(SourceFreshness::ReadAt(second * SECOND));
    }

    fn create(&mut self, port: u16, second: u64) {
        self.guard.record_creation(key(port), second * SECOND);
    }

    /// Reason of the verdict on an entry that is seen in this second.
    fn judge(&mut self, port: u16, enters: bool, second: u64) -> Reason {
        self.shown(port, enters, second).expect("a verdict")
    }

    /// The same; `None` for an entry that must not be shown yet.
    fn shown(&mut self, port: u16, enters: bool, second: u64) -> Option<Reason> {
        let node = ThisNode {
            name: None,
            local: None,
            routes: None,
            namespace: NetnsOwner::Node,
        };
        let mut entry = Entry::bare(flow(port));
        let matched = FrontendMatch::of(&entry.flow, &self.index, &node);
        let judge = Judge {
            index: Some(&self.index),
            rules: None,
            node: &node,
            kube_proxy_replacement: None,
            zones: &[],
            source_time: None,
        };
        entry.judgement = judge.judge(&entry.flow, matched);
        assert_eq!(entry.judgement.unwrap().verdict(), Verdict::Stale);
        let enters = enters.then_some(Duration::from_secs(second));
        let is_shown = self.guard.hold_back(&mut entry, enters, || second * SECOND);
        is_shown.then(|| entry.judgement.unwrap().reason)
    }
}

#[test]
fn a_source_covers_entries_that_were_created_up_to_its_time() {
    let at = |second| UNIX_EPOCH + Duration::from_secs(second);
    let settle = DEFAULT_SETTLE;
    let before_epoch = UNIX_EPOCH.checked_sub(Duration::from_secs(1));
    // (freshness, created in this second, covered)
    for (source, created, expected) in [
        (SourceFreshness::Unknown, 100, true),
        (SourceFreshness::of_reading(None), 100, true),
        (SourceFreshness::of_reading(before_epoch), 100, true),
        (SourceFreshness::of_reading(Some(at(100))), 99, true),
        (SourceFreshness::of_reading(Some(at(100))), 100, true),
        (SourceFreshness::of_reading(Some(at(100))), 101, false),
        // A followed source lies its delay and the settle time behind.
        (
            SourceFreshness::of_following(at(103) + settle, Duration::from_secs(3)),
            100,
            true,
        ),
        (
            SourceFreshness::of_following(at(103) + settle, Duration::from_secs(3)),
            101,
            false,
        ),
        (
            SourceFreshness::of_following(at(103), Duration::from_secs(3)),
            100,
            settle.is_zero(),
        ),
        (
            SourceFreshness::of_following(at(1), Duration::from_secs(3)),
            100,
            true,
        ),
    ] {
        assert_eq!(
            source.covers(created * SECOND),
            expected,
            "{source:?} {created}"
        );
    }
    let read = SourceFreshness::of_reading(Some(at(100)));
    assert_eq!(read.time(), Some(at(100)));
}

const OPEN: Reason = Reason::SourceIncomplete;
const STALE: Reason = Reason::EndpointGone;

#[test]
fn an_entry_is_not_stale_before_the_source_covers_its_creation() {
    let mut fixture = Fixture::new();
    fixture.follow(97);
    fixture.create(1, 100);
    assert_eq!(fixture.judge(1, true, 100), OPEN);
    // Time passes, and the source stays as it is.
    assert_eq!(fixture.judge(1, false, 110), OPEN);
    assert_eq!(fixture.guard.take_settled(), Settled::None);
    fixture.follow(100);
    assert_eq!(fixture.guard.take_settled(), Settled::Entries(vec![key(1)]));
    assert_eq!(fixture.judge(1, false, 110), STALE);
    assert_eq!(fixture.guard.take_settled(), Settled::None);
}

#[test]
fn an_entry_that_is_selected_later_keeps_its_time_of_creation() {
    let mut fixture = Fixture::new();
    fixture.follow(98);
    fixture.create(1, 100);
    // It did not match at its NEW, and matches since a change.
    assert_eq!(fixture.judge(1, true, 101), OPEN);
    fixture.follow(100);
    assert_eq!(fixture.guard.take_settled(), Settled::Entries(vec![key(1)]));
    // An entry that was never judged is not judged again.
    fixture.create(2, 103);
    fixture.follow(104);
    assert_eq!(fixture.guard.take_settled(), Settled::None);
}

#[test]
fn an_entry_without_a_new_event_is_taken_for_new_once() {
    let mut fixture = Fixture::new();
    fixture.follow(98);
    assert_eq!(
        fixture.judge(1, false, 100),
        STALE,
        "it was in the view before"
    );
    assert_eq!(fixture.judge(2, true, 100), OPEN);
    assert_eq!(fixture.judge(2, true, 101), OPEN);
    fixture.follow(100);
    let Settled::Entries(keys) = fixture.guard.take_settled() else {
        panic!("the source covers it");
    };
    fixture.guard.mark_settled(&keys);
    assert_eq!(
        fixture.judge(2, true, 103),
        STALE,
        "the look that settles it"
    );
    // A later creation is another entry.
    fixture.create(2, 103);
    assert_eq!(fixture.judge(2, true, 103), OPEN);
}

#[test]
fn an_entry_of_the_first_look_is_old_unless_its_new_event_waits_in_the_queue() {
    let mut fixture = Fixture::new();
    fixture.guard = FreshnessGuard::default();
    fixture.follow(98);
    for port in [1, 2] {
        assert_eq!(
            fixture.shown(port, true, 99),
            None,
            "the queue was not read yet"
        );
    }
    let unsure = fixture.guard.take_unsure();
    let looks: Vec<(FlowKey, u64)> = unsure
        .iter()
        .map(|(flow, at)| (key_of(flow), at.as_secs()))
        .collect();
    assert_eq!(looks, [(key(1), 99), (key(2), 99)]);
    fixture.create(2, 99);
    assert_eq!(fixture.judge(1, true, 100), STALE);
    assert_eq!(fixture.judge(2, true, 100), OPEN);
    fixture.guard.record_complete_look();
    fixture.follow(99);
    assert_eq!(fixture.guard.take_settled(), Settled::Entries(vec![key(2)]));
    assert_eq!(fixture.judge(2, false, 103), STALE);
}

#[test]
fn a_file_holds_back_only_entries_that_were_created_after_it() {
    let mut fixture = Fixture::new();
    fixture.read(98);
    fixture.create(1, 99);
    assert_eq!(fixture.judge(1, true, 99), OPEN);
    assert_eq!(fixture.judge(1, false, 1000), OPEN, "it is the same file");
    // The file may never change again, so an entry without a NEW event is not taken for new.
    assert_eq!(fixture.judge(2, true, 99), STALE);
    // A newer file.
    fixture.read(1001);
    assert_eq!(fixture.judge(1, false, 1002), STALE);
    // A source without a time covers every entry.
    fixture.guard.set_source(SourceFreshness::Unknown);
    fixture.create(3, 1003);
    assert_eq!(fixture.judge(3, true, 1003), STALE);
}

#[test]
fn an_ended_entry_is_forgotten_and_its_successor_is_not() {
    let mut fixture = Fixture::new();
    fixture.follow(98);
    fixture.create(1, 99);
    fixture.guard.record_end(&key(1), 98 * SECOND);
    assert_eq!(fixture.judge(1, false, 99), OPEN, "an older entry ended");
    fixture.guard.record_end(&key(1), 100 * SECOND);
    assert!(fixture.guard.creations.is_empty());
    // Short flows do not exhaust the bound.
    for number in 0..3 * MAX_CREATIONS {
        let mut other = key(1);
        other.1.src = std::net::Ipv4Addr::from(number as u32).into();
        fixture.guard.record_creation(other, 99 * SECOND);
        fixture.guard.record_end(&other, 99 * SECOND);
    }
    assert!(fixture.guard.overflow.is_none());
    assert!(fixture.guard.order.len() <= MAX_CREATIONS);
}

#[test]
fn an_entry_beyond_the_bound_is_as_young_as_the_last_one_beyond_it() {
    let mut fixture = Fixture::new();
    fixture.follow(98);
    for number in 0..MAX_CREATIONS {
        let mut other = key(1);
        other.1.src = std::net::Ipv4Addr::from(number as u32).into();
        fixture.guard.record_creation(other, 100 * SECOND);
    }
    fixture.create(1, 102);
    assert_eq!(fixture.judge(1, true, 102), OPEN);
    fixture.follow(100);
    assert_eq!(fixture.guard.take_settled(), Settled::None);
    assert_eq!(fixture.judge(1, false, 103), OPEN);
    fixture.follow(102);
    assert_eq!(fixture.guard.take_settled(), Settled::All);
    assert_eq!(fixture.judge(1, false, 105), STALE);
}
