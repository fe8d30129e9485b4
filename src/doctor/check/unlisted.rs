//! More entries counted than listed. The others are not in the hash: not confirmed yet, dying, or leaked references. A leak
//! fills the table with entries that cannot be listed or deleted.

use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::percent::percent;

const NAME: &str = "unlisted";

#[derive(Default)]
pub struct Unlisted;

impl Check for Unlisted {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "entries in no list"
    }

    fn looks_for(&self) -> &'static str {
        "Entries that the kernel counts and does not list."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let is_known = lowest_count(facts).is_some() && !facts.scan.inconsistent;
        (!is_known).then_some("no number of entries, or a table that was resized")
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let scan = &facts.scan;
        let Some(count) = lowest_count(facts).filter(|_| !scan.inconsistent) else {
            return Vec::new();
        };
        let listed = scan.scanned + scan.unreadable;
        let unlisted = count.saturating_sub(listed);
        let share = percent(unlisted, count);
        if unlisted < thresholds.unlisted_entries || share < Some(thresholds.unlisted_share as f64)
        {
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
                .help("those that are dying: ctk ls --table dying; if they are not there and the number stays, a kernel module leaks them"),
        ]
    }
}

/// The lower of the counts before and after the scan, as the table may grow or shrink meanwhile.
fn lowest_count(facts: &Facts<'_>) -> Option<u64> {
    let after = facts.changes.as_ref().and_then(|changes| changes.count);
    facts.stat.count.into_iter().chain(after).min()
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
        assert_eq!(all[0].evidence["unlisted_percent"], 98.0);
    }
}
