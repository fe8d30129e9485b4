//! Names of the addresses of an entry. They borrow from the cluster index.

use super::FrontendMatch;

/// Kind of the owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartyKind {
    /// A Pod with an address of its own.
    Pod,
    /// A Pod in the node's network namespace, found by its declared port.
    HostNetwork,
    Node,
    /// An address outside the cluster.
    External,
    /// An address inside the cluster's ranges without an owner, or with an ambiguous one.
    Unknown,
}

impl PartyKind {
    pub const fn name(self) -> &'static str {
        match self {
            PartyKind::Pod => "pod",
            PartyKind::HostNetwork => "host-network",
            PartyKind::Node => "node",
            PartyKind::External => "external",
            PartyKind::Unknown => "unknown",
        }
    }
}

/// Owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party<'c> {
    pub kind: PartyKind,
    pub namespace: Option<&'c str>,
    /// Name of the Pod, or of the node for kind `node`.
    pub name: Option<&'c str>,
    /// Node that it runs on.
    pub node: Option<&'c str>,
}

/// Kind of frontend that a destination is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrontendKind {
    ClusterIp,
    ExternalIp,
    LoadBalancerIp,
    NodePort,
    /// A DNAT rule of this node that belongs to no Service.
    Rule,
}

impl FrontendKind {
    pub const fn name(self) -> &'static str {
        match self {
            FrontendKind::ClusterIp => "cluster-ip",
            FrontendKind::ExternalIp => "external-ip",
            FrontendKind::LoadBalancerIp => "load-balancer-ip",
            FrontendKind::NodePort => "node-port",
            FrontendKind::Rule => "rule",
        }
    }
}

/// Service port that an original destination matched. All names are `None` for frontend kind `rule`; `port` is also `None`
/// for a Service port without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceName<'c> {
    pub namespace: Option<&'c str>,
    pub name: Option<&'c str>,
    pub port: Option<&'c str>,
    pub frontend: FrontendKind,
    /// Port number of the frontend that matched, shown where the port has no name.
    pub port_number: u16,
}

/// Pod or node at the reply source. Conditions are `None` unless it is an endpoint of the matched Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointName<'c> {
    pub party: Party<'c>,
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
    /// The slice lists the endpoint without a Pod.
    pub manual: bool,
}

/// Names of an entry; `None` where nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names<'c> {
    pub client: Option<Party<'c>>,
    /// Frontend with all its Service ports; `service` is the port to show.
    pub matched: FrontendMatch<'c>,
    pub service: Option<ServiceName<'c>>,
    pub endpoint: Option<EndpointName<'c>>,
}
