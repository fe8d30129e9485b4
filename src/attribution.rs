//! Attribution of an entry: the frontend that its destination is, and the names of client, Service and endpoint. No other
//! module compares flows with the cluster's objects by address.

mod names;

use std::net::IpAddr;

use crate::this_node::ThisNode;
use ctk_cluster::index::{AddressKind, Endpoint, Frontend, Index, PortId, ServicePort};
use ctk_cluster::rules::{Condition, Forward, NodeRules, RuleFrontend, RuleKind};
use ctnetlink::flow::{Flow, Tuple};

pub use names::{EndpointName, FrontendKind, Names, Party, PartyKind, ServiceName};

/// Frontend at the original destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontendMatch<'c> {
    #[default]
    Nothing,
    /// An address of one or more Services with one of their ports. Two Services may share an external address and port.
    Addresses(&'c [Frontend]),
    /// An address of this node with a node port.
    NodePorts(&'c [PortId]),
    /// A frontend of kube-proxy's rules on this node, where only rules are known.
    Rule(&'c RuleFrontend),
    /// The destination of a DNAT rule of this node that belongs to no Service.
    Forward(&'c Forward),
}

impl<'c> FrontendMatch<'c> {
    /// Finds the frontend at the original destination. Protocol and port always belong to the match.
    pub fn of(flow: &Flow, index: &'c Index, node: &ThisNode) -> Self {
        let Some(port) = flow.original.dport() else {
            return FrontendMatch::Nothing;
        };
        let (address, protocol) = (flow.original.dst, flow.protocol());
        let frontends = index.frontends(address, protocol, port);
        if !frontends.is_empty() {
            return FrontendMatch::Addresses(frontends);
        }
        let ports = index.node_ports(protocol, port);
        if !ports.is_empty() && node.owns(Some(index), address) == Some(true) {
            return FrontendMatch::NodePorts(ports);
        }
        FrontendMatch::Nothing
    }

    /// Finds the frontend by the node's own rules.
    pub fn by_rules(flow: &Flow, rules: &'c NodeRules, node: &ThisNode) -> Self {
        let Some(port) = flow.original.dport() else {
            return FrontendMatch::Nothing;
        };
        let (address, protocol) = (flow.original.dst, flow.protocol());
        let local = node.owns(None, address) == Some(true);
        match rules.frontend(address, protocol, port, local) {
            Some(frontend) => FrontendMatch::Rule(frontend),
            None => Self::by_forwards(flow, rules, node),
        }
    }

    /// Finds a DNAT rule that belongs to no Service.
    pub fn by_forwards(flow: &Flow, rules: &'c NodeRules, node: &ThisNode) -> Self {
        forwards_to(rules, node, flow)
            .next()
            .map_or(FrontendMatch::Nothing, FrontendMatch::Forward)
    }

    pub fn is_nothing(self) -> bool {
        matches!(self, FrontendMatch::Nothing)
    }

    /// Whether a Service port of the index matched.
    pub fn is_service_port(self) -> bool {
        matches!(
            self,
            FrontendMatch::Addresses(_) | FrontendMatch::NodePorts(_)
        )
    }

    /// Every Service port that matched, with the kind of frontend.
    pub fn ports(self) -> impl Iterator<Item = (PortId, FrontendKind)> + 'c {
        let (addresses, ports): (&[Frontend], &[PortId]) = match self {
            FrontendMatch::Nothing | FrontendMatch::Rule(_) | FrontendMatch::Forward(_) => {
                (&[], &[])
            }
            FrontendMatch::Addresses(frontends) => (frontends, &[]),
            FrontendMatch::NodePorts(ports) => (&[], ports),
        };
        let addresses = addresses
            .iter()
            .map(|frontend| (frontend.port, kind_of(frontend.kind)));
        addresses.chain(ports.iter().map(|port| (*port, FrontendKind::NodePort)))
    }
}

fn kind_of(kind: AddressKind) -> FrontendKind {
    match kind {
        AddressKind::ClusterIp => FrontendKind::ClusterIp,
        AddressKind::ExternalIp => FrontendKind::ExternalIp,
        AddressKind::Ingress | AddressKind::ProxyIngress => FrontendKind::LoadBalancerIp,
    }
}

/// DNAT rules of this node that are not kube-proxy's and could match the entry's next packet. Rules of another hook, or of another
/// incoming interface than the routes lead back to, are left out. Further conditions are ignored.
pub fn forwards_to<'c>(
    rules: &'c NodeRules,
    node: &ThisNode,
    flow: &Flow,
) -> impl Iterator<Item = &'c Forward> {
    forwards_to_destination(rules, node, flow)
        .filter(move |rule| !rule.conditions.iter().any(|c| excludes(c, node, flow)))
}

/// DNAT rules of this node that are not kube-proxy's and could match protocol, address and port of the original destination,
/// whatever their hook and incoming interface. A host may receive packets by another interface than it routes answers to.
pub fn forwards_to_destination<'c>(
    rules: &'c NodeRules,
    node: &ThisNode,
    flow: &Flow,
) -> impl Iterator<Item = &'c Forward> {
    let (protocol, address) = (flow.protocol(), flow.original.dst);
    let port = flow.original.dport();
    let local = node.owns(None, address) != Some(false);
    rules.forwards.iter().filter(move |rule| {
        rule.protocol == protocol
            && port.is_some_and(|port| rule.ports.contains(&port))
            && rule.destination.is_none_or(|net| net.contains(&address))
            && rule.ipv6.is_none_or(|ipv6| ipv6 == address.is_ipv6())
            && (local || !rule.local_only)
            && !rule
                .conditions
                .iter()
                .any(|c| matches!(c, Condition::NotDestination(net) if net.contains(&address)))
    })
}

/// Reports whether the condition certainly keeps the entry's packets from the rule. Excluded interfaces (`! -i`) and sources
/// keep no candidate away: whether another program serves the flow then is not known.
fn excludes(condition: &Condition, node: &ThisNode, flow: &Flow) -> bool {
    let source = flow.original.src;
    match condition {
        // Packets of this node itself pass OUTPUT only.
        Condition::Origin { local: false } => node.interface_of(source).is_some(),
        Condition::Interface { names, equal: true } => node.enters_by(names, source) == Some(false),
        _ => false,
    }
}

/// Finds the endpoint of a Service port with the source address and port of `tuple`.
pub fn endpoint_at<'c>(port: &'c ServicePort, tuple: &Tuple) -> Option<&'c Endpoint> {
    port.endpoints.find(tuple.src, tuple.sport()?)
}

/// Names client, Service and endpoint of an entry whose destination matched `matched`.
pub fn names<'c>(flow: &Flow, matched: FrontendMatch<'c>, index: &'c Index) -> Names<'c> {
    let reply = &flow.reply;
    let listed = matched.ports().find_map(|(id, kind)| {
        let endpoint = endpoint_at(index.port(id), reply)?;
        Some((id, kind, endpoint))
    });
    // Where several Services share the address, the one with this endpoint is named.
    let service = match listed {
        Some((id, kind, _)) => Some((id, kind)),
        None => matched.ports().next(),
    };
    let party = party_at(
        index,
        reply.src,
        reply.sport().map(|port| (reply.protocol, port)),
    );
    Names {
        client: client(flow, index),
        matched,
        service: service.map(|(id, kind)| service_name(index, id, kind, flow)),
        endpoint: match listed {
            Some((_, _, endpoint)) => Some(listed_endpoint(index, endpoint, party)),
            None => party.map(|party| EndpointName {
                party,
                ready: None,
                serving: None,
                terminating: None,
                manual: false,
            }),
        },
    }
}

/// Names the Service from the node's rules alone. Pods are not known.
pub fn names_by_rules<'c>(flow: &Flow, matched: FrontendMatch<'c>) -> Names<'c> {
    let (service, frontend) = match matched {
        FrontendMatch::Rule(frontend) => (frontend.service.as_ref(), kind_of_rule(frontend)),
        FrontendMatch::Forward(_) => (None, FrontendKind::Rule),
        _ => return Names::default(),
    };
    Names {
        matched,
        service: Some(ServiceName {
            namespace: service.map(|service| &*service.namespace),
            name: service.map(|service| &*service.name),
            port: service.and_then(|service| service.port.as_deref()),
            frontend,
            port_number: flow.original.dport().unwrap_or_default(),
        }),
        ..Names::default()
    }
}

/// Replaces the Service by the DNAT rule for a destination that is no Service's, if one matches.
pub fn with_forward<'c>(
    names: Names<'c>,
    flow: &Flow,
    rules: &'c NodeRules,
    node: &ThisNode,
) -> Names<'c> {
    let by_rule = names_by_rules(flow, FrontendMatch::by_forwards(flow, rules, node));
    Names {
        matched: by_rule.matched,
        service: by_rule.service,
        ..names
    }
}

fn kind_of_rule(frontend: &RuleFrontend) -> FrontendKind {
    match frontend.kind {
        RuleKind::ClusterIp => FrontendKind::ClusterIp,
        RuleKind::ExternalIp => FrontendKind::ExternalIp,
        RuleKind::LoadBalancerIp => FrontendKind::LoadBalancerIp,
        RuleKind::NodePort => FrontendKind::NodePort,
        RuleKind::Unknown => FrontendKind::Rule,
    }
}

fn service_name<'c>(
    index: &'c Index,
    id: PortId,
    frontend: FrontendKind,
    flow: &Flow,
) -> ServiceName<'c> {
    let port = index.port(id);
    let service = index.service(port.service);
    ServiceName {
        namespace: Some(&service.namespace),
        name: Some(&service.name),
        port: port.name.as_deref(),
        frontend,
        port_number: flow.original.dport().unwrap_or(port.port),
    }
}

/// Names an endpoint that a slice lists: by its own Pod, else by the owner of the address.
pub fn listed_endpoint<'c>(
    index: &'c Index,
    endpoint: &'c Endpoint,
    at_address: Option<Party<'c>>,
) -> EndpointName<'c> {
    let party = match &endpoint.pod {
        Some((namespace, name)) => Party {
            kind: if index.node_at(endpoint.address).is_some() {
                PartyKind::HostNetwork
            } else {
                PartyKind::Pod
            },
            namespace: Some(namespace),
            name: Some(name),
            node: endpoint.node.as_deref(),
        },
        None => at_address.unwrap_or(Party {
            kind: PartyKind::External,
            namespace: None,
            name: None,
            node: endpoint.node.as_deref(),
        }),
    };
    EndpointName {
        party,
        ready: Some(endpoint.ready),
        serving: Some(endpoint.serving),
        terminating: Some(endpoint.terminating),
        manual: endpoint.pod.is_none(),
    }
}

fn client<'c>(flow: &Flow, index: &'c Index) -> Option<Party<'c>> {
    let address = flow.original.src;
    let kind = match party_at(index, address, None) {
        Some(party) => return Some(party),
        // An address is external only if it is certainly in none of the cluster's ranges.
        None => match (index.in_pod_range(address), index.in_service_range(address)) {
            (Some(true), _) | (_, Some(true)) => PartyKind::Unknown,
            (Some(false), Some(false)) if index.pods_known_at(address) => PartyKind::External,
            _ => return None,
        },
    };
    Some(Party {
        kind,
        namespace: None,
        name: None,
        node: None,
    })
}

/// Names the Pod or node at an address, for any port.
pub fn party(address: IpAddr, index: &Index) -> Option<Party<'_>> {
    party_at(index, address, None)
}

/// Names the Pod or node at an address. A host-network Pod shares its node's address and is named only for a protocol and
/// port that exactly one Pod declares. EndpointSlices name a Pod where the Pods at the address were not read.
pub fn party_at(index: &Index, address: IpAddr, port: Option<(u8, u16)>) -> Option<Party<'_>> {
    let mut pods = index.pods_at(address);
    if let Some(pod) = pods.next() {
        // Two living Pods have the address, so neither is named.
        let single = pods.next().is_none();
        return Some(Party {
            kind: if single {
                PartyKind::Pod
            } else {
                PartyKind::Unknown
            },
            namespace: single.then_some(&*pod.namespace),
            name: single.then_some(&*pod.name),
            node: if single { pod.node.as_deref() } else { None },
        });
    }
    let node = index.node_at(address);
    let shared = port.and_then(|(protocol, port)| index.host_network_pod(address, protocol, port));
    if let Some(pod) = shared {
        return Some(Party {
            kind: PartyKind::HostNetwork,
            namespace: Some(&pod.namespace),
            name: Some(&pod.name),
            node: pod.node.as_deref(),
        });
    }
    if let Some(node) = node {
        return Some(Party {
            kind: PartyKind::Node,
            namespace: None,
            name: Some(&node.name),
            node: Some(&node.name),
        });
    }
    let listed = (!index.pods_known_at(address)).then(|| index.listed_pod(address));
    let endpoint = listed.flatten()?;
    let (namespace, name) = endpoint.pod.as_ref()?;
    Some(Party {
        kind: PartyKind::Pod,
        namespace: Some(namespace),
        name: Some(name),
        node: endpoint.node.as_deref(),
    })
}
