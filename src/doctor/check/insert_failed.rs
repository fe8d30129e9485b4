//! Packets that are lost although the table is not full: the entry of a packet could not be inserted, because another entry
//! had one of its two tuples first (`insert_failed` of `nf_ct_resolve_clash`). The counter has several causes:
//!
//! - Two packets of one socket raced, as A and AAAA queries that a resolver sends at once; the lookup then takes 5 s.
//! - A zone for the original direction only: reply tuples of all these zones are in zone 0, where equal ones exclude each
//!   other.
//! - Connections that were translated to the same source port.
//!
//! The entries tell which of these are possible here. The same counter includes refusals by overfull buckets, which the check
//! `long-chains` reports.

mod causes;

use serde_json::Value;

use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::percent::rounded;
use crate::plural::count;

use super::port_exhaustion::NAME as PORTS;
use causes::Causes;

const NAME: &str = "insert-failed";
const COUNTER: &str = "insert_failed";
const OVERFULL_COUNTER: &str = "chaintoolong";

#[derive(Default)]
pub struct InsertFailed {
    causes: Causes,
}

impl Check for InsertFailed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "lost insertions"
    }

    fn looks_for(&self) -> &'static str {
        "Insertions that are lost in a table that is not full."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts
            .total(COUNTER)
            .is_none()
            .then_some("no counters of the kernel")
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        self.causes.observe(entry);
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let Some(losses) = Losses::of(facts) else {
            return Vec::new();
        };
        let changed = |name| facts.changes.as_ref().and_then(|one| one.counter(name));
        let used = facts.stat.used_percent();
        let full = used.is_some_and(|used| used >= thresholds.room_below as f64)
            || changed("early_drop").is_some_and(|evicted| evicted > 0);
        let raced = losses
            .recent
            .filter(|recent| *recent >= thresholds.failed_insertions && !full);
        let finding = match raced {
            Some(recent) => losses.now(recent, used),
            None => losses.past(),
        };
        let possible = self.causes.possible(changed("clash_resolve"));
        let clauses: Vec<&str> = possible.iter().map(|one| one.clause.as_str()).collect();
        let remedies: Vec<&str> = possible.iter().map(|one| one.help.as_str()).collect();
        let mut finding = finding.help(remedies.join("; or "));
        finding.message += &match clauses.as_slice() {
            [one] => format!("; a possible cause: {one}"),
            several => format!("; possible causes: {}", several.join("; or ")),
        };
        let clauses: Vec<Value> = clauses.into_iter().map(Value::from).collect();
        let finding = self.causes.evidence(finding).with("causes", clauses);
        vec![
            finding
                .with("lost", losses.recent)
                .with("lost_total", losses.total)
                .with("insert_failed", changed(COUNTER))
                .with("insert_failed_total", facts.total(COUNTER))
                .with("chaintoolong", changed(OVERFULL_COUNTER))
                .with("drop", changed("drop"))
                .with("clash_resolve", changed("clash_resolve"))
                .with("seconds", losses.seconds)
                .with("used_percent", used),
        ]
    }
}

/// Failed insertions, without refusals by overfull buckets.
struct Losses {
    /// Since the namespace was made. Above zero.
    total: u64,
    /// Between the two readings.
    recent: Option<u64>,
    /// Time between the two readings.
    seconds: Option<f64>,
}

impl Losses {
    fn of(facts: &Facts<'_>) -> Option<Self> {
        let changed = |name| facts.changes.as_ref().and_then(|one| one.counter(name));
        let refused = |count: Option<u64>| count.unwrap_or(0);
        let total = facts.total(COUNTER)?;
        let total = total.saturating_sub(refused(facts.total(OVERFULL_COUNTER)));
        let recent = changed(COUNTER);
        (total > 0).then(|| Losses {
            total,
            recent: recent.map(|n| n.saturating_sub(refused(changed(OVERFULL_COUNTER)))),
            seconds: facts.changes.as_ref().map(|changes| changes.seconds),
        })
    }

    /// `used`: usage of the table in percent.
    fn now(&self, recent: u64, used: Option<f64>) -> Finding {
        let entries = count(recent, "entry was", "entries were");
        let usage = used.map_or_else(
            || "an unknown part of it".to_owned(),
            |used| format!("{} % of it", rounded(used)),
        );
        let message = format!(
            "{entries} not put into the table in {:.1} s, and their packets were dropped, while {usage} is in use",
            self.seconds.unwrap_or(0.0),
        );
        Finding::warning(NAME, message)
    }

    fn past(&self) -> Finding {
        let entries = count(self.total, "entry was", "entries were");
        let recent = match (self.recent, self.seconds) {
            (Some(recent), Some(seconds)) => format!("; {recent} in the last {seconds:.1} s"),
            _ => String::new(),
        };
        let message =
            format!("{entries} not put into the table since the namespace was made{recent}");
        Finding::info(NAME, message)
    }
}

/// Adds the likely cause where port exhaustion was found: connections without a free source port fail in the same way.
pub fn relate(findings: &mut [Finding]) {
    if !findings.iter().any(|finding| finding.check == PORTS) {
        return;
    }
    let raced = |finding: &&mut Finding| finding.check == NAME && finding.severity > Severity::Info;
    for finding in findings.iter_mut().filter(raced) {
        finding.message += "; or source ports are used up, as port-exhaustion tells";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::counted;

    #[test]
    fn a_rising_count_is_a_race_only_while_the_table_is_not_full() {
        for (used, total, more, evicted, expected) in [
            (1, 1068, 27, 0, Some(Severity::Warning)),
            (1, 1068, 4, 0, Some(Severity::Info)),
            (1, 1068, 0, 0, Some(Severity::Info)),
            (97, 1068, 27, 0, Some(Severity::Info)),
            (1, 1068, 27, 3, Some(Severity::Info)),
            (1, 0, 0, 0, None),
        ] {
            let mut facts = counted(
                &[(COUNTER, total)],
                &[(COUNTER, more), ("early_drop", evicted)],
            );
            facts.stat.count = Some(used);
            facts.stat.settings.max = Some(100);
            let found = InsertFailed::default().findings(&facts, &Thresholds::default());
            let severity = found.first().map(|finding| finding.severity);
            assert_eq!(severity, expected, "{used} {total} {more} {evicted}");
        }
    }

    #[test]
    fn the_numbers_are_those_between_the_two_readings() {
        let mut facts = counted(&[(COUNTER, 1068)], &[(COUNTER, 27), ("drop", 27)]);
        facts.stat.count = Some(412);
        facts.stat.settings.max = Some(262_144);
        let found = InsertFailed::default().findings(&facts, &Thresholds::default());
        let text = &found[0].message;
        assert!(
            text.starts_with("27 entries were not put into the table in 2.0 s"),
            "{text}"
        );
        assert!(text.contains("while 0.2 % of it is in use"), "{text}");
        assert!(!text.contains("full"), "{text}");
        assert_eq!(found[0].evidence["insert_failed_total"], 1068 + 27);
        assert_eq!(found[0].evidence["clash_resolve"], Value::Null);
    }

    #[test]
    fn refusals_by_overfull_buckets_are_no_race() {
        let facts = counted(
            &[(COUNTER, 30), (OVERFULL_COUNTER, 30)],
            &[(COUNTER, 27), (OVERFULL_COUNTER, 27)],
        );
        let found = InsertFailed::default().findings(&facts, &Thresholds::default());
        assert!(found.is_empty(), "{found:?}");
        let facts = counted(
            &[(COUNTER, 30), (OVERFULL_COUNTER, 10)],
            &[(COUNTER, 27), (OVERFULL_COUNTER, 10)],
        );
        let found = InsertFailed::default().findings(&facts, &Thresholds::default());
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(found[0].evidence["lost"], 17);
        assert_eq!(found[0].evidence["lost_total"], 20 + 17);
    }

    #[test]
    fn port_exhaustion_is_named_where_it_was_found() {
        let race = || Finding::warning(NAME, "27 entries");
        let mut alone = vec![race()];
        relate(&mut alone);
        assert_eq!(alone, [race()]);
        let mut both = vec![race(), Finding::warning(PORTS, "99 %")];
        relate(&mut both);
        assert!(both[0].message.contains("port-exhaustion"), "{both:?}");
    }

    #[test]
    fn unknown_counters_give_no_finding() {
        let found = InsertFailed::default().findings(&Facts::default(), &Thresholds::default());
        assert!(found.is_empty(), "{found:?}");
    }
}
