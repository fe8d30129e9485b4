//! Proofs by observations and their limits.

use proptest::prelude::*;

use super::*;
use ctnetlink::flow::{Counters, L4, Tuple};

const ASSURED: Status = Status::CONFIRMED
    .with(Status::SEEN_REPLY)
    .with(Status::ASSURED);
const UNREPLIED: Status = Status::CONFIRMED;

/// A DNS client, translated to a backend.
fn flow(backend: u8) -> Flow {
    let tuple = |src: [u8; 4], dst: [u8; 4], sport, dport| Tuple {
        src: src.into(),
        dst: dst.into(),
        protocol: 17,
        l4: L4::Ports {
            src: sport,
            dst: dport,
        },
    };
    let client = [10, 244, 1, 45];
    let mut flow = Flow::new(
        tuple(client, [10, 96, 0, 10], 54810, 53),
        tuple([10, 244, 2, backend], client, 53, 54810),
    );
    (flow.status, flow.timeout, flow.id) = (ASSURED, Some(100), Some(7));
    flow
}

/// A flow with one change.
fn with(change: impl FnOnce(&mut Flow)) -> Flow {
    let mut flow = flow(71);
    change(&mut flow);
    flow
}

fn left(seconds: u32) -> Flow {
    with(|flow| flow.timeout = Some(seconds))
}

/// Packets of both directions, and a timer that contradicts the counters.
fn counted(original: u64, reply: u64) -> Flow {
    with(|flow| {
        let count = |packets| Some(Counters { packets, bytes: 0 });
        flow.counters_original = count(original);
        flow.counters_reply = count(reply);
    })
}

/// Result of observations at these times in milliseconds.
fn activity(observations: &[(u64, Flow)]) -> Activity {
    let observations: Vec<Observation> = observations
        .iter()
        .map(|(at, flow)| Observation::of(flow, Duration::from_millis(*at)))
        .collect();
    compare(&observations)
}

fn refreshing(observations: &[(u64, Flow)]) -> Refreshing {
    activity(observations).refreshing
}

#[test]
fn a_timer_that_rose_was_refilled_and_one_that_fell_with_the_clock_was_not() {
    use Refreshing::{No, Unknown, Yes};
    for (observations, expected) in [
        // 27 s, and 29 s five seconds later.
        (vec![(0, 27), (5000, 29)], Yes),
        (vec![(0, 27), (5000, 22)], No),
        // A single observation, none, and two that are too near to each other.
        (vec![(0, 27)], Unknown),
        (vec![], Unknown),
        (vec![(0, 27), (2999, 30)], Unknown),
        (vec![(0, 27), (3000, 30)], Yes),
        (vec![(0, 27), (3000, 24)], No),
        // The bounds: 2 s more than without a refill, and 2 s less.
        (vec![(0, 100), (6000, 96)], Yes),
        (vec![(0, 100), (6000, 95)], No),
        (vec![(0, 100), (5999, 96)], No),
        (vec![(0, 100), (6001, 93)], No),
        (vec![(0, 100), (6000, 92)], Unknown),
        // Set to a shorter time (a TCP connection that closes): no refill, and no proof of silence.
        (vec![(0, 432_000), (6000, 119)], Unknown),
        (vec![(0, 432_000), (3000, 117), (6000, 119)], Yes),
        // Refilled between the first two observations only, and between the last two only.
        (vec![(0, 100), (3000, 119), (6000, 116)], Yes),
        (vec![(0, 100), (3000, 97), (6000, 119)], Yes),
        (vec![(0, 100), (3000, 97), (6000, 94)], No),
        // The middle observations are too near to each other, the outer ones are not.
        (vec![(0, 100), (2990, 97), (5980, 94)], No),
        (vec![(0, 100), (2990, 100), (5980, 100)], Yes),
        // The largest numbers there are.
        (vec![(0, u32::MAX), (u64::MAX / 2_000_000, 0)], Yes),
        (vec![(0, 0), (3000, u32::MAX)], Yes),
    ] {
        let flows: Vec<_> = observations
            .iter()
            .map(|(at, to)| (*at, left(*to)))
            .collect();
        assert_eq!(refreshing(&flows), expected, "{observations:?}");
    }
}

#[test]
fn counters_beat_timers_and_packets_of_either_direction_count() {
    use Refreshing::{No, Yes};
    for (first, last, expected) in [
        ((5, 5), (6, 5), Yes),
        ((5, 5), (5, 6), Yes),
        ((5, 5), (5, 5), No),
        ((5, 0), (5, 0), No),
    ] {
        // The timer falls with the clock where packets came, and rises where none did.
        let timeout = if expected == Yes { 94 } else { 119 };
        let mut later = counted(last.0, last.1);
        later.timeout = Some(timeout);
        let observations = [(0, counted(first.0, first.1)), (6000, later)];
        assert_eq!(refreshing(&observations), expected, "{first:?} {last:?}");
    }
}

#[test]
fn packets_do_not_refill_a_timer_that_is_fixed() {
    let fixed = |packets, timeout| {
        let mut flow = counted(packets, 1);
        flow.status = ASSURED.with(Status::FIXED_TIMEOUT);
        flow.timeout = Some(timeout);
        flow
    };
    let observations = [(0, fixed(5, 100)), (6000, fixed(9, 94))];
    assert_eq!(refreshing(&observations), Refreshing::No);
}

#[test]
fn entries_without_a_timer_or_offloaded_are_unknown() {
    let timeless = with(|flow| flow.timeout = None);
    assert_eq!(
        refreshing(&[(0, left(100)), (6000, timeless)]),
        Refreshing::Unknown
    );
    for bit in [Status::OFFLOAD, Status::HW_OFFLOAD] {
        let mut offloaded = counted(9, 9);
        offloaded.status = ASSURED.with(bit);
        let activity = activity(&[(0, counted(5, 5)), (6000, offloaded)]);
        assert_eq!(
            (activity.refreshing, activity.replies),
            (Refreshing::Unknown, Replies::Unknown),
            "{bit:?}"
        );
    }
}

#[test]
fn an_entry_that_was_made_anew_is_not_compared_with_the_old_one() {
    let old = || with(|flow| flow.start = Some(1));
    let late = |change: fn(&mut Flow)| {
        let mut flow = old();
        flow.timeout = Some(119);
        change(&mut flow);
        flow
    };
    let same = late(|_| ());
    assert_eq!(
        refreshing(&[(0, old()), (6000, same.clone())]),
        Refreshing::Yes
    );
    for (name, new) in [
        ("reply tuple", late(|f| f.reply = flow(33).reply)),
        ("start", late(|f| f.start = Some(2))),
        ("no start any more", late(|f| f.start = None)),
        ("id", late(|f| f.id = Some(8))),
        ("SEEN_REPLY", late(|f| f.status = UNREPLIED)),
        (
            "ASSURED",
            late(|f| f.status = ASSURED.without(Status::ASSURED)),
        ),
        (
            "counters are there now",
            late(|f| {
                let count = Some(Counters {
                    packets: 1,
                    bytes: 1,
                });
                (f.counters_original, f.counters_reply) = (count, count);
            }),
        ),
    ] {
        let activity = activity(&[(0, old()), (3000, new.clone()), (6000, new.clone())]);
        assert_eq!(activity.refreshing, Refreshing::Unknown, "{name}");
        assert_eq!(
            activity.replies,
            Replies::of_one_observation(new.status.is_unreplied()),
            "{name}"
        );
        assert!(is_recreated(&old(), &new), "{name}");
    }
    for (first, last) in [((5, 5), (4, 6)), ((5, 5), (6, 4))] {
        let (first, last) = (counted(first.0, first.1), counted(last.0, last.1));
        assert_eq!(
            refreshing(&[(0, first), (6000, last)]),
            Refreshing::Unknown,
            "counters fell"
        );
    }
    assert!(!is_recreated(&old(), &same));
    // Bits that come with time are no sign of it.
    let young = with(|f| f.status = UNREPLIED);
    assert!(!is_recreated(&young, &left(119)));
}

#[test]
fn answers_stopped_only_where_there_were_some_and_two_intervals_without() {
    use Replies::{OneWay, Stopped, TwoWay, Unknown};
    for (packets, expected) in [
        (vec![(5, 5), (8, 5), (11, 5)], Stopped),
        (vec![(5, 5), (5, 5), (7, 5)], Stopped),
        // One packet may have been the last before its answer.
        (vec![(5, 5), (6, 5), (6, 5)], Unknown),
        (vec![(5, 5), (5, 5), (5, 5)], Unknown),
        // Two observations are one interval.
        (vec![(5, 5), (11, 5)], Unknown),
        // Answered in the first interval only.
        (vec![(5, 5), (8, 6), (11, 6)], TwoWay),
        (vec![(5, 5), (5, 5), (5, 6)], TwoWay),
        (vec![(5, 0), (8, 0), (11, 1)], TwoWay),
        (vec![(5, 0), (8, 0), (11, 0)], OneWay),
        (vec![(5, 0), (5, 0)], OneWay),
    ] {
        let observations: Vec<_> = packets
            .iter()
            .zip(0..)
            .map(|((original, reply), n)| (n * 3000, counted(*original, *reply)))
            .collect();
        assert_eq!(activity(&observations).replies, expected, "{packets:?}");
    }
}

#[test]
fn without_counters_only_the_status_proves_replies() {
    let observations = |status| {
        let flow = with(|flow| flow.status = status);
        activity(&[(0, flow.clone()), (3000, flow.clone()), (6000, flow)]).replies
    };
    assert_eq!(observations(UNREPLIED), Replies::OneWay);
    assert_eq!(observations(ASSURED), Replies::Unknown);
}

#[test]
fn the_sentence_names_the_window() {
    for (observations, expected) in [
        (
            vec![(0, left(100)), (6004, left(119))],
            "timer refilled within the last 6 s",
        ),
        (vec![(0, left(100)), (9600, left(90))], "no refill in 10 s"),
        (
            vec![
                (0, counted(5, 5)),
                (3000, counted(12, 5)),
                (6000, counted(20, 5)),
            ],
            "timer refilled within the last 6 s: 15 packets sent, no answer",
        ),
        (
            vec![(0, counted(5, 0)), (6000, counted(6, 0))],
            "timer refilled within the last 6 s: 1 packet sent, no answer",
        ),
        (
            vec![(0, counted(5, 5)), (6000, counted(11, 10))],
            "timer refilled within the last 6 s: 6 packets sent, 5 received",
        ),
        (
            vec![(0, counted(5, 5)), (6000, counted(6, 6))],
            "timer refilled within the last 6 s: 1 packet sent, 1 received",
        ),
        (
            vec![(0, counted(5, 5)), (6000, counted(5, 5))],
            "no refill in 6 s",
        ),
    ] {
        assert_eq!(activity(&observations).to_string(), expected);
    }
    let window = activity(&[(1000, left(100)), (4000, left(97)), (7500, left(94))]).window();
    assert_eq!(window, Duration::from_millis(6500));
}

#[test]
fn observations_stay_within_their_documented_sizes() {
    assert_eq!(size_of::<Observation>(), 48);
    assert_eq!(size_of::<Option<Observation>>(), 48);
    assert_eq!(size_of::<RecentObservations>(), 144);
    assert!(size_of::<Option<Activity>>() <= 20);
}

#[test]
fn observations_every_second_report_each_refill_once() {
    let mut observations = RecentObservations::default();
    // Falls for 8 s, is refilled once, falls on.
    let refills_reported: Vec<u64> = (0..20u64)
        .filter(|second| {
            let timeout = if *second < 8 {
                100 - second
            } else {
                127 - second
            };
            let flow = left(timeout as u32);
            observations.push(Observation::of(&flow, Duration::from_secs(*second)))
        })
        .collect();
    assert_eq!(refills_reported, [9]);
    assert_eq!(observations.last_timeout(), Some(108));
    let activity = observations.activity(&left(108));
    assert_eq!(activity.refreshing, Refreshing::No, "long ago");
    assert!(activity.window() >= Duration::from_secs(4));
}

#[test]
fn observations_every_five_seconds_compare_the_last_three() {
    let mut observations = RecentObservations::default();
    let mut push = |at, original, reply| {
        let flow = counted(original, reply);
        let refilled = observations.push(Observation::of(&flow, Duration::from_secs(at)));
        (refilled, observations.activity(&flow))
    };
    assert!(!push(0, 5, 5).0);
    let (refilled, activity) = push(5, 10, 10);
    assert!(refilled);
    assert_eq!(
        (activity.refreshing, activity.replies),
        (Refreshing::Yes, Replies::TwoWay)
    );
    // The backend dies. One more interval may hold an answer from before.
    assert_eq!(push(10, 15, 11).1.replies, Replies::TwoWay);
    push(15, 20, 11);
    let (_, activity) = push(20, 25, 11);
    assert_eq!(activity.replies, Replies::Stopped);
    assert_eq!(activity.window(), Duration::from_secs(10));
    let (refilled, _) = push(25, 25, 11);
    assert!(!refilled);
    assert_eq!(push(30, 25, 11).1.refreshing, Refreshing::No);
    // Made anew: observations of the old one are dropped.
    let (refilled, activity) = push(35, 1, 1);
    assert!(!refilled);
    assert_eq!(activity, Activity::default());
}

/// Time left on a kernel timer at a time, rounded down; `None` when the entry has ended by then. Milliseconds.
fn kernel_says(full: u64, refills: &[u64], at: u64) -> Option<u32> {
    let last = refills.iter().rev().find(|refill| **refill <= at)?;
    let left = full.checked_sub(at - last).filter(|left| *left > 0)?;
    Some((left / 1000) as u32)
}

/// Three observations over a sample of `duration`, each with a clock that is wrong by up to `slip`.
fn sampled(full: u64, refills: &[u64], first: u64, duration: u64, slip: [u64; 3]) -> Activity {
    let times = [first, first + duration / 2, first + duration];
    let observations: Option<Vec<_>> = times
        .into_iter()
        .zip(slip)
        .map(|(at, slip)| Some((at + slip, left(kernel_says(full, refills, at)?))))
        .collect();
    activity(&observations.expect("the entry lives"))
}

proptest! {
    #[test]
    fn an_entry_without_a_refill_is_never_called_refreshing(
        full in 30_000..180_000u64,
        first in 0..9_000u64,
        duration in 6_000..20_000u64,
        slip in [0..900u64, 0..900u64, 0..900u64],
    ) {
        let activity = sampled(full, &[0], first, duration, slip);
        prop_assert_eq!(activity.refreshing, Refreshing::No);
    }

    /// The end was put off by 3 s or more.
    #[test]
    fn an_entry_with_a_worthwhile_refill_is_never_called_silent(
        full in 30_000..180_000u64,
        first in 3_000..20_000u64,
        duration in 6_000..20_000u64,
        refill in 0.0..=1.0f64,
        before in 0..3_000u64,
    ) {
        let refill = first + 1 + (refill * (duration - 1) as f64) as u64;
        // The last packet before the sample: 3 s or more before the one inside of it.
        let before = (refill - 3_000).min(first).saturating_sub(before);
        let activity = sampled(full, &[before, refill], first, duration, [0; 3]);
        prop_assert_eq!(activity.refreshing, Refreshing::Yes);
    }

    /// For a client that sends at regular intervals the answer is exact.
    #[test]
    fn a_regular_client_is_told_from_a_silent_one(
        full in 30_000..180_000u64,
        interval in 20..29_000u64,
        first in 30_000..60_000u64,
        duration in 6_000..20_000u64,
    ) {
        let refills: Vec<u64> = (0..5_000u64).map(|n| n * interval).take_while(|at| *at < 90_000).collect();
        let asked = refills.iter().any(|at| (first + 1..=first + duration).contains(at));
        let activity = sampled(full, &refills, first, duration, [0; 3]);
        prop_assert_eq!(activity.refreshing == Refreshing::Yes, asked);
        prop_assert_eq!(activity.refreshing == Refreshing::No, !asked);
    }
}

#[test]
fn a_client_that_sends_regularly_sends_again_within_its_longest_interval() {
    let counts = |n: u64| {
        activity(&[
            (0, counted(5, 5)),
            (3000, counted(5 + n / 2, 5)),
            (6000, counted(5 + n, 5)),
        ])
    };
    for (observations, expected) in [
        // One packet, or a refill without counters: the packets may be as rare as the observations.
        (counts(1), Some(6000)),
        (
            activity(&[(0, left(27)), (3000, left(29)), (6000, left(28))]),
            Some(6000),
        ),
        (counts(2), Some(6000)),
        (counts(4), Some(2000)),
        (counts(7), Some(1000)),
        // It fell silent, or nothing proves a packet.
        (counts(0), None),
        (
            activity(&[(0, left(27)), (3000, left(24)), (6000, left(21))]),
            None,
        ),
        (activity(&[(0, left(27))]), None),
    ] {
        let expected = expected.map(Duration::from_millis);
        assert_eq!(
            observations.longest_interval(),
            expected,
            "{observations:?}"
        );
    }
}
