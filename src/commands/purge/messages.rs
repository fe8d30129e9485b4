//! Messages of a purge on stderr.

use std::net::SocketAddr;
use std::time::Duration;

use crate::entry::Entry;
use crate::plural::count;
use crate::purge::execute::{DeleteError, DeleteReport};
use crate::purge::guard::VetoCounts;
use crate::purge::lagging_rules::LaggingRules;
use crate::purge::plan::{PlannedEntry, PurgePlan};
use crate::purge::policy::HoldReason;
use crate::purge::verify::ReturnedTo;
use crate::session::caveats;
use crate::session::cluster::Cluster;
use crate::session::pipeline::Counts;
use crate::terminal::messages::note;
use ctnetlink::flow::Flow;

/// Endpoints that are named in one line.
const MAX_NAMED_ENDPOINTS: usize = 5;

pub const AGE_NOT_KNOWN: &str = "whether an entry is newer than the cluster file is not known: nf_conntrack_timestamp was 0 when \
    the entry was made, and no rules of kube-proxy are here, or they cannot be read";

fn entries(number: u64) -> String {
    count(number, "entry", "entries")
}

pub fn question(number: usize) -> String {
    match number {
        1 => "Delete this entry?".to_owned(),
        number => format!("Delete these {number} entries?"),
    }
}

/// Before the wait between the two looks.
pub fn waiting(number: usize, settle: Duration) -> String {
    format!(
        "{}; looking again in {}, before anything is deleted",
        count(number as u64, "entry matches", "entries match"),
        humantime::format_duration(settle)
    )
}

pub fn deleting(number: usize) -> String {
    format!("deleting {}", entries(number as u64))
}

/// Last line of a dry run.
pub fn would_delete(number: usize) -> String {
    format!("{} would be deleted", entries(number as u64))
}

/// Planned entries that the second look leaves.
pub fn would_leave(number: u64) -> String {
    let entries = count(number, "entry does not match", "entries do not match");
    format!("{entries} at the second look and would be left")
}

/// Before the look at the flows that came back, where that takes a while.
pub fn verifying(wait: Duration) -> String {
    let wait = Duration::from_secs_f64(wait.as_secs_f64().ceil());
    let wait = humantime::format_duration(wait);
    format!("looking in {wait} for flows that come back")
}

/// Entries that are left although the selectors mean them.
pub fn vetoes(vetoes: VetoCounts) -> Vec<String> {
    let mut lines = Vec::new();
    match vetoes.rules_not_known {
        0 => {}
        number => {
            let (endpoint, they_are) = match number {
                1 => ("its endpoint", "it is"),
                _ => ("their endpoints", "they are"),
            };
            lines.push(format!(
                "{} left: whether this node's rules lead to {endpoint} is not known, because some of them are not understood \
                 or were not read, and the file may be older than {they_are}",
                count(number, "entry is", "entries are")
            ));
        }
    }
    if vetoes.not_judged > 0 {
        lines.push(format!(
            "{} left: at the second look, with this node's rules, whether a new packet would be translated is not known",
            count(vetoes.not_judged, "entry is", "entries are")
        ));
    }
    match vetoes.rules_lead_there {
        0 => {}
        number => lines.push(format!(
            "{} left: this node's rules lead to {}, which the file does not have (it is older, or kube-proxy is behind); fetch \
             it again",
            count(number, "entry is", "entries are"),
            if number == 1 { "its endpoint" } else { "their endpoints" },
        )),
    }
    lines
}

/// Entries of the scan that are not in the plan. `suspect_advice` replaces the line on suspects.
pub fn held_back(plan: &PurgePlan, suspect_advice: Option<Vec<String>>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut suspect_advice = suspect_advice;
    for (reason, number) in plan.held() {
        match suspect_advice.take_if(|_| reason == HoldReason::Suspect) {
            Some(advice) => lines.extend(advice),
            None => lines.push(format!(
                "{} held back ({}): {}",
                entries(number),
                reason.name(),
                reason.advice()
            )),
        }
    }
    if plan.without_id() > 0 {
        lines.push(format!(
            "{} left: the kernel gave no id, so that a delete cannot name exactly one entry",
            entries(plan.without_id())
        ));
    }
    lines
}

/// Entries of the scan that a selector or the cluster does not decide on.
pub fn undecided(counts: &Counts, cluster: Option<&Cluster>) -> Vec<String> {
    let mut lines = Vec::new();
    if counts.undecided > 0 {
        lines.push(format!(
            "{} a value that a selector needs, and {} left",
            count(counts.undecided, "entry lacks", "entries lack"),
            if counts.undecided == 1 { "is" } else { "are" }
        ));
    }
    if counts.not_compared > 0 {
        lines.push(caveats::not_compared(counts.not_compared));
    }
    if counts.foreign_netns > 0 {
        lines.push(format!(
            "{} not judged and left: this network namespace is not known to be the node's",
            count(counts.foreign_netns, "entry is", "entries are")
        ));
    }
    // Without a selector by verdict such an entry is deleted like any other.
    if let Some(cluster) = cluster.filter(|_| counts.range_sought > 0) {
        lines.push(caveats::range_unknown(counts.range_sought, cluster));
    }
    if counts.source_incomplete > 0 {
        lines.push(format!(
            "{} not judged and left: the cluster source lacks what a verdict needs",
            count(counts.source_incomplete, "entry is", "entries are")
        ));
    }
    lines
}

/// Entries that this node's rules still lead to their dead endpoint.
pub fn lagging_rules(lagging: &LaggingRules) -> Vec<String> {
    let mut lines = Vec::new();
    if lagging.entries > 0 {
        let named = lagging.endpoints.iter().take(MAX_NAMED_ENDPOINTS);
        let named: Vec<String> = named.map(SocketAddr::to_string).collect();
        let more = match lagging.endpoints.len().saturating_sub(MAX_NAMED_ENDPOINTS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(format!(
            "kube-proxy on this node is behind: its rules still lead to {}{more}; {} there and may come back as before",
            named.join(", "),
            count(lagging.entries, "entry leads", "entries lead")
        ));
    }
    if lagging.not_understood > 0 {
        lines.push(format!(
            "{} may come back as before: this node's rules for the destination are not understood",
            entries(lagging.not_understood)
        ));
    }
    lines
}

/// A delete that failed.
pub fn failure(flow: &Flow, error: DeleteError) -> String {
    format!(
        "failed: {} -> {} (reply from {}), id {}: {error}",
        flow.original.source(),
        flow.original.destination(),
        flow.reply.source(),
        flow.id.unwrap_or_default()
    )
}

/// A flow that has an entry again.
pub fn came_back(before: &PlannedEntry, now: &Entry<'_>, returned: ReturnedTo) -> String {
    let (old, new) = (before.flow.reply.source(), now.flow.reply.source());
    let destination = match returned {
        ReturnedTo::DeadEndpoint if old == new => "the same dead endpoint",
        ReturnedTo::DeadEndpoint => "another dead endpoint",
        ReturnedTo::Untranslated => "not translated",
        ReturnedTo::SameEndpoint => "the same endpoint",
        ReturnedTo::LiveEndpoint => "a live endpoint",
        ReturnedTo::NotDecided => "not decided",
    };
    format!(
        "came back: {} -> {}: {old} -> {}, {destination}",
        now.flow.original.source(),
        now.flow.original.destination(),
        endpoint(now)
    )
}

/// Flows that came back and are no better than before, by where they lead.
pub fn came_back_counts(dead: u64, untranslated: u64, same: u64) -> Vec<String> {
    let same = (same > 0).then(|| {
        format!(
            "{} came back to the same endpoint: the client sends on, and a new packet is translated as before",
            entries(same)
        )
    });
    let causes = [
        (
            dead,
            "to a dead endpoint: this node's rules still lead there",
        ),
        (
            untranslated,
            "untranslated: this node's rules still lead to no endpoint",
        ),
    ];
    let causes = causes.into_iter().filter(|(number, _)| *number > 0);
    causes
        .map(|(number, cause)| {
            let entries = entries(number);
            format!("{entries} came back {cause}. Look at kube-proxy on this node before you purge again")
        })
        .chain(same)
        .collect()
}

/// Pod or node where it is known, and the address with its port.
fn endpoint(entry: &Entry<'_>) -> String {
    let source = entry.flow.reply.source();
    let party = entry.names.endpoint.map(|endpoint| endpoint.party);
    match party.and_then(|party| Some((party.namespace?, party.name?))) {
        Some((namespace, name)) => format!("{namespace}/{name} ({source})"),
        None => source.to_string(),
    }
}

/// Prints a note where IPVS keeps connections beside conntrack.
pub fn note_ipvs(cluster: Option<&Cluster>) {
    if cluster.is_some_and(Cluster::has_ipvs) {
        note(caveats::IPVS);
    }
}

/// The outcomes in one line, and a line for a missing capability.
pub fn outcome(report: &DeleteReport, planned: usize) -> Vec<String> {
    let mut line = format!("{} of {} deleted", report.deleted, entries(planned as u64));
    let changed = match report.changed {
        1 => "does not match any more, left",
        _ => "do not match any more, left",
    };
    for (number, outcome) in [
        (report.already_gone, "already gone"),
        (report.replaced, "replaced by a new entry, left"),
        (report.changed, changed),
        (report.failed, "failed"),
    ] {
        if number > 0 {
            line.push_str(&format!(", {number} {outcome}"));
        }
    }
    if report.stopped {
        line.push_str("; stopped before the rest");
    }
    let mut lines = vec![line];
    if report.is_refused() {
        lines.push(
            "error: every delete was refused: it needs CAP_NET_ADMIN in the network namespace"
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_rules_that_are_behind_are_named_up_to_a_number() {
        let endpoints = |count: u8| (1..=count).map(|n| ([10, 244, 0, n], 53).into()).collect();
        for (number, not_understood, named, expected) in [
            (0, 0, 0, &[][..]),
            (
                1,
                0,
                1,
                &["lead to 10.244.0.1:53; 1 entry leads there and may come back"],
            ),
            (
                9,
                2,
                7,
                &[
                    "10.244.0.5:53 and 2 more; 9 entries lead there",
                    "2 entries may come back as before",
                ],
            ),
        ] {
            let lagging = LaggingRules {
                entries: number,
                not_understood,
                endpoints: endpoints(named),
            };
            let lines = lagging_rules(&lagging);
            assert_eq!(lines.len(), expected.len(), "{lines:?}");
            for (line, words) in lines.iter().zip(expected) {
                assert!(line.contains(words), "{words}: {line}");
            }
            assert_eq!(lagging.may_come_back(), !expected.is_empty());
        }
    }

    #[test]
    fn counts_and_verbs_agree() {
        let left = |number| {
            vetoes(VetoCounts {
                rules_lead_there: number,
                rules_not_known: number,
                not_judged: number,
            })
        };
        for line in left(1) {
            assert!(line.starts_with("1 entry is left: "), "{line}");
        }
        for line in left(2) {
            assert!(line.starts_with("2 entries are left: "), "{line}");
        }
        assert!(left(0).is_empty());
        assert_eq!(would_delete(1), "1 entry would be deleted");
        assert_eq!(would_delete(0), "0 entries would be deleted");
        let wait = Duration::from_secs(2);
        assert!(waiting(1, wait).starts_with("1 entry matches; looking again in 2s"));
        assert!(waiting(2, wait).starts_with("2 entries match; "));
    }
}
