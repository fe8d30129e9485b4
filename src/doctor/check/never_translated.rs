//! UDP entries to a Service that were never translated: they are older than the rules and were kept alive since. Entries
//! for which a delete does not help are reported separately.

use crate::doctor::destinations::{Destination, Destinations, Key};
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::filter::protocol::UDP;
use crate::verdict::{Reason, Verdict};

const NAME: &str = "never-translated";

#[derive(Default)]
pub struct NeverTranslated {
    stale: Destinations,
    pending: Destinations,
}

impl Check for NeverTranslated {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "UDP entries without translation"
    }

    fn looks_for(&self) -> &'static str {
        "UDP entries to a Service that were created before its rules; critical if their clients keep refreshing them."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts.lacks_verdicts()
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        if entry.flow.protocol() != UDP {
            return;
        }
        let reason = entry.judgement.as_ref().map(|judgement| judgement.reason);
        self.stale
            .observe(entry, reason.filter(|r| *r == Reason::NoDnat));
        let pending = reason.filter(|r| r.verdict() == Verdict::Pending);
        if pending.is_some() {
            self.pending.observe(entry, pending);
        }
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let stale = self.stale.from(thresholds.stale_entries).into_iter();
        let stale = stale.map(|(key, group)| {
            let message = format!(
                "{}: {} never translated, though a new packet would be{}",
                group.name(key),
                group.share(),
                group.alive(facts)
            );
            let severity = match group.refreshing > 0 {
                true => Severity::Critical,
                false => Severity::Warning,
            };
            group
                .evidence(
                    Finding::new(NAME, severity, message),
                    "never_translated",
                    key,
                    facts,
                )
                .help(format!("ctk purge --reason no-dnat{}", group.selector(key)))
        });
        let pending = self.pending.from(thresholds.stale_entries).into_iter();
        let pending = pending.map(|(key, group)| pending_finding(key, group, facts));
        stale.chain(pending).collect()
    }
}

fn pending_finding(key: &Key, group: &Destination, facts: &Facts<'_>) -> Finding {
    let message = format!(
        "{}: {} not translated, and a new packet would not be either ({})",
        group.name(key),
        crate::plural::count(group.bad, "entry", "entries"),
        group.reasons()
    );
    group
        .evidence(Finding::info(NAME, message), "pending", key, facts)
        .help("give the Service an endpoint, or see whether kube-proxy runs on this node; deleting them would not help yet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{judged, udp};

    #[test]
    fn three_of_four_senders_to_a_node_port_were_never_translated() {
        let vip = "203.0.113.77:31514";
        let mut check = NeverTranslated::default();
        let facts = Facts::default();
        for n in 90..=92 {
            let flow = udp(&format!("198.51.100.{n}:7000"), vip, vip);
            let mut entry = judged(flow, Reason::NoDnat);
            entry.names.service = Some(crate::doctor::testing::service("syslog"));
            check.observe(&entry, &facts);
        }
        let healthy = udp("198.51.100.93:7000", vip, "10.244.1.6:514");
        let mut healthy = judged(healthy, Reason::Endpoint);
        healthy.names.service = Some(crate::doctor::testing::service("syslog"));
        check.observe(&healthy, &facts);
        let pending = udp("198.51.100.93:7000", "10.96.0.9:514", "10.96.0.9:514");
        check.observe(&judged(pending, Reason::NoDnatNoEndpoint), &facts);
        let found = check.findings(&facts, &Thresholds::default());
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(
            found[0]
                .message
                .contains("203.0.113.77:31514/udp): 3 of 4 entries"),
            "{}",
            found[0].message
        );
        assert_eq!(found[0].evidence["refreshing"], serde_json::Value::Null);
        assert_eq!(found[1].severity, Severity::Info);
        assert_eq!(found[1].evidence["pending"], 1);
    }
}
