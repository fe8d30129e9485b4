//! Preview of a purge, for `--dry-run` and for the question on a terminal. It takes the second look of a purge, so that it
//! shows as left what a purge would leave.

use std::io;
use std::time::Duration;

use crate::error::{CommandError, ExitStatus};
use crate::output::{Format, ItemResult, Options, Palette, Printer, Summary};
use crate::purge::execute::{DeleteOutcome, DeleteReport};
use crate::purge::guard::{DeleteDecision, Guard};
use crate::purge::plan::PurgePlan;
use crate::purge::status;
use crate::session::cluster::Cluster;
use crate::session::pipeline::EntryPipeline;
use crate::terminal::confirm;
use crate::terminal::messages::{note, writing};
use crate::terminal::printing::terminal_width;

use super::cluster_readings::SecondLook;
use super::{Purge, ScanSummary, closed_is_done, messages};

/// Rows that are shown before the question.
const MAX_ROWS: usize = 40;

/// Result of each planned entry, in the order of the plan.
struct Preview {
    results: Vec<ItemResult>,
    deletes: usize,
}

impl Preview {
    fn of(plan: &PurgePlan, guard: &mut Guard<'_>, pipeline: &mut EntryPipeline<'_>) -> Self {
        let mut preview = Preview {
            results: Vec::with_capacity(plan.len()),
            deletes: 0,
        };
        for planned in plan.entries() {
            let (decision, _) = guard.reconsider(pipeline, planned, &planned.flow);
            let deletes = decision == DeleteDecision::Delete;
            preview.deletes += usize::from(deletes);
            preview.results.push(ItemResult {
                result: match deletes {
                    true => "would-delete",
                    false => DeleteOutcome::Changed.name(),
                },
                error: None,
            });
        }
        preview
    }

    fn left(&self) -> u64 {
        (self.results.len() - self.deletes) as u64
    }

    fn report_left(&self, guard: &Guard<'_>) {
        messages::vetoes(guard.vetoes()).iter().for_each(note);
        let others = self.left() - guard.vetoes().total();
        if others > 0 {
            note(messages::would_leave(others));
        }
    }

    /// Prints the entries with their results.
    fn print(
        &self,
        plan: &PurgePlan,
        pipeline: &EntryPipeline<'_>,
        printer: &mut Printer<'_>,
        max_rows: usize,
    ) -> io::Result<()> {
        let entries = plan.entries().iter().zip(&self.results);
        for (planned, result) in entries.take(max_rows) {
            let entry = pipeline.entry(planned.flow.clone(), planned.seen);
            printer.entry(&entry, Some(result))?;
        }
        Ok(())
    }
}

impl Purge<'_> {
    /// `--dry-run`. It waits only for `--settle`.
    pub(super) fn dry_run(
        &self,
        plan: &PurgePlan,
        scan: &ScanSummary,
        first: Option<Cluster>,
    ) -> Result<ExitStatus, CommandError> {
        let settle = self.args.settle.unwrap_or(Duration::ZERO);
        let look = match plan.is_empty() {
            true => SecondLook::without(first),
            false => self.look_again(first, plan, settle)?,
        };
        let (mut pipeline, mut guard) = (self.second_pipeline(&look)?, self.guard(&look));
        let cluster = look.cluster.as_ref();
        let preview = Preview::of(plan, &mut guard, &mut pipeline);
        let report = DeleteReport {
            changed: preview.left(),
            ..DeleteReport::default()
        };
        let mut printer = self.printer();
        let printed = preview
            .print(plan, &pipeline, &mut printer, usize::MAX)
            .and_then(|()| printer.finish(&self.summary(plan, &report, 0, scan, cluster)));
        closed_is_done(printed)?;
        self.report_rules(&look, plan, &guard, &pipeline);
        preview.report_left(&guard);
        note(messages::would_delete(preview.deletes));
        if !plan.is_empty() {
            messages::note_ipvs(cluster);
        }
        if plan.check_size(self.args.max).is_err() {
            note(format!(
                "that is more than --max {}: without --dry-run it would be refused",
                self.args.max
            ));
        }
        let scan_is_partial = scan.report();
        Ok(status::without_deletes(scan_is_partial, guard.vetoes()))
    }

    /// Shows the plan on the terminal and asks; returns the cluster as it was read for that.
    ///
    /// # Errors
    /// The second look fails, or the answer is no.
    pub(super) fn ask(
        &self,
        plan: &PurgePlan,
        first: Option<Cluster>,
    ) -> Result<Option<Cluster>, CommandError> {
        let look = self.look_again(first, plan, Duration::ZERO)?;
        {
            let (mut pipeline, mut guard) = (self.second_pipeline(&look)?, self.guard(&look));
            let preview = Preview::of(plan, &mut guard, &mut pipeline);
            self.show(plan, &pipeline, &preview).map_err(writing)?;
            self.report_rules(&look, plan, &guard, &pipeline);
            preview.report_left(&guard);
        }
        confirm::ask(&messages::question(plan.len()))?;
        Ok(look.cluster)
    }

    /// Prints the first rows of the preview to the terminal.
    fn show(
        &self,
        plan: &PurgePlan,
        pipeline: &EntryPipeline<'_>,
        preview: &Preview,
    ) -> io::Result<()> {
        let stderr = io::stderr();
        let options = Options {
            format: Format::Table,
            columns: None,
            palette: Palette::of_environment(self.args.output.report.color, true),
            header: true,
            terminal: terminal_width(&stderr),
            results: true,
            netns: false,
        };
        let mut printer = Printer::new(options, Box::new(stderr));
        preview.print(plan, pipeline, &mut printer, MAX_ROWS)?;
        printer.finish(&Summary::default())?;
        if plan.len() > MAX_ROWS {
            let more = plan.len() - MAX_ROWS;
            note(format!("and {more} more; --dry-run shows them all"));
        }
        Ok(())
    }
}
