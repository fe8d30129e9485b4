//! The youth of entries, by times that are told.

use super::*;
use crate::cluster::index::Index;
use crate::cluster::testing::world;
use crate::flow::{Flow, L4, Status, Tuple};
use crate::label::Matched;
use crate::verdict::{Judge, Namespace, Reason, ThisNode};

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
    young: Young,
}

impl Stage {
    fn new() -> Self {
        let lines = [
            "node n 192.168.7.1",
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.1.8(ready)@n->coredns-8",
        ];
        let mut young = Young {
            is_on: true,
            ..Young::default()
        };
        young.looked();
        let index = world(&lines);
        Stage { index, young }
    }

    /// What is judged by is true as of this second.
    fn as_of(&mut self, second: u64) {
        self.young.mark_time(second * SECOND, Duration::ZERO);
    }

    fn made(&mut self, port: u16, second: u64) {
        self.young.note(key(port), second * SECOND);
    }

    /// The verdict of an entry that is seen in this second.
    fn judged(&mut self, port: u16, enters: bool, second: u64) -> Reason {
        let node = ThisNode {
            name: None,
            local: None,
            namespace: Namespace::Node,
        };
        let mut entry = Entry::bare(flow(port));
        let matched = Matched::of(&entry.flow, &self.index, &node);
        let judge = Judge {
            index: Some(&self.index),
            rules: None,
            node: &node,
            instead: None,
            zones: &[],
            source_time: None,
        };
        entry.judgement = judge.judge(&entry.flow, matched);
        assert_eq!(entry.judgement.unwrap().verdict(), Verdict::Stale);
        self.young.correct(&mut entry, enters, || second * SECOND);
        entry.judgement.unwrap().reason
    }
}

const OPEN: Reason = Reason::SourceIncomplete;
const STALE: Reason = Reason::EndpointGone;

#[test]
fn an_entry_is_young_until_what_is_judged_by_is_true_as_of_later() {
    let mut stage = Stage::new();
    stage.as_of(100);
    stage.made(1, 100);
    assert_eq!(stage.judged(1, true, 100), OPEN);
    // Time goes on; what is judged by does not.
    stage.young.mark_time(110 * SECOND, Duration::from_secs(9));
    assert_eq!(stage.judged(1, false, 110), OPEN);
    assert_eq!(stage.young.due(), Due::Nothing);
    stage.young.mark_time(110 * SECOND, Duration::from_secs(7));
    assert_eq!(stage.young.due(), Due::These(vec![key(1)]));
    assert_eq!(stage.judged(1, false, 110), STALE);
    assert_eq!(stage.young.due(), Due::Nothing);
}

#[test]
fn an_entry_that_comes_to_be_selected_later_is_as_young_as_it_is() {
    let mut stage = Stage::new();
    stage.as_of(100);
    stage.made(1, 100);
    // Its NEW was of no interest; it changed.
    assert_eq!(stage.judged(1, true, 101), OPEN);
    stage.as_of(103);
    assert_eq!(stage.young.due(), Due::These(vec![key(1)]));
    // One whose verdict was asked by nobody is not judged again.
    stage.made(2, 103);
    stage.as_of(106);
    assert_eq!(stage.young.due(), Due::Nothing);
}

#[test]
fn what_enters_without_a_word_of_when_it_was_made_is_taken_for_new_once() {
    let mut stage = Stage::new();
    stage.as_of(100);
    assert_eq!(stage.judged(1, false, 100), STALE, "it was there before");
    assert_eq!(stage.judged(2, true, 100), OPEN);
    assert_eq!(stage.judged(2, true, 101), OPEN);
    stage.as_of(103);
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
fn at_the_beginning_what_is_there_is_old() {
    let mut stage = Stage::new();
    stage.young.has_begun = false;
    stage.as_of(100);
    assert_eq!(stage.judged(1, true, 100), STALE);
}

#[test]
fn what_was_too_much_to_remember_is_young_as_the_last_of_it() {
    let mut stage = Stage::new();
    stage.as_of(100);
    for number in 0..MOST {
        let mut other = key(1);
        other.1.src = std::net::Ipv4Addr::from(number as u32).into();
        stage.young.note(other, 100 * SECOND);
    }
    stage.made(1, 102);
    assert_eq!(stage.judged(1, true, 102), OPEN);
    stage.as_of(103);
    assert_eq!(stage.young.due(), Due::Nothing);
    assert_eq!(stage.judged(1, false, 103), OPEN);
    stage.as_of(105);
    assert_eq!(stage.young.due(), Due::All);
    assert_eq!(stage.judged(1, false, 105), STALE);
}
