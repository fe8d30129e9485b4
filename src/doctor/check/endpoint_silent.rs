//! Endpoints that do not answer: entries without a reply accumulate at one while its neighbours answer.
//!
//! UDP without answers may be healthy (syslog, statsd, sFlow). It is a warning only when other endpoints of the Service
//! answer, or when the protocol of the port always answers. An earlier answer is no proof: a protocol may greet and be
//! one-way afterwards.

mod bridged;

use std::cmp::Reverse;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::doctor::example::{self, Examples};
use crate::doctor::expected_reply::ANSWERED_BY_DESIGN;
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::percent::percent;
use crate::plural::count;
use crate::verdict::{Refreshing, Replies, Verdict};
use ctk_cluster::index::PortId;

const NAME: &str = "endpoint-silent";
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Destination of a client's packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum SilentTarget {
    Service(PortId),
    /// Destination without a known Service.
    Destination(u8, IpAddr, Option<u16>),
}

type Backend = (IpAddr, Option<u16>);

#[derive(Default)]
pub struct EndpointSilent(BoundedGroups<(SilentTarget, Backend), SilentEndpoint>);

#[derive(Default)]
struct SilentEndpoint {
    /// Service or destination of the clients.
    asked: String,
    protocol: u8,
    pod: Option<String>,
    /// Destination port of the clients.
    port: Option<u16>,
    entries: u64,
    unreplied: u64,
    /// Entries that were answered earlier and are not any more.
    stopped: u64,
    refreshing: u64,
    /// Silent entries whose answers may pass a bridge only.
    bridged: u64,
    examples: Examples,
}

impl SilentEndpoint {
    fn silent(&self) -> u64 {
        self.unreplied + self.stopped
    }

    fn answered(&self) -> u64 {
        self.entries.saturating_sub(self.silent())
    }

    /// Severity, and an addition to the sentence. `neighbours_answer`: most entries at the other endpoints are answered;
    /// `missed`: entries that the group may lack ([`BoundedGroups::missed`]); `least_share`: percent of silent entries.
    fn assess(
        &self,
        neighbours_answer: bool,
        missed: u64,
        least_share: u64,
    ) -> (Severity, &'static str) {
        let by_design = self
            .port
            .is_some_and(|port| ANSWERED_BY_DESIGN.contains(&port));
        let is_wrong = self.protocol == TCP || neighbours_answer || by_design;
        // A group that was dropped and made anew lacks its earlier, possibly answered entries.
        let sure = percent(self.silent(), self.entries + missed)
            .is_some_and(|share| share >= least_share as f64);
        if !is_wrong {
            let note = "; healthy where the protocol has no answers, as syslog and statsd";
            (Severity::Info, note)
        } else if !sure {
            let note =
                "; others may have been answered, as there are more endpoints than are told apart";
            (Severity::Info, note)
        } else if neighbours_answer {
            (Severity::Warning, "; other endpoints answer")
        } else {
            (Severity::Warning, "")
        }
    }
}

impl Check for EndpointSilent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "endpoint that does not answer"
    }

    fn looks_for(&self) -> &'static str {
        "One endpoint that does not reply, while others do."
    }

    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let verdict = entry
            .judgement
            .as_ref()
            .map(|judgement| judgement.verdict());
        // Other checks report endpoints that are gone.
        let gone = verdict.is_some_and(|v| {
            matches!(
                v,
                Verdict::Stale | Verdict::Suspect | Verdict::Pending | Verdict::Detached
            )
        });
        if !matches!(flow.protocol(), TCP | UDP) || !flow.is_dnat() || gone {
            return;
        }
        let (protocol, port) = (flow.protocol(), flow.original.dport());
        let target = match entry.names.matched.ports().next() {
            Some((port, _)) => SilentTarget::Service(port),
            None => SilentTarget::Destination(protocol, flow.original.dst, port),
        };
        let backend = (flow.reply.src, flow.reply.sport());
        let group = self.0.at((target, backend));
        if group.entries == 0 {
            let service = entry.names.service.as_ref().and_then(example::service);
            let destination = || example::socket(flow.original.dst, port);
            group.asked = service.unwrap_or_else(destination);
            group.protocol = protocol;
        }
        let (unreplied, stopped) = (
            flow.status.is_unreplied(),
            entry.replies == Replies::Stopped,
        );
        group.entries += 1;
        group.unreplied += u64::from(unreplied);
        group.stopped += u64::from(stopped && !unreplied);
        group.port = port;
        if unreplied || stopped {
            let refreshing = entry.refreshing == Refreshing::Yes;
            group.refreshing += u64::from(refreshing);
            group.bridged += u64::from(bridged::may_bypass(flow, facts));
            group.examples.push(entry, refreshing);
            if group.pod.is_none() {
                let party = entry.names.endpoint.map(|endpoint| endpoint.party);
                group.pod = party.and_then(example::party);
            }
        }
    }

    fn findings(&self, _: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let mut found: Vec<_> = self
            .0
            .iter()
            .filter(|(_, endpoint)| {
                let share = percent(endpoint.silent(), endpoint.entries);
                endpoint.silent() >= thresholds.silent_entries
                    && share.is_some_and(|share| share >= thresholds.silent_share as f64)
            })
            .collect();
        found.sort_by(|(a, one), (b, other)| {
            (Reverse(one.silent()), a).cmp(&(Reverse(other.silent()), b))
        });
        let finding =
            |((target, backend), endpoint): (&(SilentTarget, Backend), &SilentEndpoint)| {
                self.finding(target, backend, endpoint, thresholds.silent_share)
            };
        found.into_iter().map(finding).collect()
    }
}

impl EndpointSilent {
    fn finding(
        &self,
        target: &SilentTarget,
        backend: &Backend,
        endpoint: &SilentEndpoint,
        least_share: u64,
    ) -> Finding {
        let others = || {
            self.0
                .iter()
                .filter(|((of, at), _)| of == target && at != backend)
                .map(|((_, at), other)| (at, other))
        };
        let answered: u64 = others().map(|(_, other)| other.answered()).sum();
        let silent: u64 = others().map(|(_, other)| other.silent()).sum();
        let missed = self.0.missed();
        let (severity, note) = endpoint.assess(answered > silent, missed, least_share);
        let at = example::socket(backend.0, backend.1);
        let name = match &endpoint.pod {
            Some(pod) => format!("{pod} ({at})"),
            None => at.clone(),
        };
        let protocol = example::protocol(endpoint.protocol);
        let message = format!(
            "{name} does not answer for {}/{protocol}: {} of {} without a reply{note}",
            endpoint.asked,
            endpoint.silent(),
            count(endpoint.entries, "entry", "entries"),
        ) + &bridged::note(endpoint.bridged);
        let neighbours: Vec<Value> = others()
            .take(8)
            .map(|(at, other)| {
                let silent = other.silent();
                json!({"endpoint": example::socket(at.0, at.1), "entries": other.entries, "unanswered": silent})
            })
            .collect();
        Finding::new(NAME, severity, message)
            .with("service", endpoint.asked.as_str())
            .with("protocol", protocol)
            .with("endpoint", at)
            .with("pod", endpoint.pod.clone())
            .with("entries", endpoint.entries)
            .with("unreplied", endpoint.unreplied)
            .with("stopped", endpoint.stopped)
            .with("missed_at_most", missed)
            .with("others", neighbours)
            .examples(&endpoint.examples)
            .because(format!("silent {}", backend.0))
            .with("bridged", endpoint.bridged)
            .help(format!(
                "{}see whether it listens and answers: ctk ls --reply-src {}",
                bridged::help(endpoint.bridged),
                backend.0
            ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{flow, unreplied};

    fn seen(protocol: u8, port: u16, endpoints: &[(&str, usize, usize)]) -> Vec<Finding> {
        let mut check = EndpointSilent::default();
        let facts = Facts::default();
        let mut client = 10_000;
        for (endpoint, answered, silent) in endpoints {
            for n in 0..answered + silent {
                client += 1;
                let (from, to) = (format!("10.0.0.1:{client}"), format!("10.96.0.10:{port}"));
                let mut flow = flow(protocol, &from, &to, &format!("{endpoint}:{port}"));
                if n >= *answered {
                    unreplied(&mut flow);
                }
                check.observe(&Entry::bare(flow), &facts);
            }
        }
        check.findings(&facts, &Thresholds::default())
    }

    #[test]
    fn silence_is_a_warning_only_where_an_answer_is_expected() {
        use Severity::{Info, Warning};
        type Case<'a> = (u8, u16, &'a [(&'a str, usize, usize)], Option<Severity>);
        let cases: [Case; 8] = [
            (
                UDP,
                8125,
                &[("10.1.0.1", 0, 9), ("10.1.0.2", 7, 0)],
                Some(Warning),
            ),
            (UDP, 53, &[("10.1.0.1", 0, 9)], Some(Warning)),
            // statsd: no endpoint ever answers.
            (
                UDP,
                8125,
                &[("10.1.0.1", 0, 9), ("10.1.0.2", 0, 3)],
                Some(Info),
            ),
            (UDP, 8125, &[("10.1.0.1", 0, 9)], Some(Info)),
            (TCP, 80, &[("10.1.0.1", 0, 9)], Some(Warning)),
            // Too few, and too small a share.
            (UDP, 53, &[("10.1.0.1", 0, 4), ("10.1.0.2", 9, 0)], None),
            (UDP, 53, &[("10.1.0.1", 5, 5)], None),
            (TCP, 80, &[("10.1.0.1", 90, 1)], None),
        ];
        for (protocol, port, endpoints, severity) in cases {
            let found = seen(protocol, port, endpoints);
            let severities: Vec<_> = found.iter().map(|f| f.severity).collect();
            assert_eq!(
                severities,
                Vec::from_iter(severity),
                "{protocol} {port} {endpoints:?}"
            );
        }
    }

    #[test]
    fn one_way_traffic_after_a_greeting_is_only_information() {
        for (neighbours, severity) in [(0, Severity::Info), (9, Severity::Warning)] {
            let mut check = EndpointSilent::default();
            for n in 0..9 + neighbours {
                let leads_to = if n < 9 {
                    "10.1.0.1:6343"
                } else {
                    "10.1.0.2:6343"
                };
                let client = format!("10.0.0.1:{}", 4000 + n);
                let mut entry = Entry::bare(flow(17, &client, "10.96.0.9:6343", leads_to));
                if n < 9 {
                    entry.replies = Replies::Stopped;
                }
                check.observe(&entry, &Facts::default());
            }
            let neighbours_say = check.findings(&Facts::default(), &Thresholds::default());
            assert_eq!(neighbours_say[0].severity, severity);
            assert_eq!(neighbours_say[0].evidence["stopped"], 9);
        }
    }

    #[test]
    fn one_answering_neighbour_among_many_silent_ones_is_not_mentioned() {
        let found = seen(
            TCP,
            80,
            &[("10.1.0.1", 0, 9), ("10.1.0.2", 0, 50), ("10.1.0.3", 1, 0)],
        );
        assert!(
            !found[0].message.contains("other endpoints answer"),
            "{found:?}"
        );
    }

    #[test]
    fn a_group_that_may_lack_entries_is_no_warning() {
        let mut check = EndpointSilent::default();
        let facts = Facts::default();
        let one = |n: u32, silent: bool| {
            let to = format!("10.{}.{}.{}:80", 1 + (n >> 16), (n >> 8) & 255, n & 255);
            let mut flow = flow(TCP, "10.0.0.1:4000", "10.96.0.9:80", &to);
            if silent {
                unreplied(&mut flow);
            }
            Entry::bare(flow)
        };
        for n in 0..30_000 {
            check.observe(&one(n, false), &facts);
        }
        for _ in 0..5 {
            check.observe(&one(100_000, true), &facts);
        }
        let found = check.findings(&facts, &Thresholds::default());
        assert_eq!(found[0].severity, Severity::Info, "{found:?}");
        assert_eq!(found[0].evidence["missed_at_most"], 3);
    }

    #[test]
    fn the_silent_endpoint_is_named_with_its_numbers() {
        let found = seen(UDP, 53, &[("10.1.0.1", 1, 9), ("10.1.0.2", 7, 0)]);
        assert_eq!(
            found[0].message,
            "10.1.0.1:53 does not answer for 10.96.0.10:53/udp: 9 of 10 entries without a reply; other endpoints answer"
        );
        assert_eq!(found[0].evidence["unreplied"], 9);
        assert_eq!(found[0].evidence["others"][0]["entries"], 7);
    }
}
