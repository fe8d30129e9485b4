//! Packets to an address that no pod has any more: clients keep an old pod address (from a cache, a headless Service, a
//! connection pool) and get nothing but silence.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::doctor::example::{self, Examples};
use crate::doctor::finding::count;
use crate::doctor::groups::Groups;
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::verdict::{Refreshing, Verdict};

const NAME: &str = "lost-pod";
/// Clients and ports of one address that are told apart; there may be more.
const MOST: usize = 16;

#[derive(Default)]
pub struct LostPod(Groups<IpAddr, Address>);

#[derive(Default)]
struct Address {
    entries: u64,
    syn_sent: u64,
    clients: BTreeSet<String>,
    ports: BTreeSet<u16>,
    examples: Examples,
}

impl Check for LostPod {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let address = flow.reply.src;
        let verdict = entry
            .judgement
            .as_ref()
            .map(|judgement| judgement.verdict());
        let is_endpoint = matches!(verdict, Some(Verdict::Ok | Verdict::Draining));
        if !flow.status.is_unreplied() || is_endpoint || !nobody_has(address, facts) {
            return;
        }
        let connecting = flow.state.is_some_and(|state| state.is_connecting());
        let group = self.0.at(address);
        group.entries += 1;
        group.syn_sent += u64::from(connecting);
        group
            .examples
            .push(entry, entry.refreshing == Refreshing::Yes);
        if group.clients.len() < MOST {
            let client = entry.names.client.and_then(example::party);
            let source = || flow.original.src.to_string();
            group.clients.insert(client.unwrap_or_else(source));
        }
        if group.ports.len() < MOST {
            group.ports.extend(flow.reply.sport());
        }
    }

    fn conclude(&self, _: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let all = self.0.iter();
        let mut found: Vec<_> = all
            .filter(|(_, group)| group.entries >= thresholds.lost_entries)
            .collect();
        found.sort_by_key(|(address, group)| (Reverse(group.entries), **address));
        let finding = |(address, group): (&IpAddr, &Address)| {
            let more = if group.clients.len() == MOST {
                " or more"
            } else {
                ""
            };
            let message = format!(
                "{address} is no pod's address: {} without an answer, from {}{more}",
                count(group.entries, "entry", "entries"),
                count(group.clients.len() as u64, "client", "clients"),
            );
            Finding::warning(NAME, message)
                .with("address", address.to_string())
                .with("entries", group.entries)
                .with("connecting", group.syn_sent)
                .with("clients", group.clients.iter().cloned().collect::<Vec<_>>())
                .with("ports", group.ports.iter().copied().collect::<Vec<_>>())
                .with("examples", group.examples.to_json())
                .help(format!(
                    "let these clients look the name up again (caches, pools, headless Services): ctk ls --unreplied --reply-src {address}"
                ))
        };
        found.into_iter().map(finding).collect()
    }
}

/// Pods get addresses of this kind, all of them are known, and neither they nor a node or a Service have this one.
fn nobody_has(address: IpAddr, facts: &Facts<'_>) -> bool {
    let Some(index) = facts.index else {
        return false;
    };
    index.pods_known_at(address)
        && index.pods_at(address).next().is_none()
        && index.node_at(address).is_none()
        && index.owners(address).is_empty()
        && !facts.is_own(address)
        && facts.may_be_a_pod(address)
}
