//! Rules of kube-proxy with a form that the readers do not know. No check can judge what depends on them.

use crate::doctor::{Check, Facts, Finding, Thresholds, Version};
use crate::plural::count;

const NAME: &str = "rules-not-understood";

#[derive(Default)]
pub struct RulesNotUnderstood;

impl Check for RulesNotUnderstood {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "rules that are not understood"
    }

    fn looks_for(&self) -> &'static str {
        "Rules with a form that ctk does not know."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts.rules.is_none().then_some("no rules of this node")
    }

    fn findings(&self, facts: &Facts<'_>, _: &Thresholds) -> Vec<Finding> {
        let Some(rules) = facts.rules.filter(|rules| rules.not_understood() > 0) else {
            return Vec::new();
        };
        let number = rules.not_understood() as u64;
        let version = facts.kube_proxy_version();
        let subject = match version {
            Some(Version::KubeProxy(text)) => format!("kube-proxy {text}"),
            Some(Version::Node(text)) => format!("kube-proxy on this node of version {text}"),
            None => "kube-proxy, its version unknown,".to_owned(),
        };
        let modes: Vec<&str> = rules.proxies.iter().map(|proxy| proxy.name()).collect();
        let message = format!(
            "{} of {subject} ({}) {} a form that is not understood: where new flows go, and whether they are translated, is not \
             known for these",
            count(number, "rule", "rules"),
            modes.join(", "),
            if number == 1 { "has" } else { "have" },
        );
        let frontends = rules.frontends.len() + rules.node_ports.len();
        vec![
            Finding::warning(NAME, message)
                .with("not_understood", number)
                .with("frontends", frontends)
                .with("version", version.map(Version::text))
                .help("use a newer ctk, or judge by the cluster alone: --cluster api or --cluster FILE; report the rules (iptables-save, nft list table ip kube-proxy)"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::kube_proxy_metrics::KubeProxyMetrics;
    use ctk_cluster::rules::NodeRules;

    #[test]
    fn rules_of_an_unknown_form_are_a_warning_with_the_version() {
        let whole = NodeRules::default();
        let odd = NodeRules {
            unknown_shapes: 2,
            ..NodeRules::default()
        };
        let conclude = |rules| {
            let facts = Facts {
                rules: Some(rules),
                kube_proxy: Some(KubeProxyMetrics {
                    version: Some("v1.39.0".to_owned()),
                    ..KubeProxyMetrics::default()
                }),
                ..Facts::default()
            };
            RulesNotUnderstood.findings(&facts, &Thresholds::default())
        };
        assert!(conclude(&whole).is_empty());
        let found = conclude(&odd);
        assert_eq!(found[0].severity, crate::doctor::Severity::Warning);
        assert!(found[0].message.contains("2 rules of kube-proxy v1.39.0"));
        assert_eq!(found[0].evidence["version"], "v1.39.0");
    }
}
