//! The cloud's limit of tracked connections: beyond it packets are lost before this machine receives them, and its own
//! table shows nothing of it.

use crate::doctor::finding::unchanged_note;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::plural::count;
use crate::stat::ConntrackAllowance as Known;

const NAME: &str = "allowance";

#[derive(Default)]
pub struct Allowance;

impl Check for Allowance {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "limit of the cloud"
    }

    fn looks_for(&self) -> &'static str {
        "Packets that the cloud drops, because the machine tracks too many connections."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let known = facts.stat.interfaces.as_ref();
        known
            .is_none_or(Vec::is_empty)
            .then_some("no driver with this counter")
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let known = facts.stat.interfaces.iter().flatten();
        known
            .filter_map(|one| {
                let exceeded = facts
                    .changes
                    .as_ref()
                    .and_then(|changes| changes.exceeded(&one.interface));
                finding(one, exceeded, facts, thresholds)
            })
            .collect()
    }
}

/// `exceeded` is the number of packets since the first reading.
fn finding(
    one: &Known,
    exceeded: Option<u64>,
    facts: &Facts<'_>,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let interface = &one.interface;
    let packets = |n| count(n, "packet was", "packets were");
    let total = one.exceeded.unwrap_or(0);
    let (severity, message) = if let Some(more) = exceeded.filter(|n| *n > 0) {
        let seconds = facts
            .changes
            .as_ref()
            .map_or(0.0, |changes| changes.seconds);
        let message = format!(
            "{interface}: {} dropped in {seconds:.1} s because the instance tracks more connections than its type allows",
            packets(more)
        );
        (Severity::Critical, message)
    } else if let Some(left) = one
        .available
        // A driver may have the counter without support for it: both values are 0 forever then.
        .filter(|left| *left <= thresholds.allowance_left && (*left > 0 || total > 0))
    {
        let left = count(left, "connection", "connections");
        let message = format!(
            "{interface}: the cloud tracks {left} more for this instance, then it drops packets"
        );
        (Severity::Warning, message)
    } else if total > 0 {
        let message = format!(
            "{interface}: {} dropped since its driver was loaded, because the instance tracked more connections than its type \
             allows{}",
            packets(total),
            unchanged_note(exceeded)
        );
        (Severity::Info, message)
    } else {
        return None;
    };
    let finding = Finding::new(NAME, severity, message)
        .with("interface", interface.as_str())
        .with("conntrack_allowance_exceeded", exceeded)
        .with("conntrack_allowance_exceeded_total", one.exceeded)
        .with("conntrack_allowance_available", one.available);
    Some(finding.help(
        "a larger instance type, fewer or longer connections, or security groups that need no tracking (any source to any port)",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::counted;

    #[test]
    fn recent_packet_losses_are_more_severe_than_old_ones() {
        for (total, more, available, expected) in [
            (Some(5012), Some(12), Some(0), Some(Severity::Critical)),
            (Some(5012), Some(0), Some(0), Some(Severity::Warning)),
            (Some(5012), Some(0), Some(136_812), Some(Severity::Info)),
            (Some(5012), None, None, Some(Severity::Info)),
            (Some(0), Some(0), Some(136_812), None),
            (Some(0), Some(0), Some(7), Some(Severity::Warning)),
            // Not supported by this instance type.
            (Some(0), Some(0), Some(0), None),
            (None, None, Some(0), None),
            (None, None, None, None),
        ] {
            let mut facts = counted(&[], &[]);
            facts.stat.interfaces = Some(vec![Known {
                interface: "eth0".to_owned(),
                exceeded: total,
                available,
            }]);
            let changes = facts.changes.as_mut().unwrap();
            changes.delta.exceeded = vec![("eth0".to_owned(), more)];
            let found = Allowance.findings(&facts, &Thresholds::default());
            let severity = found.first().map(|finding| finding.severity);
            assert_eq!(severity, expected, "{found:?}");
            if let Some(finding) = found.first() {
                assert!(finding.message.starts_with("eth0: "), "{finding:?}");
                let none = finding.message.contains("none while it was looked");
                assert_eq!(
                    none,
                    (more, expected) == (Some(0), Some(Severity::Info)),
                    "{finding:?}"
                );
            }
        }
    }
}
