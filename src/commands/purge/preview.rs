//! What a purge right now would do, for `--dry-run` and for the question on a terminal. It takes the second look of a purge,
//! so that it shows as left what a purge would leave.

use std::time::Duration;

use crate::error::{CommandError, Status};
use crate::output::ItemResult;
use crate::purge::execute::{Outcome, Report};
use crate::purge::plan::Plan;
use crate::purge::veto::Vetoes;
use crate::session::cluster::Cluster;
use crate::session::pipeline::EntryPipeline;
use crate::terminal::confirm;
use crate::terminal::messages::{note, writing};

use super::second_look::SecondLook;
use super::{Purge, Scan, closed_is_done, say};

/// Results of the planned entries, in their order, and how many of each.
struct Preview {
    results: Vec<ItemResult>,
    deletes: usize,
    vetoes: Vetoes,
}

impl Preview {
    fn left(&self) -> usize {
        self.results.len() - self.deletes
    }

    /// The count line of what would be left.
    fn say_left(&self) {
        say::vetoes(self.vetoes);
        let others = self.left() as u64 - self.vetoes.total();
        if others > 0 {
            note(say::would_leave(others));
        }
    }
}

impl Purge<'_> {
    /// `--dry-run`. It waits only where `--settle` says so.
    pub(super) fn show_only(
        &self,
        plan: &Plan,
        scan: &Scan,
        first: Option<Cluster>,
    ) -> Result<Status, CommandError> {
        let settle = self.args.settle.unwrap_or(Duration::ZERO);
        let look = match plan.is_empty() {
            true => SecondLook::without(first),
            false => self.look_again(first, plan, settle)?,
        };
        let mut pipeline = self.picker_again(&look)?;
        let cluster = look.cluster.as_ref();
        let preview = self.preview(&look, plan, &mut pipeline);
        let report = Report {
            changed: preview.left() as u64,
            ..Report::default()
        };
        let mut printer = self.printer();
        let mut print = || {
            for (planned, result) in plan.planned().iter().zip(&preview.results) {
                printer.entry(&say::entry(&pipeline, planned), Some(result))?;
            }
            printer.finish(&self.summary(plan, &report, 0, scan, cluster))
        };
        closed_is_done(print())?;
        self.say_of(&look, plan, &pipeline);
        preview.say_left();
        note(say::would_delete(preview.deletes));
        if !plan.is_empty() {
            say::ipvs(cluster);
        }
        if plan.len() > self.args.max {
            note(format!(
                "that is more than --max {}: without --dry-run it would be refused",
                self.args.max
            ));
        }
        Ok(say::ended(scan, preview.vetoes))
    }

    /// Shows the plan and asks; gives the cluster as it was read for that.
    ///
    /// # Errors
    /// The second look fails, or the answer is no.
    pub(super) fn ask(
        &self,
        plan: &Plan,
        first: Option<Cluster>,
    ) -> Result<Option<Cluster>, CommandError> {
        let look = self.look_again(first, plan, Duration::ZERO)?;
        let mut pipeline = self.picker_again(&look)?;
        let preview = self.preview(&look, plan, &mut pipeline);
        say::set(plan, &pipeline, &preview.results, &self.args.output).map_err(writing)?;
        self.say_of(&look, plan, &pipeline);
        preview.say_left();
        confirm::ask(&say::question(plan.len()))?;
        Ok(look.cluster)
    }

    fn preview(&self, look: &SecondLook, plan: &Plan, pipeline: &mut EntryPipeline<'_>) -> Preview {
        let mut preview = Preview {
            results: Vec::with_capacity(plan.len()),
            deletes: 0,
            vetoes: Vetoes::default(),
        };
        for planned in plan.planned() {
            let cluster = look.cluster.as_ref();
            let decision = self.decide(pipeline, cluster, planned, &planned.flow);
            preview.deletes += usize::from(decision.deletes);
            preview.vetoes.add(decision.veto);
            preview.results.push(ItemResult {
                result: match decision.deletes {
                    true => "would-delete",
                    false => Outcome::Changed.name(),
                },
                error: None,
            });
        }
        preview
    }
}
