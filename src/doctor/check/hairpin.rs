//! Pods that reach themselves through a Service. This is healthy where the Pod sees another address as the sender, and
//! where the bridge sends a packet back to its input port.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::doctor::example::Examples;
use crate::doctor::expected_reply;
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::plural::count;
use ctnetlink::rtnetlink::BridgePort;

const NAME: &str = "hairpin";
/// Upper bound of the sender addresses and of the interfaces that are listed.
const MAX_LISTED: usize = 16;

#[derive(Default)]
pub struct Hairpin {
    flows: u64,
    unreplied: u64,
    pods: BoundedGroups<IpAddr, HairpinPod>,
    /// Flows by the sender address that the Pods see.
    senders: BTreeMap<IpAddr, u64>,
    examples: Examples,
}

/// Flows of one Pod to itself, of protocols that always answer.
#[derive(Default)]
struct HairpinPod {
    due: u64,
    unanswered: u64,
    /// Unanswered flows whose sender stays the Pod itself: a Pod drops packets from its own address.
    from_itself: u64,
}

impl Check for Hairpin {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "pods that reach themselves"
    }

    fn looks_for(&self) -> &'static str {
        "Pods that reach themselves through a Service, and whether they get replies."
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let flow = &entry.flow;
        if !flow.is_hairpin() {
            return;
        }
        let (unreplied, sender) = (flow.status.is_unreplied(), flow.reply.dst);
        self.flows += 1;
        self.unreplied += u64::from(unreplied);
        if expected_reply::expects_reply(flow) {
            let pod = self.pods.at(flow.reply.src);
            pod.due += 1;
            pod.unanswered += u64::from(unreplied);
            pod.from_itself += u64::from(unreplied && sender == flow.original.src);
        }
        if self.senders.len() < MAX_LISTED || self.senders.contains_key(&sender) {
            *self.senders.entry(sender).or_default() += 1;
        }
        self.examples.push(entry, unreplied);
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        if self.flows == 0 {
            return Vec::new();
        }
        let ports = facts.bridge_ports.as_deref();
        let off: Vec<&BridgePort> = ports
            .unwrap_or_default()
            .iter()
            .filter(|port| !port.hairpin)
            .collect();
        let (unanswered, from_itself) = self.unanswered();
        let least = thresholds.hairpin_unreplied;
        let finding = if from_itself >= least {
            self.not_masqueraded(from_itself)
        } else if unanswered >= least && !off.is_empty() {
            self.bridge_drops(unanswered, off.len())
        } else {
            self.harmless()
        };
        let interfaces: Vec<String> = off
            .iter()
            .take(MAX_LISTED)
            .map(|port| port.interface.clone())
            .collect();
        let senders: Vec<Value> = self
            .senders
            .iter()
            .map(|(address, n)| json!({"sender": address.to_string(), "flows": n, "is": kind(*address, facts)}))
            .collect();
        vec![
            finding
                .with("flows", self.flows)
                .with("unreplied", self.unreplied)
                .with("unanswered", unanswered)
                .with("unreplied_from_itself", from_itself)
                .with("bridge_ports", ports.map(<[BridgePort]>::len))
                .with("hairpin_mode_0", interfaces)
                .with("senders", senders)
                .examples(&self.examples),
        ]
    }
}

impl Hairpin {
    /// `3 of 4 hairpin flows are without an answer`
    fn without_answer(&self, unanswered: u64) -> String {
        let flows = count(self.flows, "hairpin flow is", "hairpin flows are");
        format!("{unanswered} of {flows} without an answer")
    }

    fn not_masqueraded(&self, from_itself: u64) -> Finding {
        let message = format!("{}, and not masqueraded", self.without_answer(from_itself));
        Finding::warning(NAME, message).help(
            "a pod drops packets from its own address: let the CNI masquerade (\"ipMasq\": true), or give kube-proxy the pods' range (--cluster-cidr)",
        )
    }

    fn bridge_drops(&self, unanswered: u64, ports: usize) -> Finding {
        let message = format!(
            "{}, and {} hairpin_mode 0",
            self.without_answer(unanswered),
            count(ports as u64, "bridge port has", "bridge ports have"),
        );
        Finding::warning(NAME, message).help(
            "if the pods are behind these ports: a bridge drops packets that go back to the port they came from; set \"hairpinMode\": true in the CNI configuration (kubelet --hairpin-mode), or ip link set dev PORT type bridge_slave hairpin on",
        )
    }

    fn harmless(&self) -> Finding {
        let message = format!(
            "{} to the pod it comes from, {} without an answer",
            count(self.flows, "flow leads", "flows lead"),
            self.unreplied
        );
        let help = match self.unreplied {
            0 => "healthy: that is how a pod reaches its own Service",
            _ => {
                "that a pod reaches its own Service so is healthy; see whether the silent ones listen: ctk ls --hairpin --unreplied"
            }
        };
        Finding::info(NAME, message).help(help)
    }

    /// Unanswered flows, and those of them that are not masqueraded, of Pods that answer themselves rarely.
    fn unanswered(&self) -> (u64, u64) {
        let pods = self.pods.iter().map(|(_, pod)| pod);
        let missed = self.pods.missed();
        pods.filter(|pod| pod.unanswered * 2 > pod.due + missed)
            .fold((0, 0), |(unanswered, from_itself), pod| {
                (unanswered + pod.unanswered, from_itself + pod.from_itself)
            })
    }
}

/// Owner of the address that a Pod sees as the sender.
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
            bridge_ports: Some(vec![BridgePort {
                interface: "veth1".into(),
                hairpin: hairpin_mode,
            }]),
            ..Facts::default()
        };
        for n in 0..4 {
            let mut flow = udp(&format!("10.1.0.7:400{n}"), "10.96.0.10:53", "10.1.0.7:53");
            flow.reply = tuple(17, "10.1.0.7:53", &format!("169.254.42.1:400{n}"));
            if n < silent {
                unreplied(&mut flow);
            }
            check.observe(&Entry::bare(flow), &facts);
        }
        check.observe(
            &Entry::bare(udp("10.1.0.8:4000", "10.96.0.10:53", "10.1.0.7:53")),
            &facts,
        );
        check.findings(&facts, &Thresholds::default()).remove(0)
    }

    #[test]
    fn a_pod_that_sees_its_own_address_as_sender_is_a_warning() {
        let mut check = Hairpin::default();
        let facts = Facts::default();
        for n in 0..3 {
            let mut flow = udp(&format!("10.1.0.7:400{n}"), "10.96.0.10:53", "10.1.0.7:53");
            unreplied(&mut flow);
            check.observe(&Entry::bare(flow), &facts);
        }
        let found = check.findings(&facts, &Thresholds::default());
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(found[0].evidence["unreplied_from_itself"], 3);
    }

    #[test]
    fn hairpin_flows_are_a_warning_only_where_a_bridge_drops_them() {
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

    #[test]
    fn one_way_udp_and_a_few_unanswered_flows_are_no_warning() {
        for (port, silent, severity) in [
            (514, 6, Severity::Info),
            (53, 6, Severity::Warning),
            // Most are answered, so the bridge forwards them.
            (53, 3, Severity::Info),
        ] {
            let mut check = Hairpin::default();
            for n in 0..6 {
                let pod = format!("10.1.0.7:{port}");
                let mut flow = udp(
                    &format!("10.1.0.7:400{n}"),
                    &format!("10.96.0.10:{port}"),
                    &pod,
                );
                flow.reply = tuple(17, &pod, &format!("192.0.2.1:400{n}"));
                if n < silent {
                    unreplied(&mut flow);
                }
                check.observe(&Entry::bare(flow), &Facts::default());
            }
            let facts = Facts {
                bridge_ports: Some(vec![BridgePort {
                    interface: "docker0-port".into(),
                    hairpin: false,
                }]),
                ..Facts::default()
            };
            let finding = check.findings(&facts, &Thresholds::default()).remove(0);
            assert_eq!(finding.severity, severity, "{port} {silent}");
            assert!(!finding.help.as_deref().unwrap().starts_with("healthy"));
            let unread = check.findings(&Facts::default(), &Thresholds::default());
            assert_eq!(unread[0].evidence["bridge_ports"], Value::Null);
        }
    }
}
