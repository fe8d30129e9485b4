//! Settings of the kernel that hide evidence from other checks and commands.

use crate::doctor::{Check, Facts, Finding, Thresholds};

const NAME: &str = "settings";

#[derive(Default)]
pub struct Settings;

impl Check for Settings {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "settings that hide evidence"
    }

    fn looks_for(&self) -> &'static str {
        "Kernel settings that hide evidence."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let settings = &facts.stat.settings;
        let known = [settings.acct, settings.timestamp, settings.events];
        known
            .iter()
            .any(Option::is_none)
            .then_some("not every setting")
    }

    fn findings(&self, facts: &Facts<'_>, _: &Thresholds) -> Vec<Finding> {
        let settings = &facts.stat.settings;
        let hides = [
            (
                "acct",
                settings.acct,
                0,
                1,
                "entries count no packets and bytes, so who answers, and who sends most, is not known; it counts for new entries only",
            ),
            (
                "timestamp",
                settings.timestamp,
                0,
                1,
                "entries have no start time, so their age is not known; it holds for new entries only",
            ),
            (
                "events",
                settings.events,
                0,
                1,
                "the kernel sends no events, so a watch sees what it happens to look at",
            ),
            (
                "events",
                settings.events,
                2,
                1,
                "entries that are older than the first listener send no events, so a watch sees no end of these",
            ),
        ];
        let hides = hides.into_iter().filter(|hide| hide.1 == Some(hide.2));
        hides
            .map(|(name, value, _, better, hidden)| {
                Finding::info(
                    NAME,
                    format!("nf_conntrack_{name} is {}: {hidden}", value.unwrap_or(0)),
                )
                .with("setting", format!("net.netfilter.nf_conntrack_{name}"))
                .with("value", value)
                .because(NAME)
                .help(format!(
                    "sysctl -w net.netfilter.nf_conntrack_{name}={better}"
                ))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    #[test]
    fn each_setting_that_hides_evidence_is_reported_and_no_other() {
        let mut facts = Facts::default();
        assert!(Settings.findings(&facts, &Thresholds::default()).is_empty());
        for (acct, timestamp, events, expected) in [
            (1, 1, 1, &[][..]),
            (0, 1, 1, &["nf_conntrack_acct is 0"]),
            (
                1,
                0,
                0,
                &["nf_conntrack_timestamp is 0", "nf_conntrack_events is 0"],
            ),
            (1, 1, 2, &["nf_conntrack_events is 2"]),
        ] {
            facts.stat.settings.acct = Some(acct);
            facts.stat.settings.timestamp = Some(timestamp);
            facts.stat.settings.events = Some(events);
            let found = Settings.findings(&facts, &Thresholds::default());
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (finding, start) in found.iter().zip(expected) {
                assert!(finding.message.starts_with(start), "{finding:?}");
                assert_eq!(finding.severity, Severity::Info);
            }
        }
    }
}
