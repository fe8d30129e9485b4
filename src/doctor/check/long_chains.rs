//! Overfull buckets of the hash: the kernel refuses new entries for them, though the table is not full
//! (`nf_conntrack_hash_check_insert` and `__nf_conntrack_confirm` count them as `chaintoolong`).

use crate::doctor::finding::unchanged_note;
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::plural::count;

const NAME: &str = "long-chains";
const COUNTER: &str = "chaintoolong";

#[derive(Default)]
pub struct LongChains;

impl Check for LongChains {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "overfull buckets"
    }

    fn looks_for(&self) -> &'static str {
        "Buckets of the hash table that are too long."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts
            .total(COUNTER)
            .is_none()
            .then_some("no counters of the kernel")
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let Some(total) = facts.total(COUNTER).filter(|total| *total > 0) else {
            return Vec::new();
        };
        let more = facts
            .changes
            .as_ref()
            .and_then(|changes| changes.counter(COUNTER));
        let settings = &facts.stat.settings;
        let buckets = match settings.buckets {
            Some(buckets) => format!("the hash has {}", count(buckets, "bucket", "buckets")),
            None => "how many buckets the hash has is not known".to_owned(),
        };
        let finding = match more.filter(|more| *more >= thresholds.refused_insertions) {
            Some(more) => {
                let seconds = facts
                    .changes
                    .as_ref()
                    .map_or(0.0, |changes| changes.seconds);
                let message = format!(
                    "{} not put into the table in {seconds:.1} s, and their packets were dropped, because their bucket was overfull; {buckets}",
                    count(more, "entry was", "entries were"),
                );
                Finding::warning(NAME, message)
            }
            None => Finding::info(
                NAME,
                format!(
                    "{} not put into the table since the namespace was made, because their bucket was overfull{}; {buckets}",
                    count(total, "entry was", "entries were"),
                    unchanged_note(more),
                ),
            ),
        };
        vec![
            finding
                .with(COUNTER, more)
                .with("chaintoolong_total", total)
                .with("buckets", settings.buckets)
                .with("count", facts.stat.count)
                .with("max", settings.max)
                .help(
                    "raise net.netfilter.nf_conntrack_buckets in the node's own namespace, to about nf_conntrack_max: all namespaces share the hash",
                ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::testing::counted;

    #[test]
    fn recent_refusals_are_a_warning_and_old_ones_information() {
        for (total, more, expected) in [
            (40, 5, Some(Severity::Warning)),
            (40, 4, Some(Severity::Info)),
            (40, 0, Some(Severity::Info)),
            (0, 0, None),
        ] {
            let mut facts = counted(&[(COUNTER, total)], &[(COUNTER, more)]);
            facts.stat.settings.buckets = Some(1024);
            let found = LongChains.findings(&facts, &Thresholds::default());
            assert_eq!(found.first().map(|f| f.severity), expected, "{found:?}");
            if let Some(finding) = found.first() {
                assert!(finding.message.ends_with("1024 buckets"), "{finding:?}");
                assert_eq!(finding.evidence["chaintoolong_total"], total + more);
                assert!(
                    finding
                        .help
                        .as_deref()
                        .unwrap()
                        .contains("nf_conntrack_buckets")
                );
            }
        }
        assert!(
            LongChains
                .findings(&Facts::default(), &Thresholds::default())
                .is_empty()
        );
    }
}
