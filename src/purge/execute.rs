//! Execution of a plan, batch by batch: the only code of the program that builds a [`DeleteTarget`] or sends a delete.
//!
//! A delete names its entry by reply tuple, id and zone. The id alone is a hash that a new entry in the same place can have,
//! too; the reply tuple pins the endpoint. An entry that the kernel does not find under that name is looked up by its original
//! tuple, to tell one that ended from one that was replaced.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use ctnetlink::flow::{Direction, Flow};
use ctnetlink::{DeleteTarget, MAX_BATCH, Table};

use super::guard::{DeleteDecision, EntryJudge, Guard, SecondLookScope};
use super::plan::{PlannedEntry, PurgePlan};
use crate::entry::Entry;

/// Outcome for one planned entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    Deleted,
    /// It ended by itself, or another program deleted it.
    AlreadyGone,
    /// An entry with the same original tuple and another reply tuple exists: a new one, which is left.
    Replaced,
    /// The second look decided to leave it.
    Changed,
    Failed(DeleteError),
}

/// Failure of one delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// Answer of the kernel, with its name: `EPERM: Operation not permitted`.
    #[error("{}", nix::errno::Errno::from_raw(.0.raw_os_error()))]
    Kernel(Errno),
    #[error("the kernel gave it no id")]
    NoId,
    #[error("the second look gave no answer")]
    NoLookup,
    #[error("the kernel's answer was lost, and the entry is still there")]
    AnswerLost,
}

impl DeleteOutcome {
    /// Word of JSON's `result`.
    pub const fn name(&self) -> &'static str {
        match self {
            DeleteOutcome::Deleted => "deleted",
            DeleteOutcome::AlreadyGone => "already-gone",
            DeleteOutcome::Replaced => "replaced",
            DeleteOutcome::Changed => "changed",
            DeleteOutcome::Failed(_) => "failed",
        }
    }

    pub const fn error(&self) -> Option<DeleteError> {
        match self {
            DeleteOutcome::Failed(error) => Some(*error),
            _ => None,
        }
    }
}

/// Counts and times of an execution.
#[derive(Debug, Default)]
pub struct DeleteReport {
    pub deleted: u64,
    pub already_gone: u64,
    pub replaced: u64,
    pub changed: u64,
    pub failed: u64,
    /// Deletes that were sent to the kernel, and deletes that were not sent because the lookup was refused with EPERM.
    pub tried: u64,
    /// Those of `tried` that the kernel refused with EPERM.
    pub refused: u64,
    /// A signal ended the execution before the end of the plan.
    pub stopped: bool,
    /// Positions in the plan of entries that were deleted or already gone, ascending: flows that may have an entry again.
    pub gone: Vec<u32>,
    /// Error of the sink, which ended the execution. Outcomes of the last batch may be missing from the output.
    pub write_error: Option<io::Error>,
    /// Time spent on second looks at entries.
    pub looking: Duration,
    /// Time spent on deletes, the kernel's answers included.
    pub deleting: Duration,
}

/// Receiver of the outcomes.
pub trait OutcomeSink {
    /// Receives each entry of a batch in its order, after the kernel answered the batch.
    ///
    /// # Errors
    /// The output cannot be written: no further batch is sent.
    fn outcome(&mut self, entry: &Entry<'_>, outcome: DeleteOutcome) -> io::Result<()>;

    /// Called after each batch. `done`: number of entries of the plan that have an outcome.
    ///
    /// # Errors
    /// As for [`OutcomeSink::outcome`].
    fn batch_end(&mut self, done: usize) -> io::Result<()>;
}

/// Deletes a plan.
pub struct Executor<'a, 'g, J> {
    pub table: &'a mut Table,
    pub guard: &'a mut Guard<'g>,
    pub judge: &'a mut J,
    /// Decides whether entries are looked up, see [`Guard::needs_lookups`].
    pub scope: SecondLookScope,
    /// Set by a signal: no further batch is sent.
    pub stop: &'a AtomicBool,
}

/// Decisions and outcomes of one batch; its memory serves every batch.
struct PurgeBatch<'c> {
    /// By position in the batch.
    outcomes: Vec<DeleteOutcome>,
    /// By position in the batch: the entry as it was judged, where it was judged as it was planned.
    entries: Vec<Option<Entry<'c>>>,
    targets: Vec<DeleteTarget>,
    /// Position in the batch of each target.
    positions: Vec<usize>,
}

impl<J> Executor<'_, '_, J> {
    /// Works through the plan. A failed delete does not keep the rest from being deleted; a failure of `sink` ends the
    /// execution, because every delete must be reported.
    pub fn run<'c>(&mut self, plan: &PurgePlan, sink: &mut impl OutcomeSink) -> DeleteReport
    where
        J: EntryJudge<'c>,
    {
        let mut report = DeleteReport::default();
        let mut batch = PurgeBatch::new();
        let lookups = self.guard.needs_lookups(plan, &self.scope);
        let mut done = 0;
        for planned in plan.entries().chunks(MAX_BATCH) {
            if self.stop.load(Ordering::Relaxed) {
                report.stopped = true;
                break;
            }
            self.decide(planned, lookups, &mut batch, &mut report);
            self.delete(planned, &mut batch, &mut report);
            for (position, outcome) in (done..).zip(&batch.outcomes) {
                report.count(*outcome, position);
            }
            done += planned.len();
            let written = self.write(planned, &batch, sink);
            if let Err(error) = written.and_then(|()| sink.batch_end(done)) {
                report.write_error = Some(error);
                break;
            }
        }
        report
    }

    /// Fills the batch: a target for each entry to delete, and the outcome of each that is left.
    fn decide<'c>(
        &mut self,
        planned: &[PlannedEntry],
        lookups: bool,
        batch: &mut PurgeBatch<'c>,
        report: &mut DeleteReport,
    ) where
        J: EntryJudge<'c>,
    {
        batch.clear();
        let began = Instant::now();
        let mut found = match lookups {
            true => current_entries(self.table, planned),
            false => Vec::new(),
        }
        .into_iter();
        for (position, planned) in planned.iter().enumerate() {
            let (left, entry) = match lookups {
                true => (self.decide_by_lookup(planned, found.next(), report), None),
                false => {
                    let now = &planned.flow;
                    let (decision, entry) = self.guard.reconsider(self.judge, planned, now);
                    (outcome_if_left(decision), entry)
                }
            };
            let outcome = left.unwrap_or_else(|| match DeleteTarget::of(&planned.flow) {
                Some(target) => {
                    batch.targets.push(target);
                    batch.positions.push(position);
                    // Corrected by the kernel's answer.
                    DeleteOutcome::Deleted
                }
                None => DeleteOutcome::Failed(DeleteError::NoId),
            });
            batch.outcomes.push(outcome);
            batch.entries.push(entry);
        }
        report.looking += began.elapsed();
    }

    /// Outcome of an entry that is left because of the lookup; `None` where it is to be deleted.
    fn decide_by_lookup<'c>(
        &mut self,
        planned: &PlannedEntry,
        found: Option<Result<Option<Flow>, Errno>>,
        report: &mut DeleteReport,
    ) -> Option<DeleteOutcome>
    where
        J: EntryJudge<'c>,
    {
        let now = match found {
            None => return Some(DeleteOutcome::Failed(DeleteError::NoLookup)),
            Some(Err(errno)) => {
                let refused = u64::from(errno == Errno::PERM);
                report.tried += refused;
                report.refused += refused;
                return Some(DeleteOutcome::Failed(DeleteError::Kernel(errno)));
            }
            Some(Ok(None)) => return Some(DeleteOutcome::AlreadyGone),
            Some(Ok(Some(now))) => now,
        };
        if now.reply != planned.flow.reply {
            return Some(DeleteOutcome::Replaced);
        }
        if now.id != planned.flow.id {
            return Some(DeleteOutcome::AlreadyGone);
        }
        let (decision, _) = self.guard.reconsider(self.judge, planned, &now);
        outcome_if_left(decision)
    }

    /// Sends the batch's targets, and sets the outcome of each that was not deleted.
    fn delete(
        &mut self,
        planned: &[PlannedEntry],
        batch: &mut PurgeBatch<'_>,
        report: &mut DeleteReport,
    ) {
        let began = Instant::now();
        let (mut missing, mut unanswered) = (Vec::new(), Vec::new());
        let answers = self.table.delete(&batch.targets);
        for (position, answer) in batch.positions.iter().copied().zip(answers) {
            report.tried += 1;
            match answer {
                Ok(()) => {}
                Err(Errno::NOENT) => missing.push(position),
                // The answer was lost, not the request.
                Err(Errno::NOBUFS | Errno::TIMEDOUT) => unanswered.push(position),
                Err(errno) => {
                    report.refused += u64::from(errno == Errno::PERM);
                    batch.outcomes[position] = DeleteOutcome::Failed(DeleteError::Kernel(errno));
                }
            }
        }
        let flows = missing.iter().map(|position| &planned[*position]);
        for (position, now) in missing.iter().zip(current_entries(self.table, flows)) {
            batch.outcomes[*position] = outcome_if_missing(now, &planned[*position].flow);
        }
        let flows = unanswered.iter().map(|position| &planned[*position]);
        for (position, now) in unanswered.iter().zip(current_entries(self.table, flows)) {
            batch.outcomes[*position] = outcome_if_unanswered(now, &planned[*position].flow);
        }
        report.deleting += began.elapsed();
    }

    /// Gives each entry of the batch to the sink as it was planned.
    fn write<'c>(
        &self,
        planned: &[PlannedEntry],
        batch: &PurgeBatch<'c>,
        sink: &mut impl OutcomeSink,
    ) -> io::Result<()>
    where
        J: EntryJudge<'c>,
    {
        let outcomes = batch.entries.iter().zip(&batch.outcomes);
        for (planned, (entry, outcome)) in planned.iter().zip(outcomes) {
            match entry {
                Some(entry) => sink.outcome(entry, *outcome)?,
                None => sink.outcome(&self.judge.judge(&planned.flow, planned.seen), *outcome)?,
            }
        }
        Ok(())
    }
}

impl PurgeBatch<'_> {
    fn new() -> Self {
        PurgeBatch {
            outcomes: Vec::with_capacity(MAX_BATCH),
            entries: Vec::with_capacity(MAX_BATCH),
            targets: Vec::with_capacity(MAX_BATCH),
            positions: Vec::with_capacity(MAX_BATCH),
        }
    }

    fn clear(&mut self) {
        self.outcomes.clear();
        self.entries.clear();
        self.targets.clear();
        self.positions.clear();
    }
}

impl DeleteReport {
    /// `position`: of the entry in the plan. A plan of more entries than a `u32` counts does not fit into memory.
    fn count(&mut self, outcome: DeleteOutcome, position: usize) {
        let count = match outcome {
            DeleteOutcome::Deleted => &mut self.deleted,
            DeleteOutcome::AlreadyGone => &mut self.already_gone,
            DeleteOutcome::Replaced => &mut self.replaced,
            DeleteOutcome::Changed => &mut self.changed,
            DeleteOutcome::Failed(_) => &mut self.failed,
        };
        *count += 1;
        if matches!(outcome, DeleteOutcome::Deleted | DeleteOutcome::AlreadyGone) {
            self.gone.push(position as u32);
        }
    }

    /// The kernel refused every delete that was tried.
    pub fn is_refused(&self) -> bool {
        self.tried > 0 && self.refused == self.tried
    }
}

fn outcome_if_left(decision: DeleteDecision) -> Option<DeleteOutcome> {
    match decision {
        DeleteDecision::Delete => None,
        DeleteDecision::Leave | DeleteDecision::Veto(_) => Some(DeleteOutcome::Changed),
    }
}

/// Outcome of a delete that the kernel answered with ENOENT. `now`: the entry with the planned original tuple.
fn outcome_if_missing(now: Result<Option<Flow>, Errno>, planned: &Flow) -> DeleteOutcome {
    match now {
        Ok(Some(flow)) if flow.reply != planned.reply => DeleteOutcome::Replaced,
        Ok(_) => DeleteOutcome::AlreadyGone,
        Err(errno) => DeleteOutcome::Failed(DeleteError::Kernel(errno)),
    }
}

/// Outcome of a delete whose answer was lost. `now`: the entry with the planned original tuple.
fn outcome_if_unanswered(now: Result<Option<Flow>, Errno>, planned: &Flow) -> DeleteOutcome {
    match now {
        Ok(Some(flow)) if flow.reply == planned.reply && flow.id == planned.id => {
            DeleteOutcome::Failed(DeleteError::AnswerLost)
        }
        Ok(Some(flow)) if flow.reply != planned.reply => DeleteOutcome::Replaced,
        Ok(_) => DeleteOutcome::Deleted,
        Err(errno) => DeleteOutcome::Failed(DeleteError::Kernel(errno)),
    }
}

/// For each planned entry, the one that has its original tuple and zone now.
pub(super) fn current_entries<'p>(
    table: &mut Table,
    planned: impl IntoIterator<Item = &'p PlannedEntry>,
) -> Vec<Result<Option<Flow>, Errno>> {
    let flows = planned.into_iter().map(|planned| &planned.flow);
    table.get_all(flows.map(|flow| (&flow.original, Direction::Original, flow.zone)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctnetlink::flow::{L4, Tuple};

    fn flow(endpoint: u8, id: u32) -> Flow {
        let tuple = |src: u8, dst: u8| Tuple {
            src: [10, 0, 0, src].into(),
            dst: [10, 0, 0, dst].into(),
            protocol: 17,
            l4: L4::Ports { src: 53, dst: 53 },
        };
        let mut flow = Flow::new(tuple(1, 2), tuple(endpoint, 1));
        flow.id = Some(id);
        flow
    }

    #[test]
    fn an_entry_that_was_not_found_is_told_from_one_that_was_replaced_or_deleted() {
        use DeleteOutcome::{AlreadyGone, Deleted, Failed, Replaced};
        let refused = Failed(DeleteError::Kernel(Errno::PERM));
        for (now, missing, unanswered) in [
            (Ok(None), AlreadyGone, Deleted),
            (
                Ok(Some(flow(9, 7))),
                AlreadyGone,
                Failed(DeleteError::AnswerLost),
            ),
            (Ok(Some(flow(9, 8))), AlreadyGone, Deleted),
            (Ok(Some(flow(3, 7))), Replaced, Replaced),
            (Err(Errno::PERM), refused, refused),
        ] {
            let planned = flow(9, 7);
            assert_eq!(
                outcome_if_missing(now.clone(), &planned),
                missing,
                "{now:?}"
            );
            assert_eq!(
                outcome_if_unanswered(now.clone(), &planned),
                unanswered,
                "{now:?}"
            );
        }
    }

    #[test]
    fn a_failed_delete_names_the_error_of_the_kernel() {
        let error = DeleteError::Kernel(Errno::PERM).to_string();
        assert_eq!(error, "EPERM: Operation not permitted");
    }
}
