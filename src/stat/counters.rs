//! Counters by the kernel's names, of one CPU or summed.

use std::collections::BTreeMap;

/// Counters of current kernels in the order of `conntrack -S`, then those of expectations. They are always shown, as absent
/// if they are not known.
pub const NAMES: [&str; 13] = [
    "found",
    "invalid",
    "insert",
    "insert_failed",
    "drop",
    "early_drop",
    "error",
    "search_restart",
    "clash_resolve",
    "chaintoolong",
    "expect_new",
    "expect_create",
    "expect_delete",
];

/// Counters by name. A missing name is not known, which is not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    pub fn put(&mut self, name: &str, count: u64) {
        self.0.insert(name.to_owned(), count);
    }

    /// [`NAMES`], then the names of all other counters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let others = self.0.keys().map(String::as_str);
        let others = others.filter(|name| !NAMES.contains(name));
        NAMES.into_iter().chain(others)
    }

    /// Differences from `before` for counters known on both sides. The kernel's counters wrap at 32 bits.
    #[must_use]
    pub fn since(&self, before: &Counters) -> Counters {
        let both = self.0.iter().filter_map(|(name, now)| {
            let (now, before) = (*now as u32, before.get(name)? as u32);
            Some((name.clone(), u64::from(now.wrapping_sub(before))))
        });
        Counters(both.collect())
    }
}

/// Sums the counters of several CPUs.
impl<'c> FromIterator<&'c Counters> for Counters {
    fn from_iter<I: IntoIterator<Item = &'c Counters>>(all: I) -> Self {
        let mut sums = BTreeMap::new();
        for (name, count) in all.into_iter().flat_map(|one| &one.0) {
            *sums.entry(name.clone()).or_insert(0) += count;
        }
        Counters(sums)
    }
}

impl<N: Into<String>> FromIterator<(N, u64)> for Counters {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(all: I) -> Self {
        let all = all.into_iter();
        Counters(all.map(|(name, count)| (name.into(), count)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_hold_exactly_the_counters_of_some_cpu() {
        let cpus = [
            Counters::from_iter([("invalid", 110), ("drop", 0)]),
            Counters::from_iter([("invalid", 2), ("odd", 7)]),
        ];
        let total = Counters::from_iter(&cpus);
        assert_eq!(total.get("invalid"), Some(112));
        assert_eq!(total.get("drop"), Some(0));
        assert_eq!(total.get("odd"), Some(7));
        assert_eq!(total.get("insert"), None);
        assert_eq!(total.names().last(), Some("odd"));
        assert_eq!(total.names().count(), NAMES.len() + 1);
    }

    #[test]
    fn a_difference_survives_the_wrap_of_32_bits_and_needs_both_sides() {
        let before = Counters::from_iter([("drop", 0xffff_fff0), ("insert_failed", 1041)]);
        let now = Counters::from_iter([("drop", 0x10), ("insert_failed", 1068), ("invalid", 5)]);
        let delta = now.since(&before);
        assert_eq!(delta.get("drop"), Some(0x20));
        assert_eq!(delta.get("insert_failed"), Some(27));
        assert_eq!(delta.get("invalid"), None);
    }
}
