//! Deletes a plan, batch by batch, and says what happened to each entry.
//!
//! Each delete names its entry by reply tuple, id and zone ([`DeleteTarget`]): the id alone is a hash that a new entry in
//! the same place has, too, while the reply tuple pins the endpoint. What the kernel does not find under that name is
//! looked up once more, to tell an entry that ended from one that was made anew.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use ctnetlink::flow::{Direction, Flow};
use ctnetlink::{DeleteTarget, MAX_BATCH, Table};

use super::plan::{Plan, Planned};

/// What became of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Deleted,
    /// It ended by itself, or somebody else deleted it.
    AlreadyGone,
    /// Its original tuple is alive with another reply tuple: a new entry, which is left alone.
    Replaced,
    /// It does not match any more, and is left alone.
    Changed,
    /// The kernel's answer, with its name.
    Failed(String),
}

impl Outcome {
    /// The word of JSON's `result`.
    pub const fn name(&self) -> &'static str {
        match self {
            Outcome::Deleted => "deleted",
            Outcome::AlreadyGone => "already-gone",
            Outcome::Replaced => "replaced",
            Outcome::Changed => "changed",
            Outcome::Failed(_) => "failed",
        }
    }
}

/// How an execution went.
#[derive(Debug, Default)]
pub struct Report {
    pub deleted: u64,
    pub already_gone: u64,
    pub replaced: u64,
    pub changed: u64,
    pub failed: u64,
    /// Deletes that were sent to the kernel, and those that were not because looking at the entry was refused.
    pub tried: u64,
    /// Of those, the ones that it refused with EPERM.
    pub refused: u64,
    /// Stopped between two batches before the end of the plan.
    pub stopped: bool,
    /// Positions in the plan of what was deleted or already gone, in order: what may come back.
    pub ended_at: Vec<u32>,
    /// What writing said, where that ended it. Of the last batch not every outcome was told then.
    pub unwritten: Option<io::Error>,
    /// Time spent looking at entries before they were deleted.
    pub looking: Duration,
    /// Time spent deleting, the kernel's answers included.
    pub deleting: Duration,
}

/// What executing needs to know and to tell.
pub struct Steps<'a> {
    /// Whether the entry still passes every selector. Called with the flow as it is now when `look_again`, else with the
    /// planned one.
    pub still_wanted: &'a mut dyn FnMut(&Planned, &Flow) -> bool,
    /// Look each entry up right before it is deleted, because a selector uses what can change in it.
    pub look_again: bool,
    /// Told of every entry after its batch was answered.
    pub on_outcome: &'a mut dyn FnMut(&Planned, &Outcome) -> io::Result<()>,
    /// Told after each batch, with the number of entries done.
    pub after_batch: &'a mut dyn FnMut(usize) -> io::Result<()>,
    /// Set by a signal: no further batch is sent.
    pub stop: &'a AtomicBool,
}

/// Works through `plan`. One failure does not keep the rest from being deleted.
///
/// When `on_outcome` or `after_batch` fails, no further batch is sent: what is deleted must be told.
pub fn execute(table: &mut Table, plan: &Plan, steps: Steps<'_>) -> Report {
    let mut report = Report::default();
    let mut done = 0;
    for batch in plan.planned().chunks(MAX_BATCH) {
        if steps.stop.load(Ordering::Relaxed) {
            report.stopped = true;
            break;
        }
        let outcomes = delete_batch(
            table,
            batch,
            &mut report,
            steps.look_again,
            steps.still_wanted,
        );
        for (position, (planned, outcome)) in batch.iter().zip(&outcomes).enumerate() {
            report.count(outcome);
            if matches!(outcome, Outcome::Deleted | Outcome::AlreadyGone) {
                // A plan of more entries than a u32 counts does not fit into memory.
                report.ended_at.push((done + position) as u32);
            }
            if report.unwritten.is_none() {
                report.unwritten = (steps.on_outcome)(planned, outcome).err();
            }
        }
        done += batch.len();
        if report.unwritten.is_none() {
            report.unwritten = (steps.after_batch)(done).err();
        }
        if report.unwritten.is_some() {
            break;
        }
    }
    report
}

impl Report {
    fn count(&mut self, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Deleted => &mut self.deleted,
            Outcome::AlreadyGone => &mut self.already_gone,
            Outcome::Replaced => &mut self.replaced,
            Outcome::Changed => &mut self.changed,
            Outcome::Failed(_) => &mut self.failed,
        };
        *count += 1;
    }
}

/// One outcome for each entry of the batch.
fn delete_batch(
    table: &mut Table,
    batch: &[Planned],
    report: &mut Report,
    look_again: bool,
    still_wanted: &mut dyn FnMut(&Planned, &Flow) -> bool,
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut targets = Vec::with_capacity(batch.len());
    let mut places = Vec::with_capacity(batch.len());
    let began = Instant::now();
    let mut looks = if look_again {
        current(table, batch).into_iter()
    } else {
        Vec::new().into_iter()
    };
    for (place, planned) in batch.iter().enumerate() {
        let before = match (look_again, looks.next()) {
            (false, _) => (!still_wanted(planned, &planned.flow)).then_some(Outcome::Changed),
            (true, Some(now)) => look(now, planned, still_wanted, report),
            (true, None) => Some(Outcome::Failed("the second look gave no answer".to_owned())),
        };
        // The outcome of what is sent is known with the answer.
        let outcome = match (before, DeleteTarget::of(&planned.flow)) {
            (Some(outcome), _) => outcome,
            (None, Some(target)) => {
                targets.push(target);
                places.push(place);
                Outcome::Deleted
            }
            (None, None) => Outcome::Failed("the kernel gave it no id".to_owned()),
        };
        outcomes.push(outcome);
    }
    let looked = Instant::now();
    report.looking += looked - began;
    let (mut missing, mut unanswered) = (Vec::new(), Vec::new());
    for (place, answer) in places.into_iter().zip(table.delete(&targets)) {
        report.tried += 1;
        match answer {
            Ok(()) => {}
            Err(Errno::NOENT) => missing.push(place),
            // The answer was lost, not the request.
            Err(Errno::NOBUFS | Errno::TIMEDOUT) => unanswered.push(place),
            Err(errno) => {
                report.refused += u64::from(errno == Errno::PERM);
                outcomes[place] = Outcome::Failed(name(errno));
            }
        }
    }
    let flows = missing.iter().map(|place| &batch[*place]);
    for (place, now) in missing.iter().zip(current(table, flows)) {
        outcomes[*place] = gone(now, &batch[*place].flow);
    }
    let flows = unanswered.iter().map(|place| &batch[*place]);
    for (place, now) in unanswered.iter().zip(current(table, flows)) {
        outcomes[*place] = unheard(now, &batch[*place].flow);
    }
    report.deleting += looked.elapsed();
    outcomes
}

/// Why the entry must be left, by a look at it; `None` when it is as it was planned.
fn look(
    now: Result<Option<Flow>, Errno>,
    planned: &Planned,
    still_wanted: &mut dyn FnMut(&Planned, &Flow) -> bool,
    report: &mut Report,
) -> Option<Outcome> {
    match now {
        Err(errno) => {
            let refused = u64::from(errno == Errno::PERM);
            report.tried += refused;
            report.refused += refused;
            Some(Outcome::Failed(name(errno)))
        }
        Ok(None) => Some(Outcome::AlreadyGone),
        Ok(Some(flow)) if flow.reply != planned.flow.reply => Some(Outcome::Replaced),
        Ok(Some(flow)) if flow.id != planned.flow.id => Some(Outcome::AlreadyGone),
        Ok(Some(flow)) => (!still_wanted(planned, &flow)).then_some(Outcome::Changed),
    }
}

/// What stands in the place of an entry that the kernel did not find.
fn gone(now: Result<Option<Flow>, Errno>, planned: &Flow) -> Outcome {
    match now {
        Ok(Some(flow)) if flow.reply != planned.reply => Outcome::Replaced,
        Ok(_) => Outcome::AlreadyGone,
        Err(errno) => Outcome::Failed(name(errno)),
    }
}

/// What came of a delete whose answer was lost.
fn unheard(now: Result<Option<Flow>, Errno>, planned: &Flow) -> Outcome {
    match now {
        Ok(Some(flow)) if flow.reply == planned.reply && flow.id == planned.id => {
            Outcome::Failed("the kernel's answer was lost, and the entry is still there".to_owned())
        }
        Ok(Some(flow)) if flow.reply != planned.reply => Outcome::Replaced,
        Ok(_) => Outcome::Deleted,
        Err(errno) => Outcome::Failed(name(errno)),
    }
}

/// For each planned entry, the one that has its original tuple and zone now.
pub(super) fn current<'p>(
    table: &mut Table,
    planned: impl IntoIterator<Item = &'p Planned>,
) -> Vec<Result<Option<Flow>, Errno>> {
    let flows = planned.into_iter().map(|planned| &planned.flow);
    table.get_all(flows.map(|flow| (&flow.original, Direction::Original, flow.zone)))
}

/// `EPERM: Operation not permitted`.
fn name(errno: Errno) -> String {
    nix::errno::Errno::from_raw(errno.raw_os_error()).to_string()
}
