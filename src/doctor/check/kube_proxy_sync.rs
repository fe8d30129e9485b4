//! Metrics of kube-proxy: whether a change waits to be written to the rules, and how long changes take.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::doctor::kube_proxy_metrics::KubeProxyMetrics;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};

const NAME: &str = "kube-proxy-sync";
/// Cause that the check `rules-behind` shares: kube-proxy has not written its rules.
pub const RULES_LATE: &str = "kube-proxy has not written its rules";

#[derive(Default)]
pub struct KubeProxySync;

impl Check for KubeProxySync {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "kube-proxy is late"
    }

    fn looks_for(&self) -> &'static str {
        "Changes that wait for kube-proxy, or that it writes slowly."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts
            .kube_proxy
            .is_none()
            .then_some("no metrics of kube-proxy")
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let Some(metrics) = &facts.kube_proxy else {
            return Vec::new();
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let overdue = overdue_sync(metrics, now, thresholds);
        let slow = slow_programming(metrics, thresholds);
        overdue.into_iter().chain(slow).collect()
    }
}

/// `now` is the time since the Unix epoch.
fn overdue_sync(
    metrics: &KubeProxyMetrics,
    now: Duration,
    thresholds: &Thresholds,
) -> Option<Finding> {
    // A quiet cluster has nothing to sync. Only a change that was queued after the last sync waits.
    let (queued, synced) = metrics
        .last_queued
        .zip(metrics.last_sync)
        .filter(|(queued, synced)| queued > synced)?;
    let behind = now.saturating_sub(queued);
    if behind < thresholds.sync_age {
        return None;
    }
    let since_sync = now.saturating_sub(synced);
    let message = format!(
        "kube-proxy has not written its rules for {}, though a change waits for {}",
        format_seconds(since_sync),
        format_seconds(behind)
    );
    Some(
        Finding::critical(NAME, message)
            .with("waiting_seconds", behind.as_secs())
            .with("last_sync_seconds_ago", since_sync.as_secs())
            .because(RULES_LATE)
            .help("see its log (kubectl -n kube-system logs -l k8s-app=kube-proxy); rules, and so new flows, follow old endpoints until it syncs"),
    )
}

fn slow_programming(metrics: &KubeProxyMetrics, thresholds: &Thresholds) -> Option<Finding> {
    let p99 = metrics
        .programming_p99
        .filter(|p99| p99.at_least >= thresholds.programming_time)?;
    let message = format!(
        "1 in 100 endpoint changes or more took longer than {} to get into this node's rules, of {} since kube-proxy began",
        format_seconds(p99.at_least),
        p99.count
    );
    // Among few changes the slowest one is already the hundredth part.
    let severity = match p99.count >= thresholds.programmed_changes {
        true => Severity::Warning,
        false => Severity::Info,
    };
    Some(
        Finding::new(NAME, severity, message)
            .with("p99_seconds_at_least", p99.at_least.as_secs_f64())
            .with("changes", p99.count)
            .help("look at kube-proxy's CPU limit and at the number of Services; nftables mode syncs faster"),
    )
}

fn format_seconds(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::kube_proxy_metrics::Quantile;

    fn found(metrics: KubeProxyMetrics) -> Vec<Finding> {
        let facts = Facts {
            kube_proxy: Some(metrics),
            ..Facts::default()
        };
        KubeProxySync.findings(&facts, &Thresholds::default())
    }

    #[test]
    fn an_old_sync_is_a_finding_only_while_a_change_waits() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let ago = |seconds| Some(now - Duration::from_secs(seconds));
        for (queued, synced, wrong) in [
            (900, 901, true),
            (900, 899, false),
            (60, 901, false),
            (901, 900, false),
        ] {
            let metrics = KubeProxyMetrics {
                last_queued: ago(queued),
                last_sync: ago(synced),
                programming_p99: None,
                ..KubeProxyMetrics::default()
            };
            assert_eq!(
                found(metrics).len(),
                usize::from(wrong),
                "{queued} {synced}"
            );
        }
        assert!(found(KubeProxyMetrics::default()).is_empty());
    }

    #[test]
    fn slow_programming_is_reported_with_its_number() {
        let quantile = |seconds, count| KubeProxyMetrics {
            programming_p99: Some(Quantile {
                at_least: Duration::from_secs(seconds),
                count,
            }),
            ..KubeProxyMetrics::default()
        };
        assert!(found(quantile(59, 200)).is_empty());
        // A node that started with three changes waiting.
        assert_eq!(found(quantile(60, 3))[0].severity, Severity::Info);
        let found = found(quantile(60, 200));
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(found[0].evidence["changes"], 200);
        assert!(
            found[0].message.contains("longer than 1m"),
            "{}",
            found[0].message
        );
    }
}
