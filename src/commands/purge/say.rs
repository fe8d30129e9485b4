//! What a purge says on stderr: the set, what was held back, what became of it, and what came back.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::io::Errno;

use crate::entry::Entry;
use crate::error::Status;
use crate::output::{self, Format, ItemResult, Palette, Printer, Summary};
use crate::plural;
use crate::purge::execute::Report;
use crate::purge::plan::{Held, Plan, Planned};
use crate::purge::verify::verify;
use crate::purge::veto::Vetoes;
use crate::verdict::Verdict;

use super::Scan;
use super::suspects::Suspects;
use crate::args::OutputArgs;
use crate::session::caveats::{self, not_compared};
use crate::session::cluster::Cluster;
use crate::session::pipeline::{Counts, EntryPipeline};
use crate::terminal::messages::note;
use crate::terminal::printing::terminal_width;

/// Rows of the set that are shown before the question.
const SHOWN: usize = 40;
/// Flows that came back which are named.
const NAMED: usize = 20;
/// Below this many entries the deletes are over before a bar is drawn.
const LONG: usize = 2_000;

/// The set, as a table with what a purge right now would do, for somebody who has to say yes or no. `results`: of each
/// planned entry, in order.
pub fn set(
    plan: &Plan,
    pipeline: &EntryPipeline<'_>,
    results: &[ItemResult],
    args: &OutputArgs,
) -> io::Result<()> {
    let stderr = io::stderr();
    let options = output::Options {
        format: Format::Table,
        columns: None,
        palette: Palette::of_environment(args.report.color, true),
        header: true,
        terminal: terminal_width(&stderr),
        results: true,
    };
    let mut printer = Printer::new(options, Box::new(stderr));
    for (planned, result) in plan.planned().iter().zip(results).take(SHOWN) {
        printer.entry(&entry(pipeline, planned), Some(result))?;
    }
    printer.finish(&Summary::default())?;
    if plan.len() > SHOWN {
        note(format!(
            "and {} more; --dry-run shows them all",
            plan.len() - SHOWN
        ));
    }
    Ok(())
}

/// A planned entry as it is shown.
pub fn entry<'c>(pipeline: &EntryPipeline<'c>, planned: &Planned) -> Entry<'c> {
    pipeline.entry(planned.flow.clone(), planned.seen)
}

pub fn question(count: usize) -> String {
    match count {
        1 => "Delete this entry?".to_owned(),
        count => format!("Delete these {count} entries?"),
    }
}

pub fn waiting(count: usize, settle: Duration) -> String {
    let matches = if count == 1 { "matches" } else { "match" };
    let settle = humantime::format_duration(settle);
    format!(
        "{} {matches}; looking again in {settle}, before anything is deleted",
        entries(count as u64)
    )
}

pub fn about_to(count: usize) -> String {
    format!("deleting {}", entries(count as u64))
}

/// The last line of a dry run.
pub fn would_delete(number: usize) -> String {
    format!("{} would be deleted", entries(number as u64))
}

/// Planned entries that the second look judges otherwise.
pub fn would_leave(number: u64) -> String {
    let matches = if number == 1 {
        "does not match"
    } else {
        "do not match"
    };
    format!(
        "{} {matches} at the second look and would be left",
        entries(number)
    )
}

fn entries(number: u64) -> String {
    plural::count(number, "entry", "entries")
}

/// Before the look at what came back, where that takes a while.
pub fn verifying(wait: Duration) -> String {
    let wait = Duration::from_secs_f64(wait.as_secs_f64().ceil());
    let wait = humantime::format_duration(wait);
    format!("looking in {wait} for flows that come back")
}

/// Entries that are left although they pass the selectors.
pub fn vetoes(vetoes: Vetoes) {
    if vetoes.rules_not_known > 0 {
        let one = vetoes.rules_not_known == 1;
        note(format!(
            "{} {} left: whether this node's rules lead to {} is not known, because some of them are not understood or were \
             not read, and the file may be older than {}",
            entries(vetoes.rules_not_known),
            if one { "is" } else { "are" },
            if one {
                "its endpoint"
            } else {
                "their endpoints"
            },
            if one { "it is" } else { "they are" },
        ));
    }
    if vetoes.not_judged > 0 {
        note(format!(
            "{} left: at the second look, with this node's rules, whether a new packet would be translated is not known",
            plural::count(vetoes.not_judged, "entry is", "entries are")
        ));
    }
    let number = vetoes.rules_lead_there;
    if number > 0 {
        let (are, theirs) = match number {
            1 => ("is", "its endpoint"),
            _ => ("are", "their endpoints"),
        };
        note(format!(
            "{} {are} left: this node's rules lead to {theirs}, which the file does not have (it is older, or kube-proxy is \
             behind); fetch it again",
            entries(number)
        ));
    }
}

/// `suspects`: by the node's rules alone, which need more words.
pub fn held_back(plan: &Plan, suspects: Option<&Suspects>) {
    for (why, count) in plan.held() {
        if let (Held::Suspect, Some(suspects)) = (why, suspects) {
            suspects.advice().iter().for_each(note);
            continue;
        }
        note(format!(
            "{count} entries held back ({}): {}",
            why.name(),
            why.advice()
        ));
    }
    if plan.nameless() > 0 {
        note(format!(
            "{} entries left: the kernel gave them no id, so they cannot be named exactly",
            plan.nameless()
        ));
    }
}

pub fn undecided(counts: &Counts, cluster: Option<&Cluster>) {
    if counts.undecided > 0 {
        note(format!(
            "{} entries lack a value that a selector needs and are left",
            counts.undecided
        ));
    }
    if counts.not_compared > 0 {
        note(not_compared(counts.not_compared));
    }
    if counts.foreign_netns > 0 {
        note(format!(
            "{} entries are not judged and left: this network namespace is not known to be the node's",
            counts.foreign_netns
        ));
    }
    // Without a selector by verdict such an entry is as good as any other.
    if let Some(cluster) = cluster.filter(|_| counts.range_sought > 0) {
        note(caveats::range_unknown(counts.range_sought, cluster));
    }
    if counts.source_incomplete > 0 {
        note(format!(
            "{} entries are not judged and left: the cluster source does not tell enough about them",
            counts.source_incomplete
        ));
    }
}

/// How a purge ends as far as the scan decides it: partial where something was not read, or not judged.
pub fn scan(scan: &Scan) -> Status {
    match caveats::of_table(scan.unreadable, scan.inconsistent).report() || scan.unjudged {
        true => Status::Partial,
        false => Status::Done,
    }
}

/// The same, where entries were left by a veto: whether they are stale hangs on rules that are not known.
pub fn ended(scan: &Scan, vetoes: Vetoes) -> Status {
    match (self::scan(scan), vetoes.open()) {
        (Status::Done, 1..) => Status::Partial,
        (status, _) => status,
    }
}

/// A bar on a terminal, for sets that take a while.
pub fn progress(entries: usize) -> ProgressBar {
    if entries < LONG || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(entries as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A failed delete, by name, at once: the output may go to a file.
pub fn failure(entry: &Entry<'_>, result: &ItemResult) {
    if let Some(error) = &result.error {
        let flow = &entry.flow;
        note(format!(
            "failed: {} -> {} (reply from {}), id {}: {error}",
            flow.original.source(),
            flow.original.destination(),
            flow.reply.source(),
            flow.id.unwrap_or_default()
        ));
    }
}

/// Names the flows that have an entry again; gives how many of them are no better off than before.
pub fn came_back(
    table: &mut ctnetlink::Table,
    plan: &Plan,
    report: &Report,
    pipeline: &EntryPipeline<'_>,
) -> Result<u64, Errno> {
    let (mut dead, mut untranslated, mut named) = (0u64, 0u64, 0usize);
    verify(table, plan, report, &mut |back| {
        let now = pipeline.entry(back.now, None);
        let Some(fate) = Back::of(back.before, &now) else {
            return;
        };
        dead += u64::from(fate == Back::Dead);
        untranslated += u64::from(fate == Back::Untranslated);
        if named == NAMED {
            return;
        }
        named += 1;
        let (before, after) = (back.before.flow.reply.source(), now.flow.reply.source());
        let end = match fate {
            Back::Dead if before == after => "the same dead endpoint",
            Back::Dead => "another dead endpoint",
            Back::Untranslated => "not translated",
            Back::Live => "a live endpoint",
            Back::Caveats => "not decided",
        };
        note(format!(
            "came back: {} -> {}: {before} -> {}, {end}",
            now.flow.original.source(),
            now.flow.original.destination(),
            endpoint(&now)
        ));
    })?;
    for (count, why) in [
        (
            dead,
            "to a dead endpoint: this node's rules still point at it",
        ),
        (
            untranslated,
            "untranslated: this node's rules still do not lead them to an endpoint",
        ),
    ] {
        if count > 0 {
            note(format!(
                "{count} of the entries came back {why}. Look at kube-proxy on this node before you purge again"
            ));
        }
    }
    Ok(dead + untranslated)
}

/// What a flow came back to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Back {
    Dead,
    Untranslated,
    Live,
    Caveats,
}

impl Back {
    /// `None` when nobody judges.
    fn of(before: &Planned, now: &Entry<'_>) -> Option<Self> {
        let is_dead = |verdict| matches!(verdict, Verdict::Stale | Verdict::Suspect);
        let same = before.flow.reply.source() == now.flow.reply.source();
        // A new entry is younger than a cluster file, which leaves its verdict open. Of the endpoint it was known before.
        let known = same
            && before
                .reason
                .is_some_and(|reason| is_dead(reason.verdict()));
        let dead = match now.judgement?.verdict() {
            Verdict::Unknown => known,
            verdict => is_dead(verdict),
        };
        Some(match now.judgement?.verdict() {
            _ if dead && now.flow.reply.source() == now.flow.original.destination() => {
                Back::Untranslated
            }
            _ if dead => Back::Dead,
            Verdict::Ok => Back::Live,
            _ => Back::Caveats,
        })
    }
}

/// Pod or node with its port where it is known, else the address.
fn endpoint(entry: &Entry<'_>) -> String {
    let source = entry.flow.reply.source();
    let party = entry.names.endpoint.map(|endpoint| endpoint.party);
    match party.and_then(|party| Some((party.namespace?, party.name?))) {
        Some((namespace, name)) => format!("{namespace}/{name} ({source})"),
        None => source.to_string(),
    }
}

/// Conntrack is not the whole truth there.
pub fn ipvs(cluster: Option<&Cluster>) {
    if cluster.is_some_and(Cluster::has_ipvs) {
        note(caveats::IPVS);
    }
}

/// One line of counts.
pub fn outcome(report: &Report, planned: usize) {
    let mut line = format!("{} of {} deleted", report.deleted, entries(planned as u64));
    let changed = match report.changed {
        1 => "does not match any more, left",
        _ => "do not match any more, left",
    };
    for (count, what) in [
        (report.already_gone, "already gone"),
        (report.replaced, "replaced by a new entry, left"),
        (report.changed, changed),
        (report.failed, "failed"),
    ] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    if report.stopped {
        line.push_str("; stopped before the rest");
    }
    note(line);
    if report.tried > 0 && report.refused == report.tried {
        note("error: every delete was refused: it needs CAP_NET_ADMIN in the network namespace");
    }
}
