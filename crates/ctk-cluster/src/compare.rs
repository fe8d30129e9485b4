//! Differences between the rules of this node and the API, which show that kube-proxy is behind.
//!
//! Rules rightly omit many endpoints that the API lists: terminating ones, those on other nodes under policy Local, those that
//! hints give to other nodes. Only an endpoint that every node must have counts as missing, and only one that the API does not
//! list as serving at all counts as lingering. IPVS servers of weight 0 are being drained and linger rightly.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::index::{AddressKind, Endpoint, Index, PortId, Service};
use super::rules::{NodeRules, RuleFrontend, RuleService};

/// Address of a frontend in the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontendAddress {
    Address(SocketAddr),
    NodePort { ipv6: bool, port: u16 },
}

/// Kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// New packets are still sent to the endpoint, and the API lists no serving endpoint there.
    LingeringEndpoint(SocketAddr),
    /// The endpoint is ready, every node must have it, and no new packet from here reaches it.
    MissingEndpoint(SocketAddr),
    /// New packets to the frontend are still translated, and no Service has it any more.
    LingeringFrontend,
    /// No rule translates packets to this clusterIP, although it has endpoints that every node must have.
    MissingFrontend,
}

impl Difference {
    /// Value in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Difference::LingeringEndpoint(_) => "lingering-endpoint",
            Difference::MissingEndpoint(_) => "missing-endpoint",
            Difference::LingeringFrontend => "lingering-frontend",
            Difference::MissingFrontend => "missing-frontend",
        }
    }

    pub const fn endpoint(self) -> Option<SocketAddr> {
        match self {
            Difference::LingeringEndpoint(endpoint) | Difference::MissingEndpoint(endpoint) => {
                Some(endpoint)
            }
            Difference::LingeringFrontend | Difference::MissingFrontend => None,
        }
    }
}

/// One difference between the rules and the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Service by the API or, where it has none any more, by the rules; IPVS holds no names.
    pub service: Option<RuleService>,
    pub frontend: FrontendAddress,
    /// IANA number.
    pub protocol: u8,
    pub difference: Difference,
}

impl fmt::Display for FrontendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrontendAddress::Address(address) => write!(f, "{address}"),
            FrontendAddress::NodePort { port, .. } => write!(f, "node port {port}"),
        }
    }
}

/// Text for display, without the frontend where an endpoint is meant: clusterIP and node port of a Service share endpoints.
impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.difference {
            Difference::LingeringEndpoint(_) | Difference::LingeringFrontend => "still list",
            Difference::MissingEndpoint(_) | Difference::MissingFrontend => "lack",
        };
        match self.difference.endpoint() {
            Some(endpoint) => write!(f, "rules {verb} {} for ", endpoint.ip())?,
            None => write!(f, "rules {verb} {} for ", self.frontend)?,
        }
        match &self.service {
            Some(service) => write!(f, "{}/{}", service.namespace, service.name)?,
            None => f.write_str("a Service")?,
        }
        match self.difference {
            Difference::LingeringFrontend => f.write_str(", which no Service has any more"),
            _ => Ok(()),
        }
    }
}

/// Returns every difference, sorted by frontend. None where Services or EndpointSlices are incomplete, or where the rules hold no
/// rule of kube-proxy.
pub fn compare(index: &Index, rules: &NodeRules) -> Vec<Disagreement> {
    let mut found = Vec::new();
    let complete = index.completeness();
    if !complete.services || !complete.slices || rules.proxies.is_empty() {
        return found;
    }
    for ((address, protocol, port), rule) in &rules.frontends {
        let frontend = FrontendAddress::Address(SocketAddr::new(*address, *port));
        let matched = at_address(index, *address, *protocol, *port);
        Pair {
            index,
            rule,
            frontend,
            protocol: *protocol,
            matched,
        }
        .compare(&mut found);
    }
    for ((ipv6, protocol, port), rule) in &rules.node_ports {
        let (ipv6, port) = (*ipv6, *port);
        let frontend = FrontendAddress::NodePort { ipv6, port };
        let matched = by_node_port(index, *protocol, port);
        Pair {
            index,
            rule,
            frontend,
            protocol: *protocol,
            matched,
        }
        .compare(&mut found);
    }
    lacking_frontends(index, rules, &mut found);
    found
}

/// A Service port that a frontend belongs to, and whether the external policy of the Service applies.
type Matched = Vec<(PortId, bool)>;

/// `None` where kube-proxy does not translate, and where the objects were not read.
fn at_address(index: &Index, address: IpAddr, protocol: u8, port: u16) -> Option<Matched> {
    if !index.owners_known(address) {
        return None;
    }
    let frontends = index.frontends(address, protocol, port);
    if frontends.is_empty() {
        // IPVS has a virtual server for a node port on each address of the node.
        return match index.owners(address).is_empty() {
            true => by_node_port(index, protocol, port),
            false => Some(Matched::new()),
        };
    }
    let mut matched = Matched::new();
    for frontend in frontends {
        if !is_known(index, frontend.port) || frontend.kind == AddressKind::ProxyIngress {
            return None;
        }
        matched.push((frontend.port, frontend.kind != AddressKind::ClusterIp));
    }
    Some(matched)
}

fn by_node_port(index: &Index, protocol: u8, port: u16) -> Option<Matched> {
    let ports = index.node_ports(protocol, port);
    let known = ports.iter().all(|id| is_known(index, *id));
    (known && !index.services_are_chosen()).then(|| ports.iter().map(|id| (*id, true)).collect())
}

/// Reports whether kube-proxy translates the Service and its endpoints were read.
fn is_known(index: &Index, id: PortId) -> bool {
    let service = index.port(id).service;
    index.service(service).kube_proxy && index.endpoints_known(service)
}

/// A frontend of the rules, with the objects of the API for it.
struct Pair<'a> {
    index: &'a Index,
    rule: &'a RuleFrontend,
    frontend: FrontendAddress,
    protocol: u8,
    matched: Option<Matched>,
}

impl Pair<'_> {
    fn compare(&self, found: &mut Vec<Disagreement>) {
        let Some(matched) = self.matched.as_ref().filter(|_| self.rule.understood) else {
            return;
        };
        if matched.is_empty() {
            if self.is_ours() && !self.rule.targets.is_empty() {
                let service = self.rule.service.clone();
                found.push(self.disagreement(service, Difference::LingeringFrontend));
            }
            return;
        }
        let ports = || matched.iter().map(|(id, _)| self.index.port(*id));
        let named = matched.first().map(|(id, _)| named_port(self.index, *id));
        let endpoints = ports().flat_map(|port| &port.endpoints);
        let serving: HashSet<SocketAddr> = endpoints
            .filter(|endpoint| endpoint.serves())
            .map(|endpoint| SocketAddr::new(endpoint.address, endpoint.port))
            .collect();
        let targets: HashSet<SocketAddr> = self.rule.targets.iter().copied().collect();
        for target in &self.rule.targets {
            if !serving.contains(target) {
                let difference = Difference::LingeringEndpoint(*target);
                found.push(self.disagreement(named.clone(), difference));
            }
        }
        for (id, external) in matched {
            let ipv6 = match self.frontend {
                FrontendAddress::Address(address) => address.is_ipv6(),
                FrontendAddress::NodePort { ipv6, .. } => ipv6,
            };
            for endpoint in must_be_everywhere(self.index, *id, *external, ipv6) {
                if !targets.contains(&endpoint) {
                    let difference = Difference::MissingEndpoint(endpoint);
                    let service = Some(named_port(self.index, *id));
                    found.push(self.disagreement(service, difference));
                }
            }
        }
    }

    /// Other programs use IPVS as well. Without the name of a Service, the address must lie in a Service range.
    fn is_ours(&self) -> bool {
        let in_range = match self.frontend {
            FrontendAddress::Address(address) => {
                self.index.in_service_range(address.ip()) == Some(true)
            }
            FrontendAddress::NodePort { .. } => false,
        };
        self.rule.service.is_some() || in_range
    }

    fn disagreement(&self, service: Option<RuleService>, difference: Difference) -> Disagreement {
        Disagreement {
            service,
            frontend: self.frontend,
            protocol: self.protocol,
            difference,
        }
    }
}

/// clusterIPs without any rule. Other frontends may rightly have none on this node.
fn lacking_frontends(index: &Index, rules: &NodeRules, found: &mut Vec<Disagreement>) {
    // A missing rule may be one that was not read.
    if !rules.is_whole() {
        return;
    }
    // kube-proxy may serve one family only.
    let families: HashSet<bool> = rules.frontends.keys().map(|(a, ..)| a.is_ipv6()).collect();
    for (id, service) in index.services().filter(|(_, service)| service.kube_proxy) {
        for (port_id, port) in index.ports_of(id) {
            for address in cluster_ips(service) {
                let key = (address, port.protocol, port.port);
                if !families.contains(&address.is_ipv6()) || rules.frontends.contains_key(&key) {
                    continue;
                }
                let mut wanted = must_be_everywhere(index, port_id, false, address.is_ipv6());
                if wanted.next().is_some() {
                    found.push(Disagreement {
                        service: Some(named_port(index, port_id)),
                        frontend: FrontendAddress::Address(SocketAddr::new(address, port.port)),
                        protocol: port.protocol,
                        difference: Difference::MissingFrontend,
                    });
                }
            }
        }
    }
}

fn cluster_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    let all = service.addresses.iter();
    all.filter(|(_, kind)| *kind == AddressKind::ClusterIp)
        .map(|(address, _)| *address)
}

/// Endpoints that new packets from every node must be able to reach. One endpoint with hints makes its whole Service port
/// depend on zones.
fn must_be_everywhere(
    index: &Index,
    id: PortId,
    external: bool,
    ipv6: bool,
) -> impl Iterator<Item = SocketAddr> {
    let port = index.port(id);
    let service = index.service(port.service);
    let local = match external {
        true => service.external_local,
        false => service.internal_local,
    };
    let hinted = port.endpoints.iter().any(|endpoint| endpoint.hinted);
    let endpoints: &[Endpoint] = match local || hinted {
        true => &[],
        false => &port.endpoints,
    };
    endpoints
        .iter()
        .filter(move |e| e.ready && !e.terminating && e.address.is_ipv6() == ipv6)
        .map(|e| SocketAddr::new(e.address, e.port))
}

fn named_port(index: &Index, id: PortId) -> RuleService {
    let port = index.port(id);
    let service = index.service(port.service);
    RuleService {
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        port: port.name.clone(),
    }
}

#[cfg(test)]
mod tests;
