//! `--sort KEY[,-KEY]`.
//!
//! Without a limit every entry is kept in memory; with a limit of N, only the first N of the order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::str::FromStr;

use crate::entry::Entry;

use super::column::{self, Column, UnknownColumn};
use super::row::Row;
use super::value::SortKey;

/// Columns to sort by; the first that differs decides. `-` before a key reverses its order.
#[derive(Clone)]
pub struct SortOrder(Vec<(&'static Column, bool)>);

impl std::fmt::Debug for SortOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self
            .0
            .iter()
            .map(|(column, descending)| (column.key, descending));
        f.debug_list().entries(keys).finish()
    }
}

impl FromStr for SortOrder {
    type Err = UnknownColumn;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let key = |word: &str| match word.strip_prefix('-') {
            Some(word) => Ok((column::find(word)?, true)),
            None => Ok((column::find(word)?, false)),
        };
        list.split(',')
            .map(key)
            .collect::<Result<_, _>>()
            .map(SortOrder)
    }
}

impl SortOrder {
    /// The order in which entries are read.
    pub fn as_found() -> Self {
        SortOrder(Vec::new())
    }

    fn keys(&self, entry: &Entry<'_>) -> Box<[SortKey]> {
        let row = Row::of(entry, None, 0);
        let key = |(column, _): &(&Column, bool)| (column.value)(&row).sort_key();
        self.0.iter().map(key).collect()
    }

    fn compare(&self, a: &[SortKey], b: &[SortKey]) -> Ordering {
        let keys = self.0.iter().zip(a.iter().zip(b));
        keys.map(|((_, descending), (a, b))| a.compare(b, *descending))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

#[derive(Clone)]
struct Kept<'c> {
    order: Rc<SortOrder>,
    keys: Box<[SortKey]>,
    /// Position in the input, which orders entries that compare equal.
    position: u64,
    entry: Entry<'c>,
}

impl Ord for Kept<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.order.compare(&self.keys, &other.keys);
        order.then(self.position.cmp(&other.position))
    }
}

impl PartialOrd for Kept<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kept<'_> {}

/// Sorts entries.
#[derive(Clone)]
pub struct Sorter<'c> {
    order: Rc<SortOrder>,
    limit: Option<usize>,
    seen: u64,
    /// The last entry of the order is on top; it is replaced when the limit is reached.
    heap: BinaryHeap<Kept<'c>>,
}

impl<'c> Sorter<'c> {
    /// Keeps the first `limit` entries of the order; all for `None`.
    pub fn new(order: SortOrder, limit: Option<usize>) -> Self {
        Sorter {
            order: Rc::new(order),
            limit,
            seen: 0,
            heap: BinaryHeap::new(),
        }
    }

    /// Adds an entry. It is cloned only if it is kept.
    pub fn push(&mut self, entry: &Entry<'c>) {
        let keys = self.order.keys(entry);
        let position = self.seen;
        self.seen += 1;
        if self.limit.is_some_and(|limit| self.heap.len() >= limit) {
            // Of equal keys, the earlier entry is kept.
            match self.heap.peek() {
                Some(worst) if self.order.compare(&keys, &worst.keys).is_lt() => self.heap.pop(),
                _ => return,
            };
        }
        self.heap.push(Kept {
            order: Rc::clone(&self.order),
            keys,
            position,
            entry: entry.clone(),
        });
    }

    /// Number of entries pushed, kept or not.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Kept entries in order; equal ones in the order of the input.
    pub fn into_sorted(self) -> impl Iterator<Item = Entry<'c>> {
        self.heap
            .into_sorted_vec()
            .into_iter()
            .map(|kept| kept.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::ports;
    use super::*;
    use ctnetlink::flow::Flow;

    fn entry(source: &str, port: u16, timeout: Option<u32>) -> Entry<'static> {
        let mut flow = Flow::new(
            ports(17, (source, port), ("fd00::2", 53)),
            ports(17, ("fd00::2", 53), (source, port)),
        );
        flow.timeout = timeout;
        Entry::bare(flow)
    }

    fn sorted(order: &str, limit: Option<usize>, entries: &[Entry<'static>]) -> Vec<u16> {
        let mut sorter = Sorter::new(order.parse().unwrap(), limit);
        for entry in entries {
            sorter.push(entry);
        }
        assert_eq!(sorter.seen(), entries.len() as u64);
        let ports = sorter
            .into_sorted()
            .map(|entry| entry.flow.original.sport());
        ports.map(Option::unwrap).collect()
    }

    #[test]
    fn keys_order_by_their_kind_and_absent_is_last_both_ways() {
        let entries = [
            entry("10.0.0.9", 1, Some(9)),
            entry("10.0.0.10", 2, None),
            entry("fd00::1", 3, Some(100)),
            entry("9.0.0.1", 4, Some(20)),
        ];
        for (order, expected) in [
            ("timeout", [1, 4, 3, 2]),
            ("-timeout", [3, 4, 1, 2]),
            ("original.src", [4, 1, 2, 3]),
            ("-original.src", [3, 2, 1, 4]),
            ("client", [4, 1, 2, 3]),
            ("family,-original.sport", [4, 2, 1, 3]),
            ("start", [1, 2, 3, 4]),
        ] {
            assert_eq!(sorted(order, None, &entries), expected, "{order}");
        }
    }

    #[test]
    fn a_limit_keeps_the_first_rows_of_the_whole_order() {
        let entries: Vec<_> = (0..500u16)
            .map(|n| {
                entry(
                    "10.0.0.1",
                    n,
                    (n % 7 != 0).then_some(u32::from(n) * 37 % 11),
                )
            })
            .collect();
        for order in ["timeout", "-timeout", "-timeout,-original.sport", "verdict"] {
            let all = sorted(order, None, &entries);
            for limit in [0, 1, 10, 499, 500, 900] {
                let cut = &all[..limit.min(all.len())];
                assert_eq!(sorted(order, Some(limit), &entries), cut, "{order} {limit}");
            }
        }
    }

    #[test]
    fn the_error_for_an_unknown_key_names_similar_keys() {
        let error = "-timout".parse::<SortOrder>().unwrap_err();
        assert_eq!(error.nearest, ["timeout"]);
        let error = "sport".parse::<SortOrder>().unwrap_err();
        assert_eq!(
            error.nearest,
            ["original.sport", "reply.sport", "master.sport"]
        );
        assert!(error.to_string().starts_with(
            "no column `sport`; did you mean original.sport, reply.sport, master.sport?; the columns are family, protocol,"
        ));
        assert!("".parse::<SortOrder>().is_err());
        assert!("timeout,".parse::<SortOrder>().is_err());
        assert!("--timeout".parse::<SortOrder>().is_err());
    }
}
