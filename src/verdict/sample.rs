//! Three observations of the whole table: two are stored, the third is compared as it is read.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use ctnetlink::flow::Flow;

use super::refresh::{Activity, Observation, compare};

/// Shortest time in which three observations distinguish a client that sends every 3 s from a silent one: see
/// [`compare`](super::compare).
pub const MIN_SAMPLE: Duration = Duration::from_secs(6);

/// Which of the two stored observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleRound {
    First,
    Second,
}

#[derive(Clone, Copy, Debug, Default)]
struct LookPair {
    first: Option<Observation>,
    second: Option<Observation>,
}

/// Stored observations of every entry: 105 bytes each, and up to 2.3 times that for the free capacity of a hash map.
///
/// Entries are found by a hash of zone and original tuple. Among a million entries two share a hash with a probability of 3
/// in 100 million. They then count as one entry that was made anew, and nothing is reported of it.
#[derive(Debug, Default)]
pub struct Sampler {
    pairs: HashMap<u64, LookPair>,
    hasher: RandomState,
}

impl Sampler {
    /// Stores an observation. A second one in the same round replaces the first, so a round can be repeated.
    pub fn record(&mut self, round: SampleRound, flow: &Flow, at: Duration) {
        let pair = self.pairs.entry(key(&self.hasher, flow)).or_default();
        let observation = Some(Observation::of(flow, at));
        match round {
            SampleRound::First => pair.first = observation,
            SampleRound::Second => pair.second = observation,
        }
    }

    /// Compares the stored observations with this one. An entry that is missing in the second round was made anew since.
    pub fn activity(&self, flow: &Flow, at: Duration) -> Activity {
        let third = Observation::of(flow, at);
        let pair = self.pairs.get(&key(&self.hasher, flow));
        let pair = pair.copied().unwrap_or_default();
        let first = pair.first;
        let mut activity = match pair {
            LookPair {
                first: Some(first),
                second: Some(second),
            } => compare(&[first, second, third]),
            LookPair {
                first: None,
                second: Some(second),
            } => compare(&[second, third]),
            LookPair { second: None, .. } => compare(&[third]),
        };
        activity.is_new = first.is_none_or(|first| third.is_recreated_since(&first));
        activity
    }

    /// Number of entries with a stored observation.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

fn key(hasher: &RandomState, flow: &Flow) -> u64 {
    hasher.hash_one((flow.zone, flow.original))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Refreshing, Replies};
    use ctnetlink::flow::{L4, Tuple};

    fn flow(port: u16, timeout: u32) -> Flow {
        let tuple = Tuple {
            src: [10, 0, 0, 1].into(),
            dst: [10, 96, 0, 10].into(),
            protocol: 17,
            l4: L4::Ports { src: port, dst: 53 },
        };
        let mut flow = Flow::new(tuple, tuple);
        flow.timeout = Some(timeout);
        flow
    }

    fn sampler(observations: &[(SampleRound, u64, Flow)]) -> Sampler {
        let mut sampler = Sampler::default();
        for (round, at, flow) in observations {
            sampler.record(*round, flow, Duration::from_secs(*at));
        }
        sampler
    }

    const THIRD: Duration = Duration::from_secs(6);

    #[test]
    fn entries_are_compared_with_their_own_observations_only() {
        use SampleRound::{First, Second};
        let mut zoned = flow(1, 20);
        zoned.zone.id = 5;
        let sampler = sampler(&[
            (First, 0, flow(1, 29)),
            (First, 0, flow(2, 29)),
            (First, 0, zoned.clone()),
            (Second, 3, flow(1, 29)),
            (Second, 3, flow(2, 26)),
            (Second, 3, flow(3, 29)),
        ]);
        assert_eq!(sampler.len(), 4);
        let answer = |flow: &Flow| {
            let activity = sampler.activity(flow, THIRD);
            (
                activity.refreshing,
                activity.window().as_secs(),
                activity.is_new,
            )
        };
        assert_eq!(answer(&flow(1, 29)), (Refreshing::Yes, 6, false));
        assert_eq!(answer(&flow(2, 23)), (Refreshing::No, 6, false));
        // The same client, translated to another endpoint.
        let mut led_elsewhere = flow(2, 29);
        led_elsewhere.reply.src = [10, 1, 0, 8].into();
        assert_eq!(answer(&led_elsewhere), (Refreshing::Unknown, 0, true));
        // New in the second round, new in the third, and gone at the second.
        assert_eq!(answer(&flow(3, 29)), (Refreshing::Yes, 3, true));
        assert_eq!(answer(&flow(4, 29)), (Refreshing::Unknown, 0, true));
        zoned.timeout = Some(29);
        assert_eq!(answer(&zoned), (Refreshing::Unknown, 0, false));
        assert_eq!(sampler.activity(&zoned, THIRD).replies, Replies::OneWay);
    }

    #[test]
    fn a_repeated_observation_replaces_the_one_of_its_round() {
        use SampleRound::{First, Second};
        let sampler = sampler(&[
            (First, 0, flow(1, 29)),
            (First, 1, flow(1, 28)),
            (Second, 4, flow(1, 25)),
            (Second, 5, flow(1, 24)),
        ]);
        let activity = sampler.activity(&flow(1, 22), Duration::from_secs(7));
        assert_eq!(
            (activity.refreshing, activity.window()),
            (Refreshing::No, THIRD)
        );
    }

    #[test]
    fn an_entry_takes_the_documented_memory() {
        assert_eq!(size_of::<(u64, LookPair)>() + 1, 105);
    }
}
