//! A Service as the cluster or the node's rules describe it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};

use crate::attribution::FrontendKind;
use ctk_cluster::index::{AddressKind, Affinity, Endpoint, Index, Name, PortId};
use ctk_cluster::rules::{NodeRules, RuleFrontend, RuleKind, RuleService};

use super::reach::{Reach, TrafficPolicy};

/// An address and port of the Service that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownFrontend {
    pub kind: FrontendKind,
    /// `None` for a node port, which is open on every address of the node that kube-proxy uses.
    pub address: Option<IpAddr>,
    /// IANA number.
    pub protocol: u8,
    pub port: u16,
    /// Name of the Service port; `None` for an unnamed one.
    pub name: Option<Name>,
}

/// An endpoint of the Service. Conditions are `None` where only rules are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEndpoint {
    /// IANA number.
    pub protocol: u8,
    pub address: SocketAddr,
    /// Names of the Service ports that lead to it.
    pub ports: BTreeSet<Option<Name>>,
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
    /// Namespace and name.
    pub pod: Option<(Name, Name)>,
    pub node: Option<Name>,
    /// New flows of [`Reach::Cluster`] may go to it, so the mean counts it even without a flow.
    pub candidate: bool,
    /// New flows of [`Reach::Local`] may go to it.
    pub local_candidate: bool,
}

impl KnownEndpoint {
    /// Whether new flows of this reach may go to it.
    pub fn is_candidate(&self, reach: Reach) -> bool {
        match reach {
            Reach::Cluster => self.candidate,
            Reach::Local => self.local_candidate,
            Reach::NotKnown => self.candidate || self.local_candidate,
        }
    }
}

/// One Service with its frontends and endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownService {
    pub namespace: Name,
    pub name: Name,
    /// False for a Service that kube-proxy ignores; `None` where only rules are known.
    pub kube_proxy: Option<bool>,
    /// In the order of ports and addresses.
    pub frontends: Vec<KnownFrontend>,
    /// `None` where only rules are known.
    pub internal_policy: Option<TrafficPolicy>,
    /// `None` where only rules are known, and where no frontend is for traffic from outside.
    pub external_policy: Option<TrafficPolicy>,
    pub affinity: Option<Affinity>,
    /// In the order of ports and addresses.
    pub endpoints: Vec<KnownEndpoint>,
    /// Topology hints may restrict flows of [`Reach::Cluster`] to fewer endpoints than the candidates.
    pub hinted: bool,
    /// A traffic policy restricts flows to endpoints on this node, and these are not known.
    pub node_unknown: bool,
    /// False if only rules are known and some that may lead to endpoints of the Service are not understood.
    pub endpoints_complete: bool,
}

/// Endpoints by protocol and address, each with the position of its first Service port.
type EndpointsByAddress = BTreeMap<(u8, SocketAddr), (usize, KnownEndpoint)>;

impl KnownService {
    /// A Service with these of its ports, from the cluster's objects; `None` for no ports. `node` is the name of the node that
    /// the table belongs to.
    pub fn of_index(index: &Index, ports: &[PortId], node: Option<&str>) -> Option<Self> {
        let service = index.service(index.port(*ports.first()?).service);
        let mut frontends = Vec::new();
        let mut endpoints_by_address = EndpointsByAddress::new();
        let mut hinted = false;
        for (order, id) in ports.iter().enumerate() {
            let port = index.port(*id);
            let frontend = |kind, address, number| KnownFrontend {
                kind,
                address,
                protocol: port.protocol,
                port: number,
                name: port.name.clone(),
            };
            for (address, kind) in &service.addresses {
                frontends.push(frontend(kind_of(*kind), Some(*address), port.port));
            }
            frontends.extend(
                port.node_port
                    .map(|number| frontend(FrontendKind::NodePort, None, number)),
            );
            for endpoint in &port.endpoints {
                hinted |= endpoint.hinted && endpoint.ready;
                let here = node.is_none_or(|node| endpoint.node.as_deref() == Some(node));
                let address = SocketAddr::new(endpoint.address, endpoint.port);
                endpoints_by_address
                    .entry((port.protocol, address))
                    .or_insert_with(|| (order, listed(port.protocol, endpoint, here)))
                    .1
                    .ports
                    .insert(port.name.clone());
            }
        }
        let mut endpoints = in_order(endpoints_by_address);
        // kube-proxy uses serving and terminating endpoints if none is ready (`CategorizeEndpoints` in
        // `pkg/proxy/topology.go`).
        if !endpoints.iter().any(|endpoint| endpoint.candidate) {
            for endpoint in &mut endpoints {
                endpoint.candidate = endpoint.serving == Some(true);
            }
        }
        if !endpoints.iter().any(|endpoint| endpoint.local_candidate) {
            for endpoint in &mut endpoints {
                let here = node.is_none_or(|node| endpoint.node.as_deref() == Some(node));
                endpoint.local_candidate = here && endpoint.serving == Some(true);
            }
        }
        let outside = frontends
            .iter()
            .any(|frontend| frontend.kind != FrontendKind::ClusterIp);
        Some(KnownService {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            kube_proxy: Some(service.kube_proxy),
            frontends,
            internal_policy: Some(TrafficPolicy::of(service.internal_local)),
            external_policy: outside.then(|| TrafficPolicy::of(service.external_local)),
            affinity: service.affinity,
            endpoints,
            hinted,
            node_unknown: node.is_none(),
            endpoints_complete: true,
        })
    }

    /// A Service with these of its ports, from this node's rules.
    pub fn of_rules(
        rules: &NodeRules,
        namespace: &Name,
        name: &Name,
        ports: &[Option<Name>],
    ) -> Self {
        let mut frontends = BTreeSet::new();
        let mut endpoints_by_address = EndpointsByAddress::new();
        let mut endpoints_complete = rules.is_whole();
        for ((address, protocol, port), found, service) in all(rules) {
            let same = service.namespace == *namespace && service.name == *name;
            if !same || !ports.contains(&service.port) {
                continue;
            }
            endpoints_complete &= found.understood;
            frontends.insert(KnownFrontend {
                kind: match address {
                    None => FrontendKind::NodePort,
                    Some(_) => kind_of_rule(found.kind),
                },
                address,
                protocol,
                port,
                name: service.port.clone(),
            });
            let targets = found.targets.iter().map(|target| (target, true));
            let draining = found.draining.iter().map(|target| (target, false));
            for (address, candidate) in targets.chain(draining) {
                let unknown = || KnownEndpoint {
                    protocol,
                    address: *address,
                    ports: BTreeSet::new(),
                    ready: None,
                    serving: None,
                    terminating: None,
                    pod: None,
                    node: None,
                    candidate: false,
                    local_candidate: false,
                };
                let entry = endpoints_by_address.entry((protocol, *address));
                let (_, listed) = entry.or_insert_with(|| (0, unknown()));
                // Rules of external frontends send the node's own packets to every endpoint, and other packets perhaps to fewer.
                match found.kind {
                    RuleKind::ClusterIp => listed.candidate |= candidate,
                    _ => listed.local_candidate |= candidate,
                }
                listed.ports.insert(service.port.clone());
            }
        }
        KnownService {
            namespace: namespace.clone(),
            name: name.clone(),
            kube_proxy: None,
            frontends: frontends.into_iter().collect(),
            internal_policy: None,
            external_policy: None,
            affinity: None,
            endpoints: in_order(endpoints_by_address),
            hinted: false,
            node_unknown: false,
            endpoints_complete,
        }
    }

    /// Restricts the candidates to the endpoints in the node's rules, if these are understood. Policies, hints and conditions
    /// are already applied in them.
    pub fn narrow(&mut self, rules: &NodeRules) {
        let (Some(internal), external) = (self.internal_policy, self.external_policy) else {
            // The Service is known from these rules only.
            return;
        };
        let of_service: Vec<(u8, &RuleFrontend)> = all(rules)
            .filter(|(_, _, s)| s.namespace == self.namespace && s.name == self.name)
            .map(|((_, protocol, _), frontend, _)| (protocol, frontend))
            .collect();
        let understood = of_service.iter().all(|(_, frontend)| frontend.understood);
        let targets = |of_kind: &dyn Fn(RuleKind) -> bool| -> HashSet<(u8, SocketAddr)> {
            let frontends = of_service.iter().filter(|(_, found)| of_kind(found.kind));
            let targets = |(protocol, found): &(u8, &RuleFrontend)| {
                let protocol = *protocol;
                let addresses = found.targets.clone();
                addresses
                    .into_iter()
                    .map(move |address| (protocol, address))
            };
            frontends.flat_map(targets).collect()
        };
        let all = targets(&|_| true);
        if !rules.is_whole() || !understood || all.is_empty() {
            return;
        }
        let inside = targets(&|kind| kind == RuleKind::ClusterIp);
        let outside = targets(&|kind| kind != RuleKind::ClusterIp);
        // With policy Local, external frontends lead to this node's endpoints, and the node's own packets go to all.
        let everywhere = match internal {
            TrafficPolicy::Cluster if !inside.is_empty() => &inside,
            _ => &all,
        };
        self.hinted &= internal == TrafficPolicy::Local && external != Some(TrafficPolicy::Cluster);
        for endpoint in &mut self.endpoints {
            let key = (endpoint.protocol, endpoint.address);
            endpoint.candidate = everywhere.contains(&key);
            endpoint.local_candidate = match internal {
                TrafficPolicy::Local if !inside.is_empty() => inside.contains(&key),
                _ => endpoint.local_candidate && (outside.is_empty() || outside.contains(&key)),
            };
        }
        self.node_unknown &= internal == TrafficPolicy::Cluster || inside.is_empty();
    }

    /// Whether flows of this reach may have been restricted to fewer endpoints than the candidates.
    pub fn may_be_fewer(&self, reach: Reach) -> bool {
        match reach {
            Reach::Cluster => self.hinted,
            Reach::Local => self.node_unknown,
            Reach::NotKnown => true,
        }
    }
}

fn in_order(endpoints: EndpointsByAddress) -> Vec<KnownEndpoint> {
    let mut all: Vec<(usize, KnownEndpoint)> = endpoints.into_values().collect();
    // The sort is stable, so endpoints of a port stay ordered by protocol and address.
    all.sort_by_key(|(order, _)| *order);
    all.into_iter().map(|(_, listed)| listed).collect()
}

/// Address (`None` for a node port), protocol and port.
type FrontendKey = (Option<IpAddr>, u8, u16);

/// Every frontend that names its Service.
fn all(rules: &NodeRules) -> impl Iterator<Item = (FrontendKey, &RuleFrontend, &RuleService)> {
    let direct = rules.frontends.iter().map(|(key, frontend)| {
        let (address, protocol, port) = *key;
        ((Some(address), protocol, port), frontend)
    });
    let node_ports = rules.node_ports.iter().map(|(key, frontend)| {
        let (_, protocol, port) = *key;
        ((None, protocol, port), frontend)
    });
    direct
        .chain(node_ports)
        .filter_map(|(key, frontend)| Some((key, frontend, frontend.service.as_ref()?)))
}

fn listed(protocol: u8, endpoint: &Endpoint, here: bool) -> KnownEndpoint {
    KnownEndpoint {
        protocol,
        address: SocketAddr::new(endpoint.address, endpoint.port),
        ports: BTreeSet::new(),
        ready: Some(endpoint.ready),
        serving: Some(endpoint.serving),
        terminating: Some(endpoint.terminating),
        pod: endpoint.pod.clone(),
        node: endpoint.node.clone(),
        candidate: endpoint.ready,
        local_candidate: here && endpoint.ready,
    }
}

fn kind_of(kind: AddressKind) -> FrontendKind {
    match kind {
        AddressKind::ClusterIp => FrontendKind::ClusterIp,
        AddressKind::ExternalIp => FrontendKind::ExternalIp,
        AddressKind::Ingress | AddressKind::ProxyIngress => FrontendKind::LoadBalancerIp,
    }
}

pub(super) fn kind_of_rule(kind: RuleKind) -> FrontendKind {
    match kind {
        RuleKind::ClusterIp => FrontendKind::ClusterIp,
        RuleKind::ExternalIp => FrontendKind::ExternalIp,
        RuleKind::LoadBalancerIp => FrontendKind::LoadBalancerIp,
        RuleKind::NodePort => FrontendKind::NodePort,
        RuleKind::Unknown => FrontendKind::Rule,
    }
}
