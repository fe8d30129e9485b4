//! What is known beside the entries. Whoever runs the checks fills it; what could not be read is `None`, never zero.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use crate::cluster::compare::Disagreement;
use crate::cluster::index::Index;
use crate::cluster::rules::NodeRules;
use crate::netns::BridgePort;
use crate::sysctl;
use crate::verdict::ThisNode;

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
    /// For sentences: `network namespace blue`.
    pub netns: String,
    /// The namespace that the machine started with; `None` when it cannot be told.
    pub initial: Option<bool>,
    /// Count, limit and settings of conntrack.
    pub settings: sysctl::Conntrack,
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
    pub bridge_ports: Vec<BridgePort>,
    /// What kube-proxy says of itself, where it can be asked.
    pub kube_proxy: Option<KubeProxy>,
    /// How the reading of the entries went; after it.
    pub scan: Scan,
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
