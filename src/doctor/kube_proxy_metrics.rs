//! Metrics of kube-proxy from the node's loopback address: a small reader of HTTP and of the Prometheus text format.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Default address of kube-proxy's metrics (`--metrics-bind-address`).
pub const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 10249);
/// Time limit for the connection, and for the whole response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Upper bound of the response. kube-proxy sends about 100 KiB.
const MAX_RESPONSE_BYTES: u64 = 4 << 20;

/// Version of kube-proxy, and the age of its rules. Times are since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeProxyMetrics {
    /// `git_version` of `kubernetes_build_info`, such as `v1.36.3`.
    pub version: Option<String>,
    /// `kubeproxy_sync_proxy_rules_last_timestamp_seconds`
    pub last_sync: Option<Duration>,
    /// `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds`
    pub last_queued: Option<Duration>,
    /// `kubeproxy_network_programming_duration_seconds`, over the life of the process.
    pub programming_p99: Option<Quantile>,
}

/// Quantile of a histogram, as exact as its buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Lower bound of the bucket that holds it.
    pub at_least: Duration,
    /// Number of observations.
    pub count: u64,
}

/// Reads the metrics in the network namespace of the calling thread.
///
/// # Errors
/// The connection fails or takes longer than the time limit, or the response is no plain `200` response to `GET`.
pub fn read(address: SocketAddr) -> io::Result<KubeProxyMetrics> {
    let ends = Instant::now() + RESPONSE_TIMEOUT;
    let mut stream = TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT)?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    // HTTP/1.0 responses end with the connection and are not chunked.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\nAccept: text/plain\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() as u64 > MAX_RESPONSE_BYTES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            n => answer.extend_from_slice(piece.get(..n).unwrap_or_default()),
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::InvalidData)?;
    let ok = head.starts_with("HTTP/1.") && head.split(' ').nth(1) == Some("200");
    let chunked = head.lines().any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("transfer-encoding:") && line.contains("chunked")
    });
    if !ok || chunked {
        return Err(io::Error::other(
            head.lines().next().unwrap_or_default().to_owned(),
        ));
    }
    Ok(parse(body))
}

/// Parses the known samples of a text and skips all other lines.
pub fn parse(text: &str) -> KubeProxyMetrics {
    let mut metrics = KubeProxyMetrics::default();
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    // In a process for both families each family has its own sample, distinguished by labels.
    let mut syncs: BTreeMap<&str, Sync> = BTreeMap::new();
    for (name, labels, value) in text.lines().filter_map(sample) {
        let time = Duration::try_from_secs_f64(value)
            .ok()
            .filter(|time| !time.is_zero());
        match name {
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds" => {
                syncs.entry(labels).or_default().last = time;
            }
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds" => {
                syncs.entry(labels).or_default().queued = time;
            }
            "kubernetes_build_info" => {
                metrics.version = label(labels, "git_version").map(str::to_owned);
            }
            "kubeproxy_network_programming_duration_seconds_bucket" => {
                if let Some(bound) = upper_bound(labels) {
                    buckets.push((bound, value));
                }
            }
            _ => {}
        }
    }
    // The family with the oldest waiting change, if there is one.
    let waiting = syncs.values().filter(|sync| sync.queued > sync.last);
    let sync = waiting
        .min_by_key(|sync| sync.queued)
        .or(syncs.values().next());
    if let Some(sync) = sync {
        (metrics.last_sync, metrics.last_queued) = (sync.last, sync.queued);
    }
    metrics.programming_p99 = quantile(&mut buckets, 0.99);
    metrics
}

#[derive(Clone, Copy, Default)]
struct Sync {
    last: Option<Duration>,
    queued: Option<Duration>,
}

/// Parses `name{labels} value`, with an optional time behind it.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = line.split_once(['{', ' '])?;
    let (labels, rest) = match line.as_bytes().get(name.len()) {
        Some(b'{') => rest.rsplit_once('}')?,
        _ => ("", rest),
    };
    let value = rest.split_whitespace().next()?;
    Some((name, labels, value.parse().ok()?))
}

/// Value of the label `le`. Rust parses Prometheus' "+Inf".
fn upper_bound(labels: &str) -> Option<f64> {
    label(labels, "le")?.parse().ok()
}

/// Value of one label.
fn label<'t>(labels: &'t str, name: &str) -> Option<&'t str> {
    let mut all = labels.split(',');
    let (_, value) = all.find_map(|one| one.split_once('=').filter(|(key, _)| *key == name))?;
    value.strip_prefix('"')?.strip_suffix('"')
}

/// Quantile over the buckets of all families. A bucket is its upper bound and a count.
fn quantile(buckets: &mut Vec<(f64, f64)>, share: f64) -> Option<Quantile> {
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    // One bucket for each bound, with the sum over the families.
    buckets.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    let (_, all) = buckets.last().copied().filter(|(_, all)| *all >= 1.0)?;
    let at = buckets
        .iter()
        .position(|(_, count)| *count >= all * share)?;
    let lower = at.checked_sub(1).and_then(|below| buckets.get(below));
    let lower = lower.map_or(0.0, |(bound, _)| *bound);
    Some(Quantile {
        at_least: Duration::try_from_secs_f64(lower).ok()?,
        count: all as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const TEXT: &str = "# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds [ALPHA] The last time\n\
        # TYPE kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge\n\
        kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.7e+09\n\
        kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"} 1.70000001e+09 123\n\
        kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"} 1.6e+09\n\
        kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv6\"} 1.700000123e+09\n\
        kubernetes_build_info{build_date=\"2026-01-01T00:00:00Z\",git_version=\"v1.36.3\",major=\"1\"} 1\n\
        garbage\n{} {\nother{a=\"}\"} 7\nnan NaN\n\
        kubeproxy_network_programming_duration_seconds_bucket{le=\"0.25\"} 50\n\
        kubeproxy_network_programming_duration_seconds_bucket{le=\"60\"} 98\n\
        kubeproxy_network_programming_duration_seconds_bucket{le=\"120\"} 100\n\
        kubeproxy_network_programming_duration_seconds_bucket{le=\"+Inf\"} 100\n\
        kubeproxy_network_programming_duration_seconds_count 100\n";

    #[test]
    fn known_samples_are_read_and_others_skipped() {
        let metrics = parse(TEXT);
        assert_eq!(metrics.version.as_deref(), Some("v1.36.3"));
        assert_eq!(metrics.last_sync, Some(Duration::from_secs(1_700_000_010)));
        assert_eq!(
            metrics.last_queued,
            Some(Duration::from_secs(1_700_000_123))
        );
        let p99 = metrics.programming_p99.unwrap();
        assert_eq!((p99.at_least, p99.count), (Duration::from_secs(60), 100));
        assert_eq!(parse(""), KubeProxyMetrics::default());
        // Never synced, without observations.
        let fresh = "kubeproxy_sync_proxy_rules_last_timestamp_seconds 0\n\
            kubeproxy_network_programming_duration_seconds_bucket{le=\"+Inf\"} 0\n";
        assert_eq!(parse(fresh), KubeProxyMetrics::default());
    }

    /// Reads from a server that answers with `answer`.
    fn read_from(answer: &'static str) -> io::Result<KubeProxyMetrics> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let n = stream.read(&mut request).unwrap();
            assert!(request[..n].starts_with(b"GET /metrics HTTP/1.0\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let metrics = read(address);
        server.join().unwrap();
        metrics
    }

    #[test]
    fn only_a_plain_ok_response_counts() {
        let ok = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nkubeproxy_sync_proxy_rules_last_timestamp_seconds 5\n";
        assert_eq!(
            read_from(ok).unwrap().last_sync,
            Some(Duration::from_secs(5))
        );
        for bad in [
            "HTTP/1.0 404 Not Found\r\n\r\nkubeproxy_sync_proxy_rules_last_timestamp_seconds 5\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n",
            "",
        ] {
            assert!(read_from(bad).is_err(), "{bad:?}");
        }
    }
}
