//! Reads the facts of the checks. Facts that cannot be read stay unknown; `-v` logs the cause.

use std::fs;
use std::time::Instant;

use crate::doctor::kube_proxy_metrics::{self, KubeProxyMetrics};
use crate::doctor::{Changes, Facts, pod_network};
use crate::error::chain;
use crate::reverse_path;
use crate::stat::{self, Stat};
use ctk_cluster::compare::compare;
use ctnetlink::netns::Netns;
use ctnetlink::rtnetlink;

use crate::session::cluster::{self, Cluster};
use crate::session::node_rules;

/// Reads the facts that are known before the first entry.
pub fn gather<'c>(netns: &Netns, cluster: Option<&'c Cluster>) -> Facts<'c> {
    let index = cluster.and_then(Cluster::index);
    let addresses = index.into_iter().flat_map(|index| index.pod_addresses());
    Facts {
        source: cluster::summary(cluster).source,
        index,
        rules: cluster.and_then(Cluster::node_rules),
        node: cluster.map(|cluster| &cluster.node),
        kube_proxy_replacement: cluster.and_then(Cluster::kube_proxy_replacement),
        netns: netns.name().to_string(),
        initial: netns.is_initial(),
        stat: stat(netns),
        reverse_path: read("reverse-path filter", reverse_path::read(netns)).unwrap_or_default(),
        local_ports: local_ports(netns),
        local: read("addresses", rtnetlink::local_addresses(netns)),
        bridge_calls_iptables: bridge_calls_iptables(netns),
        bridge_ports: read("bridge ports", rtnetlink::bridge_ports(netns)),
        pod_networks: addresses.filter_map(pod_network).collect(),
        kube_proxy: kube_proxy(netns),
        ..Facts::default()
    }
}

/// Compares the rules with the cluster source, now and as they were read at the start. Differences that only the first
/// reading shows were being written by kube-proxy. Called as late as possible.
pub fn compare_rules(facts: &mut Facts<'_>, netns: &Netns, cluster: Option<&Cluster>) {
    let rules = cluster.and_then(|cluster| cluster.rules.as_ref());
    // Saved rules are from another time, and perhaps from another node.
    let live = rules.filter(|read| read.path.is_none());
    let (Some(index), Some(before)) = (facts.index, live) else {
        return;
    };
    facts.rules_compared = true;
    let mut differences = compare(index, &before.rules);
    if differences.is_empty() {
        return;
    }
    let now = node_rules::of_kube_proxy(netns);
    let again = now.map_or_else(Vec::new, |now| compare(index, &now.rules));
    differences.retain(|difference| again.contains(difference));
    facts.disagreements = differences;
    facts.rules_apart = before.time.elapsed().unwrap_or_default();
}

/// Reads the counters again. [`gather`] read them first, at `began`. Growth is known only with a sample.
pub fn look_again(facts: &mut Facts<'_>, netns: &Netns, began: Instant) {
    let now = stat(netns);
    let paths = read("reverse-path filter", reverse_path::read(netns)).unwrap_or_default();
    let filtered = paths.filtered.zip(facts.reverse_path.filtered);
    let grown = filtered.and_then(|(now, then)| now.checked_sub(then));
    let mut changes = Changes {
        count: now.count,
        ..Changes::default()
    };
    if facts.sampled.is_some() {
        changes.seconds = began.elapsed().as_secs_f64();
        changes.delta = now.since(&facts.stat);
        changes.filtered = grown;
    } else {
        // One look is too short to see growth, which stays unknown.
        facts.stat.counters = now.counters;
    }
    facts.changes = Some(changes);
    facts.stat.interfaces = now.interfaces;
    facts.reverse_path = paths;
}

fn stat(netns: &Netns) -> Stat {
    let read = read("counters", stat::read::stat(netns));
    let (stat, notes) = read.unwrap_or_default();
    tracing::info!(?notes, "counters");
    stat
}

/// Reads kube-proxy's metrics in the network namespace of the node.
fn kube_proxy(netns: &Netns) -> Option<KubeProxyMetrics> {
    let answer = netns.run(|| kube_proxy_metrics::read(kube_proxy_metrics::DEFAULT_ADDRESS));
    read("kube-proxy's metrics", read("network namespace", answer)?)
}

fn read<T, E: std::error::Error>(what: &str, result: Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| tracing::info!(error = chain(error), what, "not known"))
        .ok()
}

/// Without the module br_netfilter the file does not exist, and bridged frames pass no rules.
fn bridge_calls_iptables(netns: &Netns) -> Option<bool> {
    const FILE: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    let answer = netns.run(|| match fs::read_to_string(FILE) {
        Ok(text) => text.trim().parse::<u8>().ok().map(|value| value != 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(false),
        Err(_) => None,
    });
    read("bridge-nf-call-iptables", answer)?
}

fn local_ports(netns: &Netns) -> Option<(u16, u16)> {
    let text = netns.run(|| fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range"));
    let text = read("ip_local_port_range", read("network namespace", text)?)?;
    let mut numbers = text.split_whitespace().map(str::parse::<u16>);
    match (numbers.next()?, numbers.next()?) {
        (Ok(first), Ok(last)) if first <= last => Some((first, last)),
        _ => None,
    }
}
