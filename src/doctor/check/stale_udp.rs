//! UDP entries that still lead to an endpoint that is gone. Entries that are kept alive come first, as they never end.

use crate::doctor::destinations::{Destination, Destinations};
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::filter::protocol::UDP;
use crate::verdict::{Reason, Verdict};

const NAME: &str = "stale-udp";

#[derive(Default)]
pub struct StaleUdp(Destinations);

impl Check for StaleUdp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "stale UDP entries"
    }

    fn looks_for(&self) -> &'static str {
        "UDP entries that lead to an endpoint that is gone; critical if their clients keep refreshing them."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts.lacks_verdicts()
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let reason = entry.judgement.as_ref().map(|judgement| judgement.reason);
        // The check `never-translated` reports untranslated entries.
        let stale = reason.filter(|r| r.verdict() == Verdict::Stale && *r != Reason::NoDnat);
        if entry.flow.protocol() != UDP {
            return;
        }
        self.0.observe(entry, stale);
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let found = self.0.from(thresholds.stale_entries).into_iter();
        let finding = |(key, group): (&_, &Destination)| {
            let message = format!(
                "{}: {} stale ({}){}",
                group.name(key),
                group.share(),
                group.reasons(),
                group.alive(facts)
            );
            // A wrong Pod answers, or the flow does not recover by itself.
            let severity = match group.misdelivered > 0 || group.refreshing > 0 {
                true => Severity::Critical,
                false => Severity::Warning,
            };
            group
                .evidence(Finding::new(NAME, severity, message), "stale", key, facts)
                .because(group.cause(key))
                .help(group.purge(key))
        };
        found.map(finding).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doctor::testing::{judged, udp};
    use crate::verdict::Refreshing;

    #[test]
    fn stale_entries_are_counted_among_those_of_their_destination() {
        let mut check = StaleUdp::default();
        let facts = Facts {
            sampled: Some(Duration::from_secs(6)),
            ..Facts::default()
        };
        for n in 1..=4u8 {
            let flow = udp(&format!("10.0.0.{n}:4000"), "10.96.0.10:53", "10.1.0.7:53");
            let reason = if n < 4 {
                Reason::EndpointGone
            } else {
                Reason::Endpoint
            };
            let mut entry = judged(flow, reason);
            entry.names.service = Some(crate::doctor::testing::service("dns"));
            entry.refreshing = match n {
                2 => Refreshing::Yes,
                _ => Refreshing::No,
            };
            check.observe(&entry, &facts);
        }
        let found = check.findings(&facts, &Thresholds::default());
        assert_eq!(found.len(), 1);
        let finding = &found[0];
        assert_eq!(finding.severity, Severity::Critical);
        assert_eq!(
            finding.message,
            "shop/web:dns (10.96.0.10:53/udp): 3 of 4 entries stale (endpoint-gone 3); 1 is kept alive by clients that go on sending"
        );
        assert_eq!(finding.evidence["stale"], 3);
        assert_eq!(finding.evidence["refreshing"], 1);
        assert!(
            finding.evidence["examples"][0]
                .as_str()
                .unwrap()
                .contains("10.0.0.2:4000")
        );
        assert_eq!(
            finding.help.as_deref(),
            Some("ctk purge --stale --svc shop/web:dns")
        );
        let patient = Thresholds {
            stale_entries: 4,
            ..Thresholds::default()
        };
        assert!(check.findings(&facts, &patient).is_empty());
    }
}
