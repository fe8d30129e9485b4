//! Checks of a node. Each finding has its numbers, example entries and help.
//!
//! A check is one file in `check/` with a struct that implements [`Check`]. It sees every entry of the table once, in one
//! scan for all checks, stores groups and never entries, and decides from these and the [`Facts`]. To add one: write the
//! file, name it in `check.rs` and in `checks`, and add its thresholds to [`Thresholds`]. Checks are pure: the caller reads
//! the facts.
//!
//! Every finding has a number, and a healthy node has none above [`Severity::Info`].

mod check;
mod destinations;
mod example;
mod expected_reply;
mod facts;
mod finding;
pub(crate) mod groups;
pub mod kube_proxy_metrics;
mod sampling;
#[cfg(test)]
pub(crate) mod testing;
mod threshold;

use crate::entry::Entry;

pub use facts::{Changes, Facts, Scan, Version, is_worse_source, pod_network};
pub use finding::{Finding, Severity};
pub use sampling::{MAX_SAMPLED, limit_activity, needs_sample};
pub use threshold::Thresholds;

/// One check.
pub trait Check {
    /// Name in the output.
    fn name(&self) -> &'static str;

    /// Counts one entry. Called for every entry of the table, so it must be quick, and its memory must be bounded
    /// (`Groups`). Checks of settings and counters do not implement it.
    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let _ = (entry, facts);
    }

    /// Findings, after the last entry.
    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding>;
}

/// Every check, in its initial state.
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

/// All checks on one table.
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

    /// Findings of all checks, the most severe first.
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

/// Upper bound of the findings of one check that are reported singly. A drained node leaves hundreds.
const MAX_FINDINGS_PER_CHECK: usize = 10;

/// Replaces the findings beyond [`MAX_FINDINGS_PER_CHECK`] by one, with the highest severity among them.
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
    fn hundreds_of_findings_become_a_few_without_loss_of_severity() {
        let mut many: Vec<Finding> = (0..300)
            .map(|n| Finding::info("x", n.to_string()))
            .collect();
        many[200].severity = Severity::Critical;
        let findings = bounded(many);
        assert_eq!(findings.len(), MAX_FINDINGS_PER_CHECK + 1);
        assert_eq!(
            findings[MAX_FINDINGS_PER_CHECK].severity,
            Severity::Critical
        );
        assert_eq!(findings[MAX_FINDINGS_PER_CHECK].evidence["more"], 290);
        assert_eq!(
            bounded(findings[..MAX_FINDINGS_PER_CHECK].to_vec()).len(),
            MAX_FINDINGS_PER_CHECK
        );
    }

    #[test]
    fn an_unknown_node_has_no_finding_above_info() {
        let findings = Examination::default().findings(&Facts::default(), &Thresholds::default());
        let bad: Vec<_> = findings
            .iter()
            .filter(|finding| finding.severity > Severity::Info)
            .collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}
