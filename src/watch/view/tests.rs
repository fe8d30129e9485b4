//! The view against told events and dumps, and against a kernel of our own that loses, delays and keeps silent.

mod event;
mod kernel;
mod stage;

use super::*;
use crate::this_node::{NetnsOwner, ThisNode};
use crate::verdict::{Refreshing, Replies};
use ctk_cluster::index::Index;
use ctnetlink::flow::{Counters, L4, TcpDirection};
use stage::*;

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
        stage.act(|view, resolver, tell| {
            view.seen(flow(7, SEEN), Duration::ZERO, resolver, tell);
            view.end_dump(again, resolver, tell);
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
    stage.act(|view, resolver, tell| view.end_dump(true, resolver, tell));
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
    let entry = stage.view.entries(&mut stage.resolver).next().unwrap();
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
    stage.resolver.index = Some(&one);
    stage.act(|view, resolver, tell| view.judge_again(resolver, tell));
    stage.says(&["verdict 7 ok>stale"]);
    assert_eq!(stage.view.count(Verdict::Stale), 1);
    assert_eq!(stage.view.count_open(), 0);
    stage.act(|view, resolver, tell| view.judge_again(resolver, tell));
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

/// Stages a stale flow, whose endpoint was coredns-7.
fn with_a_stale_flow<'c>(both: &'c Index, one: &'c Index) -> Stage<'c> {
    let mut stage = Stage::of(See {
        index: Some(both),
        ..See::all()
    });
    stage.dump(0, true, &[flow(7, ASSURED)]);
    stage.dump(1, true, &[flow(7, ASSURED)]);
    stage.resolver.index = Some(one);
    stage.act(|view, resolver, tell| view.judge_again(resolver, tell));
    stage.says(&["snapshot 7", "verdict 7 ok>stale"]);
    stage
}

#[test]
fn a_stale_entry_is_told_as_stale_when_it_ends_however_its_end_shows() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    type End = fn(&mut Stage<'_>);
    let ends: [(&str, End); 4] = [
        ("its DESTROY", |stage| stage.destroyed(&flow(7, ASSURED))),
        ("the NEW of another one", |stage| {
            stage.made(flow(8, Status::CONFIRMED));
        }),
        ("the NEW of one like it", |stage| {
            stage.made(flow(7, Status::CONFIRMED));
        }),
        ("a dump", |stage| {
            stage.dump(2, true, &[flow(8, Status::CONFIRMED)]);
        }),
    ];
    for (how, end) in ends {
        let mut stage = with_a_stale_flow(&both, &one);
        end(&mut stage);
        let ended = stage.ended.take().unwrap();
        let judgement = ended.entry.judgement.unwrap();
        assert_eq!(judgement.reason, Reason::EndpointGone, "{how}");
        let was = ended.endpoint_was.unwrap().to_string();
        assert_eq!(was, "kube-system/coredns-7", "{how}");
    }
}

#[test]
fn a_flow_that_moves_back_to_a_dead_endpoint_is_told_with_the_pod_that_it_was() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    let mut stage = with_a_stale_flow(&both, &one);
    stage.made(flow(8, Status::CONFIRMED));
    stage.told.clear();
    // It may be younger than the cluster source, so it is not called stale yet.
    stage.act(|view, resolver, tell| {
        view.made(flow(7, ASSURED), resolver, &mut |record| {
            if let Record::Move { followed, before } = &record {
                assert_eq!(before, "kube-system/coredns-8");
                let was = followed.endpoint_was.as_ref().unwrap();
                assert_eq!(was.to_string(), "kube-system/coredns-7");
            }
            tell(record);
        });
    });
    stage.says(&["destroy 8", "move 7 from kube-system/coredns-8", "new 7"]);
    let entry = stage.last.take().unwrap();
    assert_eq!(entry.judgement.unwrap().reason, Reason::SourceIncomplete);
}

#[test]
fn the_verdict_of_a_young_entry_goes_from_ok_to_stale_at_once_when_it_is_known() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    for shown in [false, true] {
        let mut stage = Stage::of(See {
            index: Some(&both),
            ..See::all()
        });
        stage.dump(0, true, &[]);
        stage.made(flow(7, Status::CONFIRMED));
        stage.resolver.index = Some(&one);
        stage.act(|view, resolver, tell| view.judge_again(resolver, tell));
        stage.says(&["new 7"]);
        // It may be stale.
        assert_eq!(stage.view.count(Verdict::Ok), 0);
        assert_eq!(stage.view.count_open(), 1);
        if shown {
            stage.changed(flow(7, SEEN));
            stage.says(&["update 7", "verdict 7 ok>unknown"]);
        }
        stage.resolver.young.clear();
        let seven = key_of(&flow(7, SEEN));
        stage.act(|view, resolver, tell| view.judge_these(&[seven], resolver, tell));
        stage.says(match shown {
            false => &["verdict 7 ok>stale"],
            true => &["verdict 7 unknown>stale"],
        });
        assert_eq!(stage.view.count(Verdict::Stale), 1);
    }
}

#[test]
fn a_source_that_does_not_tell_enough_leaves_verdicts_open() {
    let index = kube_dns(&[8]);
    let elsewhere = ThisNode {
        namespace: NetnsOwner::Foreign,
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
