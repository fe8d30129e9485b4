//! Deletes of a plan, and the look at the flows that came back.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rustix::io::Errno;

use crate::entry::Entry;
use crate::error::{CommandError, ExitStatus};
use crate::output::{ItemResult, Printer};
use crate::purge::execute::{DeleteOutcome, DeleteReport, Executor, OutcomeSink};
use crate::purge::guard::SecondLookScope;
use crate::purge::lagging_rules::LaggingRules;
use crate::purge::plan::PurgePlan;
use crate::purge::status;
use crate::purge::verify::{ReturnedTo, verify};
use crate::session::cluster::Cluster;
use crate::session::pipeline::EntryPipeline;
use crate::terminal::messages::{note, writing};
use crate::terminal::signals;
use crate::verdict::Judgement;
use ctnetlink::Table;

use super::{Purge, ScanSummary, messages};

/// Wait between the two looks at the cluster. An EndpointSlice can lag behind its pods by about this much.
const DEFAULT_SETTLE: Duration = Duration::from_secs(2);
/// Wait before the look at the flows that came back: a client that asks every second asks again.
const DEFAULT_VERIFY: Duration = Duration::from_secs(1);
/// The same where this node's rules still lead to a dead endpoint.
const DEFAULT_VERIFY_BEHIND: Duration = Duration::from_secs(3);
/// Longest time from a signal to the end of a wait.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Smallest plan for which a progress bar is drawn.
const MIN_PROGRESS_ENTRIES: usize = 2_000;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Flows that came back which are named, one line each.
const MAX_NAMED_FLOWS: usize = 20;

/// Prints the outcomes, and draws the progress.
struct OutcomePrinter {
    printer: Printer<'static>,
    progress: ProgressBar,
}

impl OutcomeSink for OutcomePrinter {
    fn outcome(&mut self, entry: &Entry<'_>, outcome: DeleteOutcome) -> io::Result<()> {
        let error = outcome.error();
        if let Some(error) = error {
            // On stderr, too, because the output may go to a file.
            note(messages::failure(&entry.flow, error));
        }
        let result = ItemResult {
            result: outcome.name(),
            error: error.map(|error| error.to_string()),
        };
        self.printer.entry(entry, Some(&result))
    }

    fn batch_end(&mut self, done: usize) -> io::Result<()> {
        self.progress.set_position(done as u64);
        self.printer.flush()
    }
}

impl Purge<'_> {
    /// Deletes the plan and reports the outcomes.
    pub(super) fn apply(
        &self,
        table: &mut Table,
        plan: &PurgePlan,
        scan: &ScanSummary,
        first: Option<Cluster>,
    ) -> Result<ExitStatus, CommandError> {
        let look = self.look_again(first, plan, self.settle())?;
        let (mut pipeline, mut guard) = (self.second_pipeline(&look)?, self.guard(&look));
        let lagging = self.report_rules(&look, plan, &guard, &pipeline);
        let stop = Arc::new(AtomicBool::new(false));
        signals::set_on_signals(&stop)?;
        note(messages::deleting(plan.len()));
        let scope = SecondLookScope {
            uses_changing_values: self.entries.uses_changing_values,
            cluster_decides: self.entries.needs_cluster(),
            cluster_read_again: look.read_again,
        };
        let mut sink = OutcomePrinter {
            printer: self.printer(),
            progress: progress_bar(plan.len()),
        };
        let mut executor = Executor {
            table,
            guard: &mut guard,
            judge: &mut pipeline,
            scope,
            stop: &stop,
        };
        let report = executor.run(plan, &mut sink);
        sink.progress.finish_and_clear();
        messages::vetoes(guard.vetoes()).iter().for_each(note);
        if let Some(error) = &report.write_error {
            messages::outcome(&report, plan.len()).iter().for_each(note);
            return Err(CommandError::new(
                ExitStatus::Partial,
                format!("the output cannot be written: {error}; no further batch was sent"),
            )
            .hint("up to 128 of the deleted entries are missing from the output"));
        }
        tracing::info!(looking = ?report.looking, deleting = ?report.deleting, "deletes");
        let wait = self.verify_after(plan, &lagging);
        let came_back = self.verify(table, plan, &report, &pipeline, wait, &stop);
        let cluster = look.cluster.as_ref();
        let summary = self.summary(plan, &report, came_back.unwrap_or_default(), scan, cluster);
        sink.printer.finish(&summary).map_err(writing)?;
        messages::outcome(&report, plan.len()).iter().for_each(note);
        messages::note_ipvs(cluster);
        let scan_is_partial = scan.report();
        let vetoes = guard.vetoes();
        Ok(status::after_deletes(
            &report,
            came_back,
            scan_is_partial,
            vetoes,
        ))
    }

    fn settle(&self) -> Duration {
        self.args
            .settle
            .unwrap_or(match self.policy.selects_by_verdict() {
                true => DEFAULT_SETTLE,
                false => Duration::ZERO,
            })
    }

    /// Wait before the look at the flows that came back: at least the longest time between two packets that `--sample` saw.
    fn verify_after(&self, plan: &PurgePlan, lagging: &LaggingRules) -> Duration {
        let default = match lagging.may_come_back() {
            true => DEFAULT_VERIFY_BEHIND,
            false => DEFAULT_VERIFY,
        };
        let sampled = plan.entries().iter().filter_map(|planned| planned.seen);
        let slowest = sampled.filter_map(|seen| seen.longest_interval()).max();
        self.args
            .verify
            .unwrap_or(slowest.map_or(default, |slowest| slowest.max(default)))
    }

    /// Waits, or until a signal, and counts the flows that came back. `None` where the look failed.
    fn verify(
        &self,
        table: &mut Table,
        plan: &PurgePlan,
        report: &DeleteReport,
        pipeline: &EntryPipeline<'_>,
        wait: Duration,
        stop: &AtomicBool,
    ) -> Option<u64> {
        if report.gone.is_empty() || wait.is_zero() {
            return Some(0);
        }
        if wait > DEFAULT_VERIFY {
            note(messages::verifying(wait));
        }
        let until = Instant::now() + wait;
        while let Some(left) = until.checked_duration_since(Instant::now())
            && !stop.load(Ordering::Relaxed)
        {
            std::thread::sleep(left.min(SIGNAL_POLL_INTERVAL));
        }
        let began = Instant::now();
        let came_back = count_came_back(table, plan, report, pipeline);
        tracing::info!(looking = ?began.elapsed(), "looked again");
        came_back
            .inspect_err(|error| note(format!("what came back is not known: {error}")))
            .ok()
    }
}

/// A bar on a terminal, for plans that take a while.
fn progress_bar(entries: usize) -> ProgressBar {
    if entries < MIN_PROGRESS_ENTRIES || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(entries as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(PROGRESS_INTERVAL);
    bar
}

/// Names the flows that have an entry again, and counts those that are no better than before.
fn count_came_back(
    table: &mut Table,
    plan: &PurgePlan,
    report: &DeleteReport,
    pipeline: &EntryPipeline<'_>,
) -> Result<u64, Errno> {
    let (mut dead, mut untranslated, mut same, mut named) = (0u64, 0u64, 0u64, 0usize);
    verify(table, plan, report, &mut |back| {
        let now = pipeline.entry(back.now, None);
        let verdict = now.judgement.as_ref().map(Judgement::verdict);
        let returned = ReturnedTo::of(back.before, &now.flow, verdict);
        match returned {
            ReturnedTo::DeadEndpoint => dead += 1,
            ReturnedTo::Untranslated => untranslated += 1,
            ReturnedTo::SameEndpoint => same += 1,
            ReturnedTo::LiveEndpoint | ReturnedTo::NotDecided => {}
        }
        if named < MAX_NAMED_FLOWS {
            named += 1;
            note(messages::came_back(back.before, &now, returned));
        }
    })?;
    messages::came_back_counts(dead, untranslated, same)
        .iter()
        .for_each(note);
    Ok(dead + untranslated + same)
}
