//! Groups of entries in bounded memory.
//!
//! A table may hold a million entries to a million destinations, and every check searches for few, large groups. When the
//! capacity is reached, the weight of each group falls by one and groups without weight are dropped (Misra and Gries,
//! 1982): only groups smaller than [`BoundedGroups::missed`] are dropped, and no other group lacks more entries than that.

use std::collections::HashMap;
use std::hash::Hash;

/// Upper bound of the groups of one check.
pub const MAX_GROUPS: usize = 8192;

/// Values by key.
#[derive(Debug)]
pub struct BoundedGroups<K, V> {
    groups: HashMap<K, BoundedGroup<V>>,
    capacity: usize,
    missed: u64,
}

#[derive(Debug)]
struct BoundedGroup<V> {
    weight: u64,
    value: V,
}

impl<K, V> Default for BoundedGroups<K, V> {
    fn default() -> Self {
        Self::with_capacity(MAX_GROUPS)
    }
}

impl<K, V> BoundedGroups<K, V> {
    fn with_capacity(capacity: usize) -> Self {
        BoundedGroups {
            groups: HashMap::new(),
            capacity,
            missed: 0,
        }
    }

    /// Upper bound of the entries that any group lacks because there were more groups than [`MAX_GROUPS`]: usually 0.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.groups.iter().map(|(key, group)| (key, &group.value))
    }
}

impl<K: Eq + Hash, V: Default> BoundedGroups<K, V> {
    /// Returns the group of `key` and adds one entry to its weight.
    pub fn at(&mut self, key: K) -> &mut V {
        if self.groups.len() >= self.capacity && !self.groups.contains_key(&key) {
            self.missed += 1;
            self.groups.retain(|_, group| {
                group.weight -= 1;
                group.weight > 0
            });
        }
        let group = self.groups.entry(key).or_insert_with(|| BoundedGroup {
            weight: 0,
            value: V::default(),
        });
        group.weight += 1;
        &mut group.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_group_survives_any_number_of_small_ones() {
        let mut groups = BoundedGroups::<u32, u64>::with_capacity(16);
        for n in 0..10_000u32 {
            *groups.at(1_000_000 + n) += 1;
            if n % 4 == 0 {
                *groups.at(7) += 1;
            }
        }
        assert!(groups.groups.len() <= 16);
        let found = groups.groups.get(&7).expect("the large group").value;
        assert!(found <= 2500 && found + groups.missed() >= 2500, "{found}");
    }

    #[test]
    fn nothing_is_missed_below_the_capacity() {
        let mut groups = BoundedGroups::<u32, u64>::with_capacity(16);
        for n in 0..160 {
            *groups.at(n % 16) += 1;
        }
        assert_eq!(groups.missed(), 0);
        assert!(groups.iter().all(|(_, count)| *count == 10));
    }
}
