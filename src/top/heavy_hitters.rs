//! Counts groups in bounded memory.
//!
//! With up to [`MAX_GROUPS`] groups the numbers are exact. Before a further group is added, the smaller half is dropped and the
//! largest numbers among the dropped groups are added to an error bound. A group that is added later may have been dropped
//! before and lack at most this bound. So a number is never too large, and its largest error is known. Groups that are large
//! from the beginning stay exact, unlike with the sketches Misra-Gries and Space-Saving.

use std::collections::HashMap;

use ctnetlink::flow::Flow;

use super::key::KeyValue;

/// A number of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    #[default]
    Count,
    Packets,
    Bytes,
}

/// Groups kept at a time, at most. They take about 20 MiB with one key, 25 MiB with two.
pub const MAX_GROUPS: usize = 100_000;

/// Upper bounds of what the numbers of a group may lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    pub count: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// Numbers of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTally {
    /// Entries.
    pub count: u64,
    /// Sum of both directions; `None` if no entry of the group has counters.
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    /// Upper bound of what was dropped with an earlier group of the same values.
    pub missed: Missed,
}

impl GroupTally {
    #[inline]
    fn add(&mut self, flow: &Flow) {
        self.count += 1;
        add(&mut self.packets, flow.packets());
        add(&mut self.bytes, flow.bytes());
    }

    /// Number of this measure; `None` without counters.
    pub fn measured(&self, measure: Measure) -> Option<u64> {
        match measure {
            Measure::Count => Some(self.count),
            Measure::Packets => self.packets,
            Measure::Bytes => self.bytes,
        }
    }
}

fn add(sum: &mut Option<u64>, number: Option<u64>) {
    if let Some(number) = number {
        *sum = Some(sum.unwrap_or(0).saturating_add(number));
    }
}

/// Groups by their values; the larger ones if there are too many.
#[derive(Clone, Debug)]
pub(super) struct HeavyHitters {
    groups: HashMap<Box<[KeyValue]>, GroupTally>,
    /// Groups kept at a time.
    max_groups: usize,
    /// Number by which groups are kept.
    measure: Measure,
    missed: Missed,
}

impl HeavyHitters {
    pub fn new(measure: Measure, max_groups: usize) -> Self {
        HeavyHitters {
            groups: HashMap::new(),
            max_groups: max_groups.max(1),
            measure,
            missed: Missed::default(),
        }
    }

    #[inline]
    pub fn add(&mut self, values: &[KeyValue], flow: &Flow) {
        if let Some(tally) = self.groups.get_mut(values) {
            return tally.add(flow);
        }
        if self.groups.len() >= self.max_groups {
            self.drop_small();
        }
        let mut tally = GroupTally {
            missed: self.missed,
            ..GroupTally::default()
        };
        tally.add(flow);
        self.groups.insert(values.into(), tally);
    }

    /// Drops the smaller half of the groups, at least one.
    fn drop_small(&mut self) {
        let measure = self.measure;
        let size = |tally: &GroupTally| tally.measured(measure).unwrap_or(0);
        let mut sizes: Vec<u64> = self.groups.values().map(size).collect();
        let half = sizes.len().div_ceil(2);
        let (_, middle, _) = sizes.select_nth_unstable(half.saturating_sub(1));
        let middle = *middle;
        let below = sizes.iter().filter(|size| **size < middle).count();
        // Groups as large as the middle one are dropped until half of all is dropped.
        let mut equal = half.saturating_sub(below);
        let mut largest = Missed::default();
        self.groups.retain(|_, tally| {
            let drops = match size(tally) {
                size if size < middle => true,
                size if size == middle && equal > 0 => {
                    equal -= 1;
                    true
                }
                _ => false,
            };
            if drops {
                largest.count = largest.count.max(tally.count);
                largest.packets = largest.packets.max(tally.packets.unwrap_or(0));
                largest.bytes = largest.bytes.max(tally.bytes.unwrap_or(0));
            }
            !drops
        });
        self.missed.count += largest.count;
        self.missed.packets = self.missed.packets.saturating_add(largest.packets);
        self.missed.bytes = self.missed.bytes.saturating_add(largest.bytes);
    }

    /// Upper bound of what the numbers of any group may lack. Zero if every group is present and exact.
    pub fn missed(&self) -> Missed {
        self.missed
    }

    pub fn into_groups(self) -> impl Iterator<Item = (Box<[KeyValue]>, GroupTally)> {
        self.groups.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use ctnetlink::flow::{Counters, L4, Tuple};

    fn flow(bytes: Option<u64>) -> Flow {
        let tuple = Tuple {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            protocol: 17,
            l4: L4::Ports { src: 1, dst: 53 },
        };
        let mut flow = Flow::new(tuple, tuple);
        flow.counters_original = bytes.map(|bytes| Counters { packets: 1, bytes });
        flow
    }

    #[test]
    fn absent_counters_are_not_counted_as_zero() {
        let mut heavy = HeavyHitters::new(Measure::Count, 10);
        heavy.add(&[KeyValue::Number(1)], &flow(None));
        heavy.add(&[KeyValue::Number(2)], &flow(None));
        heavy.add(&[KeyValue::Number(2)], &flow(Some(0)));
        let groups: BTreeMap<_, _> = heavy
            .into_groups()
            .map(|(values, tally)| (format!("{values:?}"), (tally.count, tally.bytes)))
            .collect();
        let groups: Vec<_> = groups.into_values().collect();
        assert_eq!(groups, [(1, None), (2, Some(0))]);
    }

    #[test]
    fn one_group_over_the_limit_drops_only_the_smaller_half() {
        let mut heavy = HeavyHitters::new(Measure::Count, 100);
        for n in 0..=100 {
            heavy.add(&[KeyValue::Number(n)], &flow(None));
        }
        assert_eq!(heavy.missed().count, 1);
        assert_eq!(heavy.into_groups().count(), 51);
    }

    proptest! {
        /// The true number of every group, kept or dropped, is between its counted number and that plus the error bound; the
        /// number of groups is bounded; without drops the numbers are exact.
        #[test]
        fn numbers_never_lack_more_than_the_error_bound(
            entries in proptest::collection::vec((0u32..60, 0u64..1000), 0..600),
            max_groups in 1usize..40,
            by_bytes in any::<bool>(),
        ) {
            let measure = if by_bytes { Measure::Bytes } else { Measure::Count };
            let mut heavy = HeavyHitters::new(measure, max_groups);
            let mut truth: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
            for (key, bytes) in entries {
                // Small keys are common.
                let key = key * key / 60;
                heavy.add(&[KeyValue::Number(key)], &flow(Some(bytes)));
                let (count, sum) = truth.entry(key).or_default();
                *count += 1;
                *sum += bytes;
                prop_assert!(heavy.groups.len() <= max_groups);
            }
            let exact = truth.len() <= max_groups;
            let missed = heavy.missed();
            prop_assert_eq!(exact && missed != Missed::default(), false);
            for (key, (count, bytes)) in truth {
                let values: &[KeyValue] = &[KeyValue::Number(key)];
                let tally = heavy.groups.get(values).copied().unwrap_or(GroupTally { missed, ..GroupTally::default() });
                prop_assert!(tally.count <= count && count <= tally.count + tally.missed.count);
                let sum = tally.bytes.unwrap_or(0);
                prop_assert!(sum <= bytes && bytes <= sum + tally.missed.bytes);
                prop_assert!(tally.missed.count <= missed.count);
            }
        }
    }
}
