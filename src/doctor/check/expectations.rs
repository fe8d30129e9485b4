//! Expectations near their limit. Beyond it, data connections of helpers (FTP, SIP) are blocked.

use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::percent::{percent, rounded};

const NAME: &str = "expectations";

#[derive(Default)]
pub struct Expectations;

impl Check for Expectations {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "expectations near their limit"
    }

    fn looks_for(&self) -> &'static str {
        "Expectations near their limit."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let (count, max) = (facts.stat.expect_count, facts.stat.settings.expect_max);
        count
            .zip(max)
            .is_none()
            .then_some("no number of expectations, or no limit")
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let (count, max) = (facts.stat.expect_count, facts.stat.settings.expect_max);
        let Some((count, max)) = count.zip(max) else {
            return Vec::new();
        };
        let Some(used) =
            percent(count, max).filter(|used| *used >= thresholds.expectations_used as f64)
        else {
            return Vec::new();
        };
        let message = format!(
            "{} % of the expectations are in use ({count} of {max}); beyond that, data connections of FTP, SIP and the like fail",
            rounded(used)
        );
        vec![
            Finding::warning(NAME, message)
                .with("expect_count", count)
                .with("expect_max", max)
                .with("used_percent", used)
                .help(
                    "raise net.netfilter.nf_conntrack_expect_max; who makes them: ctk ls --table expect",
                ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_table_near_its_limit_is_reported() {
        for (count, max, found) in [
            (Some(80), Some(100), true),
            (Some(79), Some(100), false),
            (None, Some(100), false),
            (Some(80), None, false),
            (Some(0), Some(0), false),
        ] {
            let mut facts = Facts::default();
            facts.stat.expect_count = count;
            facts.stat.settings.expect_max = max;
            let all = Expectations.findings(&facts, &Thresholds::default());
            assert_eq!(!all.is_empty(), found, "{count:?} {max:?}: {all:?}");
        }
    }
}
