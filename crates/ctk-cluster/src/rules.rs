//! Translation rules of this node, as plain data. The readers of iptables, nftables and IPVS fill it.
//!
//! [`present`] checks whether rules can exist, and whether they changed. [`read`] runs the tools, [`text`] parses a saved rule
//! set. Both use the pure readers [`iptables`], [`nft`] and [`ipvs`]. Every reader walks from the entry chains, because chains
//! that no rule leads to linger on a node.

pub mod affinity;
pub mod changes;
mod guards;
pub mod iptables;
pub mod ipvs;
pub mod lb_chain;
mod matches;
mod nf_tables;
pub mod nft;
pub mod present;
mod reach;
pub mod read;
pub mod text;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::index::Name;

/// Rules of the node, as far as they translate destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRules {
    /// Frontends of kube-proxy, by destination address, protocol and port.
    pub frontends: BTreeMap<(IpAddr, u8, u16), RuleFrontend>,
    /// Node ports of kube-proxy, by family (true: IPv6), protocol and port. See [`NodeRules::node_port`].
    pub node_ports: BTreeMap<(bool, u8, u16), RuleFrontend>,
    /// Addresses on which node ports answer. Without one of a family: every address of the node.
    pub node_port_scopes: Vec<NodePortScope>,
    /// DNAT rules of other programs: published container ports, hostPorts of a network plug-in.
    pub forwards: Vec<Forward>,
    /// Destinations whose packets are not tracked (`NOTRACK` in the raw table): these have no entries by design.
    pub untracked: Vec<Untracked>,
    /// Modes of kube-proxy that were found.
    pub proxies: BTreeSet<Proxy>,
    /// Number of rules of kube-proxy whose shape is unknown, so that not even their frontend is known.
    pub unknown_shapes: usize,
    /// Some rules could not be read, or exceed the bounds of the walk: a rule that is missing here may exist.
    pub cut: bool,
}

/// Mode in which kube-proxy translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proxy {
    Iptables,
    Nftables,
    /// Virtual servers. kube-proxy also writes some iptables rules in this mode.
    Ipvs,
}

impl Proxy {
    pub const fn name(self) -> &'static str {
        match self {
            Proxy::Iptables => "iptables",
            Proxy::Nftables => "nftables",
            Proxy::Ipvs => "ipvs",
        }
    }
}

/// Jump to the node ports (`--nodeport-addresses` of kube-proxy).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePortScope {
    pub ipv6: bool,
    /// `None` for every address of the node.
    pub destination: Option<IpNet>,
    /// Excluded addresses, for example loopback.
    pub except: Option<IpNet>,
}

/// Match of packets that are not tracked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untracked {
    pub destination: IpNet,
    /// `None` for every protocol.
    pub protocol: Option<u8>,
    pub ports: RangeInclusive<u16>,
}

/// Relation of a frontend to its Service, as far as the rules show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleKind {
    ClusterIp,
    ExternalIp,
    LoadBalancerIp,
    NodePort,
    #[default]
    Unknown,
}

/// Effect of kube-proxy's rules on packets to one frontend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFrontend {
    pub kind: RuleKind,
    /// Name in the comments or chain names of the rules, if any.
    pub service: Option<RuleService>,
    /// Every endpoint that the chains of the frontend can lead to, each once.
    pub targets: Vec<SocketAddr>,
    /// IPVS servers of weight 0: they keep their flows and get no new ones.
    pub draining: Vec<SocketAddr>,
    /// Packets are rejected or dropped because no endpoint exists. With traffic policy Local those of the node itself and of its
    /// pods may still be translated to `targets`.
    pub refused: bool,
    /// False where the reader does not know the shape of a rule on the path: `targets` may be incomplete then.
    pub understood: bool,
}

impl NodeRules {
    /// Reports whether rules of kube-proxy are present.
    pub fn has_kube_proxy(&self) -> bool {
        self.proxies.contains(&Proxy::Iptables) || self.proxies.contains(&Proxy::Nftables)
    }

    /// Reports whether every rule was read with its frontend: a destination that is no frontend here has none.
    pub fn is_whole(&self) -> bool {
        !self.cut && self.unknown_shapes == 0
    }

    /// Reports whether no rule translates anything.
    pub fn is_empty(&self) -> bool {
        self.proxies.is_empty() && self.forwards.is_empty()
    }

    /// Number of rules behind [`NodeRules::forwards`]: a rule whose chain is entered from several hooks is one rule.
    pub fn forward_rules(&self) -> usize {
        let rules: BTreeSet<_> = self
            .forwards
            .iter()
            .map(|forward| (&forward.rule, forward.ipv6))
            .collect();
        rules.len()
    }

    /// Returns the frontend for packets to `address`. `local`: the address is one of this node.
    pub fn frontend(
        &self,
        address: IpAddr,
        protocol: u8,
        port: u16,
        local: bool,
    ) -> Option<&RuleFrontend> {
        let direct = self.frontends.get(&(address, protocol, port));
        direct.or_else(|| self.node_port(address, protocol, port, local))
    }

    /// Reports whether some frontend has this address, with any protocol and port.
    pub fn has_address(&self, address: IpAddr) -> bool {
        let all = (address, 0, 0)..=(address, u8::MAX, u16::MAX);
        self.frontends.range(all).next().is_some()
    }

    /// Returns the node port that answers on `address`. `local`: the address is one of this node.
    pub fn node_port(
        &self,
        address: IpAddr,
        protocol: u8,
        port: u16,
        local: bool,
    ) -> Option<&RuleFrontend> {
        let ipv6 = address.is_ipv6();
        let found = self.node_ports.get(&(ipv6, protocol, port))?;
        let mut scopes = self
            .node_port_scopes
            .iter()
            .filter(|scope| scope.ipv6 == ipv6)
            .peekable();
        let answers = match scopes.peek() {
            None => local,
            Some(_) => scopes.any(|scope| {
                let inside = match scope.destination {
                    // kube-proxy lists it by name, so it is an address of this node.
                    Some(net) => net.contains(&address),
                    None => local,
                };
                inside && scope.except.is_none_or(|net| !net.contains(&address))
            }),
        };
        answers.then_some(found)
    }

    /// Number of frontends with an unknown shape, and of rules without a known frontend.
    pub fn not_understood(&self) -> usize {
        let all = self.frontends.values().chain(self.node_ports.values());
        self.unknown_shapes + all.filter(|frontend| !frontend.understood).count()
    }

    /// Every Service that the rules name, with the protocol and port of the frontend.
    pub fn services(&self) -> impl Iterator<Item = (&RuleService, u16)> {
        let frontends = self.frontends.iter().map(|((_, _, port), f)| (f, *port));
        let node_ports = self.node_ports.iter().map(|((_, _, port), f)| (f, *port));
        frontends
            .chain(node_ports)
            .filter_map(|(frontend, port)| Some((frontend.service.as_ref()?, port)))
    }

    /// Adds the rules that another reader found in the same namespace.
    pub fn merge(&mut self, other: NodeRules) {
        for (key, frontend) in other.frontends {
            self.add_frontend(key, frontend);
        }
        for (key, frontend) in other.node_ports {
            self.add_node_port(key, frontend);
        }
        for scope in other.node_port_scopes {
            if !self.node_port_scopes.contains(&scope) {
                self.node_port_scopes.push(scope);
            }
        }
        self.forwards.extend(other.forwards);
        self.untracked.extend(other.untracked);
        self.proxies.extend(other.proxies);
        self.unknown_shapes += other.unknown_shapes;
        self.cut |= other.cut;
    }

    fn add_frontend(&mut self, key: (IpAddr, u8, u16), frontend: RuleFrontend) {
        add(self.frontends.entry(key), frontend);
    }

    fn add_node_port(&mut self, key: (bool, u8, u16), frontend: RuleFrontend) {
        add(self.node_ports.entry(key), frontend);
    }
}

fn add<K: Ord>(entry: Entry<'_, K, RuleFrontend>, frontend: RuleFrontend) {
    match entry {
        Entry::Vacant(vacant) => {
            vacant.insert(frontend);
        }
        Entry::Occupied(mut occupied) => occupied.get_mut().merge(frontend),
    }
}

impl RuleFrontend {
    /// Merges two rules for one frontend: the targets of both.
    fn merge(&mut self, other: RuleFrontend) {
        if self.kind == RuleKind::Unknown {
            self.kind = other.kind;
        }
        self.service = self.service.take().or(other.service);
        union(&mut self.targets, other.targets);
        union(&mut self.draining, other.draining);
        self.refused |= other.refused;
        self.understood &= other.understood;
    }
}

fn union(all: &mut Vec<SocketAddr>, more: Vec<SocketAddr>) {
    if all.is_empty() {
        *all = more;
        return;
    }
    let known: HashSet<SocketAddr> = all.iter().copied().collect();
    all.extend(more.into_iter().filter(|target| !known.contains(target)));
}

/// Parses `namespace/name:port`, or `namespace/name` for an unnamed port, as kube-proxy writes it (`ServicePortName.String` in
/// `pkg/proxy/types.go`).
fn service_name(text: &str) -> Option<RuleService> {
    let (namespace, rest) = text.split_once('/')?;
    let (name, port) = match rest.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (rest, None),
    };
    let plain = |part: &str| {
        let mut bytes = part.bytes();
        !part.is_empty() && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
    };
    let all_plain = plain(namespace) && plain(name) && port.is_none_or(plain);
    all_plain.then(|| RuleService {
        namespace: namespace.into(),
        name: name.into(),
        port: port.map(Name::from),
    })
}

/// IANA numbers of the protocols that have ports.
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Protocol in a rule: IANA number, or `None` for an unknown word.
fn protocol(word: &str) -> Option<u8> {
    Some(match word {
        "tcp" => TCP,
        "udp" => UDP,
        "sctp" => SCTP,
        "icmp" => 1,
        "dccp" => 33,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "udplite" => 136,
        _ => word.parse().ok()?,
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleService {
    pub namespace: Name,
    pub name: Name,
    /// `None` for an unnamed port.
    pub port: Option<Name>,
}

/// One DNAT rule of a program other than kube-proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// IANA number of the protocol.
    pub protocol: u8,
    /// `None` for every destination (often with `local_only`).
    pub destination: Option<IpNet>,
    /// True for IPv6 packets only, false for IPv4 packets only, `None` for both.
    pub ipv6: Option<bool>,
    /// `addrtype LOCAL`: the destination is an address of this node.
    pub local_only: bool,
    pub ports: RangeInclusive<u16>,
    pub targets: Vec<ForwardTarget>,
    /// Further conditions of the rule.
    pub conditions: Vec<Condition>,
    /// Text of the rule, shown as evidence.
    pub rule: String,
}

/// Destination of the translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardTarget {
    pub addresses: TargetAddresses,
    pub ports: TargetPorts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetAddresses {
    /// First and last address, both included; one address is a range of one.
    Range(RangeInclusive<IpAddr>),
    /// The rule gives only a port (`--to-destination :53`) and keeps the address.
    Unchanged,
    /// `REDIRECT` and `redirect`: an address of the incoming interface, and loopback for packets of this node itself
    /// (`nf_nat_redirect_ipv4` in `net/netfilter/nf_nat_redirect.c`).
    OwnHost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPorts {
    /// The rule keeps the port.
    Unchanged,
    /// One of these ports.
    Range(RangeInclusive<u16>),
    /// The first port of the matched range becomes this one, the next one the next
    /// (`--dport 8000:8010 ... --to-destination A:9000-9010/8000`).
    Shift(u16),
}

/// A match besides protocol, destination and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `-i NAME`, or `! -i NAME` when not `equal`. Several names are a set. A final `*` in a name matches every rest.
    Interface { names: Vec<String>, equal: bool },
    /// `-s NET`, or `! -s NET` when not `equal`.
    Source { net: IpNet, equal: bool },
    /// `! -d NET`.
    NotDestination(IpNet),
    /// Hook at which the chain of the rule is entered: packets of this node itself (`OUTPUT`), or incoming ones (`PREROUTING`).
    Origin { local: bool },
    /// A match that the reader does not know, as text.
    Other(String),
}
