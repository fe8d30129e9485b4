//! More entries counted than listed. The others are not in the hash: not confirmed yet, dying, or leaked references. A leak
//! fills the table with entries that cannot be listed or deleted.

use crate::doctor::finding::percent;
use crate::doctor::{Check, Facts, Finding, Thresholds};

const NAME: &str = "unlisted";

#[derive(Default)]
pub struct Unlisted;

impl Check for Unlisted {
    fn name(&self) -> &'static str {
        NAME
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let scan = &facts.scan;
        // The table may grow or shrink during the scan, so the lower of the counts before and after it is compared.
        let counts = [
            facts.stat.count,
            facts.changes.as_ref().and_then(|changes| changes.count),
        ];
        let Some(count) = counts
            .into_iter()
            .flatten()
            .min()
            .filter(|_| !scan.inconsistent)
        else {
            return Vec::new();
        };
        let listed = scan.scanned + scan.unreadable;
        let unlisted = count.saturating_sub(listed);
        let share = percent(unlisted, count);
        if unlisted < thresholds.unlisted_entries || share < Some(thresholds.unlisted_share) {
            return Vec::new();
        }
        let message = format!(
            "{count} entries are counted and {listed} are listed: {unlisted} are in no list (dying, not confirmed, or leaked by a \
             kernel module)"
        );
        vec![
            Finding::warning(NAME, message)
                .with("count", count)
                .with("listed", listed)
                .with("unlisted", unlisted)
                .with("unlisted_percent", share)
                .help("look with ctk ls --table dying; when they are not there and the number stays, a kernel module leaks them"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::counted;

    #[test]
    fn few_unlisted_entries_are_no_leak_and_many_are() {
        for (count, later, listed, inconsistent, found) in [
            (300, 300, 6, false, true),
            (410, 410, 409, false, false),
            (100_000, 100_000, 97_000, false, false),
            (40, 40, 0, false, false),
            (300, 300, 6, true, false),
            // Read while it grew, and while it was purged.
            (300, 6, 6, false, false),
            (6, 300, 6, false, false),
            (5, 5, 9, false, false),
        ] {
            let mut facts = counted(&[], &[]);
            facts.stat.count = Some(count);
            facts.changes.as_mut().unwrap().count = Some(later);
            facts.scan.scanned = listed;
            facts.scan.inconsistent = inconsistent;
            let all = Unlisted.findings(&facts, &Thresholds::default());
            assert_eq!(!all.is_empty(), found, "{count} {later} {listed}: {all:?}");
        }
        let mut facts = counted(&[], &[]);
        facts.stat.count = Some(300);
        (facts.scan.scanned, facts.scan.unreadable) = (5, 1);
        let all = Unlisted.findings(&facts, &Thresholds::default());
        assert!(
            all[0]
                .message
                .starts_with("300 entries are counted and 6 are listed: 294 are"),
            "{all:?}"
        );
        assert_eq!(all[0].evidence["unlisted_percent"], 98);
    }
}
