//! Pods that reach themselves through a Service. Healthy where the address that the pod sees as the sender is another one,
//! and where the bridge sends a packet back to the port that it came from.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::doctor::example::Examples;
use crate::doctor::finding::count;
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::netns::BridgePort;

const NAME: &str = "hairpin";
/// Masquerade addresses that are told apart.
const MOST: usize = 16;

#[derive(Default)]
pub struct Hairpin {
    flows: u64,
    unreplied: u64,
    /// Flows without an answer whose sender stays the pod itself: a pod drops packets from its own address.
    from_itself: u64,
    /// What the pods see as the sender.
    senders: BTreeMap<IpAddr, u64>,
    examples: Examples,
}

impl Check for Hairpin {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let flow = &entry.flow;
        if !flow.is_hairpin() {
            return;
        }
        let (unreplied, sender) = (flow.status.is_unreplied(), flow.reply.dst);
        self.flows += 1;
        self.unreplied += u64::from(unreplied);
        self.from_itself += u64::from(unreplied && sender == flow.original.src);
        if self.senders.len() < MOST || self.senders.contains_key(&sender) {
            *self.senders.entry(sender).or_default() += 1;
        }
        self.examples.push(entry, unreplied);
    }

    fn conclude(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        if self.flows == 0 {
            return Vec::new();
        }
        let off: Vec<&BridgePort> = facts
            .bridge_ports
            .iter()
            .filter(|port| !port.hairpin)
            .collect();
        let swallowed = self.unreplied >= thresholds.hairpin_unreplied && !off.is_empty();
        let senders: Vec<Value> = self
            .senders
            .iter()
            .map(|(address, n)| json!({"sender": address.to_string(), "flows": n, "is": kind(*address, facts)}))
            .collect();
        let finding = if swallowed {
            let message = format!(
                "{} of {} without an answer, and {} hairpin_mode 0",
                self.unreplied,
                count(self.flows, "hairpin flow is", "hairpin flows are"),
                count(off.len() as u64, "bridge port has", "bridge ports have"),
            );
            Finding::warning(NAME, message).help(
                "a bridge drops packets that go back to the port they came from: set \"hairpinMode\": true in the CNI configuration (kubelet --hairpin-mode), or ip link set dev PORT type bridge_slave hairpin on",
            )
        } else if self.from_itself >= thresholds.hairpin_unreplied {
            let message = format!(
                "{} of {} without an answer, and not masqueraded",
                self.from_itself,
                count(self.flows, "hairpin flow is", "hairpin flows are"),
            );
            Finding::warning(NAME, message).help(
                "a pod drops packets from its own address: let the CNI masquerade (\"ipMasq\": true), or give kube-proxy the pods' range (--cluster-cidr)",
            )
        } else {
            let message = format!(
                "{} to the pod it comes from, {} without an answer",
                count(self.flows, "flow leads", "flows lead"),
                self.unreplied
            );
            Finding::info(NAME, message).help("healthy: that is how a pod reaches its own Service")
        };
        let ports: Vec<String> = off
            .iter()
            .take(MOST)
            .map(|port| port.interface.clone())
            .collect();
        vec![
            finding
                .with("flows", self.flows)
                .with("unreplied", self.unreplied)
                .with("unreplied_from_itself", self.from_itself)
                .with("bridge_ports", facts.bridge_ports.len())
                .with("hairpin_mode_0", ports)
                .with("senders", senders)
                .with("examples", self.examples.to_json()),
        ]
    }
}

/// Whose address a pod sees as the sender.
fn kind(address: IpAddr, facts: &Facts<'_>) -> &'static str {
    let cilium = match address {
        IpAddr::V4(v4) => v4.octets() == [169, 254, 42, 1],
        IpAddr::V6(v6) => v6.segments() == [0xfe80, 0, 0, 0, 0, 0, 0, 1],
    };
    if cilium {
        "cilium"
    } else if facts.is_own(address) {
        "this-node"
    } else {
        "other"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::testing::{tuple, udp, unreplied};

    fn seen(silent: u16, hairpin_mode: bool) -> Finding {
        let mut check = Hairpin::default();
        let facts = Facts {
            bridge_ports: vec![BridgePort {
                interface: "veth1".into(),
                hairpin: hairpin_mode,
            }],
            ..Facts::default()
        };
        for n in 0..4 {
            let mut flow = udp(&format!("10.1.0.7:400{n}"), "10.96.0.10:53", "10.1.0.7:53");
            flow.reply = tuple(17, "10.1.0.7:53", &format!("169.254.42.1:400{n}"));
            if n < silent {
                unreplied(&mut flow);
            }
            check.see(&Entry::bare(flow), &facts);
        }
        check.see(
            &Entry::bare(udp("10.1.0.8:4000", "10.96.0.10:53", "10.1.0.7:53")),
            &facts,
        );
        check.conclude(&facts, &Thresholds::default()).remove(0)
    }

    #[test]
    fn a_pod_that_is_asked_by_itself_does_not_answer() {
        let mut check = Hairpin::default();
        let facts = Facts::default();
        for n in 0..3 {
            let mut flow = udp(&format!("10.1.0.7:400{n}"), "10.96.0.10:53", "10.1.0.7:53");
            unreplied(&mut flow);
            check.see(&Entry::bare(flow), &facts);
        }
        let found = check.conclude(&facts, &Thresholds::default());
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(found[0].evidence["unreplied_from_itself"], 3);
    }

    #[test]
    fn hairpin_flows_are_wrong_only_where_a_bridge_swallows_them() {
        for (silent, mode, severity) in [
            (0, true, Severity::Info),
            (0, false, Severity::Info),
            (4, true, Severity::Info),
            (2, false, Severity::Info),
            (3, false, Severity::Warning),
        ] {
            let finding = seen(silent, mode);
            assert_eq!(finding.severity, severity, "{silent} {mode}");
            assert_eq!(finding.evidence["flows"], 4);
            assert_eq!(finding.evidence["senders"][0]["is"], "cilium");
        }
    }
}
