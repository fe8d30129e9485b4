//! Destinations where entries without an answer accumulate, whoever has the address: a connection storm at an address that is
//! gone, or a flood of half-open connections.
//!
//! Entries count by the place that the packets go to. Other checks ask why one endpoint or one Pod's address is silent; this
//! one needs neither objects of a cluster nor counters of packets.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::doctor::example::{self, Examples};
use crate::doctor::expected_reply::expects_reply;
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::percent::{percent, rounded};
use crate::plural::count;
use crate::verdict::Verdict;
use ctnetlink::flow::Flow;

const NAME: &str = "unanswered";
const UDP: u8 = 17;
/// Upper bound of the clients that are told apart at one destination.
const MAX_CLIENTS: usize = 256;
/// An entry that got a packet, or was made, at most so many seconds ago is recent.
const RECENT_SECONDS: u32 = 10;

/// Protocol, address and port.
type Server = (u8, IpAddr, Option<u16>);

#[derive(Default)]
pub struct Unanswered {
    places: BoundedGroups<Server, UnansweredDestination>,
    /// Time of the first entry in nanoseconds since the Unix epoch.
    began: Option<u64>,
}

#[derive(Default)]
struct UnansweredDestination {
    service: Option<String>,
    translated: bool,
    entries: u64,
    /// Without any answer.
    unreplied: u64,
    /// Unanswered entries of protocols that always answer.
    due: u64,
    /// The server answered, and the client does not complete the handshake.
    half_open: u64,
    /// Entries that got a packet a short time ago, by what is left of their timers.
    refilled: u64,
    /// Entries whose timers do not tell that.
    refill_unknown: u64,
    /// Entries that were made a short time ago.
    made: u64,
    /// Entries without a start time.
    start_unknown: u64,
    /// Start of the oldest entry in nanoseconds since the Unix epoch.
    oldest: Option<u64>,
    clients: HashSet<IpAddr>,
    examples: Examples,
}

impl UnansweredDestination {
    fn waiting(&self) -> u64 {
        self.unreplied + self.half_open
    }

    fn clients(&self) -> String {
        let clients = count(self.clients.len() as u64, "client", "clients");
        match self.clients.len() < MAX_CLIENTS {
            true => clients,
            false => format!("{clients} or more"),
        }
    }

    fn refilled(&self) -> Option<u64> {
        (self.refill_unknown == 0).then_some(self.refilled)
    }

    fn made(&self) -> Option<u64> {
        (self.start_unknown == 0).then_some(self.made)
    }

    fn add(&mut self, entry: &Entry<'_>, facts: &Facts<'_>, now: u64) {
        let flow = &entry.flow;
        let due = expects_reply(flow);
        self.due += u64::from(due && flow.status.is_unreplied());
        match seconds_since_packet(flow, facts) {
            Some(seconds) => self.refilled += u64::from(seconds <= RECENT_SECONDS),
            None => self.refill_unknown += 1,
        }
        match flow.start {
            Some(start) => {
                let age = now.saturating_sub(start) / 1_000_000_000;
                self.made += u64::from(age <= u64::from(RECENT_SECONDS));
            }
            None => self.start_unknown += 1,
        }
        self.oldest = self.oldest.into_iter().chain(flow.start).min();
        self.translated |= flow.is_dnat();
        if self.clients.len() < MAX_CLIENTS {
            self.clients.insert(flow.original.src);
        }
        if self.service.is_none() {
            self.service = entry.names.service.as_ref().and_then(example::service);
        }
        self.examples.push(entry, due);
    }
}

impl Check for Unanswered {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "unanswered entries pile up"
    }

    fn looks_for(&self) -> &'static str {
        "Many unanswered or half-open entries to one destination, whoever has its address."
    }

    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let verdict = entry
            .judgement
            .as_ref()
            .map(|judgement| judgement.verdict());
        // Other checks report these, with their command.
        if verdict == Some(Verdict::Stale) {
            return;
        }
        let now = *self.began.get_or_insert_with(now);
        let place = (flow.protocol(), flow.reply.src, flow.reply.sport());
        let group = self.places.at(place);
        group.entries += 1;
        let half_open = flow.state.and_then(|state| state.name()) == Some("SYN_RECV");
        group.half_open += u64::from(half_open);
        group.unreplied += u64::from(flow.status.is_unreplied() && !half_open);
        if half_open || flow.status.is_unreplied() {
            group.add(entry, facts, now);
        }
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let all = self.places.iter();
        let mut found: Vec<_> = all
            .filter(|(_, group)| {
                let share = percent(group.waiting(), group.entries + self.places.missed());
                group.waiting() >= thresholds.unanswered_entries
                    && share.is_some_and(|share| share >= thresholds.silent_share as f64)
            })
            .collect();
        found.sort_by_key(|(place, group)| (Reverse(group.waiting()), **place));
        let finding = |(place, group): (&Server, &UnansweredDestination)| {
            self.finding(place, group, facts, thresholds)
        };
        found.into_iter().map(finding).collect()
    }
}

impl Unanswered {
    fn finding(
        &self,
        place: &Server,
        group: &UnansweredDestination,
        facts: &Facts<'_>,
        thresholds: &Thresholds,
    ) -> Finding {
        let (protocol, address, port) = *place;
        let (protocol, at) = (example::protocol(protocol), example::socket(address, port));
        let due = group.due + group.half_open;
        let (severity, note) = match due >= thresholds.unanswered_entries {
            true => (Severity::Warning, ""),
            false => (
                Severity::Info,
                "; healthy where the protocol has no answers, as syslog and statsd",
            ),
        };
        let share = percent(group.waiting(), facts.scan.scanned);
        let owner = owner(address, facts);
        let message = message(group, &at, &protocol, owner.as_deref(), share) + note;
        let cause = match group.translated {
            true => format!("silent {address}"),
            false => format!("address {address}"),
        };
        let age = group
            .oldest
            .zip(self.began)
            .map(|(oldest, now)| now.saturating_sub(oldest) / 1_000_000_000);
        Finding::new(NAME, severity, message)
            .with("destination", at)
            .with("protocol", protocol)
            .with("service", group.service.clone())
            .with("owner", owner)
            .with("entries", group.entries)
            .with("unreplied", group.unreplied)
            .with("half_open", group.half_open)
            .with("answer_due", due)
            .with("clients", group.clients.len())
            .with("clients_at_least", group.clients.len() >= MAX_CLIENTS)
            .with("recent_seconds", RECENT_SECONDS)
            .with("recently_sent_to", group.refilled())
            .with("recently_made", group.made())
            .with("oldest_seconds", age)
            .with("percent_of_table", share)
            .with("missed_at_most", self.places.missed())
            .examples(&group.examples)
            .because(cause)
            .help(format!(
                "who sends: ctk top --by client --unreplied --reply-src {address}; half-open entries: ctk ls --state \
                 syn_recv --reply-src {address}"
            ))
    }
}

fn message(
    group: &UnansweredDestination,
    at: &str,
    protocol: &str,
    owner: Option<&str>,
    share: Option<f64>,
) -> String {
    let mut kinds = Vec::new();
    if group.unreplied > 0 {
        kinds.push(format!("{} unanswered", group.unreplied));
    }
    if group.half_open > 0 {
        kinds.push(format!("{} half-open (SYN_RECV)", group.half_open));
    }
    let asked = group
        .service
        .as_ref()
        .map_or_else(String::new, |service| format!(" for {service}"));
    let mut message = format!(
        "{at}/{protocol}{asked}: {} of {}, from {}",
        kinds.join(" and "),
        count(group.entries, "entry", "entries"),
        group.clients()
    );
    if let Some(share) = share {
        message += &format!(", {} % of the table", rounded(share));
    }
    match (group.made(), group.refilled()) {
        (Some(made), _) => {
            message += &format!("; {made} made in the last {RECENT_SECONDS} s");
        }
        (None, Some(sent)) => {
            message += &format!("; {sent} got a packet in the last {RECENT_SECONDS} s");
        }
        (None, None) => {}
    }
    if let Some(owner) = owner {
        message += &format!("; {owner}");
    }
    message
}

/// Who has the address; `None` where that is not known.
fn owner(address: IpAddr, facts: &Facts<'_>) -> Option<String> {
    if facts.is_own(address) || facts.interface_of(address).is_some() {
        return Some("the address is this host's".to_owned());
    }
    let index = facts.index?;
    if let Some(pod) = index.pods_at(address).next() {
        return Some(format!("pod {}/{} has it", pod.namespace, pod.name));
    }
    if let Some(node) = index.node_at(address) {
        return Some(format!("node {} has it", node.name));
    }
    if !index.owners(address).is_empty() {
        return Some("it is an address of a Service".to_owned());
    }
    let known = index.pods_known_at(address) && index.owners_known(address);
    known.then(|| "no pod, Service or node has this address".to_owned())
}

/// Seconds since the timer was filled, which any packet does to an unanswered entry. `None` where the length of the timer is
/// not known, or is not the one that the entry got.
fn seconds_since_packet(flow: &Flow, facts: &Facts<'_>) -> Option<u32> {
    let name = match flow.state.and_then(|state| state.name()) {
        Some("SYN_SENT") => "tcp_timeout_syn_sent",
        Some("SYN_RECV") => "tcp_timeout_syn_recv",
        None if flow.protocol() == UDP => "udp_timeout",
        _ => return None,
    };
    let full = u32::try_from(*facts.stat.timeouts.get(name)?).ok()?;
    full.checked_sub(flow.timeout?)
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{flow, unreplied};
    use ctnetlink::flow::{ProtocolState, TcpDirection};

    const TCP: u8 = 6;
    const SYN_SENT: u8 = 1;
    const SYN_RECV: u8 = 2;
    const ESTABLISHED: u8 = 3;

    /// Entries of 40 clients: number, state and rest of the timer.
    fn seen(protocol: u8, entries: &[(u32, u8, u32)]) -> Vec<Finding> {
        let mut check = Unanswered::default();
        let mut facts = Facts::default();
        for (name, seconds) in [
            ("tcp_timeout_syn_sent", 120),
            ("tcp_timeout_syn_recv", 60),
            ("udp_timeout", 30),
        ] {
            facts.stat.timeouts.insert(name.to_owned(), seconds);
        }
        for (number, state, left) in entries {
            for n in 0..*number {
                let client = format!("10.0.0.{}:{}", n % 40 + 1, 1024 + n);
                let mut one = flow(protocol, &client, "10.9.9.9:8080", "10.9.9.9:8080");
                if protocol == TCP {
                    one.state = Some(ProtocolState::Tcp {
                        state: *state,
                        original: TcpDirection::default(),
                        reply: TcpDirection::default(),
                    });
                }
                if *state == SYN_SENT {
                    unreplied(&mut one);
                }
                one.timeout = Some(*left);
                check.observe(&Entry::bare(one), &facts);
            }
            facts.scan.scanned += u64::from(*number) * 2;
        }
        check.findings(&facts, &Thresholds::default())
    }

    #[test]
    fn a_flood_is_a_warning_where_answers_are_due_and_most_lack_them() {
        use Severity::{Info, Warning};
        type Case<'a> = (u8, &'a [(u32, u8, u32)], Option<Severity>);
        let cases: [Case; 7] = [
            (TCP, &[(400, SYN_SENT, 115)], Some(Warning)),
            (TCP, &[(100, SYN_SENT, 115)], Some(Warning)),
            (TCP, &[(99, SYN_SENT, 115)], None),
            (TCP, &[(400, SYN_RECV, 55)], Some(Warning)),
            // A busy server with connections that are being opened.
            (TCP, &[(400, SYN_RECV, 55), (4000, ESTABLISHED, 900)], None),
            (TCP, &[(400, ESTABLISHED, 900)], None),
            (UDP, &[(400, SYN_SENT, 25)], Some(Info)),
        ];
        for (protocol, entries, expected) in cases {
            let found = seen(protocol, entries);
            let severity = found.first().map(|finding| finding.severity);
            assert_eq!(severity, expected, "{protocol} {entries:?}");
        }
    }

    #[test]
    fn clients_share_and_recent_packets_are_counted_and_unknown_ones_are_null() {
        let found = seen(TCP, &[(300, SYN_SENT, 115), (100, SYN_SENT, 20)]);
        assert_eq!(
            found[0].message,
            "10.9.9.9:8080/tcp: 400 unanswered of 400 entries, from 40 clients, 50.0 % of the table; 300 got a packet in \
             the last 10 s"
        );
        let evidence = &found[0].evidence;
        assert_eq!(evidence["recently_sent_to"], 300);
        assert_eq!(evidence["recently_made"], serde_json::Value::Null);
        // A timer longer than the setting tells nothing.
        let found = seen(TCP, &[(300, SYN_SENT, 115), (100, SYN_SENT, 600)]);
        let sent = &found[0].evidence["recently_sent_to"];
        assert_eq!(*sent, serde_json::Value::Null);
    }
}
