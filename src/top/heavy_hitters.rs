//! Counting with a bound on memory.
//!
//! Up to [`MAX_GROUPS`] groups the numbers are exact. When another one comes, the smaller half is dropped, and the largest of
//! what was dropped is remembered: a group that comes (again) later may have lost that much, once for each time. So a
//! number is never too large, and what it lacks at most is known. Groups that were large from the beginning stay exact,
//! which the usual sketches (Misra-Gries, Space-Saving) do not give.

use std::collections::HashMap;

use ctnetlink::flow::Flow;

use super::key::KeyValue;

/// A number that a group has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    #[default]
    Count,
    Packets,
    Bytes,
}

/// Groups that are counted at a time: about 20 MiB with one key, 25 MiB with two.
pub const MAX_GROUPS: usize = 100_000;

/// What numbers may lack, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    pub count: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// The numbers of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTally {
    /// Entries.
    pub count: u64,
    /// Both directions; `None` while no entry of the group is counted by the kernel.
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    /// What the group may have had before, and was dropped.
    pub missed: Missed,
}

impl GroupTally {
    #[inline]
    fn add(&mut self, flow: &Flow) {
        self.count += 1;
        add(&mut self.packets, flow.packets());
        add(&mut self.bytes, flow.bytes());
    }

    /// The number that this measure means; nothing for counters that are not there.
    pub fn measured(&self, measure: Measure) -> Option<u64> {
        match measure {
            Measure::Count => Some(self.count),
            Measure::Packets => self.packets,
            Measure::Bytes => self.bytes,
        }
    }
}

fn add(sum: &mut Option<u64>, some: Option<u64>) {
    if let Some(some) = some {
        *sum = Some(sum.unwrap_or(0).saturating_add(some));
    }
}

/// Groups by their values, the larger ones where there are too many.
#[derive(Debug)]
pub(super) struct HeavyHitters {
    groups: HashMap<Box<[KeyValue]>, GroupTally>,
    /// Groups at a time.
    max_groups: usize,
    /// What makes a group large.
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

    /// Drops the smaller half, at least one.
    fn drop_small(&mut self) {
        let measure = self.measure;
        let size = |tally: &GroupTally| tally.measured(measure).unwrap_or(0);
        let mut sizes: Vec<u64> = self.groups.values().map(size).collect();
        let half = sizes.len().div_ceil(2);
        let (_, middle, _) = sizes.select_nth_unstable(half.saturating_sub(1));
        let middle = *middle;
        let below = sizes.iter().filter(|size| **size < middle).count();
        // Of those that are just as large as the middle one, as many as it takes.
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

    /// What the numbers of any group may lack. Nothing: every group is there, and exact.
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
    fn counters_that_are_not_there_are_no_zeros() {
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
    fn one_group_too_many_costs_only_the_smaller_half() {
        let mut heavy = HeavyHitters::new(Measure::Count, 100);
        for n in 0..=100 {
            heavy.add(&[KeyValue::Number(n)], &flow(None));
        }
        assert_eq!(heavy.missed().count, 1);
        assert_eq!(heavy.into_groups().count(), 51);
    }

    proptest! {
        /// True numbers lie between what is counted and that plus what may be missing, for every group that is there and for
        /// every one that is not; memory is bounded; what was never dropped is exact.
        #[test]
        fn what_the_numbers_lack_is_never_more_than_said(
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
