//! `ctk doctor`: finds problems of a node, with evidence.
//!
//! One scan of the table feeds every check of [`crate::doctor`]. This module reads the facts, runs the checks and prints
//! their findings.

mod facts;
mod namespaces;
mod report;
mod text;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::doctor::{DoctorArgs, DoctorFormat};
use crate::doctor::{
    Examination, Facts, MAX_SAMPLED, Results, Scan, Severity, catalogue, is_worse_source,
    limit_activity, needs_sample,
};
use crate::error::{CommandError, ExitStatus};
use crate::output::{Palette, Summary};
use ctk_cluster::read_scope::ReadScope;
use ctnetlink::netns::Netns;
use ctnetlink::{Table, TableKind};

use crate::query::{BuiltinCluster, EntryQuery, SourceQuery, source};
use crate::session::caveats::{self, Caveats};
use crate::session::cluster::{self, Cluster};
use crate::session::cluster_source::Purpose;
use crate::session::pipeline::EntryPipeline;
use crate::session::pod_choice;
use crate::session::sample::Sample;
use crate::session::table_access;
use crate::session::table_scan::{self, Looks};
use crate::terminal::messages::{self, note};
use crate::terminal::screen::can_repaint;
use report::{Report, summary_counts};

pub fn run(builtin: BuiltinCluster, args: &DoctorArgs) -> Result<ExitStatus, CommandError> {
    if args.list {
        return list(args);
    }
    if args.watch.is_some() && args.report.format == DoctorFormat::Json {
        return Err(CommandError::usage("--watch prints no single document")
            .hint("-o jsonl prints a finding a line, with the time"));
    }
    if let Some(several) = source::several(&args.source.netns) {
        return namespaces::run(builtin, args, several);
    }
    let source = SourceQuery::new(&args.source, builtin)?;
    match args.watch {
        None => {
            let diagnosis = Diagnosis::run(args, &source, &mut History::default())?;
            match diagnosis.print(args) {
                Ok(()) => Ok(diagnosis.status()),
                Err(error) => messages::unwritten(error),
            }
        }
        Some(interval) => follow(args, &source, interval),
    }
}

/// Prints every check with what it looks for.
fn list(args: &DoctorArgs) -> Result<ExitStatus, CommandError> {
    if args.report.format != DoctorFormat::Table {
        return Err(CommandError::usage("--list is text").hint("leave -o out"));
    }
    let mut stdout = io::stdout();
    let palette = Palette::of_environment(args.report.color, stdout.is_terminal());
    let text = text::list(&catalogue(), palette);
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(ExitStatus::Done),
        Err(error) => messages::unwritten(error),
    }
}

/// Examines the node every `interval`. A signal ends the process at once, as nothing has to be restored.
fn follow(
    args: &DoctorArgs,
    source: &SourceQuery,
    interval: Duration,
) -> Result<ExitStatus, CommandError> {
    let mut history = History::default();
    exit_on_signals(&history)?;
    loop {
        let is_first = history.source.is_none();
        match Diagnosis::run(args, source, &mut history) {
            Ok(diagnosis) => {
                if let Err(error) = diagnosis.print(args) {
                    return messages::unwritten(error);
                }
            }
            Err(error) if is_first => return Err(error),
            // A later round may succeed: an API server restarts, too.
            Err(error) => {
                history.partial.store(true, Ordering::Relaxed);
                note(error.text());
            }
        }
        std::thread::sleep(interval);
    }
}

/// Lets a signal end the process with [`ExitStatus::Partial`] once an answer was incomplete, else with [`ExitStatus::Done`].
fn exit_on_signals(history: &History) -> Result<(), CommandError> {
    let always = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM] {
        for (status, when) in [
            (ExitStatus::Partial, &history.partial),
            (ExitStatus::Done, &always),
        ] {
            let code = status.code().into();
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(when))
                .map_err(|error| CommandError::failed("watching signals").with_source(error))?;
        }
    }
    Ok(())
}

/// Source and notes of earlier rounds.
#[derive(Default)]
struct History {
    /// The cluster source; `None` before the first round.
    source: Option<&'static str>,
    /// Notes of the previous round, which are not printed again.
    notes: Vec<String>,
    /// An answer was incomplete. Set before the note is printed, as a signal may come right then.
    partial: Arc<AtomicBool>,
}

impl History {
    /// Refuses a source that is worse than before: findings from the better source would vanish as if they were healed.
    fn record_source(&mut self, source: &'static str) -> Result<(), CommandError> {
        if let Some(before) = self.source.filter(|before| is_worse_source(before, source)) {
            let error =
                format!("the cluster source is gone (it was {before}), so nothing was looked at");
            return Err(CommandError::failed(error));
        }
        self.source = Some(source);
        Ok(())
    }

    fn print_new_notes(&mut self, caveats: Caveats) {
        self.partial.fetch_or(caveats.partial, Ordering::Relaxed);
        let notes = caveats.notes;
        let new = notes.iter().filter(|note| !self.notes.contains(note));
        new.for_each(note);
        self.notes = notes;
    }
}

/// Result of one examination of the node.
struct Diagnosis {
    results: Results,
    summary: Summary,
    /// Length of the sample; `None` without one.
    looked: Option<Duration>,
    /// The answer is incomplete; a note on stderr names the missing part.
    partial: bool,
}

impl Diagnosis {
    fn run(
        args: &DoctorArgs,
        source: &SourceQuery,
        history: &mut History,
    ) -> Result<Self, CommandError> {
        let is_first = history.source.is_none();
        let cluster = read_cluster(args, source, is_first)?;
        history.record_source(cluster::summary(cluster.as_ref()).source)?;
        if is_first {
            cluster::require(source, cluster.as_ref(), false)?;
        }
        let (diagnosis, caveats) = Diagnosis::of(args, &source.netns, cluster.as_ref())?;
        history.print_new_notes(caveats);
        Ok(diagnosis)
    }

    /// Examines the table of a namespace once.
    fn of(
        args: &DoctorArgs,
        netns: &Netns,
        cluster: Option<&Cluster>,
    ) -> Result<(Self, Caveats), CommandError> {
        let every_entry = EntryQuery::default();
        let mut pipeline = EntryPipeline::new(&every_entry, cluster)?;
        let mut table = Table::open(netns).map_err(table_access::netlink_error)?;
        let began = Instant::now();
        let mut facts = facts::gather(netns, cluster);
        let examination = examine(args.sample, &mut table, &mut pipeline, &mut facts)?;
        facts::look_again(&mut facts, netns, began);
        facts::compare_rules(&mut facts, netns, cluster);
        let results = examination.results(&facts, &args.thresholds);
        let scan = facts.scan;
        let mut caveats = caveats::of_table(scan.unreadable, scan.inconsistent);
        caveats.add_selection(&every_entry, false, cluster, &pipeline.counts);
        // An entry outside the known Service ranges may be a stale one that is not found.
        caveats.partial |= pipeline.counts.range_unknown > 0;
        let summary = Summary {
            shown: results.findings.len() as u64,
            scanned: scan.scanned,
            consistent: !scan.inconsistent,
            unreadable: scan.unreadable,
            cluster: cluster::summary(cluster),
            extra: summary_counts(&results),
        };
        let diagnosis = Diagnosis {
            results,
            summary,
            looked: facts.sampled,
            partial: caveats.partial,
        };
        Ok((diagnosis, caveats))
    }

    /// Writes the report in one call, so that a watch which a signal ends shows only whole reports.
    fn print(&self, args: &DoctorArgs) -> io::Result<()> {
        let report = Report {
            results: &self.results,
            summary: &self.summary,
            looked: self.looked,
            time: args.watch.map(|_| SystemTime::now()),
        };
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let text = match args.report.format {
            DoctorFormat::Table => report.to_text(
                Palette::of_environment(args.report.color, terminal),
                can_repaint(),
            ),
            DoctorFormat::Json => report.to_json()?,
            DoctorFormat::Jsonl => report.to_jsonl(),
        };
        let mut stdout = stdout.lock();
        stdout.write_all(&text)?;
        stdout.flush()
    }

    fn status(&self) -> ExitStatus {
        let found = self
            .results
            .findings
            .iter()
            .any(|f| f.severity > Severity::Info);
        match (self.partial, found) {
            (true, _) => ExitStatus::Partial,
            (false, true) => ExitStatus::Found,
            (false, false) => ExitStatus::Done,
        }
    }
}

/// Shows every entry of the table to the checks, and completes `facts` with the sample and the scan.
fn examine<'c>(
    duration: Duration,
    table: &mut Table,
    pipeline: &mut EntryPipeline<'c>,
    facts: &mut Facts<'c>,
) -> Result<Examination, CommandError> {
    let sample = match duration.is_zero() {
        true => None,
        false => Some(Sample::take_of(
            table,
            pipeline,
            duration,
            &|pipeline, stored, flow| {
                needs_sample(flow, stored, || pipeline.entry(flow.clone(), None))
            },
        )?),
    };
    facts.sampled = sample.is_some().then_some(duration);
    let is_full = sample
        .as_ref()
        .is_some_and(|sample| sample.kept() >= MAX_SAMPLED);
    let looks = Looks {
        kind: TableKind::Conntrack,
        sample: sample.as_ref(),
    };
    let before_scan: &Facts<'_> = facts;
    let (examination, report) = table_scan::gather(
        table,
        pipeline,
        looks,
        Examination::default,
        |pipeline, examination, flow, activity| {
            let activity = activity.and_then(|one| limit_activity(&flow, one, is_full));
            pipeline.show(flow, activity, |entry| {
                examination.observe(entry, before_scan);
            });
        },
    )?;
    facts.scan = Scan {
        scanned: pipeline.counts.scanned,
        unreadable: report.unreadable,
        inconsistent: report.inconsistent,
    };
    Ok(examination)
}

/// Reads the cluster source and beside it this node's rules, which decide about node ports on addresses of no Node object.
fn read_cluster(
    args: &DoctorArgs,
    source: &SourceQuery,
    is_first: bool,
) -> Result<Option<Cluster>, CommandError> {
    let scope = ReadScope {
        pods: pod_choice::choice_with_unanswered(source, args.thresholds.lost_entries),
        ..ReadScope::default()
    };
    let read = match is_first {
        true => Cluster::read,
        false => Cluster::read_again,
    };
    read(source, Purpose::Show, scope)
}
