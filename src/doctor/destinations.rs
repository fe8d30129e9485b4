//! Entries grouped by protocol and original destination, for the checks of stale entries.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::doctor::example::{self, Examples};
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Facts, Finding};
use crate::entry::Entry;
use crate::filter::protocol::UDP;
use crate::plural::count;
use crate::verdict::{Reason, Refreshing};
use ctnetlink::flow::protocol_name;

/// Protocol and original destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub protocol: u8,
    pub address: IpAddr,
    pub port: Option<u16>,
}

impl Key {
    /// `10.96.0.10:53`
    fn place(&self) -> String {
        example::socket(self.address, self.port)
    }
}

#[derive(Default)]
pub struct Destinations(BoundedGroups<Key, Destination>);

/// Entries with one original destination.
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
    /// Reported connections whose first packet has no answer yet.
    pub connecting: u64,
    /// Reported entries that a purge takes only by their reason, as no other endpoint could take their packets.
    last_endpoint: u64,
    reasons: BTreeMap<&'static str, u64>,
    /// Start of the oldest entry in nanoseconds since the Unix epoch, where the kernel records it.
    oldest: Option<u64>,
    examples: Examples,
}

impl Destinations {
    /// Counts an entry; `reason` is set for one that the check reports.
    pub fn observe(&mut self, entry: &Entry<'_>, reason: Option<Reason>) {
        let flow = &entry.flow;
        if reason.is_none() && entry.names.service.is_none() {
            return;
        }
        let group = self.0.at(Key {
            protocol: flow.protocol(),
            address: flow.original.dst,
            port: flow.original.dport(),
        });
        group.entries += 1;
        let Some(reason) = reason else {
            return;
        };
        let refreshing = entry.refreshing == Refreshing::Yes;
        group.bad += 1;
        group.refreshing += u64::from(refreshing);
        group.unknown += u64::from(entry.refreshing == Refreshing::Unknown);
        group.misdelivered += u64::from(reason == Reason::Misdelivery);
        let connecting = flow.state.is_some_and(|state| state.is_connecting());
        group.connecting += u64::from(connecting);
        let judgement = entry.judgement.as_ref();
        group.last_endpoint += u64::from(judgement.is_some_and(|one| one.is_of_last_endpoint()));
        *group.reasons.entry(reason.name()).or_default() += 1;
        group.oldest = group.oldest.into_iter().chain(flow.start).min();
        if group.service.is_none() {
            group.service = entry.names.service.as_ref().and_then(example::service);
        }
        let urgent = refreshing || connecting || reason == Reason::Misdelivery;
        group.examples.push(entry, urgent);
    }

    /// Destinations with at least `least` reported entries, urgent ones first.
    pub fn from(&self, least: u64) -> Vec<(&Key, &Destination)> {
        let mut found: Vec<_> = self
            .0
            .iter()
            .filter(|(_, group)| group.bad >= least)
            .collect();
        found.sort_by_key(|(key, group)| {
            let urgency = (
                group.misdelivered,
                group.refreshing,
                group.connecting,
                group.bad,
            );
            (Reverse(urgency), **key)
        });
        found
    }
}

impl Destination {
    /// `kube-system/kube-dns:dns (10.96.0.10:53/udp)`
    pub fn name(&self, key: &Key) -> String {
        let place = format!("{}/{}", key.place(), example::protocol(key.protocol));
        match &self.service {
            Some(service) => format!("{service} ({place})"),
            None => place,
        }
    }

    /// The command that deletes the reported entries. Protocols other than UDP must be named, and so must the reason where no
    /// other endpoint could take the packets.
    pub fn purge(&self, key: &Key) -> String {
        let verdict = match self.last_endpoint == self.bad {
            true => "--reason endpoint-not-serving",
            false => "--stale",
        };
        format!("ctk purge {verdict}{}", self.selector(key))
    }

    /// ` --svc shop/web:dns`, ` --dst 10.96.0.10 --udp 53`; the protocol beside a Service only if it is not UDP.
    pub fn selector(&self, key: &Key) -> String {
        let protocol = match protocol_name(key.protocol) {
            Some(name @ ("udp" | "tcp" | "sctp")) => format!(" --{name}"),
            Some(name) => format!(" --proto {name}"),
            None => format!(" --proto {}", key.protocol),
        };
        match (&self.service, key.port) {
            (Some(service), _) if key.protocol == UDP => {
                format!(" --svc {}", example::shell_word(service))
            }
            (Some(service), _) => format!("{protocol} --svc {}", example::shell_word(service)),
            (None, Some(port)) if protocol.starts_with(" --proto") => {
                format!(" --dst {}{protocol} --dport {port}", key.address)
            }
            (None, Some(port)) => format!(" --dst {}{protocol} {port}", key.address),
            (None, None) => format!(" --dst {}{protocol}", key.address),
        }
    }

    /// Cause of stale entries: the endpoints of this Service or destination changed.
    pub fn cause(&self, key: &Key) -> String {
        let service = self
            .service
            .as_deref()
            .and_then(|name| name.rsplit_once(':'));
        let owner = service.map_or_else(|| key.address.to_string(), |(name, _)| name.to_owned());
        format!("endpoints of {owner}")
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
    pub fn evidence(&self, finding: Finding, what: &str, key: &Key, facts: &Facts<'_>) -> Finding {
        let reasons = self.reasons.iter();
        let reasons: Vec<Value> = reasons
            .map(|(reason, n)| json!({"reason": reason, "entries": n}))
            .collect();
        let since = self.oldest.and_then(age);
        let refreshing = facts.sampled.map(|_| self.refreshing);
        finding
            .with("service", self.service.clone())
            .with("destination", key.place())
            .with("entries", self.entries)
            .with(what, self.bad)
            .with("refreshing", refreshing)
            .with("refreshing_unknown", facts.sampled.map(|_| self.unknown))
            .with("oldest_seconds", since)
            .with("reasons", reasons)
            .examples(&self.examples)
    }
}

/// Seconds since a start, rounded down.
fn age(start: u64) -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.as_secs().saturating_sub(start / 1_000_000_000))
}
