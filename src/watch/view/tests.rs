//! The view with given events and dumps, and with a simulated kernel that loses, delays and omits events.

mod fixture;
mod printed_event;
mod simulated_kernel;

use super::*;
use crate::this_node::{NetnsOwner, ThisNode};
use crate::verdict::{Refreshing, Replies};
use ctk_cluster::index::Index;
use ctnetlink::flow::{Counters, L4, ProtocolState, Status, TcpDirection};
use fixture::*;

#[test]
fn a_flow_gives_one_record_for_each_event() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    fixture.dump(0, true, &[]);
    fixture.apply_new(flow(7, Status::CONFIRMED));
    fixture.apply_update(flow(7, SEEN));
    fixture.apply_update(flow(7, ASSURED));
    fixture.apply_destroy(&with(flow(7, ASSURED), |flow| {
        flow.counters_original = Some(Counters {
            packets: 4,
            bytes: 200,
        });
        flow.timeout = Some(12);
        flow.start = Some(1);
        flow.rare_mut().stop = Some(9);
    }));
    fixture.assert_records(&["new 7", "update 7", "update 7", "destroy 7"]);
    let last = fixture.last.take().unwrap().flow;
    assert_eq!(last.timeout, Some(12), "what the event says");
    assert_eq!((last.start, last.rare.unwrap().stop), (Some(1), Some(9)));
    assert_eq!(last.counters_original.map(|c| c.packets), Some(4));
    assert!(fixture.view.is_empty());
}

#[test]
fn entries_of_the_beginning_are_snapshots_also_after_an_inconsistent_dump() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    let other = with(flow(8, ASSURED), |flow| flow.zone.id = 5);
    fixture.dump(0, false, &[flow(7, ASSURED)]);
    fixture.assert_records(&["snapshot 7"]);
    fixture.dump(0, true, &[flow(7, ASSURED), other.clone()]);
    fixture.assert_records(&["snapshot 8"]);
    // The same tuple in another zone is another flow.
    let third = with(flow(9, ASSURED), |flow| flow.zone.id = 6);
    fixture.dump(1, true, &[flow(7, ASSURED), other, third]);
    fixture.assert_records(&["new 9"]);
}

#[test]
fn events_that_waited_behind_the_dump_give_no_second_record() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    fixture.dump(0, true, &[flow(7, ASSURED)]);
    fixture.assert_records(&["snapshot 7"]);
    // The dump was newer than the queue.
    fixture.apply_new(flow(7, Status::CONFIRMED));
    fixture.apply_update(flow(7, SEEN));
    fixture.apply_update(flow(7, ASSURED));
    fixture.assert_records(&[]);
    assert_eq!(fixture.view.len(), 1);
}

#[test]
fn a_late_destroy_does_not_end_the_successor() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    fixture.dump(0, true, &[flow(8, ASSURED)]);
    fixture.apply_update(flow(7, ASSURED));
    fixture.apply_destroy(&flow(7, ASSURED));
    fixture.apply_new(flow(8, Status::CONFIRMED));
    fixture.assert_records(&["snapshot 8"]);
    // Another id, or another start, is another entry, too.
    fixture.apply_destroy(&with(flow(8, ASSURED), |flow| flow.id = Some(8)));
    let started = with(flow(8, ASSURED), |flow| flow.start = Some(100));
    fixture.dump(1, true, std::slice::from_ref(&started));
    fixture.apply_destroy(&with(started.clone(), |flow| flow.start = Some(99)));
    fixture.assert_records(&[]);
    fixture.apply_destroy(&started);
    fixture.assert_records(&["destroy 8"]);
}

#[test]
fn an_entry_recreated_between_two_dumps_gives_destroy_and_new() {
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
        let mut fixture = ViewFixture::of(FixtureResolver::all());
        fixture.dump(0, true, std::slice::from_ref(&first));
        fixture.dump(5, true, std::slice::from_ref(&second));
        let names: Vec<&str> = fixture.records.iter().map(|record| &record[..3]).collect();
        let expected: &[&str] = match why {
            "another endpoint" => &["sna", "des", "mov", "new"],
            _ => &["sna", "des", "new"],
        };
        assert_eq!(names, expected, "{why}");
        // Looks at the old entry prove nothing for the new one.
        let entry = fixture.last.unwrap();
        assert_eq!(entry.refreshing, Refreshing::Unknown, "{why}");
    }
}

#[test]
fn a_second_new_without_destroy_gives_destroy_and_new() {
    // With nf_conntrack_events at 2 an entry that is older than the watch sends no DESTROY.
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    fixture.dump(0, true, &[flow(7, ASSURED)]);
    fixture.dump(1, true, &[flow(7, ASSURED)]);
    fixture.assert_records(&["snapshot 7"]);
    fixture.apply_new(flow(7, Status::CONFIRMED));
    fixture.assert_records(&["destroy 7", "new 7"]);
    fixture.apply_new(flow(8, Status::CONFIRMED));
    fixture.assert_records(&["destroy 7", "move 8 from 10.244.1.7:53", "new 8"]);
}

#[test]
fn a_retried_dump_does_not_turn_a_waiting_new_into_a_second_one() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    fixture.dump(0, true, &[]);
    for again in [false, true, true] {
        fixture.view.begin_dump(again);
        fixture.act(|view, resolver, emit| {
            view.apply_dumped(flow(7, SEEN), Duration::ZERO, resolver, emit);
            view.end_dump(again, resolver, emit);
        });
    }
    fixture.apply_new(flow(7, Status::CONFIRMED));
    fixture.assert_records(&["new 7"]);
}

#[test]
fn an_end_without_event_is_found_by_the_next_complete_dump_only() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    fixture.dump(0, true, &[flow(7, ASSURED)]);
    fixture.dump(5, false, &[]);
    fixture.assert_records(&["snapshot 7"]);
    assert_eq!(fixture.view.len(), 1);
    fixture.dump(10, true, &[]);
    fixture.assert_records(&["destroy 7"]);
}

#[test]
fn a_flow_that_came_by_event_can_only_be_missing_in_the_next_dump() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    fixture.dump(0, true, &[]);
    fixture.apply_new(flow(7, ASSURED));
    assert_eq!(fixture.view.missing(), [], "no dump could have had it");
    fixture.view.begin_dump(false);
    let missing = flow(7, ASSURED);
    assert_eq!(fixture.view.missing(), [(missing.original, missing.zone)]);
    fixture.act(|view, resolver, emit| view.end_dump(true, resolver, emit));
    fixture.assert_records(&["new 7", "destroy 7"]);
}

#[test]
fn a_refill_gives_a_record_with_both_times_and_the_replies() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    let look = |original, reply, timeout| [counted(flow(7, ASSURED), original, reply, timeout)];
    fixture.dump(0, true, &look(4, 3, 117));
    fixture.dump(1, true, &look(5, 3, 118));
    // Too soon after the first to be compared with it.
    fixture.assert_records(&["snapshot 7"]);
    fixture.dump(5, true, &look(9, 3, 119));
    fixture.assert_records(&["refresh 7 118>119"]);
    fixture.dump(10, true, &look(14, 3, 119));
    fixture.assert_records(&["refresh 7 119>119"]);
    let entry = fixture.last.clone().unwrap();
    assert_eq!(entry.refreshing, Refreshing::Yes);
    assert_eq!(entry.replies, Replies::Stopped);
    // The refills stop: no record, and the entry knows it.
    fixture.dump(15, true, &look(14, 3, 114));
    fixture.dump(20, true, &look(14, 3, 109));
    fixture.dump(25, true, &look(14, 3, 104));
    fixture.assert_records(&[]);
    let entry = fixture.view.entries(&mut fixture.resolver).next().unwrap();
    assert_eq!(entry.refreshing, Refreshing::No);
}

#[test]
fn an_event_between_two_looks_does_not_hide_the_refill() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    fixture.dump(0, true, &[]);
    fixture.apply_new(flow(7, Status::CONFIRMED));
    fixture.dump(1, true, &[counted(flow(7, Status::CONFIRMED), 1, 0, 29)]);
    fixture.apply_update(flow(7, SEEN));
    fixture.dump(5, true, &[counted(flow(7, SEEN), 5, 1, 29)]);
    fixture.assert_records(&["new 7", "update 7", "refresh 7 29>29"]);
}

#[test]
fn every_change_except_timers_and_counters_gives_an_update_by_event_and_by_dump() {
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
            let mut fixture = ViewFixture::of(FixtureResolver::all());
            fixture.dump(0, true, &[in_state(3, SEEN)]);
            let after = with(in_state(3, SEEN), alter);
            if by_event {
                fixture.apply_update(after);
            } else {
                fixture.dump(1, true, &[after]);
            }
            let expected: &[&str] = match what {
                "nothing" => &["snapshot 7"],
                _ => &["snapshot 7", "update 7"],
            };
            assert_eq!(fixture.records, expected, "{what}, by event: {by_event}");
        }
    }
}

#[test]
fn fields_that_an_event_lacks_stay_known() {
    let mut fixture = ViewFixture::of(FixtureResolver::all());
    let full = with(counted(in_state(3, SEEN), 4, 4, 100), |flow| {
        flow.mark = Some(9);
        flow.rare_mut().labels = Some([1; 16]);
        flow.rare_mut().helper = Some("ftp".into());
    });
    fixture.dump(0, true, &[full]);
    let mut event = in_state(3, ASSURED);
    (event.state, event.timeout) = (None, None);
    fixture.apply_update(event);
    let known = fixture.last.clone().unwrap().flow;
    assert_eq!((known.status, known.mark), (ASSURED, Some(9)));
    assert_eq!((known.packets(), known.timeout), (Some(8), Some(100)));
    assert_eq!(
        (known.helper(), known.labels()),
        (Some("ftp"), Some(&[1; 16]))
    );
    assert_eq!(known.state.map(ProtocolState::number), Some(3));
}

#[test]
fn an_entry_that_matches_no_longer_gives_one_last_update() {
    let unreplied = || FixtureResolver {
        passes: |flow| flow.status.is_unreplied(),
        ..FixtureResolver::all()
    };
    for by_event in [false, true] {
        let mut fixture = ViewFixture::of(unreplied());
        fixture.dump(0, true, &[flow(7, Status::CONFIRMED)]);
        if by_event {
            fixture.apply_update(flow(7, SEEN));
        } else {
            fixture.dump(5, true, &[flow(7, SEEN)]);
        }
        fixture.assert_records(&["snapshot 7", "update 7"]);
        assert!(fixture.view.is_empty());
        fixture.apply_update(flow(7, ASSURED));
        fixture.dump(10, true, &[flow(7, ASSURED)]);
        fixture.apply_destroy(&flow(7, ASSURED));
        fixture.assert_records(&[]);
    }
}

#[test]
fn an_entry_that_matches_from_now_on_is_new_by_event_and_by_dump() {
    let assured = || FixtureResolver {
        passes: |flow| flow.status.contains(Status::ASSURED),
        ..FixtureResolver::all()
    };
    let mut fixture = ViewFixture::of(assured());
    fixture.dump(0, true, &[]);
    fixture.apply_new(flow(7, Status::CONFIRMED));
    fixture.apply_update(flow(7, SEEN));
    fixture.assert_records(&[]);
    fixture.apply_update(flow(7, ASSURED));
    fixture.apply_destroy(&flow(7, ASSURED));
    fixture.assert_records(&["new 7", "destroy 7"]);
    fixture.dump(5, true, &[flow(7, ASSURED)]);
    fixture.assert_records(&["new 7"]);
}

#[test]
fn a_changed_cluster_gives_a_verdict_record_for_each_flow_that_it_concerns() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    let mut fixture = ViewFixture::of(FixtureResolver {
        index: Some(&both),
        ..FixtureResolver::all()
    });
    let neighbour = with(flow(8, ASSURED), |flow| flow.zone.id = 0);
    let neighbour = with(neighbour, |flow| {
        flow.original.l4 = L4::Ports { src: 1, dst: 53 };
    });
    fixture.dump(0, true, &[flow(7, ASSURED), neighbour]);
    fixture.records.clear();
    fixture.resolver.index = Some(&one);
    fixture.act(|view, resolver, emit| view.rejudge_all(resolver, emit));
    fixture.assert_records(&["verdict 7 ok>stale"]);
    assert_eq!(fixture.view.count(Verdict::Stale), 1);
    assert_eq!(fixture.view.count_open(), 0);
    fixture.act(|view, resolver, emit| view.rejudge_all(resolver, emit));
    fixture.assert_records(&[]);
    // The flow comes back with another endpoint; the pod that is gone keeps its last name.
    fixture.apply_destroy(&flow(7, ASSURED));
    fixture.apply_new(flow(8, Status::CONFIRMED));
    fixture.assert_records(&[
        "destroy 7",
        "move 8 from kube-system/coredns-7 (gone)",
        "new 8",
    ]);
    // To the same endpoint again is no move.
    fixture.apply_destroy(&flow(8, Status::CONFIRMED));
    fixture.apply_new(flow(8, Status::CONFIRMED));
    fixture.assert_records(&["destroy 8", "new 8"]);
}

/// A view with one stale flow, whose endpoint was coredns-7.
fn with_a_stale_flow<'c>(both: &'c Index, one: &'c Index) -> ViewFixture<'c> {
    let mut fixture = ViewFixture::of(FixtureResolver {
        index: Some(both),
        ..FixtureResolver::all()
    });
    fixture.dump(0, true, &[flow(7, ASSURED)]);
    fixture.dump(1, true, &[flow(7, ASSURED)]);
    fixture.resolver.index = Some(one);
    fixture.act(|view, resolver, emit| view.rejudge_all(resolver, emit));
    fixture.assert_records(&["snapshot 7", "verdict 7 ok>stale"]);
    fixture
}

#[test]
fn the_record_of_the_end_of_a_stale_entry_has_its_verdict() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    type End = fn(&mut ViewFixture<'_>);
    let ends: [(&str, End); 4] = [
        ("its DESTROY", |fixture| {
            fixture.apply_destroy(&flow(7, ASSURED))
        }),
        ("the NEW of an entry to another endpoint", |fixture| {
            fixture.apply_new(flow(8, Status::CONFIRMED));
        }),
        ("the NEW of an entry to the same endpoint", |fixture| {
            fixture.apply_new(flow(7, Status::CONFIRMED));
        }),
        ("a dump", |fixture| {
            fixture.dump(2, true, &[flow(8, Status::CONFIRMED)]);
        }),
    ];
    for (how, end) in ends {
        let mut fixture = with_a_stale_flow(&both, &one);
        end(&mut fixture);
        let ended = fixture.ended.take().unwrap();
        let judgement = ended.entry.judgement.unwrap();
        assert_eq!(judgement.reason, Reason::EndpointGone, "{how}");
        let was = ended.endpoint_was.unwrap().to_string();
        assert_eq!(was, "kube-system/coredns-7", "{how}");
    }
}

#[test]
fn a_move_back_to_a_dead_endpoint_names_the_former_pod() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    let mut fixture = with_a_stale_flow(&both, &one);
    fixture.apply_new(flow(8, Status::CONFIRMED));
    fixture.records.clear();
    // It may be younger than the cluster source, so its verdict is open.
    fixture.act(|view, resolver, emit| {
        view.apply_new(flow(7, ASSURED), resolver, &mut |record| {
            if let Record::Move { watched, before } = &record {
                assert_eq!(before, "kube-system/coredns-8");
                let was = watched.endpoint_was.as_ref().unwrap();
                assert_eq!(was.to_string(), "kube-system/coredns-7");
            }
            emit(record);
        });
    });
    fixture.assert_records(&["destroy 8", "move 7 from kube-system/coredns-8", "new 7"]);
    let entry = fixture.last.take().unwrap();
    assert_eq!(entry.judgement.unwrap().reason, Reason::SourceIncomplete);
}

#[test]
fn the_verdict_of_a_young_entry_changes_from_ok_to_stale_without_a_step_between() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    for is_shown in [false, true] {
        let mut fixture = ViewFixture::of(FixtureResolver {
            index: Some(&both),
            ..FixtureResolver::all()
        });
        fixture.dump(0, true, &[]);
        fixture.apply_new(flow(7, Status::CONFIRMED));
        fixture.resolver.index = Some(&one);
        fixture.act(|view, resolver, emit| view.rejudge_all(resolver, emit));
        fixture.assert_records(&["new 7"]);
        // It may be stale.
        assert_eq!(fixture.view.count(Verdict::Ok), 0);
        assert_eq!(fixture.view.count_open(), 1);
        if is_shown {
            fixture.apply_update(flow(7, SEEN));
            fixture.assert_records(&["update 7", "verdict 7 ok>unknown"]);
        }
        fixture.resolver.created.clear();
        let seven = key_of(&flow(7, SEEN));
        fixture.act(|view, resolver, emit| view.rejudge(&[seven], resolver, emit));
        fixture.assert_records(match is_shown {
            false => &["verdict 7 ok>stale"],
            true => &["verdict 7 unknown>stale"],
        });
        assert_eq!(fixture.view.count(Verdict::Stale), 1);
    }
}

#[test]
fn a_foreign_namespace_leaves_verdicts_open() {
    let index = kube_dns(&[8]);
    let elsewhere = ThisNode {
        namespace: NetnsOwner::Foreign,
        ..NODE.clone()
    };
    let mut fixture = ViewFixture::of(FixtureResolver {
        index: Some(&index),
        node: &elsewhere,
        ..FixtureResolver::all()
    });
    fixture.dump(0, true, &[flow(7, ASSURED)]);
    assert_eq!(fixture.view.count(Verdict::Stale), 0);
    assert_eq!(fixture.view.count_open(), 1);
}

#[test]
fn a_tracked_entry_is_not_larger_than_documented() {
    let size = size_of::<(FlowKey, Tracked)>();
    assert!(size <= 432, "{size}");
}
