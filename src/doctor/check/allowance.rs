//! The cloud's own limit for tracked connections: beyond it packets are lost before this machine sees them, and its own
//! table knows nothing of it.

use crate::doctor::finding::not_lately;
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

    fn conclude(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let known = facts.stat.interfaces.iter().flatten();
        known
            .filter_map(|one| {
                let exceeded = facts
                    .moved
                    .as_ref()
                    .and_then(|moved| moved.exceeded(&one.interface));
                finding(one, exceeded, facts, thresholds)
            })
            .collect()
    }
}

/// `exceeded`: packets since the first look.
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
        let seconds = facts.moved.as_ref().map_or(0.0, |moved| moved.seconds);
        let message = format!(
            "{interface}: {} dropped in {seconds:.1} s because the instance tracks more connections than its type allows",
            packets(more)
        );
        (Severity::Critical, message)
    } else if let Some(left) = one
        .available
        // A driver may have the name and nothing behind it: then both are 0 for ever.
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
            not_lately(exceeded)
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
    fn packets_lost_now_are_worse_than_those_of_long_ago() {
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
            let moved = facts.moved.as_mut().unwrap();
            moved.delta.exceeded = vec![("eth0".to_owned(), more)];
            let found = Allowance.conclude(&facts, &Thresholds::default());
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
