//! Verdicts by DNAT rules that are not kube-proxy's: published container ports and hostPorts.
//!
//! Such a rule proves only the path of new packets. An entry is judged by it only where every rule that could match is
//! understood.

use std::net::IpAddr;

use ctk_cluster::rules::{Condition, Forward, ForwardTarget, NodeRules, TargetPorts};
use ctnetlink::flow::Flow;

use crate::attribution::forwards_to as candidates;
use crate::this_node::ThisNode;

use super::Reason;
use super::decision::Decision;
use super::evidence::Detail;

/// Decides by the rules for the entry's destination; `None` when no rule could match it.
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
    // The tuples do not change where the rule leads to the destination itself.
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

/// Whether a rule that is not kube-proxy's leads this entry's destination to its reply source.
pub(super) fn leads(rules: &NodeRules, node: &ThisNode, flow: &Flow) -> bool {
    candidates(rules, node, flow).any(|rule| leads_to(rule, flow))
}

/// Finds the rule that leads to this entry's source although the source's packets left with another port. The entry of a
/// peer that sent before the rule existed holds the tuple that the packets would have had, so the kernel chose another port
/// (`nf_nat_used_tuple`).
pub(super) fn displacing_rule<'c>(rules: &'c NodeRules, flow: &Flow) -> Option<&'c Forward> {
    let (own, after) = (flow.original.source(), flow.reply.destination());
    let (port, moved) = (own.port?, own.port != after.port);
    if !moved || own.address == after.address {
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
                .is_none_or(|net| net.contains(&after.address))
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

/// Whether the rule matches only protocol, destination, port and `addrtype LOCAL`. The exclusion of an input interface
/// counts as plain: container engines write it to let containers reach each other.
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

/// Whether the condition certainly holds for the entry's first packet. The networks of an interface's addresses tell which
/// sources are behind it; a source in none of this node's networks came in by an unknown interface.
fn holds(condition: &Condition, node: &ThisNode, flow: &Flow) -> bool {
    let source = flow.original.src;
    match condition {
        Condition::Source { net, equal } => net.contains(&source) == *equal,
        Condition::Interface { name, equal } => match behind(node, name, source) {
            Some(behind) => behind == *equal,
            None => false,
        },
        // A rule whose condition fails is no candidate.
        Condition::NotDestination(_) => true,
        // The hook of the packet is unknown without the local addresses.
        Condition::Origin { local } => {
            node.local.is_some() && node.interface_of(source).is_some() == *local
        }
        Condition::Other(_) => false,
    }
}

/// Whether packets from `source` come in by the interface; `None` when the interface is not known.
fn behind(node: &ThisNode, interface: &str, source: IpAddr) -> Option<bool> {
    let local = node.local.as_deref()?;
    let mut networks = local
        .iter()
        .filter(|address| address.interface == interface)
        .peekable();
    networks.peek()?;
    Some(networks.any(|address| address.network.contains(&source)))
}
