//! Rows 5 to 15 of the decision table: one entry compared with a complete cluster.

use std::net::IpAddr;

use crate::attribution::FrontendKind;
use crate::attribution::{FrontendMatch, endpoint_at};
use crate::this_node::ThisNode;
use ctk_cluster::index::{
    AddressKind, Endpoint, EndpointCounts, Index, PortId, Service, ServiceId, ServicePort,
};
use ctk_cluster::rules::NodeRules;
use ctnetlink::flow::Flow;

use super::decision::Decision;
use super::evidence::Detail;
use super::{Reason, dnat_rule};

const TCP: u8 = 6;
const SCTP: u8 = 132;

/// One entry and the complete cluster that it is compared with.
pub(super) struct ClusterJudge<'a, 'c> {
    pub node: &'c ThisNode,
    pub rules: Option<&'c NodeRules>,
    pub index: &'c Index,
    pub flow: &'a Flow,
    pub matched: FrontendMatch<'c>,
    pub translated: bool,
}

impl<'c> ClusterJudge<'_, 'c> {
    /// Row 5: the destination is no frontend.
    pub(super) fn no_frontend(&self) -> Decision<'c> {
        let (index, flow) = (self.index, self.flow);
        let address = flow.original.dst;
        if let Some(decision) = self.owned_address() {
            return decision;
        }
        let node_port = flow
            .original
            .dport()
            .is_some_and(|port| !index.node_ports(flow.protocol(), port).is_empty());
        if node_port {
            match self.node.owns(Some(index), address) {
                None => {
                    return Decision::incomplete(
                        "this node's addresses are not known, and the port is a node port",
                    );
                }
                Some(_) if index.node_at(address).is_some() => {
                    return Decision::new(Reason::RemoteNodePort);
                }
                Some(_) => {}
            }
        }
        match index.in_service_range(address) {
            Some(true) if self.translated => {
                let pod = index.pods_at(flow.reply.src).next();
                Decision::new(Reason::ServiceGone).with(pod.map_or(Detail::None, Detail::Pod))
            }
            None if self.translated && index.node_at(address).is_none() => {
                Decision::new(Reason::ServiceRangeUnknown)
            }
            _ => Decision::new(Reason::NoFrontend),
        }
    }

    /// Row 5 where the address is a Service's.
    fn owned_address(&self) -> Option<Decision<'c>> {
        let index = self.index;
        let owners = index.owners(self.flow.original.dst);
        let owner = |condition: fn(&Service, AddressKind) -> bool| {
            let mut services = owners.iter().map(|(id, kind)| (index.service(*id), *kind));
            services
                .find(|(service, kind)| condition(service, *kind))
                .map(|(service, _)| service)
        };
        let owned = |reason, service: &'c Service| {
            let mut decision = Decision::new(reason);
            decision.owner = Some(service);
            decision
        };
        let (first, _) = owners.first()?;
        let first = index.service(*first);
        if owner(|service, kind| service.kube_proxy && kind != AddressKind::ProxyIngress).is_none()
        {
            return Some(owned(Reason::NotKubeProxy, first));
        }
        if owner(|_, kind| kind == AddressKind::ProxyIngress).is_some() {
            let decision = owned(Reason::NotKubeProxy, first);
            return Some(decision.with(Detail::Because("the load balancer's own address")));
        }
        let cluster_ip =
            owner(|service, kind| service.kube_proxy && kind == AddressKind::ClusterIp);
        Some(match cluster_ip {
            Some(service) if self.translated => owned(Reason::PortGone, service),
            _ => owned(Reason::OtherPort, first),
        })
    }

    fn ports(&self) -> impl Iterator<Item = (PortId, &'c ServicePort)> + use<'_, 'c> {
        let index = self.index;
        self.matched.ports().map(|(id, _)| (id, index.port(id)))
    }

    /// Endpoints of the matched Service ports at an address.
    fn endpoints_at(&self, address: IpAddr) -> impl Iterator<Item = &'c Endpoint> + use<'_, 'c> {
        self.ports()
            .flat_map(move |(_, port)| port.endpoints.at(address))
    }

    /// Whether a matched Service port has an endpoint in the entry's family that serves.
    fn has_serving(&self) -> bool {
        let family = self.flow.original.dst;
        self.ports()
            .any(|(_, port)| port.endpoints.counts(family).serving > 0)
    }

    /// Rows 6 to 15: the destination is a frontend.
    pub(super) fn frontend(&self) -> Decision<'c> {
        let Some((first, _)) = self.ports().next() else {
            return Decision::new(Reason::NoFrontend);
        };
        if let Some(decision) = self.foreign_service() {
            return decision;
        }
        let source = self.flow.reply.src;
        let listed_address = self.endpoints_at(source).next().is_some();
        if self.translated && is_link_local(source) && !listed_address {
            return Decision::new(Reason::CniInternal).of(first);
        }
        if let Some(decision) = self.listed() {
            return decision;
        }
        let mut all = self.ports();
        let secondary = all.find(|(_, port)| port.endpoints.has_secondary(source));
        if let Some((port, _)) = secondary {
            return Decision::new(Reason::SecondaryAddress).of(port);
        }
        if self.translated {
            self.translated_elsewhere().of(first)
        } else {
            self.not_translated().of(first)
        }
    }

    /// Row 6: the frontend is not kube-proxy's.
    fn foreign_service(&self) -> Option<Decision<'c>> {
        if let FrontendMatch::Addresses(frontends) = self.matched {
            let mut proxy = frontends
                .iter()
                .filter(|f| f.kind == AddressKind::ProxyIngress);
            if let Some(frontend) = proxy.next() {
                let because = Detail::Because("the load balancer's own address (ipMode Proxy)");
                let decision = Decision::new(Reason::NotKubeProxy).with(because);
                return Some(decision.of(frontend.port));
            }
        }
        let mut ports = self.ports();
        let foreign = ports.find(|(_, port)| !self.index.service(port.service).kube_proxy);
        foreign.map(|(id, _)| Decision::new(Reason::NotKubeProxy).of(id))
    }

    /// Rows 7 and 8. The best conditions count where several matched Services list the endpoint.
    fn listed(&self) -> Option<Decision<'c>> {
        let reply = &self.flow.reply;
        let found = self
            .ports()
            .filter_map(|(id, port)| Some((id, endpoint_at(port, reply)?)));
        let rank = |endpoint: &Endpoint| match (endpoint.serves(), endpoint.terminating) {
            (true, false) => (2, Reason::Endpoint),
            (true, true) => (1, Reason::EndpointTerminating),
            (false, _) => (0, Reason::EndpointNotServing),
        };
        let (id, best) = found.max_by_key(|(_, endpoint)| rank(endpoint).0)?;
        let decision = Decision::new(rank(best).1).of(id);
        // A terminating endpoint does not become ready again.
        let is_last = !best.terminating && !self.has_serving();
        Some(match decision.reason {
            Reason::EndpointNotServing if is_last => decision.with(Detail::LastEndpoint),
            _ => decision,
        })
    }

    /// Rows 9 and 11: RS = OD.
    fn not_translated(&self) -> Decision<'c> {
        let (index, node) = (self.index, self.node);
        let address = self.flow.original.dst;
        let mut kinds = self.matched.ports().map(|(_, kind)| kind);
        let cluster_ip = kinds.any(|kind| kind == FrontendKind::ClusterIp);
        if cluster_ip && node.interface_of(address).is_some() {
            return Decision::new(Reason::NodelocalDns);
        }
        let usable = match self.usable_endpoints() {
            Some(usable) => usable,
            None => {
                return Decision::incomplete(
                    "the traffic policy is Local, and this node is not known",
                );
            }
        };
        let by_rules = self.rules.map(|rules| self.rules_translate(rules));
        if usable == 0 || by_rules == Some(RuleAnswer::Refused) {
            return Decision::new(Reason::NoDnatNoEndpoint);
        }
        match by_rules {
            Some(RuleAnswer::None) => return Decision::new(Reason::NoDnatNoRule),
            Some(RuleAnswer::NotUnderstood) => {
                return Decision::incomplete(
                    "whether this node's rules translate this destination is not known: some of them are not understood",
                );
            }
            Some(_) => {}
            None if matches!(self.matched, FrontendMatch::NodePorts(_)) => {
                let internal = node
                    .object(index)
                    .is_some_and(|node| node.internal.contains(&address));
                if !internal || address.is_loopback() {
                    return Decision::incomplete(
                        "whether this address accepts node ports is not known, because this node's rules were not read",
                    );
                }
            }
            None => {}
        }
        Decision::new(Reason::NoDnat).with(Detail::Endpoints(usable))
    }

    /// Number of endpoints that a new packet from this node could reach: the ready ones or, if none is ready, those that
    /// serve while they terminate (`CategorizeEndpoints` in kube-proxy's `pkg/proxy/topology.go`). `None` when the number
    /// depends on the identity of this node and that is not known.
    fn usable_endpoints(&self) -> Option<usize> {
        let family = self.flow.original.dst;
        let mut total = 0;
        for (id, kind) in self.matched.ports() {
            let port = self.index.port(id);
            let service = self.index.service(port.service);
            let local = match kind {
                FrontendKind::ClusterIp => service.internal_local,
                _ => service.external_local && !self.source_is_inside(),
            };
            let node = self.node.name.as_deref();
            // The policy applies unless the source is a Pod, and that Pod was not read.
            let external = kind != FrontendKind::ClusterIp;
            if local && external && self.index.pods_are_chosen() {
                let source = self.flow.original.src;
                if !self.index.pods_known_at(source) {
                    return None;
                }
            }
            let counts = match (local, node) {
                (false, _) => port.endpoints.counts(family),
                (true, Some(node)) => port.endpoints.counts_on(node, family),
                (true, None) if port.endpoints.counts(family).all > 0 => return None,
                (true, None) => EndpointCounts::default(),
            };
            total += match counts.ready {
                0 => counts.draining,
                ready => ready,
            };
        }
        Some(total)
    }

    /// Whether the source is a Pod or this node: both reach external frontends as if the policy were Cluster (`KUBE-EXT`
    /// chains of kube-proxy).
    fn source_is_inside(&self) -> bool {
        let source = self.flow.original.src;
        self.index.in_pod_range(source) == Some(true)
            || self.index.pods_at(source).next().is_some()
            || self.node.owns(Some(self.index), source) == Some(true)
    }

    fn rules_translate(&self, rules: &NodeRules) -> RuleAnswer {
        let Some(port) = self.flow.original.dport() else {
            return RuleAnswer::None;
        };
        let (address, protocol) = (self.flow.original.dst, self.flow.protocol());
        let frontend = match self.matched {
            // IPVS has a virtual server for a node port on each address of the node.
            FrontendMatch::NodePorts(_) => rules.frontend(address, protocol, port, true),
            _ => rules.frontends.get(&(address, protocol, port)),
        };
        match frontend {
            None if !rules.is_whole() => RuleAnswer::NotUnderstood,
            None => RuleAnswer::None,
            // Rules refuse external clients where only local endpoints are missing; they translate packets of Pods and of
            // the node.
            Some(frontend)
                if frontend.refused
                    && (frontend.targets.is_empty() || !self.source_is_inside()) =>
            {
                RuleAnswer::Refused
            }
            Some(frontend) if !frontend.understood => RuleAnswer::NotUnderstood,
            Some(frontend) if frontend.targets.is_empty() => RuleAnswer::None,
            Some(_) => RuleAnswer::Translates,
        }
    }

    /// Rows 10 and 11b to 15: translated to an address and port that no matched Service lists.
    fn translated_elsewhere(&self) -> Decision<'c> {
        let (index, flow) = (self.index, self.flow);
        if self.is_service_hop() {
            return Decision::new(Reason::ServiceHop);
        }
        let rules = self.rules;
        if rules.is_some_and(|rules| dnat_rule::leads(rules, self.node, flow)) {
            let because = "a rule that is not kube-proxy's leads there, too";
            return Decision::new(Reason::NotKubeProxy).with(Detail::Because(because));
        }
        let connected = matches!(flow.protocol(), TCP | SCTP);
        let source = flow.reply.src;
        if (connected || index.pods_are_chosen()) && !index.pods_known_at(source) {
            return Decision::incomplete("the Pods are not known");
        }
        if self.endpoints_at(source).any(Endpoint::serves) {
            return Decision::new(Reason::EndpointPortChanged);
        }
        if let Some(pod) = index.pods_at(source).next()
            && !self.backs_service(source)
        {
            let in_use = !flow
                .state
                .is_some_and(|state| state.is_connecting() || state.is_over());
            // A connection that is still being made, or is over, has no data to lose.
            let reason = match connected && in_use {
                true => Reason::PodNotEndpoint,
                false => Reason::Misdelivery,
            };
            return Decision::new(reason).with(Detail::Pod(pod));
        }
        Decision::new(match self.has_serving() {
            false => Reason::ServiceEmpty,
            true => Reason::EndpointGone,
        })
    }

    /// Row 10: RS is another frontend of a matched Service, or a node port of it on any Node.
    fn is_service_hop(&self) -> bool {
        let Some(port) = self.flow.reply.sport() else {
            return false;
        };
        let (index, source, protocol) = (self.index, self.flow.reply.src, self.flow.protocol());
        let services = || self.ports().map(|(_, port)| port.service);
        let frontend = index
            .frontends(source, protocol, port)
            .iter()
            .any(|frontend| {
                let owner = index.port(frontend.port).service;
                services().any(|service| service == owner)
            });
        let node_port = || {
            let mut ports = index.node_ports(protocol, port).iter();
            let on_node = index.node_at(source).is_some()
                || self.node.owns(Some(index), source) == Some(true);
            on_node
                && ports.any(|id| {
                    let owner = index.port(*id).service;
                    services().any(|service| service == owner)
                })
        };
        frontend || node_port()
    }

    /// Whether the address is listed under some port of a matched Service.
    fn backs_service(&self, address: IpAddr) -> bool {
        let services: Vec<ServiceId> = self.ports().map(|(_, port)| port.service).collect();
        services.into_iter().any(|service| {
            let mut ports = self.index.ports_of(service);
            ports.any(|(_, port)| !port.endpoints.at(address).is_empty())
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleAnswer {
    None,
    NotUnderstood,
    Refused,
    Translates,
}

/// 169.254.0.0/16 and fe80::/10.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
