//! Flows whose translated source address no interface of this host has: the address was removed or changed, as after a new
//! lease or a failover, and their packets still leave with it. The kernel removes masqueraded entries when it sees the
//! address go; `SNAT` entries and those that it missed stay.
//!
//! An address may also be routed to this host without being on an interface. Answers tell the two apart.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::doctor::example::Examples;
use crate::doctor::expected_reply::expects_reply;
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::percent::percent;
use crate::plural::count;
use crate::verdict::Replies;

const NAME: &str = "lost-source";

#[derive(Default)]
pub struct LostSource(BoundedGroups<IpAddr, DeadSource>);

#[derive(Default)]
struct DeadSource {
    entries: u64,
    /// Entries that lack an answer which is due, or that are not answered any more.
    silent: u64,
    examples: Examples,
}

impl Check for LostSource {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "source address that this host lacks"
    }

    fn looks_for(&self) -> &'static str {
        "Flows translated to a source address that no interface of this host has."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts
            .local
            .is_none()
            .then_some("no addresses of interfaces")
    }

    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let source = flow.reply.dst;
        if source == flow.original.src || facts.local.is_none() || has_owner(source, facts) {
            return;
        }
        let group = self.0.at(source);
        let unreplied = flow.status.is_unreplied() && expects_reply(flow);
        let silent = unreplied || entry.replies == Replies::Stopped;
        group.entries += 1;
        group.silent += u64::from(silent);
        group.examples.push(entry, silent);
    }

    fn findings(&self, _: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let mut found: Vec<_> = self.0.iter().collect();
        found.sort_by_key(|(source, group)| (Reverse(group.entries), **source));
        let finding = |(source, group): (&IpAddr, &DeadSource)| {
            let share = percent(group.silent, group.entries + self.0.missed());
            let silent = group.silent >= thresholds.silent_entries
                && share.is_some_and(|share| share >= thresholds.silent_share as f64);
            finding(*source, group, silent)
        };
        found.into_iter().map(finding).collect()
    }
}

fn finding(source: IpAddr, group: &DeadSource, silent: bool) -> Finding {
    let (severity, cause) = match silent {
        true => (
            Severity::Warning,
            "the address was removed, and answers do not come back",
        ),
        false => (
            Severity::Info,
            "the address was removed, or it is routed to this host without being on an interface",
        ),
    };
    let message = format!(
        "{} with the source {source}, which no interface of this host has, {} of them without an answer; {cause}",
        count(group.entries, "flow leaves", "flows leave"),
        group.silent,
    );
    Finding::new(NAME, severity, message)
        .with("source", source.to_string())
        .with("entries", group.entries)
        .with("silent", group.silent)
        .examples(&group.examples)
        .because(format!("source {source}"))
        .help(format!(
            "if the address is gone, delete these, so that the next packet gets the new one: ctk purge --snat --reply-dst \
             {source}"
        ))
}

/// Whether this host, another node, a Pod or a Service has the address.
fn has_owner(address: IpAddr, facts: &Facts<'_>) -> bool {
    let is_known = facts.index.is_some_and(|index| {
        index.node_at(address).is_some()
            || index.pods_at(address).next().is_some()
            || !index.owners(address).is_empty()
    });
    is_known
        || address.is_loopback()
        || facts.interface_of(address).is_some()
        || facts.is_own(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{flow, tuple, unreplied};
    use ctnetlink::rtnetlink::LocalAddress;

    const TCP: u8 = 6;

    /// Flows to this source, of which some lack an answer.
    fn seen(source: &str, flows: u16, silent: u16, local: Option<&str>) -> Option<Severity> {
        let facts = Facts {
            local: local.map(|network| {
                vec![LocalAddress {
                    interface: "eth0".to_owned(),
                    network: network.parse().unwrap(),
                }]
            }),
            ..Facts::default()
        };
        let mut check = LostSource::default();
        for n in 0..flows {
            let client = format!("10.0.0.1:{}", 4000 + n);
            let mut one = flow(TCP, &client, "198.51.100.7:443", "198.51.100.7:443");
            one.reply = tuple(TCP, "198.51.100.7:443", &format!("{source}:{}", 4000 + n));
            if n < silent {
                unreplied(&mut one);
            }
            check.observe(&Entry::bare(one), &facts);
        }
        let found = check.findings(&facts, &Thresholds::default());
        found.first().map(|finding| finding.severity)
    }

    #[test]
    fn a_source_of_no_interface_is_found_and_silence_makes_it_a_warning() {
        use Severity::{Info, Warning};
        let own = Some("192.0.2.11/24");
        for (source, flows, silent, local, expected) in [
            ("192.0.2.12", 9, 9, own, Some(Warning)),
            ("192.0.2.12", 9, 0, own, Some(Info)),
            ("192.0.2.12", 4, 4, own, Some(Info)),
            ("192.0.2.11", 9, 9, own, None),
            // Not translated.
            ("10.0.0.1", 9, 9, own, None),
            ("192.0.2.12", 9, 9, None, None),
        ] {
            let severity = seen(source, flows, silent, local);
            assert_eq!(severity, expected, "{source} {flows} {silent} {local:?}");
        }
    }
}
