//! DNAT rules of this node that are not kube-proxy's, by the destination of an entry.

use crate::this_node::ThisNode;
use ctk_cluster::rules::{Condition, Forward, NodeRules};
use ctnetlink::flow::Flow;

/// Every rule that could match protocol, address and port; other matches are ignored.
pub fn forwards_to<'c>(
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
            && (local || !rule.local_only)
            && !rule
                .conditions
                .iter()
                .any(|c| matches!(c, Condition::NotDestination(net) if net.contains(&address)))
    })
}
