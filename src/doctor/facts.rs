//! Facts beside the entries. The caller of the checks reads them; facts that could not be read are `None`, never zero.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use crate::reverse_path::ReversePathFilter;
use crate::stat::{CpuCounters, Delta, Stat};
use crate::this_node::{NetnsOwner, ThisNode};
use ctk_cluster::compare::Disagreement;
use ctk_cluster::datapath::Datapath;
use ctk_cluster::index::Index;
use ctk_cluster::rules::NodeRules;
use ctnetlink::rtnetlink::{BridgePort, LocalAddress};

use super::kube_proxy_metrics::KubeProxyMetrics;

/// Filled in two steps: all but `scan`, `changes` and the differences of the rules are known before the first entry is
/// read.
#[derive(Default)]
pub struct Facts<'c> {
    /// `api`, `rules`, `file` or `none`.
    pub source: &'static str,
    /// Objects from the API or a file.
    pub index: Option<&'c Index>,
    /// This node's rules, as the cluster source or beside it.
    pub rules: Option<&'c NodeRules>,
    /// Node that the table belongs to; `None` without a source.
    pub node: Option<&'c ThisNode>,
    /// BPF datapath that translates Services in kube-proxy's place.
    pub kube_proxy_replacement: Option<Datapath>,
    /// Name for sentences: `network namespace blue`.
    pub netns: String,
    /// Whether this is the machine's initial namespace; `None` if unknown.
    pub initial: Option<bool>,
    /// Count, limits, settings and counters of conntrack, before the entries were read.
    pub stat: Stat,
    /// Interfaces that drop packets before an entry is made.
    pub reverse_path: ReversePathFilter,
    /// `net.ipv4.ip_local_port_range`: first and last source port of connections that the node itself makes.
    pub local_ports: Option<(u16, u16)>,
    /// Duration of the sample before the entries were read; `None` without a sample.
    pub sampled: Option<Duration>,
    /// Networks of Pods: those of the Nodes, and those where Pods were seen. See [`Facts::may_be_a_pod`].
    pub pod_networks: HashSet<IpNet>,
    /// Differences between the rules and the cluster source that two readings of the rules show.
    pub disagreements: Vec<Disagreement>,
    /// The rules and the cluster source were compared.
    pub rules_compared: bool,
    /// Time between these two readings.
    pub rules_apart: Duration,
    /// Addresses of this namespace's interfaces.
    pub local: Option<Vec<LocalAddress>>,
    /// Whether bridges pass frames to the rules and to conntrack (`net.bridge.bridge-nf-call-iptables`).
    pub bridge_calls_iptables: Option<bool>,
    /// Ports of bridges in this namespace.
    pub bridge_ports: Option<Vec<BridgePort>>,
    /// Metrics of kube-proxy, where they can be read.
    pub kube_proxy: Option<KubeProxyMetrics>,
    /// Result of the scan of the table.
    pub scan: Scan,
    /// Changes of counters since `stat`, read after the entries.
    pub changes: Option<Changes>,
}

/// Version of kube-proxy with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version<'v> {
    /// Metrics of kube-proxy.
    KubeProxy(&'v str),
    /// The Node object (`status.nodeInfo.kubeletVersion`).
    Node(&'v str),
}

impl<'v> Version<'v> {
    pub fn text(self) -> &'v str {
        match self {
            Version::KubeProxy(text) | Version::Node(text) => text,
        }
    }
}

/// Changes between two readings of the counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Time between the two readings.
    pub seconds: f64,
    /// Number of entries at the second reading.
    pub count: Option<u64>,
    pub delta: Delta,
    /// Packets that the reverse-path filter dropped.
    pub filtered: Option<u64>,
}

impl Changes {
    /// Change of a counter, summed over all CPUs.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.delta
            .counters
            .as_ref()
            .map(CpuCounters::total)?
            .get(name)
    }

    /// Packets that this interface dropped because of the cloud's limit.
    pub fn exceeded(&self, interface: &str) -> Option<u64> {
        let mut all = self.delta.exceeded.iter();
        all.find(|(name, _)| name == interface)
            .and_then(|(_, more)| *more)
    }
}

/// Result of the scan of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Entries that the checks counted.
    pub scanned: u64,
    /// Entries that could not be decoded.
    pub unreadable: u64,
    /// The table was resized during the scan: entries may be missing or doubled.
    pub inconsistent: bool,
}

impl Facts<'_> {
    /// Value of a counter at the second reading, since the namespace was made, summed over all CPUs.
    pub fn total(&self, name: &str) -> Option<u64> {
        let counters = self.stat.counters.as_ref().map(CpuCounters::total)?;
        let more = self
            .changes
            .as_ref()
            .and_then(|changes| changes.counter(name));
        Some(counters.get(name)? + more.unwrap_or(0))
    }

    /// Version of kube-proxy from its metrics, else that of the node's kubelet, which is usually the same.
    pub fn kube_proxy_version(&self) -> Option<Version<'_>> {
        let metrics = self
            .kube_proxy
            .as_ref()
            .and_then(|metrics| metrics.version.as_deref());
        let node = self.index.zip(self.node);
        let node = node.and_then(|(index, node)| node.object(index)?.version.as_deref());
        metrics.map(Version::KubeProxy).or(node.map(Version::Node))
    }

    /// Data that every verdict needs and that is missing.
    pub fn lacks_verdicts(&self) -> Option<&'static str> {
        let foreign = self
            .node
            .is_some_and(|node| node.namespace == NetnsOwner::Foreign);
        if self.index.is_none() && self.rules.is_none() {
            Some("no cluster source")
        } else {
            (foreign && self.index.is_some()).then_some("not the node's namespace")
        }
    }

    /// Pods and Services, if they are missing.
    pub fn lacks_objects(&self) -> Option<&'static str> {
        self.index.is_none().then_some("no objects of the cluster")
    }

    /// Whether the address is this node's.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.node
            .is_some_and(|node| node.owns(self.index, address) == Some(true))
    }

    /// Interface of this namespace that has the address.
    pub fn interface_of(&self, address: IpAddr) -> Option<&str> {
        let mut local = self.local.iter().flatten();
        local
            .find(|own| own.address() == address)
            .map(|own| own.interface.as_str())
    }

    /// Whether the address is in a network of Pods.
    pub fn may_be_a_pod(&self, address: IpAddr) -> bool {
        let in_range = self.index.and_then(|index| index.in_pod_range(address));
        let network = pod_network(address);
        in_range == Some(true) || network.is_some_and(|net| self.pod_networks.contains(&net))
    }
}

/// The /24 or /64 around a Pod's address. Plug-ins that ignore `podCIDR` assign neighbouring addresses, too.
pub fn pod_network(address: IpAddr) -> Option<IpNet> {
    let bits = if address.is_ipv4() { 24 } else { 64 };
    IpNet::new(address, bits).ok().map(|net| net.trunc())
}

/// Whether the source `now` knows less of the cluster than the source `before`. Both are values of [`Facts::source`].
pub fn is_worse_source(before: &str, now: &str) -> bool {
    match before {
        "none" => false,
        "rules" => now == "none",
        _ => matches!(now, "rules" | "none"),
    }
}

#[cfg(test)]
mod tests {
    use super::is_worse_source;

    #[test]
    fn a_source_that_gets_worse_between_two_rounds_is_no_healed_cluster() {
        for (before, now, is_worse) in [
            ("api", "api", false),
            ("api", "rules", true),
            ("api", "none", true),
            ("rules", "none", true),
            ("rules", "api", false),
            ("none", "none", false),
            ("none", "api", false),
        ] {
            assert_eq!(is_worse_source(before, now), is_worse, "{before} {now}");
        }
    }
}
