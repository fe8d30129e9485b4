//! `ctk purge`: deletes exactly the entries that match.
//!
//! One scan makes the plan. A wait, a second look at the cluster (and at the entries, where a selector uses values that
//! change), the deletes, and a look at the flows that came back follow. [`crate::purge`] decides; this module reads and prints.

mod apply;
mod cluster_readings;
mod messages;
mod preview;
mod suspect_advice;

use std::io;

use crate::args::purge::PurgeArgs;
use crate::error::{CommandError, ExitStatus};
use crate::output::{Printer, Summary};
use crate::purge::execute::DeleteReport;
use crate::purge::guard::VetoCounts;
use crate::purge::plan::{PlanBuilder, PurgePlan};
use crate::purge::policy::{IncludeWord, VerdictPolicy};
use crate::purge::status;
use ctnetlink::{Table, TableKind};

use crate::query::{self, BuiltinCluster, EntryQuery, SourceQuery};
use crate::session::caveats;
use crate::session::cluster::{self, Cluster};
use crate::session::pipeline::{Counts, EntryPipeline};
use crate::session::sample::Sample;
use crate::session::table_access;
use crate::session::table_scan::{self, Looks};
use crate::terminal::confirm::{self, Consent};
use crate::terminal::messages::{note, unwritten};
use crate::terminal::printing;
use suspect_advice::SuspectFlags;

/// Meaning of the command line.
struct Purge<'a> {
    args: &'a PurgeArgs,
    entries: EntryQuery,
    source: SourceQuery,
    policy: VerdictPolicy,
}

pub fn run(builtin: BuiltinCluster, args: &PurgeArgs) -> Result<ExitStatus, CommandError> {
    check(args)?;
    let entries = EntryQuery::new(&args.select)?;
    let policy =
        VerdictPolicy::new(&entries.selectors, &args.include).map_err(CommandError::usage)?;
    let consent = match args.dry_run {
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
        purge.check_cluster(cluster)?;
    }
    let mut pipeline = EntryPipeline::new(&purge.entries, cluster.as_ref())?;
    let mut table = Table::open(&purge.source.netns).map_err(table_access::netlink_error)?;
    // The scan ends sooner, so that less time passes between the scan of an entry and its delete.
    table.read_ahead();
    let sample = purge
        .entries
        .sample(args.sample)
        .map(|duration| Sample::take(&mut table, &mut pipeline, duration))
        .transpose()?;
    let (plan, scan) = purge.plan(&mut table, &mut pipeline, sample.as_ref(), cluster.as_ref())?;
    let sampled = sample.is_some();
    drop(sample);
    purge.report_scan(&plan, &pipeline.counts, cluster.as_ref(), sampled);
    if args.dry_run {
        return purge.dry_run(&plan, &scan, cluster);
    }
    plan.check_size(args.max).map_err(|error| {
        CommandError::usage(error)
            .hint("narrow the selectors, or raise --max when so many are meant")
    })?;
    if plan.is_empty() {
        return purge.finish_empty(&plan, &scan, cluster.as_ref());
    }
    let cluster = match consent {
        Consent::ToAsk => purge.ask(&plan, cluster)?,
        Consent::Given => cluster,
    };
    purge.apply(&mut table, &plan, &scan, cluster)
}

/// Checks flags against each other.
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

/// Result of the scan, besides the plan.
struct ScanSummary {
    scanned: u64,
    unreadable: u64,
    inconsistent: bool,
    /// A verdict was selected and could not be given: the cluster source lacks an object, or the namespace is not known to be
    /// the node's.
    unjudged: bool,
}

impl ScanSummary {
    /// Prints notes on what was not read. Returns whether the scan is partial.
    fn report(&self) -> bool {
        caveats::of_table(self.unreadable, self.inconsistent).report() || self.unjudged
    }
}

/// An entry was not judged for want of a source or of the node's namespace. An entry that is newer than the source does not
/// count.
fn is_unjudged(cluster: Option<&Cluster>, counts: &Counts) -> bool {
    let lacks = cluster.is_some_and(|cluster| !cluster.missing().is_empty());
    counts.foreign_netns > 0 || counts.range_sought > 0 || (counts.source_incomplete > 0 && lacks)
}

impl Purge<'_> {
    /// Scans the table, again where the scan was inconsistent.
    fn plan(
        &self,
        table: &mut Table,
        pipeline: &mut EntryPipeline<'_>,
        sample: Option<&Sample>,
        cluster: Option<&Cluster>,
    ) -> Result<(PurgePlan, ScanSummary), CommandError> {
        let looks = Looks {
            kind: TableKind::Conntrack,
            sample,
        };
        let start = || PlanBuilder::new(&self.policy);
        let (builder, report) = table_scan::gather(
            table,
            pipeline,
            looks,
            start,
            |pipeline, builder, flow, seen| {
                if let Some(entry) = pipeline.consider(flow, seen) {
                    pipeline.count_reason(&entry);
                    builder.add(entry, seen);
                }
            },
        )?;
        let scan = ScanSummary {
            scanned: pipeline.counts.scanned,
            unreadable: report.unreadable,
            inconsistent: report.inconsistent,
            unjudged: self.policy.selects_by_verdict() && is_unjudged(cluster, &pipeline.counts),
        };
        Ok((builder.finish(report.inconsistent), scan))
    }

    /// Prints notes on entries that are not in the plan.
    fn report_scan(
        &self,
        plan: &PurgePlan,
        counts: &Counts,
        cluster: Option<&Cluster>,
        sampled: bool,
    ) {
        let flags = SuspectFlags {
            included: self.policy.includes(IncludeWord::Suspect),
            sampled,
        };
        let by_rules = cluster.is_some_and(Cluster::is_rules_only);
        let advice = by_rules
            .then(|| suspect_advice::lines(plan.held_suspects(), flags, std::env::args_os()));
        messages::held_back(plan, advice).iter().for_each(note);
        messages::undecided(counts, cluster).iter().for_each(note);
    }

    fn printer(&self) -> Printer<'static> {
        printing::printer(query::output::options(&self.args.output, true))
    }

    fn finish_empty(
        &self,
        plan: &PurgePlan,
        scan: &ScanSummary,
        cluster: Option<&Cluster>,
    ) -> Result<ExitStatus, CommandError> {
        let summary = self.summary(plan, &DeleteReport::default(), 0, scan, cluster);
        closed_is_done(self.printer().finish(&summary))?;
        note("0 entries deleted: nothing matched");
        let scan_is_partial = scan.report();
        Ok(status::without_deletes(
            scan_is_partial,
            VetoCounts::default(),
        ))
    }

    fn summary(
        &self,
        plan: &PurgePlan,
        report: &DeleteReport,
        came_back: u64,
        scan: &ScanSummary,
        cluster: Option<&Cluster>,
    ) -> Summary {
        let mut held = serde_json::Map::new();
        for (reason, count) in plan.held() {
            held.insert(reason.name().to_owned(), count.into());
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

/// A closed pipe is no error where nothing was deleted.
fn closed_is_done(result: io::Result<()>) -> Result<(), CommandError> {
    result.or_else(|error| unwritten(error).map(|_| ()))
}
