//! The youth of entries, by times that are told.

use super::*;
use crate::attribution::FrontendMatch;
use crate::this_node::{NetnsOwner, ThisNode};
use crate::verdict::{Judge, Reason};
use ctk_cluster::index::Index;
use ctk_cluster::testing::world;
use ctnetlink::flow::{Flow, L4, Status, Tuple};

const SECOND: u64 = 1_000_000_000;

/// A flow of this client port to an endpoint that nobody lists.
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

fn key(port: u16) -> Key {
    let flow = flow(port);
    (flow.zone, flow.original)
}

struct Stage {
    index: Index,
    young: FreshnessGuard,
}

impl Stage {
    fn new() -> Self {
        let lines = [
            "node n 192.168.7.1",
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.1.8(ready)@n->coredns-8",
        ];
        let mut young = FreshnessGuard {
            is_followed: true,
            ..FreshnessGuard::default()
        };
        young.looked();
        let index = world(&lines);
        Stage { index, young }
    }

    /// What is judged by is true as of this second.
    fn as_of(&mut self, second: u64) {
        let time = UNIX_EPOCH + Duration::from_secs(second);
        self.young.mark_time(Some(time));
    }

    fn made(&mut self, port: u16, second: u64) {
        self.young.note(key(port), second * SECOND);
    }

    /// The verdict of an entry that is seen in this second.
    fn judged(&mut self, port: u16, enters: bool, second: u64) -> Reason {
        self.told(port, enters, second).expect("a verdict")
    }

    /// The same; `None` where it is not to be told yet.
    fn told(&mut self, port: u16, enters: bool, second: u64) -> Option<Reason> {
        let node = ThisNode {
            name: None,
            local: None,
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
        let told = self.young.correct(&mut entry, enters, || second * SECOND);
        told.then(|| entry.judgement.unwrap().reason)
    }
}

const OPEN: Reason = Reason::SourceIncomplete;
const STALE: Reason = Reason::EndpointGone;

#[test]
fn an_entry_is_young_until_what_is_judged_by_is_true_as_of_later() {
    let mut stage = Stage::new();
    stage.as_of(97);
    stage.made(1, 100);
    assert_eq!(stage.judged(1, true, 100), OPEN);
    // Time goes on; what is judged by does not.
    assert_eq!(stage.judged(1, false, 110), OPEN);
    assert_eq!(stage.young.due(), Due::Nothing);
    stage.as_of(100);
    assert_eq!(stage.young.due(), Due::These(vec![key(1)]));
    assert_eq!(stage.judged(1, false, 110), STALE);
    assert_eq!(stage.young.due(), Due::Nothing);
}

#[test]
fn an_entry_that_comes_to_be_selected_later_is_as_young_as_it_is() {
    let mut stage = Stage::new();
    stage.as_of(98);
    stage.made(1, 100);
    // Its NEW was of no interest; it changed.
    assert_eq!(stage.judged(1, true, 101), OPEN);
    stage.as_of(100);
    assert_eq!(stage.young.due(), Due::These(vec![key(1)]));
    // One whose verdict was asked by nobody is not judged again.
    stage.made(2, 103);
    stage.as_of(104);
    assert_eq!(stage.young.due(), Due::Nothing);
}

#[test]
fn what_enters_without_a_word_of_when_it_was_made_is_taken_for_new_once() {
    let mut stage = Stage::new();
    stage.as_of(98);
    assert_eq!(stage.judged(1, false, 100), STALE, "it was there before");
    assert_eq!(stage.judged(2, true, 100), OPEN);
    assert_eq!(stage.judged(2, true, 101), OPEN);
    stage.as_of(100);
    let Due::These(keys) = stage.young.due() else {
        panic!("it is not young any more");
    };
    stage.young.let_in(&keys);
    assert_eq!(stage.judged(2, true, 103), STALE, "the look for it");
    // One that was made since is another one.
    stage.made(2, 103);
    assert_eq!(stage.judged(2, true, 103), OPEN);
}

#[test]
fn at_the_beginning_what_is_there_is_old_unless_the_queue_tells_that_it_was_made() {
    let mut stage = Stage::new();
    stage.young.has_begun = false;
    stage.as_of(98);
    for port in [1, 2] {
        assert_eq!(stage.told(port, true, 99), None, "the queue was not read");
    }
    let unsure = stage.young.take_unsure();
    let looks: Vec<(Key, u64)> = unsure
        .iter()
        .map(|(flow, at)| (key_of(flow), at.as_secs()))
        .collect();
    assert_eq!(looks, [(key(1), 99), (key(2), 99)]);
    stage.made(2, 99);
    assert_eq!(stage.judged(1, true, 100), STALE);
    assert_eq!(stage.judged(2, true, 100), OPEN);
    stage.young.looked();
    stage.as_of(99);
    assert_eq!(stage.young.due(), Due::These(vec![key(2)]));
    assert_eq!(stage.judged(2, false, 103), STALE);
}

#[test]
fn a_file_is_held_against_what_was_made_after_it_and_nothing_else() {
    let mut stage = Stage::new();
    stage.young.is_followed = false;
    stage.as_of(98);
    stage.made(1, 99);
    assert_eq!(stage.judged(1, true, 99), OPEN);
    assert_eq!(stage.judged(1, false, 1000), OPEN, "it is the same file");
    // The file may stay as it is for ever, so what comes without a word is not taken for new.
    assert_eq!(stage.judged(2, true, 99), STALE);
    // A new one.
    stage.as_of(1001);
    assert_eq!(stage.judged(1, false, 1002), STALE);
    // Without a time nothing is too young.
    stage.young.mark_time(None);
    stage.made(3, 1003);
    assert_eq!(stage.judged(3, true, 1003), STALE);
}

#[test]
fn what_ended_is_forgotten_and_what_has_its_place_is_not() {
    let mut stage = Stage::new();
    stage.as_of(98);
    stage.made(1, 99);
    stage.young.forget(&key(1), 98 * SECOND);
    assert_eq!(stage.judged(1, false, 99), OPEN, "an older one ended");
    stage.young.forget(&key(1), 100 * SECOND);
    assert!(stage.young.made.is_empty());
    // Short flows do not fill the memory.
    for number in 0..3 * MOST {
        let mut other = key(1);
        other.1.src = std::net::Ipv4Addr::from(number as u32).into();
        stage.young.note(other, 99 * SECOND);
        stage.young.forget(&other, 99 * SECOND);
    }
    assert!(stage.young.forgotten.is_none());
    assert!(stage.young.order.len() <= MOST);
}

#[test]
fn what_was_too_much_to_remember_is_young_as_the_last_of_it() {
    let mut stage = Stage::new();
    stage.as_of(98);
    for number in 0..MOST {
        let mut other = key(1);
        other.1.src = std::net::Ipv4Addr::from(number as u32).into();
        stage.young.note(other, 100 * SECOND);
    }
    stage.made(1, 102);
    assert_eq!(stage.judged(1, true, 102), OPEN);
    stage.as_of(100);
    assert_eq!(stage.young.due(), Due::Nothing);
    assert_eq!(stage.judged(1, false, 103), OPEN);
    stage.as_of(102);
    assert_eq!(stage.young.due(), Due::All);
    assert_eq!(stage.judged(1, false, 105), STALE);
}
