//! Packets that the reverse-path filter drops: the interface shows them, and the table never has an entry of them.

use serde_json::{Value, json};

use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::plural::count;
use crate::reverse_path::Interface;

const NAME: &str = "reverse-path";
/// Upper bound of the interfaces that are named; a node has one for each Pod.
const MAX_LISTED: usize = 5;

#[derive(Default)]
pub struct ReversePath;

impl Check for ReversePath {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "packets dropped by the reverse-path filter"
    }

    fn looks_for(&self) -> &'static str {
        "Packets that the reverse-path filter drops, of which no entry exists."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts
            .reverse_path
            .filtered
            .is_none()
            .then_some("no counter of the filter")
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let paths = &facts.reverse_path;
        let strict: Vec<&Interface> = paths.interfaces.iter().filter(|i| i.is_strict()).collect();
        let more = facts.changes.as_ref().and_then(|changes| changes.filtered);
        let Some(finding) = finding(facts, more, &strict, thresholds) else {
            return Vec::new();
        };
        let shown = strict.iter().take(MAX_LISTED);
        let shown: Vec<Value> = shown
            .map(|i| json!({"interface": i.name, "rp_filter": i.rp_filter, "has_ipv4": i.has_ipv4}))
            .collect();
        vec![
            finding
                .with("filtered", more)
                .with("filtered_total", paths.filtered)
                .with("martian_src_total", paths.martian_src)
                .with("strict_interfaces", strict.len())
                .with("interfaces", shown)
                .help(
                    "expected_reply must be routed out of the interface that packets come in on; else sysctl -w \
                     net.ipv4.conf.INTERFACE.rp_filter=2 (0 where it has no IPv4 address), and the same for all: the larger one \
                     holds; net.ipv4.conf.all.log_martians=1 logs what is dropped",
                ),
        ]
    }
}

/// `more` is the number of packets between the two readings, `strict` are the strict interfaces.
fn finding(
    facts: &Facts<'_>,
    more: Option<u64>,
    strict: &[&Interface],
    thresholds: &Thresholds,
) -> Option<Finding> {
    let packets = |n| count(n, "packet was", "packets were");
    let interfaces = names(strict);
    match (more, facts.reverse_path.filtered) {
        (Some(more), _) if more >= thresholds.filtered_packets => {
            let seconds = facts
                .changes
                .as_ref()
                .map_or(0.0, |changes| changes.seconds);
            let message = format!(
                "{} dropped by the reverse-path filter in {seconds:.1} s, before an entry was made of them; {interfaces}",
                packets(more)
            );
            Some(Finding::warning(NAME, message))
        }
        (_, Some(total)) if total > 0 => {
            let recent =
                more.map_or_else(String::new, |more| format!(", {more} while it was looked"));
            let message = format!(
                "{} dropped by the reverse-path filter since the namespace was made{recent}; {interfaces}",
                packets(total)
            );
            Some(Finding::info(NAME, message))
        }
        (_, None) if !strict.is_empty() => {
            let message = format!(
                "whether the reverse-path filter drops packets cannot be read; {interfaces}"
            );
            Some(Finding::info(NAME, message))
        }
        _ => None,
    }
}

/// `strict on eth0, cali123 (loose, without an IPv4 address), and 3 others`
fn names(strict: &[&Interface]) -> String {
    if strict.is_empty() {
        return "no interface is strict now".to_owned();
    }
    let one = |i: &&Interface| match i.rp_filter {
        2 => format!("{} (loose, without an IPv4 address)", i.name),
        _ => i.name.clone(),
    };
    let mut text = strict
        .iter()
        .take(MAX_LISTED)
        .map(one)
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(others) = strict.len().checked_sub(MAX_LISTED).filter(|n| *n > 0) {
        text += &format!(" and {}", count(others as u64, "other", "others"));
    }
    format!("strict on {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::testing::counted;

    fn interface(name: &str, rp_filter: u64, has_ipv4: bool) -> Interface {
        Interface {
            name: name.to_owned(),
            rp_filter,
            has_ipv4: Some(has_ipv4),
        }
    }

    #[test]
    fn dropped_packets_are_reported_with_the_interfaces_that_drop_them() {
        for (total, more, expected) in [
            (Some(120), Some(50), Some(Severity::Warning)),
            // A few stray packets are normal.
            (Some(120), Some(49), Some(Severity::Info)),
            (Some(12), Some(0), Some(Severity::Info)),
            (Some(12), None, Some(Severity::Info)),
            (Some(0), Some(0), None),
            (None, None, Some(Severity::Info)),
        ] {
            let mut facts = counted(&[], &[]);
            facts.reverse_path.filtered = total;
            facts.changes.as_mut().unwrap().filtered = more;
            facts.reverse_path.interfaces = vec![
                interface("eth0", 1, true),
                interface("eth1", 2, true),
                interface("cali1", 2, false),
                interface("eth2", 0, true),
            ];
            let found = ReversePath.findings(&facts, &Thresholds::default());
            assert_eq!(found.first().map(|f| f.severity), expected, "{found:?}");
            if let Some(finding) = found.first() {
                let end = "strict on eth0, cali1 (loose, without an IPv4 address)";
                assert!(finding.message.ends_with(end), "{finding:?}");
                assert_eq!(finding.evidence["strict_interfaces"], 2);
            }
        }
    }

    #[test]
    fn many_interfaces_are_shortened_to_one_sentence() {
        let all: Vec<_> = (0..500)
            .map(|n| interface(&format!("cali{n}"), 1, false))
            .collect();
        let all: Vec<_> = all.iter().collect();
        assert_eq!(
            names(&all),
            "strict on cali0, cali1, cali2, cali3, cali4 and 495 others"
        );
        assert_eq!(
            names(&all[..5]),
            "strict on cali0, cali1, cali2, cali3, cali4"
        );
        assert_eq!(names(&[]), "no interface is strict now");
    }

    #[test]
    fn unknown_counters_give_no_finding() {
        assert!(
            ReversePath
                .findings(&Facts::default(), &Thresholds::default())
                .is_empty()
        );
    }
}
