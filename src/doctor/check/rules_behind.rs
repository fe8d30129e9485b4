//! Differences between kube-proxy's rules on this node and the API. New flows follow the rules.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::plural::count;
use ctk_cluster::compare::Disagreement;

use super::kube_proxy_sync::RULES_LATE;

const NAME: &str = "rules-behind";
/// Upper bound of the listed differences.
const MAX_LISTED: usize = 10;

#[derive(Default)]
pub struct RulesBehind;

impl Check for RulesBehind {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "rules differ from the cluster"
    }

    fn looks_for(&self) -> &'static str {
        "kube-proxy's rules that differ from the API."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        (!facts.rules_compared).then_some("no rules of this node beside the cluster")
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let differences = facts.disagreements.len() as u64;
        if differences < thresholds.rules_behind {
            return Vec::new();
        }
        let lines: BTreeSet<String> = facts
            .disagreements
            .iter()
            .map(Disagreement::to_string)
            .collect();
        let first = lines.first().map(String::as_str).unwrap_or_default();
        let apart = facts.rules_apart.as_secs_f64();
        let finding = if facts.source == "api" && facts.rules_apart < thresholds.rules_apart {
            let message = format!(
                "this node's rules and the API differ in {}, which kube-proxy may just be writing (seen for {apart:.1} s): {first}",
                count(differences, "place", "places")
            );
            Finding::info(NAME, message).help("look again: ctk doctor")
        } else if facts.source == "api" {
            let message = format!(
                "kube-proxy on this node is behind the API in {}, seen twice {apart:.1} s apart: {first}",
                count(differences, "place", "places")
            );
            Finding::warning(NAME, message).because(RULES_LATE).help(
                "new flows follow the rules: see whether kube-proxy runs here, and its log (kubectl -n kube-system logs -l k8s-app=kube-proxy)",
            )
        } else {
            let message = format!(
                "this node's rules and the cluster source differ in {}: {first}",
                count(differences, "place", "places")
            );
            Finding::info(NAME, message).help(
                "one of the two is older: fetch the file again, or use --cluster api, which tells whether kube-proxy is behind",
            )
        };
        let listed: Vec<Value> = lines
            .iter()
            .take(MAX_LISTED)
            .map(|line| json!(line))
            .collect();
        vec![
            finding
                .with("differences", differences)
                .with("seconds_apart", (apart * 10.0).round() / 10.0)
                .list("differing", listed),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use ctk_cluster::compare::{Difference, Place};

    #[test]
    fn only_against_the_api_it_is_kube_proxy_that_is_behind() {
        let lingers = Disagreement {
            service: None,
            frontend: Place::Address("10.96.0.10:53".parse().unwrap()),
            protocol: 17,
            difference: Difference::LingeringEndpoint("10.1.0.7:53".parse().unwrap()),
        };
        for (source, apart, severity) in [
            ("api", 6, Severity::Warning),
            // kube-proxy waits a second before it writes.
            ("api", 1, Severity::Info),
            ("file", 6, Severity::Info),
        ] {
            let facts = Facts {
                source,
                rules_apart: std::time::Duration::from_secs(apart),
                disagreements: vec![lingers.clone(), lingers.clone()],
                ..Facts::default()
            };
            let found = RulesBehind.findings(&facts, &Thresholds::default());
            assert_eq!(found[0].severity, severity);
            assert_eq!(found[0].evidence["differences"], 2);
            assert_eq!(found[0].evidence["differing"].as_array().unwrap().len(), 1);
            assert!(
                found[0].message.contains("still list 10.1.0.7"),
                "{}",
                found[0].message
            );
        }
        assert!(
            RulesBehind
                .findings(&Facts::default(), &Thresholds::default())
                .is_empty()
        );
    }
}
