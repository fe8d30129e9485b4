//! Packets that conntrack calls INVALID. They are not translated, and rules that drop them lose them; the counter does not
//! tell why a packet is INVALID, so the finding says which causes this node's settings and entries exclude or support.

use serde_json::Value;

use crate::doctor::example::Examples;
use crate::doctor::finding::unchanged_note;
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::plural::count;

const NAME: &str = "invalid";
const COUNTER: &str = "invalid";
const TCP: u8 = 6;

#[derive(Default)]
pub struct Invalid {
    /// Open TCP connections of which this node sees one direction only.
    one_sided: u64,
    examples: Examples,
}

impl Check for Invalid {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "INVALID packets"
    }

    fn looks_for(&self) -> &'static str {
        "Packets that belong to no connection, or break its rules, and the causes that the settings leave."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts
            .total(COUNTER)
            .is_none()
            .then_some("no counters of the kernel")
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let flow = &entry.flow;
        let opened = flow.state.is_some_and(|state| !state.is_connecting());
        if flow.protocol() == TCP && opened && flow.status.is_unreplied() {
            self.one_sided += 1;
            self.examples.push(entry, false);
        }
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let Some(total) = facts.total(COUNTER).filter(|total| *total > 0) else {
            return Vec::new();
        };
        let changes = facts.changes.as_ref();
        let more = changes.and_then(|changes| changes.counter(COUNTER));
        let likely = self.likely(facts);
        let causes = likely.join("; ");
        let finding = match (more, changes) {
            (Some(more), Some(changes)) if more >= thresholds.invalid_packets => {
                let message = format!(
                    "{} INVALID in {:.1} s: they are not translated, and rules that drop INVALID (as kube-proxy's for \
                     forwarded packets) lose them; {causes}",
                    count(more, "packet was", "packets were"),
                    changes.seconds
                );
                Finding::warning(NAME, message)
            }
            _ => {
                let recent = match more {
                    Some(more) if more > 0 => format!("; {more} while it was looked"),
                    more => unchanged_note(more).to_owned(),
                };
                let packets = count(total, "packet was", "packets were");
                let message = format!(
                    "{packets} INVALID since the namespace was made{recent}; a few are harmless, as late segments of closed \
                     connections; {causes}"
                );
                Finding::info(NAME, message)
            }
        };
        let settings = &facts.stat.settings;
        let likely: Vec<Value> = likely.into_iter().map(Value::from).collect();
        vec![
            finding
                .with("invalid", more)
                .with("invalid_total", total)
                .with("seconds", changes.map(|changes| changes.seconds))
                .with("tcp_be_liberal", settings.tcp_be_liberal)
                .with("tcp_loose", settings.tcp_loose)
                .with("checksum", settings.checksum)
                .with(
                    "early_drop",
                    changes.and_then(|one| one.counter("early_drop")),
                )
                .with("one_sided", self.one_sided)
                .with("causes", likely)
                .examples(&self.examples)
                .help(help(facts)),
        ]
    }
}

impl Invalid {
    /// One clause a cause: supported, possible or excluded by what is known of the node.
    fn likely(&self, facts: &Facts<'_>) -> Vec<String> {
        let settings = &facts.stat.settings;
        let mut causes = Vec::new();
        if self.one_sided > 0 {
            causes.push(format!(
                "asymmetric routes are likely: of {} only one direction passes here",
                count(
                    self.one_sided,
                    "open TCP connection",
                    "open TCP connections"
                )
            ));
        }
        let filtered = facts.changes.as_ref().and_then(|changes| changes.filtered);
        if let Some(filtered) = filtered.filter(|filtered| *filtered > 0) {
            causes.push(format!(
                "the reverse-path filter dropped {}, so routes are asymmetric",
                count(filtered, "packet", "packets")
            ));
        }
        let evicted = facts.total("early_drop").filter(|evicted| *evicted > 0);
        if let Some(evicted) = evicted {
            causes.push(format!(
                "the table forgot connections: {} pushed out (early_drop)",
                count(evicted, "entry was", "entries were")
            ));
        }
        causes.push(
            match settings.tcp_loose {
                Some(0) => {
                    "packets of connections that have no entry are INVALID, as tcp_loose is 0"
                }
                _ => "a RST or SYN-ACK after its entry timed out is INVALID",
            }
            .to_owned(),
        );
        causes.push(
            match settings.tcp_be_liberal {
                Some(0) => "segments out of the TCP window are INVALID, as tcp_be_liberal is 0",
                Some(_) => "it is not the TCP window, as tcp_be_liberal is 1",
                None => {
                    "segments out of the TCP window may be INVALID; tcp_be_liberal is not known"
                }
            }
            .to_owned(),
        );
        causes.push(
            match settings.checksum {
                Some(0) => "it is no bad checksum, as nf_conntrack_checksum is 0",
                Some(_) => "bad checksums are INVALID, as nf_conntrack_checksum is 1",
                None => "bad checksums may be INVALID; nf_conntrack_checksum is not known",
            }
            .to_owned(),
        );
        causes
    }
}

fn help(facts: &Facts<'_>) -> String {
    let liberal = match facts.stat.settings.tcp_be_liberal {
        Some(1) => "",
        _ => "; against losses by the window: net.netfilter.nf_conntrack_tcp_be_liberal=1",
    };
    format!(
        "net.netfilter.nf_conntrack_log_invalid=255 logs each with its reason (6: TCP only){liberal}; asymmetric routes: \
         route both directions through this node, or do not track them (notrack)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::testing::{counted, flow, unreplied};
    use ctnetlink::flow::{ProtocolState, TcpDirection};

    fn found(check: &Invalid, facts: &Facts<'_>) -> Option<Finding> {
        check.findings(facts, &Thresholds::default()).pop()
    }

    #[test]
    fn growth_decides_the_severity_and_unknown_counters_give_nothing() {
        for (before, more, expected) in [
            (7, 50, Some(Severity::Warning)),
            (7, 49, Some(Severity::Info)),
            (7, 0, Some(Severity::Info)),
            (0, 0, None),
        ] {
            let facts = counted(&[(COUNTER, before)], &[(COUNTER, more)]);
            let severity = found(&Invalid::default(), &facts).map(|finding| finding.severity);
            assert_eq!(severity, expected, "{before} {more}");
        }
        assert_eq!(found(&Invalid::default(), &Facts::default()), None);
    }

    #[test]
    fn settings_exclude_causes_and_entries_support_them() {
        let mut facts = counted(&[(COUNTER, 7), ("early_drop", 3)], &[(COUNTER, 90)]);
        facts.stat.settings.tcp_be_liberal = Some(1);
        facts.stat.settings.checksum = Some(1);
        let mut check = Invalid::default();
        let text = found(&check, &facts).unwrap().message;
        for part in [
            "it is not the TCP window",
            "bad checksums are INVALID",
            "3 entries were pushed out",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("asymmetric"), "{text}");
        let mut one = flow(6, "10.0.0.1:4000", "10.9.9.9:80", "10.9.9.9:80");
        unreplied(&mut one);
        one.state = Some(ProtocolState::Tcp {
            state: 3,
            original: TcpDirection::default(),
            reply: TcpDirection::default(),
        });
        check.observe(&Entry::bare(one), &facts);
        facts.stat.settings.tcp_be_liberal = Some(0);
        let finding = found(&check, &facts).unwrap();
        assert!(
            finding
                .message
                .contains("asymmetric routes are likely: of 1 open TCP connection only"),
            "{finding:?}"
        );
        assert!(finding.message.contains("as tcp_be_liberal is 0"));
        assert!(finding.help.unwrap().contains("tcp_be_liberal=1"));
    }
}
