//! What is wrong on this node, each finding with its numbers, example entries, and what helps.
//!
//! A check is one file in `check/` with one small struct behind the trait [`Check`]. It sees every entry of the table once,
//! in one scan that feeds all checks, keeps groups and never entries, and concludes from what it kept and the [`Facts`]. To
//! add one: write the file, name it in `check/mod.rs` and in `checks`; a number from which on it speaks belongs into
//! [`Thresholds`]. Checks are pure: whoever runs them reads the facts.
//!
//! No finding without its number, and none above [`Severity::Info`] on a healthy node.

mod check;
mod destinations;
mod example;
mod expected_reply;
mod facts;
mod finding;
pub(crate) mod groups;
pub mod kube_proxy_metrics;
pub mod report;
mod sampling;
#[cfg(test)]
pub(crate) mod testing;
mod threshold;

use crate::entry::Entry;

pub use facts::{Changes, Facts, Scan, Version, is_worse_source, pod_network};
pub use finding::{Finding, Severity};
pub use sampling::{MAX_SAMPLED, limit_activity, needs_sample};
pub use threshold::Thresholds;

/// One thing that may be wrong.
pub trait Check {
    /// The word of the output.
    fn name(&self) -> &'static str;

    /// Takes in one entry. Called for every one of the table, so it must be quick, and what it keeps must be bounded
    /// (`Groups`). Checks of settings and counters leave it alone.
    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let _ = (entry, facts);
    }

    /// What was found, after the last entry.
    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding>;
}

/// Every check, ready to see a table.
fn checks() -> Vec<Box<dyn Check>> {
    vec![
        Box::<check::StaleUdp>::default(),
        Box::<check::NeverTranslated>::default(),
        Box::<check::EndpointSilent>::default(),
        Box::<check::LostPod>::default(),
        Box::<check::PortExhaustion>::default(),
        Box::<check::Skew>::default(),
        Box::<check::HalfClosed>::default(),
        Box::<check::Hairpin>::default(),
        Box::<check::UnnamedDestination>::default(),
        Box::<check::RulesBehind>::default(),
        Box::<check::RulesNotUnderstood>::default(),
        Box::<check::KubeProxyVersion>::default(),
        Box::<check::KubeProxySync>::default(),
        Box::<check::WrongNamespace>::default(),
        Box::<check::TableFull>::default(),
        Box::<check::InsertFailed>::default(),
        Box::<check::LongChains>::default(),
        Box::<check::Unlisted>::default(),
        Box::<check::Allowance>::default(),
        Box::<check::Expectations>::default(),
        Box::<check::ReversePath>::default(),
        Box::<check::Settings>::default(),
    ]
}

/// All checks at work on one table.
pub struct Examination {
    checks: Vec<Box<dyn Check>>,
}

impl Default for Examination {
    fn default() -> Self {
        Examination { checks: checks() }
    }
}

impl Examination {
    pub fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        for check in &mut self.checks {
            check.observe(entry, facts);
        }
    }

    /// Every finding, the worst first.
    pub fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let all = self.checks.iter();
        let mut findings: Vec<Finding> = all
            .flat_map(|check| bounded(check.findings(facts, thresholds)))
            .collect();
        check::insert_failed::relate(&mut findings);
        finding::sort(&mut findings);
        findings
    }
}

/// Findings of one check that are told one by one, the first ones. A drained node leaves hundreds.
const MAX_FINDINGS_PER_CHECK: usize = 10;

/// What is beyond [`MAX_FINDINGS_PER_CHECK`] becomes one finding, as bad as the worst of them.
fn bounded(mut findings: Vec<Finding>) -> Vec<Finding> {
    let rest = findings.split_off(findings.len().min(MAX_FINDINGS_PER_CHECK));
    let worst = rest
        .iter()
        .min_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings.extend(worst.map(|worst| {
        let more = crate::plural::count(rest.len() as u64, "more finding", "more findings");
        let message = format!("{more} of this kind, the worst: {}", worst.message);
        Finding::new(worst.check, worst.severity, message).with("more", rest.len())
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let mut names: Vec<_> = checks().iter().map(|check| check.name()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }

    #[test]
    fn hundreds_of_findings_become_a_few_and_none_gets_milder() {
        let mut many: Vec<Finding> = (0..300)
            .map(|n| Finding::info("x", n.to_string()))
            .collect();
        many[200].severity = Severity::Critical;
        let told = bounded(many);
        assert_eq!(told.len(), MAX_FINDINGS_PER_CHECK + 1);
        assert_eq!(told[MAX_FINDINGS_PER_CHECK].severity, Severity::Critical);
        assert_eq!(told[MAX_FINDINGS_PER_CHECK].evidence["more"], 290);
        assert_eq!(
            bounded(told[..MAX_FINDINGS_PER_CHECK].to_vec()).len(),
            MAX_FINDINGS_PER_CHECK
        );
    }

    #[test]
    fn a_node_of_which_nothing_is_known_has_nothing_above_info() {
        let findings = Examination::default().findings(&Facts::default(), &Thresholds::default());
        let bad: Vec<_> = findings
            .iter()
            .filter(|finding| finding.severity > Severity::Info)
            .collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}
