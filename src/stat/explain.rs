//! Explanations of counters. New flows are not explained: current kernels count neither `new` nor most of `insert`.

use super::counters::Counters;

/// Counters of lost packets or entries.
pub const LOSSES: [&str; 4] = ["insert_failed", "drop", "early_drop", "chaintoolong"];

/// Line about a counter: meaning, when it is harmless, and a remedy. `None` for a counter that is not known.
pub fn meaning(name: &str) -> Option<&'static str> {
    Some(match name {
        "found" => {
            "tuples that translation wanted and another entry had, so it took another; harmless while ports are left"
        }
        "invalid" => {
            "packets of no connection, out of the TCP window, or with a bad checksum; a few are harmless, else: ctk doctor"
        }
        "insert" => "entries that programs added; current kernels count no others; harmless",
        "insert_failed" => {
            "new entries of which another had a tuple first; each loses a packet; ctk doctor looks for the cause"
        }
        "drop" => {
            "packets lost because their entry could not be made or put in; raise nf_conntrack_max if the table is full"
        }
        "early_drop" => {
            "entries removed for new ones in a full table; raise nf_conntrack_max or shorten timeouts"
        }
        "error" => "ICMP messages that are broken or belong to no connection; a few are harmless",
        "search_restart" => {
            "lookups begun again because the hash table changed meanwhile; harmless; if fast, raise nf_conntrack_buckets"
        }
        "clash_resolve" => {
            "races of packets of one socket that the kernel resolved without a loss; harmless"
        }
        "chaintoolong" => {
            "new entries refused because their bucket was overfull; raise nf_conntrack_buckets"
        }
        "expect_new" | "expect_create" => "connections that a helper announced; harmless",
        "expect_delete" => "announced connections that came or timed out; harmless",
        _ => return None,
    })
}

/// Percent of the limit from which on a table may have been full shortly before.
pub const NEARLY_FULL_PERCENT: f64 = 90.0;

/// Sentences about losses in `counters`, which are totals or differences from an earlier reading. `used` is the number of
/// entries in percent of the limit. Empty if no counter of losses is known.
pub fn losses(counters: &Counters, used: Option<f64>) -> Vec<String> {
    let [failed, drop, early, long] = LOSSES.map(|name| counters.get(name));
    if [failed, drop, early, long].iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut sentences = Vec::new();
    let (failed, early) = (failed.unwrap_or(0), early.unwrap_or(0));
    if failed > 0 {
        let below = used.is_some_and(|used| used < NEARLY_FULL_PERCENT) && early == 0;
        let full = if below { "; the table is not full" } else { "" };
        sentences.push(format!(
            "insert_failed {failed}: another entry had a tuple of the new one first; the counter does not tell why: two \
             packets of one socket at once, a source port that translation chose twice, or an equal reply tuple from \
             another zone; ctk doctor looks for each{full}"
        ));
    }
    if early > 0 {
        sentences.push(format!(
            "early_drop {early}: the table was full, and entries that were not ASSURED made room"
        ));
    }
    // Each failed insertion drops its packet and is counted in `drop`, too.
    let other = drop.unwrap_or(0).saturating_sub(failed);
    if other > 0 {
        sentences.push(format!(
            "drop {other} beside insert_failed: a full table, no memory, or a helper that refused the packet"
        ));
    }
    let long = long.unwrap_or(0);
    if long > 0 {
        sentences.push(format!(
            "chaintoolong {long}: new entries were refused because their bucket was overfull; nf_conntrack_buckets is small"
        ));
    }
    if sentences.is_empty() {
        sentences.push("no drops".to_owned());
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_race_is_not_taken_for_a_full_table() {
        let raced = Counters::from_iter([("insert_failed", 27), ("drop", 27), ("early_drop", 0)]);
        let sentences = losses(&raced, Some(0.2));
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        assert!(sentences[0].starts_with("insert_failed 27: another entry had a tuple"));
        assert!(sentences[0].contains("another zone") && sentences[0].contains("one socket"));
        assert!(
            sentences[0].ends_with("the table is not full"),
            "{sentences:?}"
        );
        assert!(!losses(&raced, Some(97.0))[0].contains("not full"));
        assert!(!losses(&raced, None)[0].contains("not full"));

        let full = Counters::from_iter([("insert_failed", 1), ("drop", 9), ("early_drop", 40)]);
        let sentences = losses(&full, Some(0.2)).join("\n");
        assert!(!sentences.contains("not full"), "{sentences}");
        assert!(
            sentences.contains("early_drop 40") && sentences.contains("drop 8 beside"),
            "{sentences}"
        );
    }

    #[test]
    fn every_counter_of_current_kernels_is_explained() {
        for name in super::super::counters::NAMES {
            let line = meaning(name).unwrap_or_default();
            assert!(!line.is_empty(), "{name}");
            // Counters of losses are never called harmless.
            assert!(
                !(LOSSES.contains(&name) && line.contains("harmless")),
                "{name}"
            );
        }
        assert_eq!(meaning("odd"), None);
    }

    #[test]
    fn zero_counters_give_no_drops_and_absent_ones_give_nothing() {
        let invalid = Counters::from_iter([("invalid", 110), ("insert", 0), ("drop", 0)]);
        assert_eq!(losses(&invalid, None), ["no drops"]);
        assert!(losses(&Counters::from_iter([("invalid", 110)]), None).is_empty());
    }
}
