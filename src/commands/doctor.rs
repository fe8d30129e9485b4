//! `ctk doctor`: what is wrong here, with evidence.
//!
//! One scan of the table feeds every check of [`crate::doctor`]; this module reads what they need to know, runs them and
//! prints what they found.

mod facts;
mod say;

use crate::args::doctor::{DoctorArgs, DoctorFormat};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::doctor::{Examination, Finding, Scan, Severity};
use crate::error::{CommandError, Status};
use crate::output::Summary;
use crate::verdict::Seen;
use ctk_cluster::read_scope::ReadScope;
use ctk_cluster::source::ClusterSource;
use ctnetlink::flow::Flow;
use ctnetlink::{Table, TableKind};

use crate::query::{BuiltinCluster, EntryQuery, SourceQuery};
use crate::session::caveats::{self, Caveats};
use crate::session::cluster::{self, Cluster};
use crate::session::cluster_source::Purpose;
use crate::session::node_rules;
use crate::session::pipeline::EntryPipeline;
use crate::session::pod_choice;
use crate::session::sample::Sample;
use crate::session::table_access;
use crate::session::table_scan::{self, Looks};
use crate::terminal::messages::{self, note};
use say::Frame;

pub fn run(builtin: BuiltinCluster, args: &DoctorArgs) -> Result<Status, CommandError> {
    if args.watch.is_some() && args.report.format == DoctorFormat::Json {
        return Err(CommandError::usage("--watch prints no single document")
            .hint("-o jsonl prints a finding a line, with the time"));
    }
    let source = SourceQuery::new(&args.source, builtin)?;
    match args.watch {
        None => {
            let round = Round::run(args, &source, &mut Told::default())?;
            match round.print(args) {
                Ok(()) => Ok(round.status()),
                Err(error) => messages::unwritten(error),
            }
        }
        Some(pause) => follow(args, &source, pause),
    }
}

/// Round after round. A signal ends it at once, wherever it is: nothing has to be put back.
fn follow(
    args: &DoctorArgs,
    source: &SourceQuery,
    pause: Duration,
) -> Result<Status, CommandError> {
    let mut told = Told::default();
    let always = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM] {
        for (status, when) in [(Status::Partial, &told.partial), (Status::Done, &always)] {
            let code = status.code().into();
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(when))
                .map_err(|error| CommandError::failed(format!("watching signals: {error}")))?;
        }
    }
    loop {
        let is_first = told.source.is_none();
        match Round::run(args, source, &mut told) {
            Ok(round) => {
                if let Err(error) = round.print(args) {
                    return messages::unwritten(error);
                }
            }
            Err(error) if is_first => return Err(error),
            // What worked before may work again: an API server restarts, too.
            Err(error) => {
                told.partial.store(true, Ordering::Relaxed);
                note(error.message);
            }
        }
        std::thread::sleep(pause);
    }
}

/// What earlier rounds said.
#[derive(Default)]
struct Told {
    /// The cluster source; `None` before the first round.
    source: Option<&'static str>,
    /// Of the round before this one: the same again would bury the rest.
    notes: Vec<String>,
    /// Something was missing from an answer. Set before it is said, as a signal may come right then.
    partial: Arc<AtomicBool>,
}

impl Told {
    /// What was told by a better source must not vanish from the findings as if it were healed.
    fn may_go_on(&mut self, source: &'static str) -> Result<(), CommandError> {
        let is_worse = match self.source {
            Some("none") | None => false,
            Some("rules") => source == "none",
            Some(_) => matches!(source, "rules" | "none"),
        };
        if let Some(before) = self.source.filter(|_| is_worse) {
            let error =
                format!("the cluster source is gone (it was {before}), so nothing was looked at");
            return Err(CommandError::failed(error));
        }
        self.source = Some(source);
        Ok(())
    }

    fn say_news(&mut self, open: Caveats) {
        self.partial.fetch_or(open.partial, Ordering::Relaxed);
        let notes = open.notes;
        let news = notes.iter().filter(|note| !self.notes.contains(note));
        news.for_each(note);
        self.notes = notes;
    }
}

/// One examination of the node.
struct Round {
    findings: Vec<Finding>,
    summary: Summary,
    /// Something is missing from the answer; stderr says what.
    partial: bool,
}

impl Round {
    fn run(args: &DoctorArgs, source: &SourceQuery, told: &mut Told) -> Result<Self, CommandError> {
        let is_first = told.source.is_none();
        let cluster = read_cluster(args, source, is_first)?;
        told.may_go_on(cluster::summary(cluster.as_ref()).source)?;
        if is_first {
            cluster::require(source, cluster.as_ref(), false)?;
        }
        let netns = &source.netns;
        let every_entry = EntryQuery::default();
        let mut pipeline = EntryPipeline::new(&every_entry, cluster.as_ref())?;
        let mut table = Table::open(netns).map_err(table_access::netlink_error)?;
        let began = Instant::now();
        let mut facts = facts::gather(netns, cluster.as_ref());
        let sample = match args.sample.is_zero() {
            true => None,
            false => Some(take_sample(&mut table, &mut pipeline, args.sample)?),
        };
        facts.sampled = sample.is_some().then_some(args.sample);
        let is_full = sample
            .as_ref()
            .is_some_and(|one| one.kept() >= MOST_SAMPLED);
        let looks = Looks {
            kind: TableKind::Conntrack,
            sample: sample.as_ref(),
        };
        let (examination, report) = table_scan::gather(
            &mut table,
            &mut pipeline,
            looks,
            Examination::default,
            |pipeline, examination, flow, seen| {
                let seen = seen.and_then(|seen| sampled(&flow, seen, is_full));
                pipeline.show(flow, seen, |entry| examination.see(entry, &facts));
            },
        )?;
        facts.scan = Scan {
            scanned: pipeline.counts.scanned,
            unreadable: report.unreadable,
            inconsistent: report.inconsistent,
        };
        facts::look_again(&mut facts, netns, began);
        facts::compare_rules(&mut facts, netns, cluster.as_ref());
        let findings = examination.conclude(&facts, &args.thresholds);
        let mut open = caveats::of_table(report.unreadable, report.inconsistent);
        let counts = &pipeline.counts;
        open.add_selection(&every_entry, false, cluster.as_ref(), counts);
        // Any of them may be a stale one that is not found.
        open.partial |= counts.range_unknown > 0;
        let partial = open.partial;
        told.say_news(open);
        let summary = Summary {
            shown: findings.len() as u64,
            scanned: pipeline.counts.scanned,
            consistent: !report.inconsistent,
            unreadable: report.unreadable,
            cluster: cluster::summary(cluster.as_ref()),
            extra: say::counts(&findings),
        };
        Ok(Round {
            findings,
            summary,
            partial,
        })
    }

    fn print(&self, args: &DoctorArgs) -> io::Result<()> {
        let frame = Frame {
            findings: &self.findings,
            summary: &self.summary,
            repeated: args.watch.is_some(),
        };
        frame.print(args.report.format, args.report.color)?;
        if self.findings.is_empty() && io::stderr().is_terminal() {
            note(format!("nothing found in {} entries", self.summary.scanned));
        }
        Ok(())
    }

    fn status(&self) -> Status {
        let found = self.findings.iter().any(|f| f.severity > Severity::Info);
        match (self.partial, found) {
            (true, _) => Status::Partial,
            (false, true) => Status::Found,
            (false, false) => Status::Done,
        }
    }
}

/// The cluster source, and this node's rules beside it: they decide about node ports on addresses that no Node object has.
fn read_cluster(
    args: &DoctorArgs,
    source: &SourceQuery,
    is_first: bool,
) -> Result<Option<Cluster>, CommandError> {
    let wanted = ReadScope {
        pods: pod_choice::choice_with_unanswered(source, args.thresholds.lost_entries),
        ..ReadScope::default()
    };
    let read = match is_first {
        true => Cluster::read,
        false => Cluster::read_again,
    };
    // Before the API: an endpoint that comes meanwhile must not look like one that lingers in the rules.
    let rules = match source.cluster {
        ClusterSource::None | ClusterSource::Rules(_) => None,
        _ => node_rules::of_kube_proxy(&source.netns),
    };
    let mut cluster = read(source, Purpose::Show, wanted)?;
    if let Some(cluster) = cluster.as_mut().filter(|cluster| cluster.rules.is_none()) {
        cluster.rules = rules;
    }
    Ok(cluster)
}

const UDP: u8 = 17;
/// UDP entries whose looks are kept, at 240 bytes each.
const MOST_SAMPLED: usize = 100_000;

/// Two looks at the UDP entries of which it matters whether they are kept alive or answered: those that may be stale, and
/// those of a Service whose packets are counted. What is beyond [`MOST_SAMPLED`] counts as unknown.
fn take_sample(
    table: &mut Table,
    pipeline: &mut EntryPipeline<'_>,
    duration: Duration,
) -> Result<Sample, CommandError> {
    Sample::take_of(table, pipeline, duration, &|pipeline, kept, flow| {
        if flow.protocol() != UDP || kept >= MOST_SAMPLED {
            return false;
        }
        let counted = flow.counters_reply.is_some();
        let entry = pipeline.entry(flow.clone(), None);
        let sound = entry.judgement.is_none_or(|judgement| {
            use crate::verdict::Verdict::{Ok, Unknown, Unrelated};
            matches!(judgement.verdict(), Ok | Unknown | Unrelated)
        });
        !sound || (counted && entry.names.service.is_some())
    })
}

/// What the looks say of an entry. They were at UDP only, and what found no room in them is not new for that.
fn sampled(flow: &Flow, mut seen: Seen, is_full: bool) -> Option<Seen> {
    seen.is_new &= !is_full;
    (flow.protocol() == UDP).then_some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_gets_worse_between_two_rounds_is_no_healed_cluster() {
        for (before, now, goes_on) in [
            ("api", "api", true),
            ("api", "rules", false),
            ("api", "none", false),
            ("rules", "none", false),
            ("rules", "api", true),
            ("none", "none", true),
            ("none", "api", true),
        ] {
            let mut told = Told::default();
            assert!(told.may_go_on(before).is_ok());
            assert_eq!(told.may_go_on(now).is_ok(), goes_on, "{before} {now}");
        }
    }
}
