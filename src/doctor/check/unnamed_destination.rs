//! Translated entries whose destination no object names: the node port, external or load-balancer address of a deleted
//! Service, or the destination of a foreign rule. Nothing distinguishes the two any more, so the finding names both.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::doctor::example::{self, Examples};
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::plural::count;
use crate::verdict::{Reason, Refreshing};

const NAME: &str = "unnamed-destination";
const UDP: u8 = 17;
/// Default of the API server's `--service-node-port-range`.
const DEFAULT_NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

type PlaceKey = (IpAddr, u16);

#[derive(Default)]
pub struct UnnamedDestination(BoundedGroups<PlaceKey, UnnamedPlace>);

#[derive(Default)]
struct UnnamedPlace {
    entries: u64,
    refreshing: u64,
    own: bool,
    examples: Examples,
}

impl Check for UnnamedDestination {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "destination without a Service"
    }

    fn looks_for(&self) -> &'static str {
        "Translated UDP entries whose destination belongs to no Service: the Service was deleted, or a rule of another program translates."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts.lacks_verdicts()
    }

    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let reason = entry.judgement.as_ref().map(|judgement| judgement.reason);
        let unnamed = reason == Some(Reason::NoFrontend) && flow.is_dnat();
        let Some(port) = flow
            .original
            .dport()
            .filter(|_| unnamed && flow.protocol() == UDP)
        else {
            return;
        };
        let address = flow.original.dst;
        let own = facts.is_own(address);
        let group = self.0.at((address, port));
        let refreshing = entry.refreshing == Refreshing::Yes;
        group.entries += 1;
        group.refreshing += u64::from(refreshing);
        group.own = own;
        group.examples.push(entry, refreshing);
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let all = self.0.iter();
        let mut found: Vec<_> = all
            .filter(|(_, group)| group.entries >= thresholds.stale_entries)
            .collect();
        found.sort_by_key(|(key, group)| (Reverse((group.refreshing, group.entries)), **key));
        let finding = |((address, port), group): (&PlaceKey, &UnnamedPlace)| {
            let place = example::socket(*address, Some(*port));
            let node_port = group.own && DEFAULT_NODE_PORTS.contains(port);
            let like = match node_port {
                true => ", which looks like a node port",
                false => "",
            };
            let message = format!(
                "{place}/udp{like}: {} translated, and no Service has this destination: a deleted one had it, or another rule translates it",
                count(group.entries, "entry is", "entries are"),
            );
            Finding::info(NAME, message)
                .with("destination", place)
                .with("entries", group.entries)
                .with("refreshing", facts.sampled.map(|_| group.refreshing))
                .with("looks_like_node_port", node_port)
                .examples(&group.examples)
                .help(format!(
                    "look for a rule of somebody else (nft list ruleset, iptables-save -t nat); if there is none: ctk purge --udp {port} --dst {address}"
                ))
        };
        found.into_iter().map(finding).collect()
    }
}
