//! A table at its limit: new connections evict entries that are not ASSURED (`early_drop`), and their packets are dropped
//! where there are none. From 95 % of the limit on, the kernel's garbage collection (`gc_worker`) also removes ASSURED
//! entries that are closing (`tcp_can_early_drop` and its counterparts).

use crate::doctor::finding::unchanged_note;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::percent::{percent, rounded};
use crate::plural::count;
use ctnetlink::flow::Status;

const NAME: &str = "table-full";

/// `nf_conntrack_max95` of `gc_worker`, in percent.
const CLEANED_UP: u64 = 95;
/// States of TCP, SCTP and DCCP in which an ASSURED entry is removed from 95 % of the limit on.
const CLOSING: [&str; 11] = [
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "SHUTDOWN_SENT",
    "SHUTDOWN_RECD",
    "SHUTDOWN_ACK_SENT",
    "CLOSEREQ",
    "CLOSING",
    "TIMEWAIT",
];

#[derive(Default)]
pub struct TableFull {
    entries: u64,
    /// Entries that new ones can evict.
    evictable: u64,
    /// ASSURED and closing.
    closing: u64,
}

impl Check for TableFull {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "table at its limit"
    }

    fn looks_for(&self) -> &'static str {
        "A table that is full, or nearly full."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts
            .stat
            .used_percent()
            .is_none()
            .then_some("no number of entries, or no limit")
    }

    fn observe(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        self.entries += 1;
        // `early_drop` spares ASSURED entries and those that are not confirmed. The latter are never listed.
        let assured = entry.flow.status.contains(Status::ASSURED);
        self.evictable += u64::from(!assured);
        let name = entry.flow.state.and_then(|state| state.name());
        let closing = name.is_some_and(|name| CLOSING.contains(&name));
        self.closing += u64::from(assured && closing);
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let changes = |name| {
            facts
                .changes
                .as_ref()
                .and_then(|changes| changes.counter(name))
        };
        let (evicted, failed) = (changes("early_drop"), changes("insert_failed"));
        // A lost race drops its packet and counts as a drop, too; a refusal by an overfull bucket does not.
        let long = changes("chaintoolong").unwrap_or(0);
        let raced = failed.unwrap_or(0).saturating_sub(long);
        let refused = changes("drop").map(|drop| drop.saturating_sub(raced));
        let used = facts.stat.used_percent();
        let full = used.is_some_and(|used| used >= thresholds.table_used as f64);
        let evicting = evicted.is_some_and(|evicted| evicted > 0);
        let refusing = used.is_some_and(|used| used >= thresholds.table_critical as f64)
            && refused.is_some_and(|refused| refused > 0);
        if !full && !evicting {
            return self.evicted_before(facts).into_iter().collect();
        }
        let severity = match evicting || refusing || used >= Some(thresholds.table_critical as f64)
        {
            true => Severity::Critical,
            false => Severity::Warning,
        };
        vec![
            self.finding(severity, self.message(facts, used, evicted, refused), facts)
                .with("used_percent", used)
                .with("early_drop", evicted)
                .with("early_drop_total", facts.total("early_drop"))
                .with("dropped", refused)
                .with("dropped_total", dropped_total(facts))
                .help(
                    "see who fills it: ctk top --by state,client; raise net.netfilter.nf_conntrack_max (and \
                     nf_conntrack_buckets with it), or shorten timeouts: ctk stat",
                ),
        ]
    }
}

impl TableFull {
    fn message(
        &self,
        facts: &Facts<'_>,
        used: Option<f64>,
        evicted: Option<u64>,
        refused: Option<u64>,
    ) -> String {
        let stat = &facts.stat;
        let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let mut message = format!(
            "the table is {} % full ({} of {})",
            used.map_or_else(|| "?".to_owned(), rounded),
            number(stat.count),
            number(stat.settings.max)
        );
        match percent(self.evictable, self.entries) {
            None => {}
            Some(_) if self.evictable == 0 => {
                message += "; none of its entries makes room for new ones: all are ASSURED";
            }
            Some(share) => {
                message += &format!(
                    "; {} % of its entries ({}) are not ASSURED and make room for new ones",
                    rounded(share),
                    self.evictable
                );
            }
        }
        if self.closing > 0 {
            message += &format!(
                "; {} and closing, which the kernel removes bit by bit from {CLEANED_UP} % on",
                count(self.closing, "is ASSURED", "are ASSURED")
            );
        }
        let seconds = facts
            .changes
            .as_ref()
            .map_or(0.0, |changes| changes.seconds);
        if let Some(evicted) = evicted.filter(|n| *n > 0) {
            let entries = count(evicted, "entry was", "entries were");
            message += &format!("; {entries} pushed out in {seconds:.1} s");
        }
        let total = facts.total("early_drop").filter(|n| *n > 0);
        if let Some(total) = total.filter(|_| evicted.is_none()) {
            let entries = count(total, "entry was", "entries were");
            message += &format!("; {entries} pushed out since the namespace was made");
        }
        let total = dropped_total(facts).filter(|n| *n > 0);
        if let Some(total) = total.filter(|_| refused.is_none()) {
            let packets = count(total, "packet was", "packets were");
            message += &format!("; {packets} dropped since the namespace was made");
        }
        if let Some(refused) = refused.filter(|n| *n > 0) {
            let packets = count(refused, "packet was", "packets were");
            message += &format!("; {packets} dropped in {seconds:.1} s");
        }
        message
    }

    /// Reports evictions in the past.
    fn evicted_before(&self, facts: &Facts<'_>) -> Option<Finding> {
        let before = facts.total("early_drop").filter(|n| *n > 0)?;
        let entries = count(before, "entry was", "entries were");
        let message = format!(
            "{entries} pushed out by new ones (early_drop) at some time since the namespace was made{}",
            unchanged_note(
                facts
                    .changes
                    .as_ref()
                    .and_then(|changes| changes.counter("early_drop"))
            )
        );
        Some(
            self.finding(Severity::Info, message, facts)
                .with("early_drop_total", before),
        )
    }

    fn finding(&self, severity: Severity, message: String, facts: &Facts<'_>) -> Finding {
        Finding::new(NAME, severity, message)
            .with("count", facts.stat.count)
            .with("max", facts.stat.settings.max)
            .with("entries", self.entries)
            .with("evictable", self.evictable)
            .with("closing", self.closing)
    }
}

/// Packets dropped because the table was full, since the namespace was made.
fn dropped_total(facts: &Facts<'_>) -> Option<u64> {
    let total = |name| facts.total(name).unwrap_or(0);
    let raced = total("insert_failed").saturating_sub(total("chaintoolong"));
    Some(facts.total("drop")?.saturating_sub(raced))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{counted, udp, unreplied};

    fn findings(count: u64, evictable: u64, changes: &[(&str, u64)]) -> Vec<Finding> {
        let mut facts = counted(&[("early_drop", 7)], changes);
        facts.stat.count = Some(count);
        facts.stat.settings.max = Some(200);
        let mut check = TableFull::default();
        for n in 0..count {
            let mut flow = udp(
                &format!("10.0.0.1:{}", n + 1),
                "10.96.0.10:53",
                "10.1.0.7:53",
            );
            if n < evictable {
                unreplied(&mut flow);
            }
            check.observe(&Entry::bare(flow), &facts);
        }
        check.findings(&facts, &Thresholds::default())
    }

    #[test]
    fn usage_and_evictable_entries_decide_the_severity() {
        for (count, evictable, changes, severity, says) in [
            (
                100,
                50,
                &[][..],
                Severity::Info,
                "7 entries were pushed out",
            ),
            (
                159,
                50,
                &[("early_drop", 0)],
                Severity::Info,
                "made; none while it was looked",
            ),
            // A refusal by an overfull bucket is an insertion that failed, and no drop.
            (
                199,
                0,
                &[("drop", 9), ("insert_failed", 9), ("chaintoolong", 8)],
                Severity::Critical,
                "; 8 packets were dropped in 2.0 s",
            ),
            (
                160,
                40,
                &[],
                Severity::Warning,
                "80.0 % full (160 of 200); 25.0 % of its entries (40)",
            ),
            (
                190,
                0,
                &[],
                Severity::Critical,
                "none of its entries makes room for new ones: all are ASSURED",
            ),
            (
                170,
                9,
                &[("early_drop", 3)],
                Severity::Critical,
                "; 3 entries were pushed out in 2.0 s",
            ),
            (
                199,
                0,
                &[("drop", 9), ("insert_failed", 1)],
                Severity::Critical,
                "; 8 packets were dropped in 2.0 s",
            ),
            (
                20,
                9,
                &[("early_drop", 1)],
                Severity::Critical,
                "; 1 entry was pushed out",
            ),
            // Lost races drop packets, too, and do not show a full table.
            (
                100,
                9,
                &[("drop", 9), ("insert_failed", 9)],
                Severity::Info,
                "pushed out",
            ),
        ] {
            let found = findings(count, evictable, changes);
            assert_eq!(found.len(), 1, "{count} {changes:?}: {found:?}");
            assert_eq!(found[0].severity, severity, "{found:?}");
            assert!(found[0].message.contains(says), "{says}: {found:?}");
            assert_eq!(found[0].evidence["evictable"], evictable);
        }
    }

    #[test]
    fn closing_entries_are_counted_apart_from_lasting_ones() {
        let mut check = TableFull::default();
        for (n, (state, assured)) in [(3, true), (7, true), (8, true), (7, false)]
            .into_iter()
            .enumerate()
        {
            let mut flow = crate::doctor::testing::flow(
                6,
                &format!("10.0.0.1:{}", n + 1),
                "10.96.0.10:80",
                "10.1.0.7:80",
            );
            if !assured {
                unreplied(&mut flow);
            }
            flow.state = Some(ctnetlink::flow::ProtocolState::Tcp {
                state,
                original: ctnetlink::flow::TcpDirection::default(),
                reply: ctnetlink::flow::TcpDirection::default(),
            });
            check.observe(&Entry::bare(flow), &Facts::default());
        }
        let mut facts = counted(&[], &[]);
        facts.stat.count = Some(199);
        facts.stat.settings.max = Some(200);
        let found = check.findings(&facts, &Thresholds::default());
        // ESTABLISHED stays, TIME_WAIT and CLOSE are removed, and entries that are not ASSURED can be evicted anyway.
        assert_eq!(found[0].evidence["closing"], 2, "{found:?}");
        assert_eq!(found[0].evidence["evictable"], 1);
        assert!(
            found[0].message.contains("2 are ASSURED and closing"),
            "{found:?}"
        );
    }

    #[test]
    fn without_a_second_reading_nothing_is_reported_of_the_present() {
        let mut facts = counted(&[("early_drop", 7)], &[]);
        facts.changes = None;
        let found = TableFull::default().findings(&facts, &Thresholds::default());
        assert!(
            found[0].message.ends_with("since the namespace was made"),
            "{found:?}"
        );
    }

    #[test]
    fn an_unknown_limit_is_no_finding() {
        let mut facts = counted(&[], &[]);
        facts.stat.count = Some(1 << 30);
        let found = TableFull::default().findings(&facts, &Thresholds::default());
        assert!(found.is_empty(), "{found:?}");
    }
}
