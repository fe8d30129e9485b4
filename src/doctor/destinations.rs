//! UDP entries grouped by original destination, for the checks of stale entries.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::doctor::example::{self, Examples};
use crate::doctor::groups::Groups;
use crate::doctor::{Facts, Finding};
use crate::entry::Entry;
use crate::plural::count;
use crate::verdict::{Reason, Refreshing};

const UDP: u8 = 17;

type Key = (IpAddr, Option<u16>);

#[derive(Default)]
pub struct Destinations(Groups<Key, Destination>);

/// UDP entries with one original destination.
#[derive(Default)]
pub struct Destination {
    pub service: Option<String>,
    /// All entries, including healthy ones.
    pub entries: u64,
    /// Entries that the check reports.
    pub bad: u64,
    pub refreshing: u64,
    /// Reported entries whose refreshing is unknown: the sample was full, or they were made since.
    unknown: u64,
    pub misdelivered: u64,
    reasons: BTreeMap<&'static str, u64>,
    /// Start of the oldest entry in nanoseconds since the Unix epoch, where the kernel records it.
    oldest: Option<u64>,
    examples: Examples,
}

impl Destinations {
    /// Counts an entry; `reason` is set for one that the check reports.
    pub fn observe(&mut self, entry: &Entry<'_>, reason: Option<Reason>) {
        let flow = &entry.flow;
        if flow.protocol() != UDP || (reason.is_none() && entry.names.service.is_none()) {
            return;
        }
        let group = self.0.at((flow.original.dst, flow.original.dport()));
        group.entries += 1;
        let Some(reason) = reason else {
            return;
        };
        let refreshing = entry.refreshing == Refreshing::Yes;
        group.bad += 1;
        group.refreshing += u64::from(refreshing);
        group.unknown += u64::from(entry.refreshing == Refreshing::Unknown);
        group.misdelivered += u64::from(reason == Reason::Misdelivery);
        *group.reasons.entry(reason.name()).or_default() += 1;
        group.oldest = group.oldest.into_iter().chain(flow.start).min();
        if group.service.is_none() {
            group.service = entry.names.service.as_ref().and_then(example::service);
        }
        group.examples.push(entry, refreshing);
    }

    /// Destinations with at least `least` reported entries, urgent ones first.
    pub fn from(&self, least: u64) -> Vec<(&Key, &Destination)> {
        let mut found: Vec<_> = self
            .0
            .iter()
            .filter(|(_, group)| group.bad >= least)
            .collect();
        found.sort_by_key(|(key, group)| {
            let urgency = (group.misdelivered, group.refreshing, group.bad);
            (Reverse(urgency), **key)
        });
        found
    }
}

impl Destination {
    /// `kube-system/kube-dns:dns (10.96.0.10:53/udp)`
    pub fn name(&self, (address, port): &Key) -> String {
        let place = example::socket(*address, *port);
        match &self.service {
            Some(service) => format!("{service} ({place}/udp)"),
            None => format!("{place}/udp"),
        }
    }

    /// `3 of 4 entries`
    pub fn share(&self) -> String {
        format!(
            "{} of {}",
            self.bad,
            count(self.entries, "entry", "entries")
        )
    }

    /// `endpoint-gone 2, port-gone 1`
    pub fn reasons(&self) -> String {
        let reasons = self.reasons.iter();
        let reasons: Vec<String> = reasons.map(|(reason, n)| format!("{reason} {n}")).collect();
        reasons.join(", ")
    }

    /// Clause about entries that clients keep alive; empty without a sample.
    pub fn alive(&self, facts: &Facts<'_>) -> String {
        let alive = match (facts.sampled, self.refreshing) {
            (None, _) => return String::new(),
            (Some(_), 0) => "none was refreshed while it was looked".to_owned(),
            (Some(_), n) => format!(
                "{} kept alive by clients that go on sending",
                count(n, "is", "are")
            ),
        };
        match self.unknown {
            0 => format!("; {alive}"),
            n => format!("; {alive}, of {n} nothing tells"),
        }
    }

    /// Adds the numbers to a finding; `what` names the number of reported entries.
    pub fn evidence(
        &self,
        finding: Finding,
        what: &str,
        (address, port): &Key,
        facts: &Facts<'_>,
    ) -> Finding {
        let reasons = self.reasons.iter();
        let reasons: Vec<Value> = reasons
            .map(|(reason, n)| json!({"reason": reason, "entries": n}))
            .collect();
        let since = self.oldest.and_then(age);
        let refreshing = facts.sampled.map(|_| self.refreshing);
        finding
            .with("service", self.service.clone())
            .with("destination", example::socket(*address, *port))
            .with("entries", self.entries)
            .with(what, self.bad)
            .with("refreshing", refreshing)
            .with("refreshing_unknown", facts.sampled.map(|_| self.unknown))
            .with("oldest_seconds", since)
            .with("reasons", reasons)
            .with("examples", self.examples.to_json())
    }
}

/// Seconds since a start, rounded down.
fn age(start: u64) -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.as_secs().saturating_sub(start / 1_000_000_000))
}
