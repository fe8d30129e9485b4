//! Groups of entries and their order.

use std::cmp::Ordering;

use crate::entry::Entry;

use super::group_names::GroupNames;
use super::heavy_hitters::{GroupTally, HeavyHitters, MAX_GROUPS, Measure, Missed};
use super::key::{GroupKey, KeyValue};

/// A term of `--sort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortTerm {
    /// A number; the largest comes first.
    Measure(Measure),
    Key {
        key: GroupKey,
        descending: bool,
    },
}

impl std::str::FromStr for SortTerm {
    type Err = String;

    /// `count`, `packets` or `bytes`, whose largest value comes first with or without a leading `-`; or a key in ascending
    /// order, descending with a leading `-`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        use clap::ValueEnum;
        let (word, descending) = match text.strip_prefix('-') {
            Some(word) => (word, true),
            None => (text, false),
        };
        match word {
            "count" => return Ok(SortTerm::Measure(Measure::Count)),
            "packets" => return Ok(SortTerm::Measure(Measure::Packets)),
            "bytes" => return Ok(SortTerm::Measure(Measure::Bytes)),
            _ => {}
        }
        let mut keys = GroupKey::value_variants().iter();
        let key = keys.find(|key| key.name() == word);
        key.map(|key| SortTerm::Key {
            key: *key,
            descending,
        })
        .ok_or_else(|| {
            format!("{word:?} is none of count, packets, bytes, and no key that --by takes")
        })
    }
}

/// Order of groups: the first term that differs decides, then the larger count, then the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order(pub Vec<SortTerm>);

impl Order {
    /// Number that decides which groups are kept if there are too many.
    pub fn measure(&self) -> Measure {
        let mut terms = self.0.iter();
        let measure = terms.find_map(|term| match term {
            SortTerm::Measure(measure) => Some(*measure),
            SortTerm::Key { .. } => None,
        });
        measure.unwrap_or_default()
    }
}

/// Collects entries into groups.
#[derive(Clone, Debug)]
pub struct Groups<'c> {
    by: Vec<GroupKey>,
    names: GroupNames<'c>,
    heavy: HeavyHitters,
    /// Buffer for the values of the current entry.
    values: Vec<KeyValue>,
    matched: u64,
    uncounted: u64,
}

impl<'c> Groups<'c> {
    /// Groups by these keys. Of more than [`MAX_GROUPS`], those with the largest `measure` are kept.
    pub fn new(by: &[GroupKey], measure: Measure) -> Self {
        Groups {
            by: by.to_vec(),
            names: GroupNames::default(),
            heavy: HeavyHitters::new(measure, MAX_GROUPS),
            values: Vec::with_capacity(by.len()),
            matched: 0,
            uncounted: 0,
        }
    }

    /// Sets the network namespace of the entries that follow.
    pub fn enter(&mut self, netns: &str) {
        self.names.enter(netns);
    }

    /// Adds an entry to its group.
    #[inline]
    pub fn add(&mut self, entry: &Entry<'c>) {
        let Groups {
            by, names, values, ..
        } = self;
        values.clear();
        values.extend(by.iter().map(|key| KeyValue::of(*key, entry, names)));
        self.heavy.add(values, &entry.flow);
        self.matched += 1;
        self.uncounted += u64::from(entry.flow.packets().is_none());
    }

    /// Groups in order, at most `limit` of them; all for `None`.
    pub fn rank(self, order: &Order, limit: Option<usize>) -> Ranked<'c> {
        let Groups {
            by,
            names,
            heavy,
            matched,
            uncounted,
            ..
        } = self;
        let missed = heavy.missed();
        let group = |(values, tally)| Group { values, tally };
        let mut groups: Vec<Group> = heavy.into_groups().map(group).collect();
        let found = groups.len();
        groups.sort_unstable_by(|a, b| compare(a, b, order, &by, &names));
        groups.truncate(limit.unwrap_or(usize::MAX));
        Ranked {
            by,
            names,
            groups,
            matched,
            uncounted,
            found,
            missed,
        }
    }
}

/// A group of entries with the same values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Values in the order of the keys.
    pub values: Box<[KeyValue]>,
    pub tally: GroupTally,
}

/// Sorted groups.
#[derive(Debug)]
pub struct Ranked<'c> {
    pub by: Vec<GroupKey>,
    pub names: GroupNames<'c>,
    pub groups: Vec<Group>,
    /// Entries in all groups, including groups cut by the limit or dropped.
    pub matched: u64,
    /// Entries without packet and byte counters.
    pub uncounted: u64,
    /// Groups before the limit was applied, without dropped ones.
    pub found: usize,
    /// Upper bound of what the numbers of any group may lack.
    pub missed: Missed,
}

impl Ranked<'_> {
    /// Whether no group was dropped, so that all groups are present and all numbers exact.
    pub fn is_exact(&self) -> bool {
        self.missed.count == 0
    }

    /// Whether the groups shown are right and in the right order even if others were dropped: their numbers are exact, and
    /// no group that is not shown can be larger than the last one shown.
    pub fn is_certain(&self, order: &Order) -> bool {
        let measure = match order.0.first() {
            None => Measure::Count,
            Some(SortTerm::Measure(measure)) => *measure,
            Some(SortTerm::Key { .. }) => return self.is_exact(),
        };
        let dropped = match measure {
            Measure::Count => self.missed.count,
            Measure::Packets => self.missed.packets,
            Measure::Bytes => self.missed.bytes,
        };
        let is_sure = |group: &Group| {
            let tally = &group.tally;
            tally.missed == Missed::default() && tally.measured(measure) >= Some(dropped)
        };
        // Without a limit, dropped groups are missing.
        self.is_exact() || (self.groups.len() < self.found && self.groups.iter().all(is_sure))
    }

    /// Part of the matching entries that belong to a group, 0 to 1.
    pub fn share(&self, group: &Group) -> f64 {
        match self.matched {
            0 => 0.0,
            matched => group.tally.count as f64 / matched as f64,
        }
    }
}

fn compare(
    a: &Group,
    b: &Group,
    order: &Order,
    by: &[GroupKey],
    names: &GroupNames<'_>,
) -> Ordering {
    let by_term = |term: &SortTerm| match *term {
        // An absent number is less than any other.
        SortTerm::Measure(measure) => b.tally.measured(measure).cmp(&a.tally.measured(measure)),
        SortTerm::Key { key, descending } => {
            let Some(at) = by.iter().position(|one| *one == key) else {
                return Ordering::Equal;
            };
            match (a.values.get(at), b.values.get(at)) {
                (Some(a), Some(b)) => a.compare(b, descending, names),
                _ => Ordering::Equal,
            }
        }
    };
    let terms = order.0.iter().map(by_term).find(|order| order.is_ne());
    let keys = || {
        let mut pairs = a.values.iter().zip(&b.values);
        pairs.find_map(|(a, b)| Some(a.compare(b, false, names)).filter(|order| order.is_ne()))
    };
    terms
        .or_else(|| Some(b.tally.count.cmp(&a.tally.count)).filter(|order| order.is_ne()))
        .or_else(keys)
        .unwrap_or(Ordering::Equal)
}

impl KeyValue {
    /// Compares two values of one key. Absent values are last in either direction.
    fn compare(&self, other: &KeyValue, descending: bool, names: &GroupNames<'_>) -> Ordering {
        let order = match (self, other) {
            (KeyValue::Absent, KeyValue::Absent) => return Ordering::Equal,
            (KeyValue::Absent, _) => return Ordering::Greater,
            (_, KeyValue::Absent) => return Ordering::Less,
            (KeyValue::Number(a), KeyValue::Number(b)) => a.cmp(b),
            (KeyValue::ZoneOf(a, of), KeyValue::ZoneOf(b, other)) => (a, of).cmp(&(b, other)),
            // A zone of both directions comes before one of a single direction.
            (KeyValue::Number(a), KeyValue::ZoneOf(b, _)) => {
                a.cmp(&u32::from(*b)).then(Ordering::Less)
            }
            (KeyValue::ZoneOf(a, _), KeyValue::Number(b)) => {
                u32::from(*a).cmp(b).then(Ordering::Greater)
            }
            (KeyValue::Protocol(a), KeyValue::Protocol(b)) => {
                let name = ctnetlink::flow::protocol_name;
                (name(*a).is_none(), name(*a), a).cmp(&(name(*b).is_none(), name(*b), b))
            }
            (KeyValue::Address(a), KeyValue::Address(b)) => a.cmp(b),
            (KeyValue::AddressPort(a), KeyValue::AddressPort(b)) => a.cmp(b),
            (KeyValue::Name { id: a, port: p }, KeyValue::Name { id: b, port: q }) => {
                (names.get(*a), p).cmp(&(names.get(*b), q))
            }
            (
                KeyValue::State {
                    tracked: a,
                    status: s,
                },
                KeyValue::State {
                    tracked: b,
                    status: t,
                },
            ) => (a, s.0).cmp(&(b, t.0)),
            (KeyValue::Status(a), KeyValue::Status(b)) => a.0.cmp(&b.0),
            (KeyValue::Verdict(a), KeyValue::Verdict(b)) => a.cmp(b),
            (KeyValue::Reason(a), KeyValue::Reason(b)) => a.cmp(b),
            (KeyValue::Word(a), KeyValue::Word(b)) => names.word(*a).cmp(&names.word(*b)),
            (
                KeyValue::Masquerade {
                    source: a,
                    destination: d,
                    protocol: p,
                },
                KeyValue::Masquerade {
                    source: b,
                    destination: e,
                    protocol: q,
                },
            ) => (a, d, p).cmp(&(b, e, q)),
            // Names come before bare addresses.
            (KeyValue::Name { .. }, _) => Ordering::Less,
            (_, KeyValue::Name { .. }) => Ordering::Greater,
            _ => Ordering::Equal,
        };
        if descending { order.reverse() } else { order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctnetlink::flow::{Counters, Flow, L4, Tuple};

    /// `[source's last byte, destination port, bytes]`
    fn entry([src, port, bytes]: [u16; 3]) -> Entry<'static> {
        let tuple = Tuple {
            src: [10, 0, 0, src as u8].into(),
            dst: [10, 0, 0, 200].into(),
            protocol: 17,
            l4: L4::Ports {
                src: 4000,
                dst: port,
            },
        };
        let mut flow = Flow::new(tuple, tuple);
        flow.counters_original = (bytes > 0).then_some(Counters {
            packets: 1,
            bytes: bytes.into(),
        });
        Entry::bare(flow)
    }

    fn ranked(
        sort: &[&str],
        by: &[GroupKey],
        limit: Option<usize>,
    ) -> Vec<(String, u64, Option<u64>)> {
        let order = Order(sort.iter().map(|word| word.parse().unwrap()).collect());
        let mut groups = Groups::new(by, order.measure());
        for one in [
            [9, 53, 0],
            [10, 53, 700],
            [9, 53, 0],
            [9, 80, 10],
            [2, 53, 30],
        ] {
            groups.add(&entry(one));
        }
        let ranked = groups.rank(&order, limit);
        assert_eq!((ranked.matched, ranked.uncounted), (5, 2));
        assert!(ranked.is_exact());
        let shown = |group: &Group| {
            let text = group.values.iter().map(|value| match value {
                KeyValue::Address(address) => address.to_string(),
                KeyValue::Number(number) => number.to_string(),
                other => format!("{other:?}"),
            });
            let text = text.collect::<Vec<_>>().join(" ");
            (text, group.tally.count, group.tally.bytes)
        };
        ranked.groups.iter().map(shown).collect()
    }

    #[test]
    fn groups_are_sorted_by_size_and_addresses_by_value() {
        let row = |text: &str, count, bytes| (text.to_owned(), count, bytes);
        let (two, nine, ten) = (
            row("10.0.0.2", 1, Some(30)),
            row("10.0.0.9", 3, Some(10)),
            row("10.0.0.10", 1, Some(700)),
        );
        for (sort, limit, expected) in [
            (&[][..], None, vec![&nine, &two, &ten]),
            (&["count"], None, vec![&nine, &two, &ten]),
            (&["-count"], Some(2), vec![&nine, &two]),
            (&["bytes"], None, vec![&ten, &two, &nine]),
            (&["packets", "-src"], None, vec![&ten, &nine, &two]),
            (&["src"], None, vec![&two, &nine, &ten]),
            (&["-src"], Some(1), vec![&ten]),
        ] {
            let found = ranked(sort, &[GroupKey::Src], limit);
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{sort:?}");
        }
        let pairs = ranked(&["dport"], &[GroupKey::Src, GroupKey::Dport], None);
        let first = &pairs[0];
        assert_eq!(*first, row("10.0.0.9 53", 2, None));
        assert_eq!(pairs.len(), 4);
        assert_eq!(pairs[3].0, "10.0.0.9 80");
    }

    #[test]
    fn groups_are_certain_only_if_no_dropped_group_can_be_larger() {
        let mut heavy = HeavyHitters::new(Measure::Count, 4);
        let mut add = |port, times| {
            for _ in 0..times {
                heavy.add(&[KeyValue::Number(port)], &entry([1, 53, 0]).flow);
            }
        };
        add(1, 9);
        add(2, 8);
        (10..20).for_each(|port| add(port, 1));
        let groups = Groups {
            heavy,
            ..Groups::new(&[GroupKey::Dport], Measure::Count)
        };
        let mut ranked = groups.rank(&Order::default(), Some(2));
        assert!(!ranked.is_exact() && ranked.is_certain(&Order::default()));
        let by_port: Order = Order(vec!["dport".parse().unwrap()]);
        assert!(!ranked.is_certain(&by_port));
        ranked.groups[1].tally.count = 1;
        assert!(!ranked.is_certain(&Order::default()));
        ranked.groups.clear();
        ranked.found = 0;
        assert!(!ranked.is_certain(&Order::default()), "all were dropped");
    }

    #[test]
    fn shares_are_parts_of_all_matching_entries() {
        let mut groups = Groups::new(&[GroupKey::Src], Measure::Count);
        for src in [1, 1, 1, 2] {
            groups.add(&entry([src, 53, 0]));
        }
        let ranked = groups.rank(&Order::default(), Some(1));
        assert_eq!((ranked.groups.len(), ranked.found), (1, 2));
        assert_eq!(ranked.share(&ranked.groups[0]), 0.75);
        let nothing = Groups::new(&[GroupKey::Src], Measure::Count).rank(&Order::default(), None);
        assert_eq!((nothing.groups.len(), nothing.matched), (0, 0));
    }
}
