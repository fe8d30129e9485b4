//! What a walk of this node's own rules found. Plain data; the readers of iptables, nftables and IPVS fill it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::index::Name;

/// The node's rules as far as they translate destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRules {
    /// kube-proxy's, by destination address, protocol and port.
    pub frontends: HashMap<(IpAddr, u8, u16), RuleFrontend>,
    /// kube-proxy's, by protocol and node port.
    pub node_ports: HashMap<(u8, u16), RuleFrontend>,
    /// DNAT rules of anybody else: published container ports, hostPorts of a network plug-in.
    pub forwards: Vec<Forward>,
}

/// What kube-proxy's rules do with packets to one frontend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFrontend {
    /// Where the rules name it (comments, chain names).
    pub service: Option<RuleService>,
    /// Every endpoint that the frontend's chains can lead to.
    pub targets: Vec<SocketAddr>,
    /// Packets are rejected or dropped for want of endpoints.
    pub refused: bool,
    /// False where a rule on the way has a shape that the reader does not know: `targets` may lack some then.
    pub understood: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleService {
    pub namespace: Name,
    pub name: Name,
    /// `None` for an unnamed port.
    pub port: Option<Name>,
}

/// One DNAT rule that is not kube-proxy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// IANA number.
    pub protocol: u8,
    /// `None`: any destination (often with `local_only`).
    pub destination: Option<IpNet>,
    /// `addrtype LOCAL`: the destination is an address of this node.
    pub local_only: bool,
    pub ports: RangeInclusive<u16>,
    pub targets: Vec<ForwardTarget>,
    /// Everything else that the rule asks for.
    pub conditions: Vec<Condition>,
    /// The rule as it was read, to be shown as evidence.
    pub rule: String,
}

/// Where a rule sends packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardTarget {
    /// First to last, both included; one address is a range of one.
    pub addresses: RangeInclusive<IpAddr>,
    pub ports: TargetPorts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPorts {
    /// The rule leaves the port as it is, or says nothing of it.
    Unchanged,
    /// Any of these.
    Range(RangeInclusive<u16>),
    /// The first port of the rule's range becomes this one, the next one the next (`--to-destination A:8000-8010/9000`).
    Shift(u16),
}

/// A match besides protocol, destination and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `-i NAME`, or `! -i NAME` when not `equal`.
    Interface { name: String, equal: bool },
    /// `-s NET`, or `! -s NET` when not `equal`.
    Source { net: IpNet, equal: bool },
    /// One that the reader does not know; its text.
    Other(String),
}
