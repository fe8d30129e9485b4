//! Explanations of counters. New flows are not explained: current kernels count neither `new` nor most of `insert`.

use super::counters::Counters;

/// Counters of lost packets or entries.
pub const LOSSES: [&str; 4] = ["insert_failed", "drop", "early_drop", "chaintoolong"];

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
            "insert_failed {failed}: lost insertion races (typical: parallel UDP queries from one socket through DNAT or \
             SNAT){full}"
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
        assert!(sentences[0].starts_with("insert_failed 27: lost insertion races"));
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
    fn zero_counters_give_no_drops_and_absent_ones_give_nothing() {
        let invalid = Counters::from_iter([("invalid", 110), ("insert", 0), ("drop", 0)]);
        assert_eq!(losses(&invalid, None), ["no drops"]);
        assert!(losses(&Counters::from_iter([("invalid", 110)]), None).is_empty());
    }
}
