//! Packets to an address that no Pod has any more: clients keep the address of an earlier Pod (from a cache, a headless
//! Service, a connection pool) and get no answer.
//!
//! A plug-in may assign addresses of the node's own network to Pods, where other machines exist, too. It is a warning only
//! inside a range of Pods alone, and where an answer is expected.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::doctor::example::{self, Examples};
use crate::doctor::expected_reply;
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds, pod_network};
use crate::entry::Entry;
use crate::plural::count;
use crate::verdict::{Refreshing, Replies, Verdict};
use ctk_cluster::index::Index;

const NAME: &str = "lost-pod";
/// Upper bound of the clients and ports that are stored of one address.
const MAX_STORED: usize = 16;

#[derive(Default)]
pub struct LostPod(BoundedGroups<IpAddr, Address>);

#[derive(Default)]
struct Address {
    entries: u64,
    syn_sent: u64,
    /// Unanswered entries of protocols that always answer.
    due: u64,
    /// Entries that were answered earlier and are not any more.
    stopped: u64,
    clients: BTreeSet<String>,
    ports: BTreeSet<u16>,
    examples: Examples,
}

impl Check for LostPod {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "packets to an address without a pod"
    }

    fn looks_for(&self) -> &'static str {
        "Entries without a reply to an address that no pod has."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts.lacks_objects()
    }

    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let address = flow.reply.src;
        let verdict = entry
            .judgement
            .as_ref()
            .map(|judgement| judgement.verdict());
        let is_endpoint = matches!(verdict, Some(Verdict::Ok | Verdict::Draining));
        let (unreplied, stopped) = (
            flow.status.is_unreplied(),
            entry.replies == Replies::Stopped,
        );
        if !(unreplied || stopped) || is_endpoint || !is_unassigned(address, facts) {
            return;
        }
        let connecting = flow.state.is_some_and(|state| state.is_connecting());
        let group = self.0.at(address);
        group.entries += 1;
        group.syn_sent += u64::from(connecting);
        group.due += u64::from(unreplied && expected_reply::expects_reply(flow));
        group.stopped += u64::from(stopped && !unreplied);
        group
            .examples
            .push(entry, entry.refreshing == Refreshing::Yes);
        if group.clients.len() < MAX_STORED {
            let client = entry.names.client.and_then(example::party);
            let source = || flow.original.src.to_string();
            group.clients.insert(client.unwrap_or_else(source));
        }
        if group.ports.len() < MAX_STORED {
            group.ports.extend(flow.reply.sport());
        }
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let all = self.0.iter();
        let mut found: Vec<_> = all
            .filter(|(_, group)| group.entries >= thresholds.lost_entries)
            .collect();
        found.sort_by_key(|(address, group)| (Reverse(group.entries), **address));
        let finding = |(address, group): (&IpAddr, &Address)| {
            let more = if group.clients.len() == MAX_STORED {
                " or more"
            } else {
                ""
            };
            let in_range = facts.index.and_then(|index| index.in_pod_range(*address));
            let due = group.due + group.stopped;
            let (severity, but) = if in_range != Some(true) {
                (
                    Severity::Info,
                    "; another machine may have it, as no node's podCIDR contains it",
                )
            } else if due < thresholds.lost_entries {
                (
                    Severity::Info,
                    "; healthy where the protocol has no answers, as syslog and statsd",
                )
            } else {
                (Severity::Warning, "")
            };
            let message = format!(
                "{address} is no pod's address: {} without an answer, from {}{more}{but}",
                count(group.entries, "entry", "entries"),
                count(group.clients.len() as u64, "client", "clients"),
            );
            Finding::new(NAME, severity, message)
                .with("address", address.to_string())
                .with("entries", group.entries)
                .with("connecting", group.syn_sent)
                .with("answer_due", due)
                .with("in_pod_range", in_range)
                .with("clients", group.clients.iter().cloned().collect::<Vec<_>>())
                .with("ports", group.ports.iter().copied().collect::<Vec<_>>())
                .examples(&group.examples)
                .because(format!("address {address}"))
                .help(format!(
                    "let these clients look the name up again (caches, pools, headless Services): ctk ls --reply-src {address}"
                ))
        };
        found.into_iter().map(finding).collect()
    }
}

/// Whether the address is in a network of Pods, all Pods are known, and no Pod, node or Service has it.
fn is_unassigned(address: IpAddr, facts: &Facts<'_>) -> bool {
    let Some(index) = facts.index else {
        return false;
    };
    index.pods_known_at(address)
        && index.pods_at(address).next().is_none()
        && index.node_at(address).is_none()
        && index.owners(address).is_empty()
        && !facts.is_own(address)
        && !is_for_all(address, index)
        && facts.may_be_a_pod(address)
}

/// Whether the address is multicast, or a network's broadcast or network address (which older hosts use as a broadcast
/// address).
fn is_for_all(address: IpAddr, index: &Index) -> bool {
    let IpAddr::V4(v4) = address else {
        return address.is_multicast();
    };
    let mut ranges = index.pod_ranges().chain(pod_network(address));
    v4.is_multicast()
        || v4.is_broadcast()
        || ranges.any(|range| {
            range.contains(&address) && (range.network() == address || range.broadcast() == address)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{flow, unreplied};
    use ctk_cluster::testing::world;

    /// Severity of the finding for 30 entries without an answer.
    fn seen(protocol: u8, to: &str, stopped: bool) -> Option<Severity> {
        let index = world(&[
            "node n1 192.0.2.11 podCIDR=10.244.1.0/24",
            "pod shop/a 10.244.1.5 @n1",
            "pod shop/b 192.168.7.5 @n1",
        ]);
        let networks = index.pod_addresses().filter_map(pod_network).collect();
        let facts = Facts {
            index: Some(&index),
            pod_networks: networks,
            ..Facts::default()
        };
        let mut check = LostPod::default();
        for n in 0..30 {
            let mut flow = flow(protocol, &format!("10.244.1.5:{}", 4000 + n), to, to);
            if !stopped {
                unreplied(&mut flow);
            }
            let mut entry = Entry::bare(flow);
            if stopped {
                entry.replies = Replies::Stopped;
            }
            check.observe(&entry, &facts);
        }
        let found = check.findings(&facts, &Thresholds::default());
        found.first().map(|finding| finding.severity)
    }

    #[test]
    fn silence_is_a_warning_only_in_a_range_of_pods_where_an_answer_is_expected() {
        use Severity::{Info, Warning};
        for (protocol, to, stopped, expected) in [
            (6, "10.244.1.77:80", false, Some(Warning)),
            (17, "10.244.1.77:53", false, Some(Warning)),
            (17, "10.244.1.77:514", false, Some(Info)),
            (17, "10.244.1.77:514", true, Some(Warning)),
            // A syslog appliance, or anything else, in the network that pods share with the node.
            (17, "192.168.7.77:514", false, Some(Info)),
            (6, "192.168.7.77:80", false, Some(Info)),
            (17, "10.244.1.255:53", false, None),
            (17, "192.168.7.255:53", false, None),
            (17, "203.0.113.1:53", false, None),
            (6, "10.244.1.5:80", false, None),
        ] {
            assert_eq!(
                seen(protocol, to, stopped),
                expected,
                "{protocol} {to} {stopped}"
            );
        }
    }
}
