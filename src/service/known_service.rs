//! A Service before anybody looked at the table.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};

use crate::attribution::FrontendKind;
use ctk_cluster::index::{AddressKind, Affinity, Endpoint, Index, Name, PortId};
use ctk_cluster::rules::{NodeRules, RuleFrontend, RuleKind, RuleService};

use super::reach::{Reach, TrafficPolicy};

/// Where packets to the Service go, before they are translated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontend {
    pub kind: FrontendKind,
    /// `None` for a node port: every address on which the node answers.
    pub address: Option<IpAddr>,
    /// IANA number.
    pub protocol: u8,
    pub port: u16,
    /// Name of the Service port; `None` for an unnamed one.
    pub name: Option<Name>,
}

/// An endpoint as the source lists it. Conditions are `None` where only rules are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEndpoint {
    /// IANA number.
    pub protocol: u8,
    pub place: SocketAddr,
    /// Names of the Service ports that lead there.
    pub ports: BTreeSet<Option<Name>>,
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
    /// Namespace and name.
    pub pod: Option<(Name, Name)>,
    pub node: Option<Name>,
    /// New flows of [`Reach::Cluster`] may go there: the mean counts it even without a flow.
    pub candidate: bool,
    /// Those of [`Reach::Local`] may.
    pub local_candidate: bool,
}

impl KnownEndpoint {
    /// New flows of this reach may go there.
    pub fn is_candidate(&self, reach: Reach) -> bool {
        match reach {
            Reach::Cluster => self.candidate,
            Reach::Local => self.local_candidate,
            Reach::NotKnown => self.candidate || self.local_candidate,
        }
    }
}

/// One Service.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownService {
    pub namespace: Name,
    pub name: Name,
    /// False for a Service that kube-proxy leaves alone; `None` where only rules are known.
    pub kube_proxy: Option<bool>,
    /// In the order of ports and addresses.
    pub frontends: Vec<Frontend>,
    /// `None` where only rules are known.
    pub internal_policy: Option<TrafficPolicy>,
    /// `None` also where there is no frontend for the outside.
    pub external_policy: Option<TrafficPolicy>,
    pub affinity: Option<Affinity>,
    /// In the order of ports and addresses.
    pub endpoints: Vec<KnownEndpoint>,
    /// Topology hints may leave this node fewer endpoints than flows of [`Reach::Cluster`] are counted for.
    pub hinted: bool,
    /// Which endpoints are on this node is not known, and a policy asks for these.
    pub node_unknown: bool,
    /// False where only rules are known, and some that lead to endpoints of the Service are not understood.
    pub endpoints_complete: bool,
}

/// Endpoints, each with the position of its first Service port.
type EndpointsByAddress = BTreeMap<(u8, SocketAddr), (usize, KnownEndpoint)>;

impl KnownService {
    /// These ports of a Service; `None` for no ports. `node`: name of the node whose table is looked at.
    pub fn of_index(index: &Index, ports: &[PortId], node: Option<&str>) -> Option<Self> {
        let service = index.service(index.port(*ports.first()?).service);
        let mut frontends = Vec::new();
        let mut places = EndpointsByAddress::new();
        let mut hinted = false;
        for (order, id) in ports.iter().enumerate() {
            let port = index.port(*id);
            let frontend = |kind, address, number| Frontend {
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
                let place = SocketAddr::new(endpoint.address, endpoint.port);
                places
                    .entry((port.protocol, place))
                    .or_insert_with(|| (order, listed(port.protocol, endpoint, here)))
                    .1
                    .ports
                    .insert(port.name.clone());
            }
        }
        let mut endpoints = in_order(places);
        // Where none is ready, kube-proxy falls back on those that are terminating and still serve.
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

    /// As this node's rules name the Service, with these of its ports.
    pub fn of_rules(
        rules: &NodeRules,
        namespace: &Name,
        name: &Name,
        ports: &[Option<Name>],
    ) -> Self {
        let mut frontends = BTreeSet::new();
        let mut places = EndpointsByAddress::new();
        let mut endpoints_complete = rules.is_whole();
        for ((address, protocol, port), found, service) in all(rules) {
            let same = service.namespace == *namespace && service.name == *name;
            if !same || !ports.contains(&service.port) {
                continue;
            }
            endpoints_complete &= found.understood;
            frontends.insert(Frontend {
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
            for (place, candidate) in targets.chain(draining) {
                let unknown = || KnownEndpoint {
                    protocol,
                    place: *place,
                    ports: BTreeSet::new(),
                    ready: None,
                    serving: None,
                    terminating: None,
                    pod: None,
                    node: None,
                    candidate: false,
                    local_candidate: false,
                };
                let place = places.entry((protocol, *place));
                let (_, listed) = place.or_insert_with(|| (0, unknown()));
                // Rules for the outside lead the node's own packets to every endpoint, and others maybe to few.
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
            endpoints: in_order(places),
            hinted: false,
            node_unknown: false,
            endpoints_complete,
        }
    }

    /// New flows go where the node's rules lead, where these are understood: policies, hints and conditions are in them.
    pub fn narrow(&mut self, rules: &NodeRules) {
        let (Some(internal), external) = (self.internal_policy, self.external_policy) else {
            // They are all that is known of it.
            return;
        };
        let of_service: Vec<(u8, &RuleFrontend)> = all(rules)
            .filter(|(_, _, s)| s.namespace == self.namespace && s.name == self.name)
            .map(|((_, protocol, _), frontend, _)| (protocol, frontend))
            .collect();
        let understood = of_service.iter().all(|(_, frontend)| frontend.understood);
        let targets = |wanted: &dyn Fn(RuleKind) -> bool| -> HashSet<(u8, SocketAddr)> {
            let frontends = of_service.iter().filter(|(_, found)| wanted(found.kind));
            let targets = |(protocol, found): &(u8, &RuleFrontend)| {
                let protocol = *protocol;
                let places = found.targets.clone();
                places.into_iter().map(move |place| (protocol, place))
            };
            frontends.flat_map(targets).collect()
        };
        let all = targets(&|_| true);
        if !rules.is_whole() || !understood || all.is_empty() {
            return;
        }
        let inside = targets(&|kind| kind == RuleKind::ClusterIp);
        let outside = targets(&|kind| kind != RuleKind::ClusterIp);
        // With policy Local, frontends for the outside lead to this node's endpoints, and the node's own packets to all.
        let everywhere = match internal {
            TrafficPolicy::Cluster if !inside.is_empty() => &inside,
            _ => &all,
        };
        self.hinted &= internal == TrafficPolicy::Local && external != Some(TrafficPolicy::Cluster);
        for endpoint in &mut self.endpoints {
            let place = (endpoint.protocol, endpoint.place);
            endpoint.candidate = everywhere.contains(&place);
            endpoint.local_candidate = match internal {
                TrafficPolicy::Local if !inside.is_empty() => inside.contains(&place),
                _ => endpoint.local_candidate && (outside.is_empty() || outside.contains(&place)),
            };
        }
        self.node_unknown &= internal == TrafficPolicy::Cluster || inside.is_empty();
    }

    /// Flows of this reach may have had fewer endpoints to go to than the candidates are.
    pub fn may_be_fewer(&self, reach: Reach) -> bool {
        match reach {
            Reach::Cluster => self.hinted,
            Reach::Local => self.node_unknown,
            Reach::NotKnown => true,
        }
    }
}

fn in_order(places: EndpointsByAddress) -> Vec<KnownEndpoint> {
    let mut all: Vec<(usize, KnownEndpoint)> = places.into_values().collect();
    // Stable: by protocol and address within a port.
    all.sort_by_key(|(order, _)| *order);
    all.into_iter().map(|(_, listed)| listed).collect()
}

type FrontendKey = (Option<IpAddr>, u8, u16);

/// Every frontend that is named.
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
        .filter_map(|(place, frontend)| Some((place, frontend, frontend.service.as_ref()?)))
}

fn listed(protocol: u8, endpoint: &Endpoint, here: bool) -> KnownEndpoint {
    KnownEndpoint {
        protocol,
        place: SocketAddr::new(endpoint.address, endpoint.port),
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
