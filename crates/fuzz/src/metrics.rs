//! Target `metrics`: the metrics that kube-proxy serves.

use std::fmt::Write as _;

use ctk::doctor::kube_proxy_metrics::{KubeProxyMetrics, parse};

pub fn target(data: &[u8]) -> usize {
    let text = String::from_utf8_lossy(data);
    let metrics = parse(&text);
    drop(format!("{metrics:?}"));
    usize::from(metrics != KubeProxyMetrics::default())
}

/// See [`Target::grown`](crate::Target).
pub const GROWN: &[fn(usize) -> Vec<u8>] = &[buckets, families];

/// A bucket, and times of families that no process has.
fn families(pieces: usize) -> Vec<u8> {
    let mut text = String::from_utf8(buckets(2)).unwrap_or_default();
    for piece in 0..pieces {
        let _ = writeln!(
            text,
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds{{ip_family=\"{piece}\"}} 1.7e+09"
        );
    }
    text.into()
}

/// Buckets with bounds of their own.
fn buckets(pieces: usize) -> Vec<u8> {
    let mut text = String::new();
    for piece in 0..pieces {
        let _ = writeln!(
            text,
            "kubeproxy_network_programming_duration_seconds_bucket{{ip_family=\"IPv4\",le=\"{piece}\"}} {}",
            piece + 1
        );
    }
    text.into()
}
