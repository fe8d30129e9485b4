//! Whether an entry is kept alive and answered, by comparison of observations.
//!
//! A packet in either direction refills the timer of its entry (`__nf_ct_refresh_acct` in the kernel's
//! `nf_conntrack_core.c`), also when it is dropped or rejected later. The kernel sends no event for a refill. An entry
//! whose endpoint is gone therefore lives for as long as its client keeps sending.
//!
//! # Proof by timers
//!
//! The kernel reports whole seconds, rounded down. Between two observations the *gain* is the time left beyond the time
//! that would be left without a refill: `to2 - (to1 - (t2 - t1))`. Rounding changes it by less than 1 s in either
//! direction, so
//!
//! * without a refill it is below 1 s: never `yes`, even when the clock of an observation is wrong by up to 1 s;
//! * refills that extend the entry by 3 s or more give at least 2 s: never `no`;
//! * between these, the result depends on where in a second the packets came.
//!
//! A client that sends at regular intervals extends the entry by at least the longer of its interval and the time between
//! the observations less its interval. With observations 6 s apart that is at least 3 s, so `no` proves that the client
//! sent nothing. A sample therefore takes at least 6 s.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use ctnetlink::flow::{Flow, Status};

use super::{Refreshing, Replies};

/// Shortest time between two observations whose timers are compared.
pub const MIN_OBSERVATION_GAP: Duration = Duration::from_secs(3);
const SECOND: i128 = 1_000_000_000;

/// State of an entry at one time, in 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Nanoseconds of a monotonic clock: enough for 584 years.
    at: u64,
    /// Hash of the fields that never change while an entry lives.
    identity: u64,
    /// Original and reply direction; zeros where `counted` is false.
    packets: [u64; 2],
    timeout: Option<u32>,
    /// The 16 bits in use of the kernel's `enum ip_conntrack_status`.
    status: u16,
    counted: bool,
}

impl Observation {
    /// `at` is the monotonic time at which the kernel wrote the entry. All observations that are compared count from the
    /// same origin.
    pub fn of(flow: &Flow, at: Duration) -> Self {
        let packets = flow.counters_original.zip(flow.counters_reply);
        let mut identity = DefaultHasher::new();
        (flow.zone, flow.original, flow.reply, flow.id, flow.start).hash(&mut identity);
        packets.is_some().hash(&mut identity);
        Observation {
            at: at.as_nanos() as u64,
            identity: identity.finish(),
            packets: packets.map_or([0; 2], |(original, reply)| {
                [original.packets, reply.packets]
            }),
            timeout: flow.timeout,
            status: flow.status.0 as u16,
            counted: packets.is_some(),
        }
    }

    fn status(&self) -> Status {
        Status(self.status.into())
    }

    /// Whether this is another entry than the one in `before`, with the same original tuple. Reply tuple, id, start,
    /// counters and status bits are compared. An entry that was made anew and equals the old one in all of these counts as
    /// the same: the packet that made it refilled the timer.
    pub(super) fn is_recreated_since(&self, before: &Observation) -> bool {
        let vanished = before.status().without(self.status());
        self.identity != before.identity
            || self.packets[0] < before.packets[0]
            || self.packets[1] < before.packets[1]
            || vanished.intersects(Status::SEEN_REPLY.with(Status::ASSURED))
    }

    fn since(&self, before: &Observation) -> Duration {
        Duration::from_nanos(self.at.saturating_sub(before.at))
    }

    /// Gain in nanoseconds. `None` without timers, and where the observations are less than [`MIN_OBSERVATION_GAP`] apart.
    fn gain_since(&self, before: &Observation) -> Option<i128> {
        let (now, then) = self.timeout.zip(before.timeout)?;
        let passed = self.since(before);
        let gain = (i128::from(now) - i128::from(then)) * SECOND + passed.as_nanos() as i128;
        (passed >= MIN_OBSERVATION_GAP).then_some(gain)
    }

    /// Whether packets are counted and refill the timer.
    fn packets_refill(&self) -> bool {
        self.counted && !self.status().contains(Status::FIXED_TIMEOUT)
    }
}

/// Whether `now`, which has the original tuple of `before`, is another entry.
pub fn is_recreated(before: &Flow, now: &Flow) -> bool {
    let observation = |flow| Observation::of(flow, Duration::ZERO);
    observation(now).is_recreated_since(&observation(before))
}

/// Result of observations of one entry. Prints as a clause for an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    pub refreshing: Refreshing,
    pub replies: Replies,
    window_ms: u32,
    /// Packets of the original and the reply direction within the window, where they are counted.
    packets: Option<[u32; 2]>,
    /// The first observation does not contain this entry: it was made since, or began to match the filter.
    pub is_new: bool,
}

impl Activity {
    /// Time from the first observation to the last, in milliseconds; zero for a single one.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms.into())
    }

    /// Longest time between two packets of the client, where it sent any: `n` packets in the window are at most `window /
    /// (n - 1)` apart, if they come regularly.
    pub fn longest_interval(&self) -> Option<Duration> {
        if self.refreshing != Refreshing::Yes {
            return None;
        }
        let gaps = self.packets.map_or(1, |[sent, _]| sent.saturating_sub(1));
        Some(self.window() / gaps.max(1))
    }

    fn of_one_observation(observation: &Observation) -> Self {
        Activity {
            replies: Replies::of_one_observation(observation.status().is_unreplied()),
            ..Activity::default()
        }
    }
}

/// Compares observations of one entry, ordered by time.
///
/// Reports only the last observation where the entry was made anew between them or they span less than
/// [`MIN_OBSERVATION_GAP`], and nothing for an entry that a flow table handles, whose packets do not touch the timer.
pub fn compare(observations: &[Observation]) -> Activity {
    let (Some(first), Some(last)) = (observations.first(), observations.last()) else {
        return Activity::default();
    };
    if observations
        .iter()
        .any(|observation| observation.status().is_offloaded())
    {
        return Activity::default();
    }
    let pairs = observations.iter().zip(observations.iter().skip(1));
    let recreated = pairs.into_iter().any(|(a, b)| b.is_recreated_since(a));
    let window = last.since(first);
    if recreated || window < MIN_OBSERVATION_GAP {
        return Activity::of_one_observation(last);
    }
    let grown = [0, 1].map(|way| last.packets[way].saturating_sub(first.packets[way]));
    Activity {
        refreshing: refreshing(observations, first, last),
        replies: if last.counted {
            replies(observations.len(), first, grown)
        } else {
            Replies::of_one_observation(last.status().is_unreplied())
        },
        window_ms: u32::try_from(window.as_millis()).unwrap_or(u32::MAX),
        packets: last
            .counted
            .then(|| grown.map(|n| u32::try_from(n).unwrap_or(u32::MAX))),
        is_new: false,
    }
}

fn refreshing(observations: &[Observation], first: &Observation, last: &Observation) -> Refreshing {
    if observations
        .iter()
        .any(|observation| observation.timeout.is_none())
    {
        return Refreshing::Unknown;
    }
    if last.packets_refill() {
        return if last.packets == first.packets {
            Refreshing::No
        } else {
            Refreshing::Yes
        };
    }
    let later = |position: usize| observations.iter().skip(position + 1);
    let gains = observations
        .iter()
        .enumerate()
        .flat_map(|(position, before)| {
            later(position).filter_map(move |after| after.gain_since(before))
        });
    let (mut least, mut most) = (i128::MAX, i128::MIN);
    for gain in gains {
        (least, most) = (least.min(gain), most.max(gain));
    }
    if most >= 2 * SECOND {
        Refreshing::Yes
    } else if least > -2 * SECOND {
        Refreshing::No
    } else {
        // The timer was set to a shorter time, by a user or by a change of the protocol's state.
        Refreshing::Unknown
    }
}

/// Evaluates counters; `grown` are the packets of both directions between the first observation and the last.
fn replies(observations: usize, first: &Observation, grown: [u64; 2]) -> Replies {
    let answered = first.packets[1] > 0;
    match grown {
        [_, (1..)] => Replies::TwoWay,
        [_, 0] if !answered => Replies::OneWay,
        [(2..), 0] if observations > 2 => Replies::Stopped,
        _ => Replies::Unknown,
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = (self.window_ms.saturating_add(500)) / 1000;
        match self.refreshing {
            Refreshing::Unknown => return f.write_str("not known whether its timer is refilled"),
            Refreshing::No => return write!(f, "no refill in {seconds} s"),
            Refreshing::Yes => write!(f, "timer refilled within the last {seconds} s")?,
        }
        match self.packets {
            None => Ok(()),
            Some([1, 0]) => f.write_str(": 1 packet sent, no answer"),
            Some([sent, 0]) => write!(f, ": {sent} packets sent, no answer"),
            Some([1, received]) => write!(f, ": 1 packet sent, {received} received"),
            Some([sent, received]) => write!(f, ": {sent} packets sent, {received} received"),
        }
    }
}

/// Recent observations of one entry that is observed repeatedly: the newest and two before it, each at least
/// [`MIN_OBSERVATION_GAP`] from the one before. 144 bytes.
#[derive(Clone, Debug, Default)]
pub struct RecentObservations {
    observations: [Option<Observation>; 3],
}

impl RecentObservations {
    /// Adds an observation. Returns whether it shows a refill that no earlier one showed.
    ///
    /// An observation that is less than [`MIN_OBSERVATION_GAP`] from the one before is replaced by the next, so any pace is
    /// allowed. Earlier observations are dropped when the entry was made anew.
    pub fn push(&mut self, observation: Observation) -> bool {
        let [a, b, c] = self.observations;
        let newest = c.or(b).or(a);
        if newest.is_none_or(|newest| observation.is_recreated_since(&newest)) {
            self.observations = [Some(observation), None, None];
            return false;
        }
        let apart = |before: Option<Observation>, after: Observation| {
            before.is_none_or(|before| after.since(&before) >= MIN_OBSERVATION_GAP)
        };
        self.observations = match (a, b, c) {
            (a, Some(b), _) if !apart(a, b) => [a, Some(observation), None],
            (a, Some(b), Some(c)) if !apart(Some(b), c) => [a, Some(b), Some(observation)],
            (_, Some(b), Some(c)) => [Some(b), Some(c), Some(observation)],
            (a, Some(b), None) => [a, Some(b), Some(observation)],
            (a, None, _) => [a, Some(observation), None],
        };
        match self.observations {
            [_, Some(before), Some(after)] | [Some(before), Some(after), None] => {
                compare(&[before, after]).refreshing == Refreshing::Yes
            }
            _ => false,
        }
    }

    /// Seconds left at the newest observation.
    pub fn last_timeout(&self) -> Option<u32> {
        let [a, b, c] = self.observations;
        c.or(b).or(a)?.timeout
    }

    /// Compares the observations. `flow` is the present state, used where there is only one.
    pub fn activity(&self, flow: &Flow) -> Activity {
        match self.observations {
            [Some(a), Some(b), Some(c)] => compare(&[a, b, c]),
            [Some(a), Some(b), None] => compare(&[a, b]),
            _ => Activity::of_one_observation(&Observation::of(flow, Duration::ZERO)),
        }
    }
}

#[cfg(test)]
mod tests;
