//! `ctk purge`: delete exactly those.
//!
//! One scan makes the plan. Then, unless told otherwise, a wait, a second look at the cluster (and at the entries, where a
//! selector uses what changes in them), the deletes, and a look at what came back.

mod apply;
mod basis;
mod lingering;
mod preview;
mod say;
mod second_look;
mod source;
mod suspects;

use crate::args::purge::PurgeArgs;
use std::io;

use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::output::{Printer, Summary};
use crate::purge::execute::Report;
use crate::purge::plan::{Fate, Held, Judged, Plan, PlanBuilder, Planned, Policy};
use ctnetlink::{Table, TableKind};

use crate::query::{self, BuiltinCluster, EntryQuery, SourceQuery};
use crate::session::cluster::{self, Cluster};
use crate::session::pipeline::{Counts, EntryPipeline};
use crate::session::sample::Sample;
use crate::session::table_access;
use crate::session::table_scan::{self, Looks};
use crate::terminal::confirm::{self, Consent};
use crate::terminal::messages::{note, unwritten};
use crate::terminal::printing;
use second_look::SecondLook;
use suspects::Suspects;

/// What is meant by the flags, beside the table.
struct Purge<'a> {
    args: &'a PurgeArgs,
    entries: EntryQuery,
    source: SourceQuery,
    policy: Policy,
}

pub fn run(builtin: BuiltinCluster, args: &PurgeArgs) -> Result<Status, CommandError> {
    check(args)?;
    let entries = EntryQuery::new(&args.select)?;
    let policy = Policy::new(&entries.selectors, &args.include).map_err(CommandError::usage)?;
    let leave = match args.dry_run {
        true => Consent::Given,
        false => confirm::consent(args.yes, args.source.cluster_is_stdin())?,
    };
    let purge = Purge {
        args,
        entries,
        source: SourceQuery::new(&args.source, builtin)?,
        policy,
    };
    let cluster = purge.read_cluster(None, None)?;
    if let Some(cluster) = cluster.as_ref().filter(|_| purge.entries.needs_cluster()) {
        purge.accept(cluster)?;
    }
    let mut pipeline = purge.pipeline(cluster.as_ref())?;
    let mut table = Table::open(&purge.source.netns).map_err(table_access::netlink_error)?;
    // What was read may change before it is deleted: the sooner the better.
    table.read_ahead();
    let sample = purge
        .entries
        .sample(args.sample)
        .map(|duration| Sample::take(&mut table, &mut pipeline, duration))
        .transpose()?;
    let (plan, mut scan) = purge.plan(&mut table, &mut pipeline, sample.as_ref())?;
    drop(sample);
    let by_rules = cluster.as_ref().is_some_and(Cluster::is_rules_only);
    say::held_back(&plan, by_rules.then_some(&scan.suspects));
    say::undecided(&pipeline.counts, cluster.as_ref());
    scan.unjudged =
        purge.policy.selects_by_verdict() && unjudged(cluster.as_ref(), &pipeline.counts);
    if args.dry_run {
        return purge.show_only(&plan, &scan, cluster);
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
    let cluster = match leave {
        Consent::ToAsk => purge.ask(&plan, cluster)?,
        Consent::Given => cluster,
    };
    purge.apply(&mut table, &plan, &scan, cluster)
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

/// A verdict that was asked for is missing from the answer: the cluster source lacks what it takes, or the namespace is not
/// known to be the node's. An entry that is merely too young for the source is no such case.
fn unjudged(cluster: Option<&Cluster>, counts: &Counts) -> bool {
    let lacks = cluster.is_some_and(|cluster| !cluster.missing().is_empty());
    counts.foreign_netns > 0 || counts.range_sought > 0 || (counts.source_incomplete > 0 && lacks)
}

/// How the scan went.
struct Scan {
    scanned: u64,
    unreadable: u64,
    inconsistent: bool,
    /// A verdict was asked for and could not be given for want of a source or of the node's namespace.
    unjudged: bool,
    suspects: Suspects,
}

impl<'a> Purge<'a> {
    fn pipeline<'c>(
        &'c self,
        cluster: Option<&'c Cluster>,
    ) -> Result<EntryPipeline<'c>, CommandError> {
        EntryPipeline::new(&self.entries, cluster)
    }

    /// As [`Purge::pipeline`], by what the second look found: a name may be gone by then.
    fn picker_again<'c>(&'c self, look: &'c SecondLook) -> Result<EntryPipeline<'c>, CommandError> {
        let pipeline = self.pipeline(look.cluster.as_ref());
        pipeline.map_err(second_look::nothing_deleted)
    }

    /// Scans the table once, or again where it changed its shape meanwhile.
    fn plan(
        &self,
        table: &mut Table,
        pipeline: &mut EntryPipeline<'_>,
        sample: Option<&Sample>,
    ) -> Result<(Plan, Scan), CommandError> {
        let looks = Looks {
            kind: TableKind::Conntrack,
            sample,
        };
        let start = || {
            let suspects = Suspects::new(&self.args.include, sample.is_some());
            (PlanBuilder::default(), suspects)
        };
        let ((builder, suspects), report) = table_scan::gather(
            table,
            pipeline,
            looks,
            start,
            |pipeline, gathered, flow, seen| {
                let (builder, suspects) = gathered;
                if let Some(entry) = pipeline.consider(flow, seen) {
                    pipeline.count_reason(&entry);
                    let fate = self.fate(&entry);
                    if fate == Fate::Held(Held::Suspect) {
                        suspects.add(&entry.flow);
                    }
                    let reason = entry.judgement.map(|judgement| judgement.reason);
                    let flow = entry.flow;
                    builder.add(Planned { flow, reason, seen }, fate);
                }
            },
        )?;
        let scan = Scan {
            scanned: pipeline.counts.scanned,
            unreadable: report.unreadable,
            inconsistent: report.inconsistent,
            unjudged: false,
            suspects,
        };
        Ok((builder.finish(report.inconsistent), scan))
    }

    fn fate(&self, entry: &Entry<'_>) -> Fate {
        let judged = entry.judgement.map(Judged::from);
        self.policy.fate(&entry.flow, judged, entry.replies)
    }

    fn printer(&self) -> Printer<'static> {
        printing::printer(query::output::options(&self.args.output, true))
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
        Ok(say::scan(scan))
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
        let mut source = cluster::summary(cluster);
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

/// Where nothing was deleted a closed pipe ends quietly.
fn closed_is_done(result: io::Result<()>) -> Result<(), CommandError> {
    result.or_else(|error| unwritten(error).map(|_| ()))
}
