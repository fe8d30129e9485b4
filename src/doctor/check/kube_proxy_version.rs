//! Versions of kube-proxy without a reconciler. kube-proxy before 1.32 deletes entries only for the endpoint changes that
//! it observes, and never finds entries that it missed.

use crate::doctor::{Check, Facts, Finding, Thresholds, Version};

const NAME: &str = "kube-proxy-version";
/// First version with a reconciler (`pkg/proxy/conntrack/cleanup.go`).
const RECONCILES: (u32, u32) = (1, 32);

#[derive(Default)]
pub struct KubeProxyVersion;

impl Check for KubeProxyVersion {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "kube-proxy without a reconciler"
    }

    fn looks_for(&self) -> &'static str {
        "A version of kube-proxy that misses stale entries."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let is_known =
            facts.kube_proxy_replacement.is_some() || facts.kube_proxy_version().is_some();
        (!is_known).then_some("no version of kube-proxy")
    }

    fn findings(&self, facts: &Facts<'_>, _: &Thresholds) -> Vec<Finding> {
        // BPF programs replace kube-proxy.
        if facts.kube_proxy_replacement.is_some() {
            return Vec::new();
        }
        let Some(version) = facts.kube_proxy_version() else {
            return Vec::new();
        };
        let text = version.text();
        if parse(text).is_none_or(|version| version >= RECONCILES) {
            return Vec::new();
        }
        let subject = match version {
            Version::KubeProxy(text) => format!("kube-proxy on this node is of version {text}"),
            Version::Node(text) => format!("this node is of version {text}"),
        };
        let message = format!(
            "{subject}: kube-proxy before 1.32 has no reconciler, so a stale entry that it missed once stays"
        );
        vec![
            Finding::info(NAME, message)
                .with("node", facts.node.and_then(|node| node.name.as_deref()))
                .with("version", text)
                .help("upgrade the node to 1.32 or newer; until then run ctk purge --stale where doctor finds stale entries"),
        ]
    }
}

/// Major and minor of `v1.31.2-gke.1`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let (major, rest) = version.split_once('.')?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    Some((major.parse().ok()?, rest.get(..digits)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_compared_as_numbers() {
        for (text, old) in [
            ("v1.31.2", Some(true)),
            ("v1.9.11", Some(true)),
            ("v1.32.0-eks-1234", Some(false)),
            ("1.100+", Some(false)),
            ("v2.0.0", Some(false)),
            ("", None),
            ("latest", None),
            ("v1.x", None),
        ] {
            assert_eq!(
                parse(text).map(|version| version < RECONCILES),
                old,
                "{text}"
            );
        }
    }
}
