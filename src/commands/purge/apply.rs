//! The part of a purge that changes the table: the second look, the deletes, and the look at what came back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::output::{ItemResult, Printer};
use crate::purge::execute::{Outcome, Report, Steps, execute};
use crate::purge::plan::{Plan, Planned};
use crate::purge::veto::Vetoes;
use ctnetlink::Table;
use ctnetlink::flow::Flow;

use super::lingering::Lingering;
use super::second_look::SecondLook;
use super::{Purge, Scan, say};
use crate::session::cluster::Cluster;
use crate::session::pipeline::EntryPipeline;
use crate::terminal::messages::{note, writing};
use crate::terminal::signals;

/// Between the two looks at the cluster: an EndpointSlice may lag behind its pods by about this much.
const DEFAULT_SETTLE: Duration = Duration::from_secs(2);
/// A look right after: time for a client that asks every second to ask again.
const VERIFY: Duration = Duration::from_secs(1);
/// The same where this node's rules still lead to a dead endpoint.
const VERIFY_LINGERING: Duration = Duration::from_secs(3);
/// How soon a signal ends a wait.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Purge<'_> {
    /// Deletes the plan and says what became of it.
    pub(super) fn apply(
        &self,
        table: &mut Table,
        plan: &Plan,
        scan: &Scan,
        first: Option<Cluster>,
    ) -> Result<Status, CommandError> {
        let by_verdict = self.policy.selects_by_verdict();
        let settle = self.args.settle.unwrap_or(if by_verdict {
            DEFAULT_SETTLE
        } else {
            Duration::ZERO
        });
        let look = self.look_again(first, plan, settle)?;
        let mut pipeline = self.picker_again(&look)?;
        let lingering = self.say_of(&look, plan, &pipeline);
        let stop = Arc::new(AtomicBool::new(false));
        signals::set_on_signals(&stop)?;
        note(say::about_to(plan.len()));
        let (report, vetoes, mut printer) = self.delete(table, plan, &mut pipeline, &look, &stop);
        say::vetoes(vetoes);
        if let Some(error) = &report.unwritten {
            say::outcome(&report, plan.len());
            return Err(CommandError::new(
                Status::Partial,
                format!("the output cannot be written: {error}; no further batch was sent"),
            )
            .hint("up to 128 of the deleted entries are missing from the output"));
        }
        tracing::info!(looking = ?report.looking, deleting = ?report.deleting, "deletes");
        let wait = self.verify_after(plan, &lingering);
        let back = self.verify(table, plan, &report, &pipeline, wait, &stop);
        let came_back = back.unwrap_or_default();
        let cluster = look.cluster.as_ref();
        let summary = self.summary(plan, &report, came_back, scan, cluster);
        printer.finish(&summary).map_err(writing)?;
        say::outcome(&report, plan.len());
        say::ipvs(cluster);
        Ok(match status(&report, came_back, scan, vetoes) {
            Status::Done if back.is_none() => Status::Partial,
            status => status,
        })
    }

    /// How long after the deletes to look what came back: long enough for the slowest client that `--sample` saw, and for
    /// clients that ask every two seconds where something is expected to come back.
    fn verify_after(&self, plan: &Plan, lingering: &Lingering) -> Duration {
        let usual = match lingering.may_come_back() {
            true => VERIFY_LINGERING,
            false => VERIFY,
        };
        let sampled = plan.planned().iter().filter_map(|planned| planned.seen);
        let slowest = sampled.filter_map(|seen| seen.longest_interval()).max();
        self.args
            .verify
            .unwrap_or(slowest.map_or(usual, |slowest| slowest.max(usual)))
    }

    /// Waits, and counts what came back; `None` when that could not be told. A signal ends the wait.
    fn verify(
        &self,
        table: &mut Table,
        plan: &Plan,
        report: &Report,
        pipeline: &EntryPipeline<'_>,
        wait: Duration,
        stop: &AtomicBool,
    ) -> Option<u64> {
        if report.ended_at.is_empty() || wait.is_zero() {
            return Some(0);
        }
        if wait > VERIFY {
            note(say::verifying(wait));
        }
        let until = Instant::now() + wait;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::thread::sleep((until - Instant::now()).min(SIGNAL_POLL_INTERVAL));
        }
        let began = Instant::now();
        let back = say::came_back(table, plan, report, pipeline);
        tracing::info!(looking = ?began.elapsed(), "looked again");
        back.inspect_err(|error| note(format!("what came back is not known: {error}")))
            .ok()
    }

    /// Deletes the plan and prints what became of each entry, after each batch's answers.
    fn delete(
        &self,
        table: &mut Table,
        plan: &Plan,
        pipeline: &mut EntryPipeline<'_>,
        look: &SecondLook,
        stop: &AtomicBool,
    ) -> (Report, Vetoes, Printer<'static>) {
        let bar = say::progress(plan.len());
        let by_verdict = self.policy.selects_by_verdict();
        let vetoes = Cell::new(Vetoes::default());
        // The state of a connection decides between a stale one and one that is only detached.
        let verdict_may_change = by_verdict
            && plan
                .planned()
                .iter()
                .any(|planned| planned.flow.state.is_some());
        let look_again = self.entries.uses_changing_values
            || (self.entries.needs_cluster() && !look.read_again)
            || verdict_may_change;
        let printer = RefCell::new(self.printer());
        let pipeline = RefCell::new(pipeline);
        // Of one batch, by place in the plan: an entry that was judged as it was planned is printed as it was judged.
        let judged: RefCell<VecDeque<(*const Planned, Entry<'_>)>> = RefCell::default();
        let report = execute(
            table,
            plan,
            Steps {
                still_wanted: &mut |planned: &Planned, flow: &Flow| {
                    let mut pipeline = pipeline.borrow_mut();
                    let decision = self.decide(&mut pipeline, look.cluster.as_ref(), planned, flow);
                    let mut so_far = vetoes.get();
                    so_far.add(decision.veto);
                    vetoes.set(so_far);
                    if let Some(entry) = decision.entry.filter(|_| !look_again) {
                        judged.borrow_mut().push_back((planned, entry));
                    }
                    decision.deletes
                },
                look_again,
                on_outcome: &mut |planned: &Planned, outcome: &Outcome| {
                    let mut judged = judged.borrow_mut();
                    let is_kept = judged
                        .front()
                        .is_some_and(|(at, _)| std::ptr::eq(*at, planned));
                    let kept = if is_kept { judged.pop_front() } else { None };
                    let entry = match kept {
                        Some((_, entry)) => entry,
                        None => say::entry(&pipeline.borrow(), planned),
                    };
                    let error = match outcome {
                        Outcome::Failed(error) => Some(error.clone()),
                        _ => None,
                    };
                    let result = ItemResult {
                        result: outcome.name(),
                        error,
                    };
                    say::failure(&entry, &result);
                    printer.borrow_mut().entry(&entry, Some(&result))
                },
                after_batch: &mut |done: usize| {
                    bar.set_position(done as u64);
                    printer.borrow_mut().flush()
                },
                stop,
            },
        );
        bar.finish_and_clear();
        (report, vetoes.get(), printer.into_inner())
    }
}

fn status(report: &Report, came_back: u64, scan: &Scan, vetoes: Vetoes) -> Status {
    let of_scan = say::ended(scan, vetoes);
    if report.tried > 0 && report.refused == report.tried {
        Status::NotPermitted
    } else if report.failed > 0 || came_back > 0 || report.stopped {
        Status::Partial
    } else {
        of_scan
    }
}

#[cfg(test)]
mod tests {
    use super::super::suspects::Suspects;
    use super::*;

    #[test]
    fn the_status_tells_a_refusal_of_all_from_a_failure_of_some() {
        let scan = |unreadable, inconsistent| Scan {
            scanned: 9,
            unjudged: false,
            suspects: Suspects::new(&[], false),
            unreadable,
            inconsistent,
        };
        let whole = scan(0, false);
        let report = |tried, refused, failed| Report {
            tried,
            refused,
            failed,
            ..Report::default()
        };
        let stopped = Report {
            stopped: true,
            ..report(3, 0, 0)
        };
        for (report, came_back, scan, wanted) in [
            (report(3, 0, 0), 0, &whole, Status::Done),
            (report(0, 0, 0), 0, &whole, Status::Done),
            (report(3, 3, 3), 0, &whole, Status::NotPermitted),
            (report(3, 1, 1), 0, &whole, Status::Partial),
            (report(3, 0, 1), 0, &whole, Status::Partial),
            (report(3, 0, 0), 1, &whole, Status::Partial),
            (stopped, 0, &whole, Status::Partial),
            (report(3, 0, 0), 0, &scan(1, false), Status::Partial),
            (report(3, 0, 0), 0, &scan(0, true), Status::Partial),
        ] {
            let ended = status(&report, came_back, scan, Vetoes::default());
            assert_eq!(ended, wanted, "{report:?}");
        }
    }
}
