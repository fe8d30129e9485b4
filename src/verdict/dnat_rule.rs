//! Verdicts by DNAT rules that are not kube-proxy's: published container ports and hostPorts.
//!
//! Such a rule proves only the path of new packets. An entry is judged by it only where every rule that could match is
//! understood.

use ctk_cluster::rules::{
    Condition, Forward, ForwardTarget, NodeRules, TargetAddresses, TargetPorts,
};
use ctnetlink::flow::Flow;

use crate::attribution::{forwards_to as candidates, forwards_to_destination};
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
    let decision = |reason, rule: &'c Forward| Decision::new(reason).with(Detail::Rule(&rule.rule));
    for wanted in [Leads::Yes, Leads::Unknown] {
        let mut found = candidates.iter();
        // The tuples of an untranslated entry suit a rule that leads to the destination itself.
        if let Some(rule) = found.find(|rule| leads_to(rule, node, flow) == wanted) {
            return Some(match wanted {
                Leads::Yes => decision(Reason::Endpoint, rule),
                _ => decision(Reason::NotKubeProxy, rule),
            });
        }
    }
    // The tuples prove more than the routes: the rule saw the first packet.
    let made_by = forwards_to_destination(rules, node, flow)
        .find(|rule| flow.is_dnat() && leads_to(rule, node, flow) != Leads::No);
    if let Some(rule) = made_by {
        return Some(decision(Reason::NotKubeProxy, rule));
    }
    let first = candidates.first()?;
    if flow.is_dnat() {
        let plain = candidates.iter().all(|rule| is_plain(rule, node, flow));
        let reason = if plain {
            Reason::EndpointGone
        } else {
            Reason::NotKubeProxy
        };
        return Some(decision(reason, first));
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
    forwards_to_destination(rules, node, flow).any(|rule| leads_to(rule, node, flow) != Leads::No)
}

/// Finds the rule that leads to this entry's source although the source's packets left with another port. The entry of a
/// peer that sent before the rule existed holds the tuple that the packets would have had, so the kernel chose another port
/// (`nf_nat_used_tuple`).
pub(super) fn displacing_rule<'c>(
    rules: &'c NodeRules,
    node: &ThisNode,
    flow: &Flow,
) -> Option<&'c Forward> {
    let (own, after) = (flow.original.source(), flow.reply.destination());
    let (port, moved) = (own.port?, own.port != after.port);
    if !moved || own.address == after.address {
        return None;
    }
    let has_address = |target: &ForwardTarget| match &target.addresses {
        TargetAddresses::Range(range) => range.contains(&own.address),
        TargetAddresses::Unchanged => false,
        TargetAddresses::OwnHost => node.interface_of(own.address).is_some(),
    };
    rules.forwards.iter().find(|rule| {
        let to_own_port = |target: &ForwardTarget| {
            has_address(target)
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

/// Whether a rule leads an entry's destination to its reply source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Leads {
    No,
    Unknown,
    Yes,
}

fn leads_to(rule: &Forward, node: &ThisNode, flow: &Flow) -> Leads {
    let (asked, port) = (flow.original.dport(), flow.reply.sport());
    let has_port = |target: &ForwardTarget| match &target.ports {
        TargetPorts::Unchanged => true,
        TargetPorts::Range(range) => port.is_some_and(|port| range.contains(&port)),
        TargetPorts::Shift(first) => asked
            .and_then(|asked| asked.checked_sub(*rule.ports.start())?.checked_add(*first))
            .is_some_and(|shifted| port == Some(shifted)),
    };
    let certain = |is_target| if is_target { Leads::Yes } else { Leads::No };
    let targets = rule.targets.iter().filter(|target| has_port(target));
    let leads = targets.map(|target| match &target.addresses {
        TargetAddresses::Range(range) => certain(range.contains(&flow.reply.src)),
        TargetAddresses::Unchanged => certain(flow.reply.src == flow.original.dst),
        TargetAddresses::OwnHost => to_own_host(rule, node, flow),
    });
    leads.max().unwrap_or(Leads::No)
}

/// Whether the reply source is the address that `REDIRECT` chooses. The order of an interface's addresses is not known, so any
/// of them counts.
fn to_own_host(rule: &Forward, node: &ThisNode, flow: &Flow) -> Leads {
    let source = flow.reply.src;
    let Some(local) = &node.local else {
        return Leads::Unknown;
    };
    if rule.conditions.contains(&Condition::Origin { local: true }) {
        return match source.is_loopback() {
            true => Leads::Yes,
            false => Leads::No,
        };
    }
    if node.interface_of(source).is_none() {
        return Leads::No;
    }
    let Some(incoming) = node.interfaces_to(flow.original.src) else {
        return match source.is_loopback() {
            true => Leads::Unknown,
            false => Leads::Yes,
        };
    };
    let mut own = local.iter().filter(|own| own.address() == source);
    match incoming.is_empty() || own.any(|own| incoming.contains(own.interface.as_str())) {
        true => Leads::Yes,
        false => Leads::Unknown,
    }
}

/// Whether the rule matches only protocol, destination, port and `addrtype LOCAL`. The exclusion of an input interface
/// counts as plain: container engines write it to let containers reach each other.
fn is_plain(rule: &Forward, node: &ThisNode, flow: &Flow) -> bool {
    rule.conditions.iter().all(|condition| {
        let plain = matches!(
            condition,
            Condition::Interface { equal: false, .. }
                | Condition::NotDestination(_)
                | Condition::Origin { .. }
        );
        plain || (matches!(condition, Condition::Interface { .. }) && holds(condition, node, flow))
    })
}

fn is_other(condition: &Condition) -> bool {
    matches!(condition, Condition::Other(_))
}

/// Whether the condition certainly holds for the entry's first packet. The routes and networks of the node tell by which
/// interface packets of a source come in.
fn holds(condition: &Condition, node: &ThisNode, flow: &Flow) -> bool {
    let source = flow.original.src;
    match condition {
        Condition::Source { net, equal } => net.contains(&source) == *equal,
        Condition::Interface { names, equal } => match node.enters_by(names, source) {
            Some(enters) => enters == *equal,
            // No route leads back to the source, so it is not behind an interface that exists.
            None => !equal && node.has_interface(names) && node.has_no_way_to(source),
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
