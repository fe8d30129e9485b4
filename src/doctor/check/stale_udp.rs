//! UDP entries that still lead to an endpoint that is gone. The ones that are kept alive first: those never end.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::doctor::example::{self, Examples};
use crate::doctor::finding::count;
use crate::doctor::groups::Groups;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::verdict::{Reason, Refreshing, Verdict};

const NAME: &str = "stale-udp";
const UDP: u8 = 17;

/// By destination: `203.0.113.77:31514: 3 stale of 4`.
#[derive(Default)]
pub struct StaleUdp {
    destinations: Groups<(IpAddr, Option<u16>), Destination>,
}

/// UDP entries with one original destination.
#[derive(Default)]
struct Destination {
    service: Option<String>,
    entries: u64,
    stale: u64,
    refreshing: u64,
    reasons: BTreeMap<&'static str, u64>,
    misdelivered: u64,
    examples: Examples,
}

impl Check for StaleUdp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let flow = &entry.flow;
        let reason = entry.judgement.as_ref().map(|judgement| judgement.reason);
        // Untranslated entries are another check's.
        let stale =
            reason.filter(|reason| reason.verdict() == Verdict::Stale && *reason != Reason::NoDnat);
        if flow.protocol() != UDP || (stale.is_none() && entry.names.service.is_none()) {
            return;
        }
        let group = self
            .destinations
            .at((flow.original.dst, flow.original.dport()));
        group.entries += 1;
        let Some(reason) = stale else {
            return;
        };
        let refreshing = entry.refreshing == Refreshing::Yes;
        group.stale += 1;
        group.refreshing += u64::from(refreshing);
        group.misdelivered += u64::from(reason == Reason::Misdelivery);
        *group.reasons.entry(reason.name()).or_default() += 1;
        let service = entry.names.service.as_ref().and_then(example::service);
        group.service = group.service.take().or(service);
        group.examples.push(entry, refreshing);
    }

    fn conclude(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let mut found: Vec<_> = self
            .destinations
            .iter()
            .filter(|(_, group)| group.stale >= thresholds.stale)
            .collect();
        found.sort_by_key(|(key, group)| {
            let urgency = (group.misdelivered, group.refreshing, group.stale);
            (std::cmp::Reverse(urgency), **key)
        });
        let finding = |((address, port), group): (&(IpAddr, Option<u16>), &Destination)| {
            group.finding(&example::place(*address, *port), *address, *port, facts)
        };
        found.into_iter().map(finding).collect()
    }
}

impl Destination {
    fn finding(
        &self,
        place: &str,
        address: IpAddr,
        port: Option<u16>,
        facts: &Facts<'_>,
    ) -> Finding {
        let sampled = facts.sampled.is_some();
        let whom = match &self.service {
            Some(service) => format!("{service} ({place}/udp)"),
            None => format!("{place}/udp"),
        };
        let alive = match (sampled, self.refreshing) {
            (false, _) => String::new(),
            (true, 0) => ", none of them kept alive while it was looked".to_owned(),
            (true, n) => format!(", {} kept alive by its client", count(n, "is", "are")),
        };
        let reasons: Vec<String> = self
            .reasons
            .iter()
            .map(|(reason, n)| format!("{reason} {n}"))
            .collect();
        let message = format!(
            "{whom}: {} stale of {} ({}){alive}",
            self.stale,
            count(self.entries, "entry", "entries"),
            reasons.join(", ")
        );
        // Answers come from a stranger, or the flow never recovers by itself.
        let severity = match self.misdelivered > 0 || self.refreshing > 0 {
            true => Severity::Critical,
            false => Severity::Warning,
        };
        Finding::new(NAME, severity, message)
            .with("service", self.service.clone())
            .with("destination", place)
            .with("entries", self.entries)
            .with("stale", self.stale)
            .with("refreshing", sampled.then_some(self.refreshing))
            .with("reasons", reasons_json(&self.reasons))
            .with("examples", self.examples.to_json())
            .help(purge(self.service.as_deref(), address, port))
    }
}

fn reasons_json(reasons: &BTreeMap<&'static str, u64>) -> Value {
    reasons
        .iter()
        .map(|(reason, n)| json!({"reason": reason, "entries": n}))
        .collect()
}

/// The command that deletes exactly these.
fn purge(service: Option<&str>, address: IpAddr, port: Option<u16>) -> String {
    match (service, port) {
        (Some(service), _) => format!("ctk purge --stale --svc {service}"),
        (None, Some(port)) => format!("ctk purge --stale --dst {address} --udp {port}"),
        (None, None) => format!("ctk purge --stale --dst {address}"),
    }
}
