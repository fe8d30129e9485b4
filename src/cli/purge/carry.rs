//! The part of a purge that changes the table: the second look, the deletes, and the look at what came back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::flow::Flow;
use crate::netlink::Table;
use crate::output::{ItemResult, Printer};
use crate::purge::execute::{Outcome, Report, Steps, execute};
use crate::purge::plan::{Fate, Plan, Planned};
use crate::verdict::{Reason, is_recreated};

use super::super::cluster::Cluster;
use super::super::context::{note, writing};
use super::super::node_rules;
use super::super::pick::Picker;
use super::super::stop;
use super::super::wanted;
use super::{Purge, Scan, say};

/// Between the two looks at the cluster: an EndpointSlice may lag behind its pods by about this much.
const SETTLE: Duration = Duration::from_secs(2);
/// A look right after: time for a client that asks every second to ask again.
const VERIFY: Duration = Duration::from_secs(1);
/// How soon a signal ends a wait.
const GLANCE: Duration = Duration::from_millis(50);

impl Purge<'_> {
    /// Deletes the plan and says what became of it.
    pub(super) fn carry_out(
        &self,
        table: &mut Table,
        plan: &Plan,
        scan: &Scan,
        mut first: Option<Cluster>,
    ) -> Result<Status, CommandError> {
        let by_verdict = self.policy.selects_by_verdict();
        let settle = self
            .args
            .settle
            .unwrap_or(if by_verdict { SETTLE } else { Duration::ZERO });
        if !settle.is_zero() {
            note(say::waiting(plan.len(), settle));
            std::thread::sleep(settle);
        }
        // Deleting acts on the newest word there is. What cannot be read again is held against its age once more.
        let again = self.by_cluster && first.as_ref().is_some_and(Cluster::can_be_read_again);
        let mut cluster = match again {
            true => {
                let selectors = self.args.select.to_selectors();
                let loaded = first.as_mut().map(|cluster| &mut cluster.loaded);
                let less = loaded.and_then(|loaded| wanted::again(loaded, plan, &selectors));
                self.read_cluster(Cluster::read_again, less)?
            }
            false => first,
        };
        if let Some(cluster) = &mut cluster {
            self.add_rules(cluster, plan);
        }
        if let Some(cluster) = cluster.as_ref().filter(|_| self.by_cluster) {
            self.accept(cluster)?;
        }
        let mut picker = self.picker(cluster.as_ref())?;
        let stop = Arc::new(AtomicBool::new(false));
        stop::on_signals(&stop)?;
        note(say::about_to(plan.len()));
        let guard = cluster.as_ref().filter(|cluster| cluster.is_file());
        let (report, mut printer) = self.delete(table, plan, &mut picker, guard, !again, &stop);
        if let Some(error) = &report.unwritten {
            say::outcome(&report, plan.len());
            return Err(CommandError::new(
                Status::Partial,
                format!("the output cannot be written: {error}; no further batch was sent"),
            )
            .hint("up to 128 of the deleted entries are missing from the output"));
        }
        tracing::info!(looking = ?report.looking, deleting = ?report.deleting, "deletes");
        let back = self.verify(table, plan, &report, &picker, &stop);
        let came_back = back.unwrap_or_default();
        let summary = self.summary(plan, &report, came_back, scan, cluster.as_ref());
        printer.finish(&summary).map_err(writing)?;
        say::outcome(&report, plan.len());
        say::ipvs(cluster.as_ref());
        Ok(match status(&report, came_back, scan) {
            Status::Done if back.is_none() => Status::Partial,
            status => status,
        })
    }

    /// A new packet is translated only if this node's rules do it, whatever the cluster says: for entries that never were,
    /// the rules have a word, too. So they have for entries that may be younger than a file, which nobody writes again: see
    /// [`may_be_newer`].
    fn add_rules(&self, cluster: &mut Cluster, plan: &Plan) {
        if cluster.rules.is_some() {
            return;
        }
        let by_verdict = self.policy.selects_by_verdict() && cluster.is_file();
        let may_be_young = |planned: &Planned| by_verdict && planned.flow.start.is_none();
        let mut planned = plan.planned().iter();
        if !planned.any(|one| one.reason == Some(Reason::NoDnat) || may_be_young(one)) {
            return;
        }
        cluster.rules = node_rules::of_kube_proxy(&self.netns);
        if cluster.rules.is_none() && plan.planned().iter().any(may_be_young) {
            note(
                "an entry younger than the cluster file cannot be told: nf_conntrack_timestamp was 0 when it was made, and \
                 kube-proxy has no rules here",
            );
        }
    }

    /// Waits, and counts what came back; `None` when that could not be told. A signal ends the wait.
    fn verify(
        &self,
        table: &mut Table,
        plan: &Plan,
        report: &Report,
        picker: &Picker<'_>,
        stop: &AtomicBool,
    ) -> Option<u64> {
        let wait = self.args.verify.unwrap_or(VERIFY);
        if report.ended_at.is_empty() || wait.is_zero() {
            return Some(0);
        }
        let until = Instant::now() + wait;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::thread::sleep((until - Instant::now()).min(GLANCE));
        }
        let began = Instant::now();
        let back = say::came_back(table, plan, report, picker);
        tracing::info!(looking = ?began.elapsed(), "looked again");
        back.inspect_err(|error| note(format!("what came back is not known: {error}")))
            .ok()
    }

    /// Deletes the plan and prints what became of each entry, after each batch's answers. `file`: the source, where that is
    /// one.
    fn delete(
        &self,
        table: &mut Table,
        plan: &Plan,
        picker: &mut Picker<'_>,
        file: Option<&Cluster>,
        not_read_again: bool,
        stop: &AtomicBool,
    ) -> (Report, Printer<'static>) {
        let bar = say::progress(plan.len());
        let by_verdict = self.policy.selects_by_verdict();
        let led_to = Cell::new(0);
        // The state of a connection decides between a stale one and one that is only detached.
        let verdict_may_change = by_verdict
            && plan
                .planned()
                .iter()
                .any(|planned| planned.flow.state.is_some());
        let look_again = self.args.select.uses_what_changes()
            || (self.by_cluster && not_read_again)
            || verdict_may_change;
        let printer = RefCell::new(self.printer());
        let picker = RefCell::new(picker);
        // Of one batch, by place in the plan: an entry that was judged as it was planned is printed as it was judged.
        let judged: RefCell<VecDeque<(*const Planned, Entry<'_>)>> = RefCell::default();
        let report = execute(
            table,
            plan,
            Steps {
                still_wanted: &mut |planned: &Planned, flow: &Flow| {
                    // One more look tells nothing new about refills, unless it shows another entry.
                    let seen = planned.seen.filter(|_| !is_recreated(&planned.flow, flow));
                    let Some(entry) = picker.borrow_mut().consider(flow.clone(), seen) else {
                        return false;
                    };
                    let newer = by_verdict && file.is_some_and(|file| may_be_newer(flow, file));
                    led_to.set(led_to.get() + u64::from(newer));
                    let wanted = !newer && self.fate(&entry) == Fate::Planned;
                    if !look_again {
                        judged.borrow_mut().push_back((planned, entry));
                    }
                    wanted
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
                        None => say::entry(&picker.borrow(), planned),
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
        if led_to.get() > 0 {
            note(format!(
                "{} left, because this node's rules lead to their endpoints, which the file does not have: it is older than \
                 they are, or kube-proxy is behind; fetch it again",
                led_to.get()
            ));
        }
        (report, printer.into_inner())
    }
}

fn status(report: &Report, came_back: u64, scan: &Scan) -> Status {
    let of_scan = say::scan(scan);
    if report.tried > 0 && report.refused == report.tried {
        Status::NotPermitted
    } else if report.failed > 0 || came_back > 0 || report.stopped {
        Status::Partial
    } else {
        of_scan
    }
}

/// When the entry was made is not known, and this node's rules lead to where it leads: its endpoint may be newer than the
/// file that does not have it.
fn may_be_newer(flow: &Flow, file: &Cluster) -> bool {
    let (None, Some(rules), Some(to), Some(from)) = (
        flow.start,
        file.node_rules(),
        flow.original.dport(),
        flow.reply.sport(),
    ) else {
        return false;
    };
    let local = file.node.owns(file.index(), flow.original.dst) == Some(true);
    let frontend = rules.frontend(flow.original.dst, flow.protocol(), to, local);
    frontend.is_some_and(|frontend| {
        let mut leads_to = frontend.targets.iter().chain(&frontend.draining);
        // Where a rule is not understood, it may.
        !frontend.understood
            || leads_to.any(|target| target.ip() == flow.reply.src && target.port() == from)
    })
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
            assert_eq!(status(&report, came_back, scan), wanted, "{report:?}");
        }
    }
}
