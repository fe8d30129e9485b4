//! What is known beside the entries. Whoever runs the checks fills it; what could not be read is `None`, never zero.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use crate::reverse_path::ReversePathFilter;
use crate::stat::{CpuCounters, Delta, Stat};
use crate::this_node::ThisNode;
use ctk_cluster::compare::Disagreement;
use ctk_cluster::datapath::Datapath;
use ctk_cluster::index::Index;
use ctk_cluster::rules::NodeRules;
use ctnetlink::rtnetlink::BridgePort;

use super::metrics::KubeProxy;

/// Filled in two steps: everything but `scan` is known before the first entry comes.
#[derive(Default)]
pub struct Facts<'c> {
    /// `api`, `rules`, `file` or `none`.
    pub source: &'static str,
    /// What the API or a file told.
    pub index: Option<&'c Index>,
    /// This node's rules, as the source or beside it.
    pub rules: Option<&'c NodeRules>,
    /// Whose table this is; `None` without a source.
    pub node: Option<&'c ThisNode>,
    /// Who translates Services here in kube-proxy's place.
    pub instead: Option<Datapath>,
    /// For sentences: `network namespace blue`.
    pub netns: String,
    /// The namespace that the machine started with; `None` when it cannot be told.
    pub initial: Option<bool>,
    /// Count, limits, settings and counters of conntrack, before the entries were read.
    pub stat: Stat,
    /// Interfaces that drop packets before an entry is made.
    pub reverse_path: ReversePathFilter,
    /// `net.ipv4.ip_local_port_range`: first and last source port of connections that the node itself makes.
    pub local_ports: Option<(u16, u16)>,
    /// How long it was looked before the entries were read; `None` when they were read once.
    pub sampled: Option<Duration>,
    /// Networks that pods live in: those that Nodes tell, and where pods were seen. See [`Facts::may_be_a_pod`].
    pub pod_networks: HashSet<IpNet>,
    /// Where the rules differ from the cluster source, in two readings of them.
    pub disagreements: Vec<Disagreement>,
    /// Time between these two readings.
    pub rules_apart: Duration,
    /// Ports of bridges in this namespace.
    pub bridge_ports: Option<Vec<BridgePort>>,
    /// What kube-proxy says of itself, where it can be asked.
    pub kube_proxy: Option<KubeProxy>,
    /// How the reading of the entries went; after it.
    pub scan: Scan,
    /// What was counted since `stat`; after the entries, too.
    pub moved: Option<Moved>,
}

/// A version of kube-proxy, by the source that tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version<'v> {
    /// kube-proxy itself, by its metrics.
    KubeProxy(&'v str),
    /// The node object (`status.nodeInfo.kubeletVersion`).
    Node(&'v str),
}

impl<'v> Version<'v> {
    pub fn text(self) -> &'v str {
        match self {
            Version::KubeProxy(text) | Version::Node(text) => text,
        }
    }
}

/// A second look at what is counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// Between the two looks.
    pub seconds: f64,
    /// Entries at the second one.
    pub count: Option<u64>,
    pub delta: Delta,
    /// Packets that the reverse-path filter dropped.
    pub filtered: Option<u64>,
}

impl Moved {
    /// What all CPUs counted under this name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.delta
            .counters
            .as_ref()
            .map(CpuCounters::total)?
            .get(name)
    }

    /// Packets that this interface dropped for the cloud's limit.
    pub fn exceeded(&self, interface: &str) -> Option<u64> {
        let mut all = self.delta.exceeded.iter();
        all.find(|(name, _)| name == interface)
            .and_then(|(_, more)| *more)
    }
}

/// How the reading of the table went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Entries that the checks saw.
    pub scanned: u64,
    /// Entries that could not be decoded.
    pub unreadable: u64,
    /// The table changed its shape meanwhile: entries may be missing or doubled.
    pub inconsistent: bool,
}

impl Facts<'_> {
    /// What all CPUs counted under this name since the namespace was made, until the second look.
    pub fn total(&self, name: &str) -> Option<u64> {
        let counters = self.stat.counters.as_ref().map(CpuCounters::total)?;
        let more = self.moved.as_ref().and_then(|moved| moved.counter(name));
        Some(counters.get(name)? + more.unwrap_or(0))
    }

    /// kube-proxy's version where it tells it, else the one of the node's kubelet, which is usually the same.
    pub fn kube_proxy_version(&self) -> Option<Version<'_>> {
        let told = self
            .kube_proxy
            .as_ref()
            .and_then(|told| told.version.as_deref());
        let node = self.index.zip(self.node);
        let node = node.and_then(|(index, node)| node.object(index)?.version.as_deref());
        told.map(Version::KubeProxy).or(node.map(Version::Node))
    }

    /// An address of this node.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.node
            .is_some_and(|node| node.owns(self.index, address) == Some(true))
    }

    /// The address lies where pods get theirs from.
    pub fn may_be_a_pod(&self, address: IpAddr) -> bool {
        let in_range = self.index.and_then(|index| index.in_pod_range(address));
        let network = pod_network(address);
        in_range == Some(true) || network.is_some_and(|net| self.pod_networks.contains(&net))
    }
}

/// The /24 or /64 around a pod's address: plug-ins that do not use `podCIDR` give out neighbouring addresses, too.
pub fn pod_network(address: IpAddr) -> Option<IpNet> {
    let bits = if address.is_ipv4() { 24 } else { 64 };
    IpNet::new(address, bits).ok().map(|net| net.trunc())
}
