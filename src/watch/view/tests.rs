//! The view against told events and dumps, and against a kernel of our own that loses, delays and keeps silent.

mod event;
mod kernel;

use super::*;
use crate::cluster::index::Index;
use crate::cluster::testing::world;
use crate::flow::{Counters, L4, TcpDirection};
use crate::label::{self, Matched};
use crate::verdict::{Judge, Namespace, Refreshing, Replies, ThisNode};

const SEEN: Status = Status::CONFIRMED.with(Status::SEEN_REPLY);
const ASSURED: Status = SEEN.with(Status::ASSURED);

/// The flow of one client to the Service, by the last byte of its endpoint's address.
fn flow(endpoint: u8, status: Status) -> Flow {
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
        tuple(client, 40123, [10, 96, 0, 10], 53),
        tuple([10, 244, 1, endpoint], 53, client, 40123),
    );
    // The id does not tell one life from the next.
    (flow.status, flow.timeout, flow.id) = (status, Some(30), Some(7));
    flow
}

fn with(mut flow: Flow, change: impl FnOnce(&mut Flow)) -> Flow {
    change(&mut flow);
    flow
}

fn counted(flow: Flow, original: u64, reply: u64, timeout: u32) -> Flow {
    let count = |packets| Some(Counters { packets, bytes: 0 });
    with(flow, |flow| {
        (flow.counters_original, flow.counters_reply) = (count(original), count(reply));
        flow.timeout = Some(timeout);
    })
}

fn in_state(state: u8, status: Status) -> Flow {
    with(flow(7, status), |flow| {
        (flow.original.protocol, flow.reply.protocol) = (6, 6);
        let side = TcpDirection::default();
        flow.state = Some(ProtocolState::Tcp {
            state,
            original: side,
            reply: side,
        });
    })
}

/// kube-dns with these endpoints; coredns-N is the pod at 10.244.1.N.
fn kube_dns(endpoints: &[u8]) -> Index {
    let mut lines = vec![
        "node n 192.168.7.1".to_owned(),
        "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP".to_owned(),
        "pod shop/web-1 10.244.2.9 @n".to_owned(),
    ];
    let mut slice = "slice kube-system/kube-dns dns:53/UDP".to_owned();
    for n in endpoints {
        slice += &format!(" 10.244.1.{n}(ready)@n->coredns-{n}");
        lines.push(format!("pod kube-system/coredns-{n} 10.244.1.{n} @n"));
    }
    lines.push(slice);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    world(&lines)
}

struct See<'c> {
    index: Option<&'c Index>,
    node: &'c ThisNode,
    passes: fn(&Flow) -> bool,
}

static NODE: ThisNode = ThisNode {
    name: None,
    local: None,
    namespace: Namespace::Node,
};

impl See<'_> {
    fn all() -> Self {
        See {
            index: None,
            node: &NODE,
            passes: |_| true,
        }
    }
}

impl<'c> Eyes<'c> for See<'c> {
    fn pick(&mut self, flow: Flow, seen: Option<Seen>) -> Option<Entry<'c>> {
        (self.passes)(&flow).then(|| self.entry(flow, seen))
    }

    fn entry(&mut self, flow: Flow, seen: Option<Seen>) -> Entry<'c> {
        let mut entry = Entry::bare(flow);
        if let Some(index) = self.index {
            let matched = Matched::of(&entry.flow, index, self.node);
            entry.names = label::names(&entry.flow, matched, index);
            let judge = Judge {
                index: Some(index),
                rules: None,
                node: self.node,
                zones: &[],
                source_time: None,
            };
            entry.judgement = judge.judge(&entry.flow, matched);
        }
        if let Some(seen) = seen {
            entry.see(seen);
        }
        entry
    }
}

/// A view, what it sees with, and what it told.
struct Stage<'c> {
    view: View,
    eyes: See<'c>,
    told: Vec<String>,
    last: Option<Entry<'c>>,
}

impl<'c> Stage<'c> {
    fn of(eyes: See<'c>) -> Self {
        Stage {
            view: View::default(),
            eyes,
            told: Vec::new(),
            last: None,
        }
    }

    fn act(&mut self, act: impl FnOnce(&mut View, &mut dyn Eyes<'c>, Tell<'_, 'c>)) {
        let Stage {
            view,
            eyes,
            told,
            last,
        } = self;
        act(view, eyes, &mut |record| {
            told.push(word(&record));
            if let Some(entry) = record.entry() {
                *last = Some(entry.clone());
            }
        });
    }

    fn made(&mut self, flow: Flow) {
        self.act(|view, eyes, tell| view.made(flow, eyes, tell));
    }

    fn changed(&mut self, flow: Flow) {
        self.act(|view, eyes, tell| view.changed(flow, eyes, tell));
    }

    fn destroyed(&mut self, flow: &Flow) {
        self.act(|view, eyes, tell| view.destroyed(flow, eyes, tell));
    }

    fn dump(&mut self, second: u64, whole: bool, flows: &[Flow]) {
        self.view.begin_dump(false);
        self.act(|view, eyes, tell| {
            for flow in flows {
                view.seen(flow.clone(), Duration::from_secs(second), eyes, tell);
            }
            view.end_dump(whole, eyes, tell);
        });
    }

    /// What was told since this was asked last.
    #[track_caller]
    fn says(&mut self, expected: &[&str]) {
        assert_eq!(self.told, expected);
        self.told.clear();
    }
}

/// A record in short: its name, the endpoint's last byte, and what belongs to it.
fn word(record: &Record<'_>) -> String {
    let name = record.name().unwrap_or("move");
    let Some(entry) = record.entry() else {
        return name.to_owned();
    };
    let endpoint = entry.flow.reply.src.to_string();
    let endpoint = endpoint.rsplit('.').next().unwrap_or_default();
    let verdict = |v: &Option<Verdict>| v.map_or("-", Verdict::name);
    match record {
        Record::Refresh { before, after, .. } => format!("{name} {endpoint} {before}>{after}"),
        Record::Verdict { before, after, .. } => {
            format!("{name} {endpoint} {}>{}", verdict(before), verdict(after))
        }
        Record::Move { before, .. } => format!("{name} {endpoint} from {before}"),
        _ => format!("{name} {endpoint}"),
    }
}

#[test]
fn a_flow_is_told_as_it_comes_changes_and_ends() {
    let mut stage = Stage::of(See::all());
    stage.dump(0, true, &[]);
    stage.made(flow(7, Status::CONFIRMED));
    stage.changed(flow(7, SEEN));
    stage.changed(flow(7, ASSURED));
    stage.destroyed(&with(flow(7, ASSURED), |flow| {
        flow.counters_original = Some(Counters {
            packets: 4,
            bytes: 200,
        });
    }));
    stage.says(&["new 7", "update 7", "update 7", "destroy 7"]);
    let last = stage.last.take().unwrap().flow;
    assert_eq!(last.timeout, None, "what ended has no time left");
    assert_eq!(last.counters_original.map(|c| c.packets), Some(4));
    assert!(stage.view.is_empty());
}

#[test]
fn what_was_there_at_first_are_snapshots_also_where_the_first_dump_was_spoiled() {
    let mut stage = Stage::of(See::all());
    let other = with(flow(8, ASSURED), |flow| flow.zone.id = 5);
    stage.dump(0, false, &[flow(7, ASSURED)]);
    stage.says(&["snapshot 7"]);
    stage.dump(0, true, &[flow(7, ASSURED), other.clone()]);
    stage.says(&["snapshot 8"]);
    // The same tuple in another zone is another flow.
    let third = with(flow(9, ASSURED), |flow| flow.zone.id = 6);
    stage.dump(1, true, &[flow(7, ASSURED), other, third]);
    stage.says(&["new 9"]);
}

#[test]
fn what_events_say_again_is_not_told_again() {
    let mut stage = Stage::of(See::all());
    stage.dump(0, true, &[flow(7, ASSURED)]);
    stage.says(&["snapshot 7"]);
    // They waited behind the dump.
    stage.made(flow(7, Status::CONFIRMED));
    stage.changed(flow(7, SEEN));
    stage.changed(flow(7, ASSURED));
    stage.says(&[]);
    assert_eq!(stage.view.len(), 1);
}

#[test]
fn the_late_end_of_an_older_entry_does_not_end_the_one_that_has_its_place() {
    let mut stage = Stage::of(See::all());
    stage.dump(0, true, &[flow(8, ASSURED)]);
    stage.changed(flow(7, ASSURED));
    stage.destroyed(&flow(7, ASSURED));
    stage.made(flow(8, Status::CONFIRMED));
    stage.says(&["snapshot 8"]);
    // Another id, or another start, is another entry, too.
    stage.destroyed(&with(flow(8, ASSURED), |flow| flow.id = Some(8)));
    let started = with(flow(8, ASSURED), |flow| flow.start = Some(100));
    stage.dump(1, true, std::slice::from_ref(&started));
    stage.destroyed(&with(started.clone(), |flow| flow.start = Some(99)));
    stage.says(&[]);
    stage.destroyed(&started);
    stage.says(&["destroy 8"]);
}

#[test]
fn an_entry_made_anew_between_two_dumps_ended_and_began() {
    let first = counted(flow(7, ASSURED), 10, 5, 100);
    let anew = [
        ("another endpoint", counted(flow(8, ASSURED), 20, 9, 100)),
        ("fewer packets", counted(flow(7, ASSURED), 3, 9, 100)),
        ("fewer answers", counted(flow(7, ASSURED), 20, 2, 100)),
        ("not assured any more", counted(flow(7, SEEN), 20, 9, 100)),
        (
            "not answered any more",
            counted(flow(7, Status::CONFIRMED), 20, 9, 100),
        ),
    ];
    for (why, second) in anew {
        let mut stage = Stage::of(See::all());
        stage.dump(0, true, std::slice::from_ref(&first));
        stage.dump(5, true, std::slice::from_ref(&second));
        let names: Vec<&str> = stage.told.iter().map(|told| &told[..3]).collect();
        let expected: &[&str] = match why {
            "another endpoint" => &["sna", "des", "mov", "new"],
            _ => &["sna", "des", "new"],
        };
        assert_eq!(names, expected, "{why}");
        // What was seen of the old one says nothing of the new one.
        let entry = stage.last.unwrap();
        assert_eq!(entry.refreshing, Refreshing::Unknown, "{why}");
    }
}

#[test]
fn a_second_birth_without_a_death_is_told_as_both() {
    // With nf_conntrack_events at 2: the entry is older than the watch, and its end is silent.
    let mut stage = Stage::of(See::all());
    stage.dump(0, true, &[flow(7, ASSURED)]);
    stage.dump(1, true, &[flow(7, ASSURED)]);
    stage.says(&["snapshot 7"]);
    stage.made(flow(7, Status::CONFIRMED));
    stage.says(&["destroy 7", "new 7"]);
    stage.made(flow(8, Status::CONFIRMED));
    stage.says(&["destroy 7", "move 8 from 10.244.1.7:53", "new 8"]);
}

#[test]
fn dumps_that_repeat_a_spoiled_one_do_not_make_a_waiting_birth_a_second_one() {
    let mut stage = Stage::of(See::all());
    stage.dump(0, true, &[]);
    for again in [false, true, true] {
        stage.view.begin_dump(again);
        stage.act(|view, eyes, tell| {
            view.seen(flow(7, SEEN), Duration::ZERO, eyes, tell);
            view.end_dump(again, eyes, tell);
        });
    }
    stage.made(flow(7, Status::CONFIRMED));
    stage.says(&["new 7"]);
}

#[test]
fn a_silent_end_is_found_by_the_next_whole_dump_and_by_no_other() {
    let mut stage = Stage::of(See::all());
    stage.dump(0, true, &[flow(7, ASSURED)]);
    stage.dump(5, false, &[]);
    stage.says(&["snapshot 7"]);
    assert_eq!(stage.view.len(), 1);
    stage.dump(10, true, &[]);
    stage.says(&["destroy 7"]);
}

#[test]
fn a_flow_that_came_by_event_since_the_last_dump_is_missed_by_the_next_one_only() {
    let mut stage = Stage::of(See::all());
    stage.dump(0, true, &[]);
    stage.made(flow(7, ASSURED));
    assert_eq!(stage.view.missing(), [], "no dump could have had it");
    stage.view.begin_dump(false);
    let missing = flow(7, ASSURED);
    assert_eq!(stage.view.missing(), [(missing.original, missing.zone)]);
    stage.act(|view, eyes, tell| view.end_dump(true, eyes, tell));
    stage.says(&["new 7", "destroy 7"]);
}

#[test]
fn a_refilled_timer_is_told_with_both_times_and_what_became_of_the_answers() {
    let mut stage = Stage::of(See::all());
    let look = |original, reply, timeout| [counted(flow(7, ASSURED), original, reply, timeout)];
    stage.dump(0, true, &look(4, 3, 117));
    stage.dump(1, true, &look(5, 3, 118));
    // Too soon after the first to be compared with it.
    stage.says(&["snapshot 7"]);
    stage.dump(5, true, &look(9, 3, 119));
    stage.says(&["refresh 7 118>119"]);
    stage.dump(10, true, &look(14, 3, 119));
    stage.says(&["refresh 7 119>119"]);
    let entry = stage.last.clone().unwrap();
    assert_eq!(entry.refreshing, Refreshing::Yes);
    assert_eq!(entry.replies, Replies::Stopped);
    // Not any more: nothing is told of it, but it is known.
    stage.dump(15, true, &look(14, 3, 114));
    stage.dump(20, true, &look(14, 3, 109));
    stage.dump(25, true, &look(14, 3, 104));
    stage.says(&[]);
    let entry = stage.view.entries(&mut stage.eyes).next().unwrap();
    assert_eq!(entry.refreshing, Refreshing::No);
}

#[test]
fn an_event_between_two_looks_does_not_hide_the_refill() {
    let mut stage = Stage::of(See::all());
    stage.dump(0, true, &[]);
    stage.made(flow(7, Status::CONFIRMED));
    stage.dump(1, true, &[counted(flow(7, Status::CONFIRMED), 1, 0, 29)]);
    stage.changed(flow(7, SEEN));
    stage.dump(5, true, &[counted(flow(7, SEEN), 5, 1, 29)]);
    stage.says(&["new 7", "update 7", "refresh 7 29>29"]);
}

#[test]
fn every_change_but_those_of_timers_and_counters_is_told_by_events_and_by_dumps() {
    type Alter = fn(&mut Flow);
    let changes: [(&str, Alter); 6] = [
        ("status", |flow| flow.status = ASSURED),
        ("mark", |flow| flow.mark = Some(9)),
        ("state", |flow| *flow = in_state(5, SEEN)),
        ("labels", |flow| flow.rare_mut().labels = Some([1; 16])),
        ("helper", |flow| {
            flow.rare_mut().helper = Some("tftp".into())
        }),
        ("nothing", |flow| {
            flow.timeout = Some(120);
            flow.rare_mut().labels = Some([0; 16]);
        }),
    ];
    for (what, alter) in changes {
        for by_event in [false, true] {
            let mut stage = Stage::of(See::all());
            stage.dump(0, true, &[in_state(3, SEEN)]);
            let after = with(in_state(3, SEEN), alter);
            if by_event {
                stage.changed(after);
            } else {
                stage.dump(1, true, &[after]);
            }
            let expected: &[&str] = match what {
                "nothing" => &["snapshot 7"],
                _ => &["snapshot 7", "update 7"],
            };
            assert_eq!(stage.told, expected, "{what}, by event: {by_event}");
        }
    }
}

#[test]
fn what_an_event_leaves_out_stays_known() {
    let mut stage = Stage::of(See::all());
    let full = with(counted(in_state(3, SEEN), 4, 4, 100), |flow| {
        flow.mark = Some(9);
        flow.rare_mut().labels = Some([1; 16]);
        flow.rare_mut().helper = Some("ftp".into());
    });
    stage.dump(0, true, &[full]);
    let mut event = in_state(3, ASSURED);
    (event.state, event.timeout) = (None, None);
    stage.changed(event);
    let known = stage.last.clone().unwrap().flow;
    assert_eq!((known.status, known.mark), (ASSURED, Some(9)));
    assert_eq!((known.packets(), known.timeout), (Some(8), Some(100)));
    assert_eq!(
        (known.helper(), known.labels()),
        (Some("ftp"), Some(&[1; 16]))
    );
    assert_eq!(known.state.map(ProtocolState::number), Some(3));
}

#[test]
fn an_entry_that_changes_out_of_the_selection_is_told_once_and_forgotten() {
    let unreplied = || See {
        passes: |flow| flow.status.is_unreplied(),
        ..See::all()
    };
    for by_event in [false, true] {
        let mut stage = Stage::of(unreplied());
        stage.dump(0, true, &[flow(7, Status::CONFIRMED)]);
        if by_event {
            stage.changed(flow(7, SEEN));
        } else {
            stage.dump(5, true, &[flow(7, SEEN)]);
        }
        stage.says(&["snapshot 7", "update 7"]);
        assert!(stage.view.is_empty());
        stage.changed(flow(7, ASSURED));
        stage.dump(10, true, &[flow(7, ASSURED)]);
        stage.destroyed(&flow(7, ASSURED));
        stage.says(&[]);
    }
}

#[test]
fn an_entry_that_changes_into_the_selection_is_new_however_it_is_found() {
    let assured = || See {
        passes: |flow| flow.status.contains(Status::ASSURED),
        ..See::all()
    };
    let mut stage = Stage::of(assured());
    stage.dump(0, true, &[]);
    stage.made(flow(7, Status::CONFIRMED));
    stage.changed(flow(7, SEEN));
    stage.says(&[]);
    stage.changed(flow(7, ASSURED));
    stage.destroyed(&flow(7, ASSURED));
    stage.says(&["new 7", "destroy 7"]);
    stage.dump(5, true, &[flow(7, ASSURED)]);
    stage.says(&["new 7"]);
}

#[test]
fn a_changed_cluster_is_a_verdict_for_each_flow_that_it_concerns() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    let mut stage = Stage::of(See {
        index: Some(&both),
        ..See::all()
    });
    let neighbour = with(flow(8, ASSURED), |flow| flow.zone.id = 0);
    let neighbour = with(neighbour, |flow| {
        flow.original.l4 = L4::Ports { src: 1, dst: 53 };
    });
    stage.dump(0, true, &[flow(7, ASSURED), neighbour]);
    stage.told.clear();
    stage.eyes.index = Some(&one);
    stage.act(|view, eyes, tell| view.judge_again(eyes, tell));
    stage.says(&["verdict 7 ok>stale"]);
    assert_eq!(stage.view.count(Verdict::Stale), 1);
    assert_eq!(stage.view.count_open(), 0);
    stage.act(|view, eyes, tell| view.judge_again(eyes, tell));
    stage.says(&[]);
    // It comes back elsewhere; the pod that is gone is called by its last name.
    stage.destroyed(&flow(7, ASSURED));
    stage.made(flow(8, Status::CONFIRMED));
    stage.says(&[
        "destroy 7",
        "move 8 from kube-system/coredns-7 (gone)",
        "new 8",
    ]);
    // To the same endpoint again is no move.
    stage.destroyed(&flow(8, Status::CONFIRMED));
    stage.made(flow(8, Status::CONFIRMED));
    stage.says(&["destroy 8", "new 8"]);
}

#[test]
fn a_source_that_does_not_tell_enough_leaves_verdicts_open() {
    let index = kube_dns(&[8]);
    let elsewhere = ThisNode {
        namespace: Namespace::Foreign,
        ..NODE.clone()
    };
    let mut stage = Stage::of(See {
        index: Some(&index),
        node: &elsewhere,
        ..See::all()
    });
    stage.dump(0, true, &[flow(7, ASSURED)]);
    assert_eq!(stage.view.count(Verdict::Stale), 0);
    assert_eq!(stage.view.count_open(), 1);
}

#[test]
fn a_tracked_entry_stays_as_small_as_is_written() {
    let size = size_of::<(Key, Tracked)>();
    assert!(size <= 432, "{size}");
}
