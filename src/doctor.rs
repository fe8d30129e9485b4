//! Checks of a node. Each finding has its numbers, example entries and help.
//!
//! A check is one file in `check/` with a struct that implements [`Check`]. It sees every entry of the table once, in one
//! scan for all checks, stores groups and never entries, and decides from these and the [`Facts`]. To add one: write the
//! file, name it in `check.rs` and in `checks`, and add its thresholds to [`Thresholds`]. Its title and the sentence of
//! `--list` and of the manual are in its file, and its rows come from its evidence. Checks are pure: the caller reads the
//! facts.
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
mod rows;
mod sampling;
#[cfg(test)]
pub(crate) mod testing;
mod threshold;

use crate::entry::Entry;

pub use check::WRONG_NAMESPACE;
pub use facts::{Changes, Facts, Scan, Version, is_worse_source, pod_network};
pub use finding::{Finding, Severity, sort};
pub use rows::Rows;
pub use sampling::{MAX_SAMPLED, limit_activity, needs_sample};
pub use threshold::Thresholds;

/// One check.
pub trait Check {
    /// Name in the output.
    fn name(&self) -> &'static str;

    /// Heading of its findings in text, without a number.
    fn title(&self) -> &'static str;

    /// One sentence about what it finds, for `--list` and the manual.
    fn looks_for(&self) -> &'static str;

    /// Data that is missing, so that a check without a finding is not a check without a fault. `None`: it has all data.
    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let _ = facts;
        None
    }

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
        Box::<check::StaleConnections>::default(),
        Box::<check::NeverTranslated>::default(),
        Box::<check::EndpointSilent>::default(),
        Box::<check::LostPod>::default(),
        Box::<check::Unanswered>::default(),
        Box::<check::LostSource>::default(),
        Box::<check::PortExhaustion>::default(),
        Box::<check::NodePortClash>::default(),
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
        Box::<check::Invalid>::default(),
        Box::<check::LongChains>::default(),
        Box::<check::Unlisted>::default(),
        Box::<check::Allowance>::default(),
        Box::<check::Expectations>::default(),
        Box::<check::NoHelper>::default(),
        Box::<check::ReversePath>::default(),
        Box::<check::Settings>::default(),
    ]
}

/// Description of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    pub name: &'static str,
    pub title: &'static str,
    pub looks_for: &'static str,
}

/// Every check, in the order of `--list` and of the manual.
pub fn catalogue() -> Vec<About> {
    let about = |check: &dyn Check| About {
        name: check.name(),
        title: check.title(),
        looks_for: check.looks_for(),
    };
    checks().iter().map(|check| about(check.as_ref())).collect()
}

/// Result of all checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// The most severe first.
    pub findings: Vec<Finding>,
    /// Number of checks with findings.
    pub found: usize,
    /// Number of checks that have their data and find nothing.
    pub fine: usize,
    pub undecided: Vec<Undecided>,
}

/// A check that finds nothing and lacks data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided {
    pub check: &'static str,
    pub lacks: &'static str,
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

    pub fn results(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Results {
        let mut results = Results::default();
        for check in &self.checks {
            let findings = bounded(check.findings(facts, thresholds));
            match (findings.is_empty(), check.lacks(facts)) {
                (false, _) => results.found += 1,
                (true, None) => results.fine += 1,
                (true, Some(lacks)) => results.undecided.push(Undecided {
                    check: check.name(),
                    lacks,
                }),
            }
            let title = check.title();
            let titled = findings.into_iter().map(|finding| finding.titled(title));
            results.findings.extend(titled);
        }
        check::insert_failed::relate(&mut results.findings);
        finding::sort(&mut results.findings);
        results
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
        for about in catalogue() {
            assert!(about.title.starts_with(char::is_alphabetic) && !about.title.ends_with('.'));
            assert!(about.looks_for.ends_with('.'), "{about:?}");
        }
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
    fn an_unknown_node_has_no_finding_above_info_and_few_checks_are_fine() {
        let results = Examination::default().results(&Facts::default(), &Thresholds::default());
        let lacking: Vec<_> = results.undecided.iter().map(|one| one.check).collect();
        for check in [
            "stale-udp",
            "lost-pod",
            "table-full",
            "insert-failed",
            "settings",
        ] {
            assert!(lacking.contains(&check), "{lacking:?}");
        }
        let all = results.found + results.fine + lacking.len();
        assert_eq!(all, checks().len());
        let bad: Vec<_> = results
            .findings
            .iter()
            .filter(|finding| finding.severity > Severity::Info)
            .collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}
