//! DNAT rules of this node that are not kube-proxy's: published container ports and hostPorts.
//!
//! Such a rule says where new packets go, and nothing else: an entry is judged by it only where every rule that could
//! match is understood.

use std::net::IpAddr;

use ctk_cluster::rules::{Condition, Forward, ForwardTarget, NodeRules, TargetPorts};
use ctnetlink::flow::Flow;

use crate::attribution::forwards_to as candidates;
use crate::this_node::ThisNode;

use super::Reason;
use super::decision::Decision;
use super::evidence::Detail;

/// `None` when no rule could match the entry's destination.
pub(super) fn decide<'c>(
    rules: &'c NodeRules,
    node: &ThisNode,
    flow: &Flow,
) -> Option<Decision<'c>> {
    let candidates: Vec<&Forward> = candidates(rules, node, flow).collect();
    let first = candidates.first()?;
    let decision = |reason, rule: &'c Forward| Decision::new(reason).with(Detail::Rule(&rule.rule));
    if flow.is_dnat() {
        if let Some(rule) = candidates.iter().find(|rule| leads_to(rule, flow)) {
            return Some(decision(Reason::Endpoint, rule));
        }
        let plain = candidates.iter().all(|rule| is_plain(rule));
        let reason = if plain {
            Reason::EndpointGone
        } else {
            Reason::NotKubeProxy
        };
        return Some(decision(reason, first));
    }
    // A rule to the very address and port that was asked for leaves nothing to see.
    if let Some(rule) = candidates.iter().find(|rule| leads_to(rule, flow)) {
        return Some(decision(Reason::Endpoint, rule));
    }
    let understood = candidates
        .iter()
        .all(|rule| !rule.conditions.iter().any(is_other));
    let certain = candidates
        .iter()
        .find(|rule| rule.conditions.iter().all(|c| holds(c, node, flow)));
    Some(match certain {
        Some(rule) if understood => decision(Reason::NoDnat, rule),
        _ => decision(Reason::NotKubeProxy, first),
    })
}

/// A rule that is not kube-proxy's leads this entry's destination to its reply source.
pub(super) fn leads(rules: &NodeRules, node: &ThisNode, flow: &Flow) -> bool {
    candidates(rules, node, flow).any(|rule| leads_to(rule, flow))
}

/// The rule that leads to this entry's source, where the source's own packets left with another port than that of the rule:
/// the entry of a peer that sent before there was the rule holds the tuple that they would have had.
pub(super) fn displacing_rule<'c>(rules: &'c NodeRules, flow: &Flow) -> Option<&'c Forward> {
    let (own, seen) = (flow.original.source(), flow.reply.destination());
    let (port, moved) = (own.port?, own.port != seen.port);
    if !moved || own.address == seen.address {
        return None;
    }
    rules.forwards.iter().find(|rule| {
        let to_own_port = |target: &ForwardTarget| {
            target.addresses.contains(&own.address)
                && match &target.ports {
                    TargetPorts::Unchanged => true,
                    TargetPorts::Range(range) => range.contains(&port),
                    TargetPorts::Shift(first) => first == rule.ports.start(),
                }
        };
        rule.protocol == flow.protocol()
            && rule.ports.contains(&port)
            && rule
                .destination
                .is_none_or(|net| net.contains(&seen.address))
            && rule.targets.iter().any(to_own_port)
    })
}

fn leads_to(rule: &Forward, flow: &Flow) -> bool {
    let asked = flow.original.dport();
    let (address, port) = (flow.reply.src, flow.reply.sport());
    let is_target = |target: &ForwardTarget| {
        target.addresses.contains(&address)
            && match &target.ports {
                TargetPorts::Unchanged => true,
                TargetPorts::Range(range) => port.is_some_and(|port| range.contains(&port)),
                TargetPorts::Shift(first) => asked
                    .and_then(|asked| asked.checked_sub(*rule.ports.start())?.checked_add(*first))
                    .is_some_and(|shifted| port == Some(shifted)),
            }
    };
    rule.targets.iter().any(is_target)
}

/// No match besides protocol, destination, port and `addrtype LOCAL`, but for the exclusion of an input interface, which
/// every container engine writes to let containers reach each other.
fn is_plain(rule: &Forward) -> bool {
    rule.conditions.iter().all(|condition| {
        matches!(
            condition,
            Condition::Interface { equal: false, .. }
                | Condition::NotDestination(_)
                | Condition::Origin { .. }
        )
    })
}

fn is_other(condition: &Condition) -> bool {
    matches!(condition, Condition::Other(_))
}

/// The condition certainly holds for the entry's first packet. What is behind an interface is told by the networks of its
/// addresses; a source that lies in no network of this node came in by some interface that is not known.
fn holds(condition: &Condition, node: &ThisNode, flow: &Flow) -> bool {
    let source = flow.original.src;
    match condition {
        Condition::Source { net, equal } => net.contains(&source) == *equal,
        Condition::Interface { name, equal } => match behind(node, name, source) {
            Some(behind) => behind == *equal,
            None => false,
        },
        // Such a rule is no candidate where it does not hold.
        Condition::NotDestination(_) => true,
        // Without the local addresses nobody knows by which hook the packet came.
        Condition::Origin { local } => {
            node.local.is_some() && node.interface_of(source).is_some() == *local
        }
        Condition::Other(_) => false,
    }
}

/// Whether packets from `source` come in by the interface; `None` when the interface is not known here.
fn behind(node: &ThisNode, interface: &str, source: IpAddr) -> Option<bool> {
    let local = node.local.as_deref()?;
    let mut networks = local
        .iter()
        .filter(|address| address.interface == interface)
        .peekable();
    networks.peek()?;
    Some(networks.any(|address| address.network.contains(&source)))
}
