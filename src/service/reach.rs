//! The endpoints that a flow may be sent to, by its frontend and its source.
//!
//! The spread of flows is computed separately for each reach: with external traffic policy Local, connections from outside to
//! a load balancer go to this node's endpoints only, which is no skew.

use std::net::IpAddr;

use crate::attribution::FrontendKind;
use crate::this_node::ThisNode;
use ctk_cluster::index::Index;

/// Endpoints that a traffic policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficPolicy {
    Cluster,
    /// Endpoints on the node only.
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
    /// All endpoints that kube-proxy uses on this node.
    Cluster,
    /// Endpoints on this node.
    Local,
    /// One of these two; which is not known.
    NotKnown,
}

impl Reach {
    /// Word of JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Reach::Cluster => "cluster",
            Reach::Local => "local",
            Reach::NotKnown => "not-known",
        }
    }

    /// Reach of a flow to this kind of frontend. `inside` is the answer of [`is_inside`]; it is called only if it matters.
    pub fn of(
        kind: FrontendKind,
        internal: Option<TrafficPolicy>,
        external: Option<TrafficPolicy>,
        inside: impl FnOnce() -> Option<bool>,
    ) -> Self {
        match (kind, internal, external) {
            (FrontendKind::ClusterIp, Some(TrafficPolicy::Local), _) => Reach::Local,
            // Where only rules are known, they hold the endpoints of a ClusterIP for any policy.
            (FrontendKind::ClusterIp, _, _) | (_, _, Some(TrafficPolicy::Cluster)) => {
                Reach::Cluster
            }
            (_, _, Some(TrafficPolicy::Local)) => match inside() {
                Some(true) => Reach::Cluster,
                Some(false) => Reach::Local,
                None => Reach::NotKnown,
            },
            // Rules send the node's own packets to all endpoints with either policy.
            (_, _, None) => Reach::NotKnown,
        }
    }
}

/// Whether kube-proxy treats packets of this source as local, that is from the node or its pods: external frontends then use
/// all endpoints, as with policy Cluster. `None` also for pods of other nodes, which are local or not depending on
/// kube-proxy's `--detect-local-mode`.
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
