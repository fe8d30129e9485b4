//! Is an entry being kept alive, and does anybody answer? Told by comparing looks at it.
//!
//! A packet in either direction refills the timer of its entry (`__nf_ct_refresh_acct`), also one that is dropped or rejected
//! later, and no event tells of it. So an entry whose endpoint is gone lives for as long as its client keeps asking.
//!
//! # What timers prove
//!
//! The kernel gives whole seconds, rounded down. Between two looks the *gain* is how much more is left than without a
//! refill: `to2 - (to1 - (t2 - t1))`. Rounding moves it by less than 1 s either way, so
//!
//! * without a refill it lies below 1 s: never `yes`, even when the clock of a look is off by up to a second;
//! * refills that put the end of the entry off by 3 s or more show as at least 2 s: never `no`;
//! * in between it depends on where in a second the packets fell.
//!
//! A client that sends at regular intervals puts the end off by at least the longer of its interval and the time between the
//! looks less its interval. With looks 6 s apart that is 3 s at least, so `no` means that it sent nothing; this is why a
//! sample takes no less.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use ctnetlink::flow::{Flow, Status};

use super::{Refreshing, Replies};

/// Timers that are nearer together are not compared.
pub const MIN_OBSERVATION_GAP: Duration = Duration::from_secs(3);
const SECOND: i128 = 1_000_000_000;

/// What one look at an entry tells, in 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Nanoseconds of a monotonic clock: enough for 584 years.
    at: u64,
    /// Hash of what never changes while an entry lives.
    identity: u64,
    /// Original and reply direction; zeros where `counted` is false.
    packets: [u64; 2],
    timeout: Option<u32>,
    /// The 16 bits of `enum ip_conntrack_status` that there are.
    status: u16,
    counted: bool,
}

impl Observation {
    /// `at` is the time of a monotonic clock at which the kernel wrote the entry down; all looks that are compared count
    /// from the same origin.
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

    /// Another entry than the one that was looked at `before`, with the same original tuple. What is not told by its reply
    /// tuple, id, start, counters or status bits is taken for the same one: if so, its timer was refilled by the packet
    /// that made it.
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

    /// Nanoseconds that are left beyond what would be without a refill. `None` without timers, and when the looks are too
    /// near to each other.
    fn gain_since(&self, before: &Observation) -> Option<i128> {
        let (now, then) = self.timeout.zip(before.timeout)?;
        let passed = self.since(before);
        let gain = (i128::from(now) - i128::from(then)) * SECOND + passed.as_nanos() as i128;
        (passed >= MIN_OBSERVATION_GAP).then_some(gain)
    }

    /// Packets count, and refill the timer.
    fn packets_refill(&self) -> bool {
        self.counted && !self.status().contains(Status::FIXED_TIMEOUT)
    }
}

/// `now` has the original tuple of `before`, but is not the same entry any more.
pub fn is_recreated(before: &Flow, now: &Flow) -> bool {
    let look = |flow| Observation::of(flow, Duration::ZERO);
    look(now).is_recreated_since(&look(before))
}

/// What looks at one entry showed. Prints as the clause that an operator reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    pub refreshing: Refreshing,
    pub replies: Replies,
    window_ms: u32,
    /// Packets of the original and the reply direction inside the window, where they are counted.
    packets: Option<[u32; 2]>,
    /// The first look did not show this entry: it was made since, or began to pass what is looked at.
    pub is_new: bool,
}

impl Activity {
    /// From the first look to the last, in milliseconds; zero when there was only one.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms.into())
    }

    /// The longest time between two packets of the client, where it sent some: `n` packets in the window are at most
    /// `window / (n - 1)` apart, where they come regularly.
    pub fn longest_interval(&self) -> Option<Duration> {
        if self.refreshing != Refreshing::Yes {
            return None;
        }
        let gaps = self.packets.map_or(1, |[sent, _]| sent.saturating_sub(1));
        Some(self.window() / gaps.max(1))
    }

    fn of_one_observation(look: &Observation) -> Self {
        Activity {
            replies: Replies::of_one_observation(look.status().is_unreplied()),
            ..Activity::default()
        }
    }
}

/// What looks at one entry, in the order of their times, show together.
///
/// Nothing but what the last one says where the entry was made anew between them, where they span less than [`MIN_OBSERVATION_GAP`], and
/// nothing at all about entries that a flow table handles: their packets pass by the timer.
pub fn compare(looks: &[Observation]) -> Activity {
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
        return Activity::default();
    };
    if looks.iter().any(|look| look.status().is_offloaded()) {
        return Activity::default();
    }
    let pairs = looks.iter().zip(looks.iter().skip(1));
    let recreated = pairs.into_iter().any(|(a, b)| b.is_recreated_since(a));
    let window = last.since(first);
    if recreated || window < MIN_OBSERVATION_GAP {
        return Activity::of_one_observation(last);
    }
    let grown = [0, 1].map(|way| last.packets[way].saturating_sub(first.packets[way]));
    Activity {
        refreshing: refreshing(looks, first, last),
        replies: if last.counted {
            replies(looks.len(), first, grown)
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

fn refreshing(looks: &[Observation], first: &Observation, last: &Observation) -> Refreshing {
    if looks.iter().any(|look| look.timeout.is_none()) {
        return Refreshing::Unknown;
    }
    if last.packets_refill() {
        return if last.packets == first.packets {
            Refreshing::No
        } else {
            Refreshing::Yes
        };
    }
    let later = |place: usize| looks.iter().skip(place + 1);
    let gains = looks
        .iter()
        .enumerate()
        .flat_map(|(place, before)| later(place).filter_map(move |after| after.gain_since(before)));
    let (mut least, mut most) = (i128::MAX, i128::MIN);
    for gain in gains {
        (least, most) = (least.min(gain), most.max(gain));
    }
    if most >= 2 * SECOND {
        Refreshing::Yes
    } else if least > -2 * SECOND {
        Refreshing::No
    } else {
        // Somebody, or a change of the protocol's state, gave it a shorter time.
        Refreshing::Unknown
    }
}

/// From counters alone; `grown` are the packets of both directions between the first look and the last.
fn replies(looks: usize, first: &Observation, grown: [u64; 2]) -> Replies {
    let answered = first.packets[1] > 0;
    match grown {
        [_, (1..)] => Replies::TwoWay,
        [_, 0] if !answered => Replies::OneWay,
        [(2..), 0] if looks > 2 => Replies::Stopped,
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

/// The last looks at one entry, for who looks again and again: the newest one and two before it, each [`MIN_OBSERVATION_GAP`] or more
/// from the one before. 144 bytes.
#[derive(Clone, Debug, Default)]
pub struct RecentObservations {
    looks: [Option<Observation>; 3],
}

impl RecentObservations {
    /// Adds a look. Whether it shows a refill that no look before it showed.
    ///
    /// One that is less than [`MIN_OBSERVATION_GAP`] from the one before gives way to the next, so the looks may come at any pace. When
    /// the entry was made anew, what was seen of the old one is forgotten.
    pub fn push(&mut self, look: Observation) -> bool {
        let [a, b, c] = self.looks;
        let newest = c.or(b).or(a);
        if newest.is_none_or(|newest| look.is_recreated_since(&newest)) {
            self.looks = [Some(look), None, None];
            return false;
        }
        let apart = |before: Option<Observation>, after: Observation| {
            before.is_none_or(|before| after.since(&before) >= MIN_OBSERVATION_GAP)
        };
        self.looks = match (a, b, c) {
            (a, Some(b), _) if !apart(a, b) => [a, Some(look), None],
            (a, Some(b), Some(c)) if !apart(Some(b), c) => [a, Some(b), Some(look)],
            (_, Some(b), Some(c)) => [Some(b), Some(c), Some(look)],
            (a, Some(b), None) => [a, Some(b), Some(look)],
            (a, None, _) => [a, Some(look), None],
        };
        match self.looks {
            [_, Some(before), Some(after)] | [Some(before), Some(after), None] => {
                compare(&[before, after]).refreshing == Refreshing::Yes
            }
            _ => false,
        }
    }

    /// Seconds left at the newest look.
    pub fn last_timeout(&self) -> Option<u32> {
        let [a, b, c] = self.looks;
        c.or(b).or(a)?.timeout
    }

    /// What the looks show together of an entry that is like `flow` by now.
    pub fn seen(&self, flow: &Flow) -> Activity {
        match self.looks {
            [Some(a), Some(b), Some(c)] => compare(&[a, b, c]),
            [Some(a), Some(b), None] => compare(&[a, b]),
            _ => Activity::of_one_observation(&Observation::of(flow, Duration::ZERO)),
        }
    }
}

#[cfg(test)]
mod tests;
