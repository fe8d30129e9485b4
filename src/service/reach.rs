//! Which endpoints a flow can be sent to: that hangs on the frontend by which it came, and on where it came from.
//!
//! How evenly flows lie can be told only among those that had the same choice: connections from outside to a load balancer
//! whose external traffic policy is Local are all on this node's endpoint, and rightly so.

use std::net::IpAddr;

use crate::attribution::FrontendKind;
use crate::this_node::ThisNode;
use ctk_cluster::index::Index;

/// Which endpoints a traffic policy lets packets go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficPolicy {
    Cluster,
    /// Those on the node only.
    Local,
}

impl TrafficPolicy {
    pub fn of(local: bool) -> Self {
        if local {
            TrafficPolicy::Local
        } else {
            TrafficPolicy::Cluster
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            TrafficPolicy::Cluster => "cluster",
            TrafficPolicy::Local => "local",
        }
    }
}

/// Endpoints that a new flow may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// All that kube-proxy uses on this node.
    Cluster,
    /// Those on this node.
    Local,
    /// One of these two.
    NotKnown,
}

impl Reach {
    /// The word of JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Reach::Cluster => "cluster",
            Reach::Local => "local",
            Reach::NotKnown => "not-known",
        }
    }

    /// Of a flow by this kind of frontend. `inside`: see [`is_inside`]; asked only where it matters.
    pub fn of(
        kind: FrontendKind,
        internal: Option<TrafficPolicy>,
        external: Option<TrafficPolicy>,
        inside: impl FnOnce() -> Option<bool>,
    ) -> Self {
        match (kind, internal, external) {
            (FrontendKind::ClusterIp, Some(TrafficPolicy::Local), _) => Reach::Local,
            // Where only rules are known, they tell where a ClusterIP leads, whatever the policy.
            (FrontendKind::ClusterIp, _, _) | (_, _, Some(TrafficPolicy::Cluster)) => {
                Reach::Cluster
            }
            (_, _, Some(TrafficPolicy::Local)) => match inside() {
                Some(true) => Reach::Cluster,
                Some(false) => Reach::Local,
                None => Reach::NotKnown,
            },
            // Rules that let the node's own packets go everywhere do not tell the policy.
            (_, _, None) => Reach::NotKnown,
        }
    }
}

/// Whether kube-proxy takes packets of this source for the node's own or its pods': these reach external frontends as if
/// the policy were Cluster. `None` also for pods of other nodes: how kube-proxy detects local traffic decides then.
pub fn is_inside(index: &Index, node: &ThisNode, source: IpAddr) -> Option<bool> {
    let here = node.name.as_deref();
    let is_here = |pod: &ctk_cluster::index::Pod| here.is_some() && pod.node.as_deref() == here;
    if index.pods_at(source).any(is_here) {
        return Some(true);
    }
    let is_of_a_pod = index.in_pod_range(source) == Some(true)
        || index.pods_at(source).next().is_some()
        || !index.pods_known_at(source);
    match node.owns(Some(index), source) {
        Some(true) => Some(true),
        Some(false) if !is_of_a_pod => Some(false),
        _ => None,
    }
}
