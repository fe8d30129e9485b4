//! `ctk purge`: delete exactly those.
//!
//! One scan makes the plan. Then, unless told otherwise, a wait, a second look at the cluster (and at the entries, where a
//! selector uses what changes in them), the deletes, and a look at what came back.

mod say;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::flow::Flow;
use crate::netlink::{Table, TableKind};
use crate::netns::Netns;
use crate::output::{self, Format, ItemResult, Printer, Summary};
use crate::purge::execute::{Outcome, Report, Steps, execute};
use crate::purge::plan::{Fate, IncludeWord, Plan, PlanBuilder, Planned, Policy};
use crate::verdict::is_recreated;

use super::World;
use super::args::{self, OutputArgs, SourceArgs, duration};
use super::confirm::{self, Leave};
use super::context::{self, Cluster, note};
use super::ls;
use super::pick::Picker;
use super::pods;
use super::remote::Purpose;
use super::sample::{self, Sample};
use super::select::SelectArgs;

/// How often the scan is repeated when the table changes its shape meanwhile.
const ATTEMPTS: usize = 3;
/// Between the two looks at the cluster: an EndpointSlice may lag behind its pods by about this much.
const SETTLE: Duration = Duration::from_secs(2);
/// A look right after: time for a client that asks every second to ask again.
const VERIFY: Duration = Duration::from_secs(1);
/// How soon a signal ends a wait.
const GLANCE: Duration = Duration::from_millis(50);

#[derive(Args)]
#[command(after_help = "Examples:
  ctk purge --stale --dry-run                    what would be deleted, and why
  ctk purge --stale --svc kube-dns               ask, then delete
  ctk purge --stale --yes -o jsonl > gone.jsonl  in a script; ctk restore gone.jsonl puts them back
  ctk purge --udp 5060 --src 10.0.0.0/24 --unreplied
  ctk purge --ip 10.13.1.2                       both directions of one address")]
pub struct PurgeArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Every entry of the table, where no selector is given
    #[arg(long, help_heading = "Deleting")]
    pub all: bool,
    /// Do not ask
    #[arg(long, short, help_heading = "Deleting")]
    pub yes: bool,
    /// Show what would be deleted, delete nothing
    #[arg(long, help_heading = "Deleting")]
    pub dry_run: bool,
    /// Refuse a larger set
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        help_heading = "Deleting"
    )]
    pub max: usize,
    /// Also delete, by verdict: draining, pending, suspect, detached
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Deleting"
    )]
    pub include: Vec<IncludeWord>,
    /// Wait between the two looks at the cluster [default: 2s with a selector by verdict, else 0]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Deleting")]
    pub settle: Option<Duration>,
    /// Look after this time which flows came back, and where to; 0 = do not look [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Deleting")]
    pub verify: Option<Duration>,
    /// Look three times during this time (at least 6s) before judging
    #[arg(long, value_name = "DURATION", value_parser = args::sample, help_heading = "Deleting")]
    pub sample: Option<Duration>,
    /// Oldest cluster FILE that a purge by verdict accepts
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s", help_heading = "Where things come from")]
    pub max_age: Duration,
}

/// What is meant by the flags, beside the table.
struct Purge<'a> {
    world: World,
    args: &'a PurgeArgs,
    netns: Netns,
    policy: Policy,
    zones: Vec<u16>,
    /// Names or verdicts were asked for, so the cluster decides what is deleted.
    by_cluster: bool,
}

pub fn run(world: World, args: &PurgeArgs) -> Result<Status, CommandError> {
    check(args)?;
    let selectors = args.select.to_selectors();
    let policy = Policy::new(&selectors, &args.include).map_err(CommandError::usage)?;
    let leave = match args.dry_run {
        true => Leave::Given,
        false => confirm::leave(args.yes, args.source.cluster_is_stdin())?,
    };
    let purge = Purge {
        world,
        args,
        netns: context::netns(&args.source)?,
        policy,
        zones: args.select.named_zones(),
        by_cluster: selectors.wants_cluster(),
    };
    let cluster = purge.read_cluster()?;
    let mut picker = purge.picker(cluster.as_ref())?;
    let mut table = Table::open(&purge.netns).map_err(context::netlink_error)?;
    let sample = sample::wanted(args.sample, args.select.refreshing)
        .map(|duration| Sample::take(&mut table, &mut picker, duration))
        .transpose()?;
    let (plan, scan) = purge.plan(&mut table, &mut picker, sample.as_ref())?;
    drop(sample);
    say::held_back(&plan);
    say::undecided(&picker.counts);
    if args.dry_run {
        return purge.show_only(&plan, &picker, &scan, cluster.as_ref());
    }
    if plan.len() > args.max {
        return Err(CommandError::usage(format!(
            "{} entries match, more than --max {}; nothing was deleted",
            plan.len(),
            args.max
        ))
        .hint("narrow the selectors, or raise --max when so many are meant"));
    }
    if plan.is_empty() {
        return purge.nothing_to_do(&scan, &plan, cluster.as_ref());
    }
    if leave == Leave::ToAsk {
        say::set(&plan, &picker, &args.output).map_err(writing)?;
        confirm::ask(&say::question(plan.len()))?;
    }
    note(say::about_to(plan.len()));
    purge.carry_out(&mut table, &plan, &scan, cluster)
}

fn check(args: &PurgeArgs) -> Result<(), CommandError> {
    if args.select.is_empty() && !args.all {
        return Err(
            CommandError::usage("purge needs a selector; nothing was deleted").hint(
                "ctk purge --stale deletes the stale entries; --all means every entry of the table",
            ),
        );
    }
    if args.all && !args.select.is_empty() {
        return Err(CommandError::usage("--all goes with no other selector"));
    }
    if args.output.sort.is_some() || args.output.limit.is_some() {
        return Err(CommandError::usage(
            "purge takes no --sort and no --limit: it deletes all that match",
        )
        .hint("--max N refuses a set that is larger than expected"));
    }
    Ok(())
}

/// How the scan went.
struct Scan {
    scanned: u64,
    unreadable: u64,
    inconsistent: bool,
}

impl<'a> Purge<'a> {
    /// The cluster, if it is to decide, must be whole and young enough; else it only gives names.
    fn read_cluster(&self) -> Result<Option<Cluster>, CommandError> {
        // Nothing of it would be shown.
        if !self.by_cluster && self.args.output.output == Format::Conntrack {
            return Ok(None);
        }
        let source = &self.args.source;
        let purpose = match self.by_cluster {
            true => Purpose::Delete,
            false => Purpose::Show,
        };
        let select = &self.args.select;
        let filter = select.to_filter()?;
        let pods = pods::choice(source, &self.netns, &filter, &select.to_selectors());
        let cluster = Cluster::read(self.world, source, &self.netns, purpose, pods)?;
        context::require_cluster(source, cluster.as_ref(), self.by_cluster)?;
        if let Some(cluster) = cluster
            .as_ref()
            .filter(|_| self.policy.selects_by_verdict())
        {
            self.accept(cluster)?;
        }
        Ok(cluster)
    }

    /// # Errors
    /// Partial: the source is incomplete or older than `--max-age`.
    fn accept(&self, cluster: &Cluster) -> Result<(), CommandError> {
        if !cluster.is_complete() {
            return Err(CommandError::new(
                Status::Partial,
                format!(
                    "the cluster source is incomplete ({}), so nothing is deleted by verdict",
                    cluster.missing().join(", ")
                ),
            )
            .hint(cluster.remedy()));
        }
        let age = cluster.age().unwrap_or_default();
        if age > self.args.max_age {
            return Err(CommandError::new(
                Status::Partial,
                format!(
                    "the cluster source is {} old, --max-age is {}: nothing was deleted",
                    humantime::format_duration(Duration::from_secs(age.as_secs())),
                    humantime::format_duration(self.args.max_age)
                ),
            )
            .hint(context::FETCH));
        }
        Ok(())
    }

    fn picker<'c>(&'c self, cluster: Option<&'c Cluster>) -> Result<Picker<'c>, CommandError> {
        let filter = self.args.select.to_filter()?;
        Picker::new(filter, &self.args.select, &self.zones, cluster)
    }

    /// Scans the table once, or again where it changed its shape meanwhile.
    fn plan(
        &self,
        table: &mut Table,
        picker: &mut Picker<'_>,
        sample: Option<&Sample>,
    ) -> Result<(Plan, Scan), CommandError> {
        let spoiled = sample.is_some_and(|sample| sample.inconsistent);
        for attempt in 1.. {
            picker.start_over();
            let mut builder = PlanBuilder::default();
            let (mut unreadable, mut inconsistent) = (0, false);
            for filter in picker.filter().dumps() {
                let began = Instant::now();
                let dump = table.dump_timed(TableKind::Conntrack, &filter, &mut |flow, at| {
                    let seen = sample.map(|sample| sample.seen(&flow, at));
                    if let Some(entry) = picker.consider(flow, seen) {
                        picker.count_reason(&entry);
                        let fate = self.fate(&entry);
                        let reason = entry.judgement.map(|judgement| judgement.reason);
                        let flow = entry.flow;
                        builder.add(Planned { flow, reason, seen }, fate);
                    }
                    ControlFlow::Continue(())
                });
                let dump = dump.map_err(context::netlink_error)?;
                tracing::info!(took = ?began.elapsed(), ?dump, "scan");
                unreadable += dump.unreadable;
                inconsistent |= !dump.is_consistent();
            }
            if !inconsistent || attempt >= ATTEMPTS {
                let scanned = picker.counts.scanned;
                let scan = Scan {
                    scanned,
                    unreadable,
                    inconsistent: inconsistent || spoiled,
                };
                return Ok((builder.finish(inconsistent), scan));
            }
        }
        Err(CommandError::failed("the table could not be scanned"))
    }

    fn fate(&self, entry: &Entry<'_>) -> Fate {
        let reason = entry.judgement.map(|judgement| judgement.reason);
        self.policy.fate(&entry.flow, reason, entry.replies)
    }

    fn printer(&self) -> Printer<'static> {
        ls::printer(&self.args.output, true)
    }

    /// `--dry-run`.
    fn show_only(
        &self,
        plan: &Plan,
        picker: &Picker<'_>,
        scan: &Scan,
        cluster: Option<&Cluster>,
    ) -> Result<Status, CommandError> {
        let would = ItemResult {
            result: "would-delete",
            error: None,
        };
        let mut printer = self.printer();
        let mut print = || {
            for planned in plan.planned() {
                printer.entry(&say::entry(picker, planned), Some(&would))?;
            }
            printer.finish(&self.summary(plan, &Report::default(), 0, scan, cluster))
        };
        closed_is_done(print())?;
        note(format!("{} entries would be deleted", plan.len()));
        if plan.len() > self.args.max {
            note(format!(
                "that is more than --max {}: without --dry-run it would be refused",
                self.args.max
            ));
        }
        Ok(say::partial_scan(scan.unreadable, scan.inconsistent))
    }

    fn nothing_to_do(
        &self,
        scan: &Scan,
        plan: &Plan,
        cluster: Option<&Cluster>,
    ) -> Result<Status, CommandError> {
        let summary = self.summary(plan, &Report::default(), 0, scan, cluster);
        closed_is_done(self.printer().finish(&summary))?;
        note("0 entries deleted: nothing matched");
        Ok(say::partial_scan(scan.unreadable, scan.inconsistent))
    }

    fn carry_out(
        &self,
        table: &mut Table,
        plan: &Plan,
        scan: &Scan,
        first: Option<Cluster>,
    ) -> Result<Status, CommandError> {
        let by_verdict = self.policy.selects_by_verdict();
        let settle = self
            .args
            .settle
            .unwrap_or(if by_verdict { SETTLE } else { Duration::ZERO });
        std::thread::sleep(settle);
        // Deleting acts on the newest word there is. What cannot be read again is held against its age once more.
        let again = self.by_cluster && first.as_ref().is_some_and(Cluster::can_be_read_again);
        let cluster = match again {
            true => self.read_cluster()?,
            false => first,
        };
        if by_verdict && let Some(cluster) = &cluster {
            self.accept(cluster)?;
        }
        let mut picker = self.picker(cluster.as_ref())?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| {
                CommandError::failed(format!("signals cannot be caught: {error}"))
            })?;
        }
        let report = self.delete(table, plan, &mut picker, !again, &stop);
        let (report, mut printer) = match report {
            Ok(done) => done,
            Err(error) if output::is_closed(&error) => {
                return Err(CommandError::failed(
                    "nobody reads the output any more: no further entry was deleted",
                ));
            }
            Err(error) => return Err(writing(error)),
        };
        tracing::info!(looking = ?report.looking, deleting = ?report.deleting, "deletes");
        let back = self.verify(table, plan, &report, &picker, &stop);
        let came_back = back.unwrap_or_default();
        let summary = self.summary(plan, &report, came_back, scan, cluster.as_ref());
        printer.finish(&summary).map_err(writing)?;
        say::outcome(&report, plan.len());
        Ok(match status(&report, came_back, scan) {
            Status::Done if back.is_none() => Status::Partial,
            status => status,
        })
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

    /// Deletes the plan and prints what became of each entry, after each batch's answers.
    fn delete(
        &self,
        table: &mut Table,
        plan: &Plan,
        picker: &mut Picker<'_>,
        not_read_again: bool,
        stop: &AtomicBool,
    ) -> io::Result<(Report, Printer<'static>)> {
        let bar = say::progress(plan.len());
        let look_again =
            self.args.select.uses_what_changes() || (self.by_cluster && not_read_again);
        let printer = std::cell::RefCell::new(self.printer());
        let picker = std::cell::RefCell::new(picker);
        let report = execute(
            table,
            plan,
            Steps {
                still_wanted: &mut |planned: &Planned, flow: &Flow| {
                    // One more look tells nothing new about refills, unless it shows another entry.
                    let seen = planned.seen.filter(|_| !is_recreated(&planned.flow, flow));
                    let entry = picker.borrow_mut().consider(flow.clone(), seen);
                    entry.is_some_and(|entry| self.fate(&entry) == Fate::Planned)
                },
                look_again,
                on_outcome: &mut |planned: &Planned, outcome: &Outcome| {
                    let entry = say::entry(&picker.borrow(), planned);
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
        Ok((report?, printer.into_inner()))
    }

    fn summary(
        &self,
        plan: &Plan,
        report: &Report,
        came_back: u64,
        scan: &Scan,
        cluster: Option<&Cluster>,
    ) -> Summary {
        let mut held = serde_json::Map::new();
        for (why, count) in plan.held() {
            held.insert(why.name().to_owned(), count.into());
        }
        let mut extra = serde_json::Map::new();
        for (key, count) in [
            ("matched", plan.len() as u64),
            ("deleted", report.deleted),
            ("already_gone", report.already_gone),
            ("replaced", report.replaced),
            ("changed", report.changed),
            ("failed", report.failed),
            ("held_back", plan.held().map(|(_, count)| count).sum()),
            ("came_back", came_back),
        ] {
            extra.insert(key.to_owned(), count.into());
        }
        extra.insert("held_back_by".to_owned(), held.into());
        let mut source = context::cluster_summary(cluster);
        if let Some(cluster) = cluster {
            let again = cluster.can_be_read_again();
            source.extra.insert("read_again".to_owned(), again.into());
        }
        Summary {
            shown: plan.len() as u64,
            scanned: scan.scanned,
            consistent: !scan.inconsistent,
            unreadable: scan.unreadable,
            cluster: source,
            extra,
        }
    }
}

fn status(report: &Report, came_back: u64, scan: &Scan) -> Status {
    if report.tried > 0 && report.refused == report.tried {
        Status::NotPermitted
    } else if report.failed > 0 || came_back > 0 || report.stopped {
        Status::Partial
    } else {
        say::partial_scan(scan.unreadable, scan.inconsistent)
    }
}

fn writing(error: io::Error) -> CommandError {
    CommandError::failed(format!("writing the output: {error}"))
}

/// Where nothing was deleted a closed pipe ends quietly.
fn closed_is_done(result: io::Result<()>) -> Result<(), CommandError> {
    match result {
        Err(error) if !output::is_closed(&error) => Err(writing(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_a_refusal_of_all_from_a_failure_of_some() {
        let scan = |unreadable, inconsistent| Scan {
            scanned: 9,
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
