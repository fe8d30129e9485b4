//! Answers that pass a bridge and no conntrack: client and endpoint are ports of one bridge, so the endpoint answers to the
//! client directly. Without `net.bridge.bridge-nf-call-iptables` the answer is not translated back, and the client refuses it.

use crate::doctor::Facts;
use crate::plural::count;
use ctnetlink::flow::Flow;

/// Whether the answers of this translated flow may bypass conntrack: bridges do not call the rules, the source address is
/// not translated, and client and endpoint are in one network of an interface of this node.
pub fn may_bypass(flow: &Flow, facts: &Facts<'_>) -> bool {
    let has_ports = facts
        .bridge_ports
        .as_ref()
        .is_some_and(|ports| !ports.is_empty());
    if facts.bridge_calls_iptables != Some(false) || !has_ports {
        return false;
    }
    let (client, endpoint) = (flow.original.src, flow.reply.src);
    if flow.reply.dst != client || client == endpoint {
        return false;
    }
    let mut networks = facts.local.iter().flatten();
    networks.any(|local| {
        let own = local.address();
        let shares = local.network.contains(&client) && local.network.contains(&endpoint);
        shares && own != client && own != endpoint
    })
}

/// Addition to the sentence of the finding; empty without such entries.
pub fn note(bridged: u64) -> String {
    if bridged == 0 {
        return String::new();
    }
    format!(
        "; {} to a neighbour of the client on this node, whose answers bypass conntrack if a bridge joins the two, as \
         bridge-nf-call-iptables is off",
        count(bridged, "leads", "lead")
    )
}

/// The setting that helps, before the rest of the help.
pub fn help(bridged: u64) -> &'static str {
    match bridged {
        0 => "",
        _ => "modprobe br_netfilter, and sysctl -w net.bridge.bridge-nf-call-iptables=1; else ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::flow;
    use ctnetlink::rtnetlink::{BridgePort, LocalAddress};

    #[test]
    fn only_neighbours_behind_a_bridge_that_calls_no_rules_bypass_conntrack() {
        for (calls, ports, client, expected) in [
            (Some(false), 1, "10.244.1.5:4000", true),
            (Some(true), 1, "10.244.1.5:4000", false),
            (None, 1, "10.244.1.5:4000", false),
            (Some(false), 0, "10.244.1.5:4000", false),
            // A client elsewhere, the node itself, and the endpoint itself.
            (Some(false), 1, "10.244.2.5:4000", false),
            (Some(false), 1, "10.244.1.1:4000", false),
            (Some(false), 1, "10.244.1.9:4000", false),
        ] {
            let port = BridgePort {
                interface: "veth1".to_owned(),
                hairpin: false,
            };
            let facts = Facts {
                bridge_calls_iptables: calls,
                bridge_ports: Some(vec![port; ports]),
                local: Some(vec![LocalAddress {
                    interface: "cni0".to_owned(),
                    network: "10.244.1.1/24".parse().unwrap(),
                }]),
                ..Facts::default()
            };
            let one = flow(6, client, "10.96.0.10:80", "10.244.1.9:8080");
            assert_eq!(
                may_bypass(&one, &facts),
                expected,
                "{calls:?} {ports} {client}"
            );
        }
    }
}
