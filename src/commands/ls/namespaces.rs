//! `ls --netns all` and `--netns A,B`: the tables of several namespaces in one listing, with the namespace of each entry.

use ctnetlink::{Table, TableKind};

use super::{Rows, note_counts, stream};
use crate::args::ls::{LsArgs, TableChoice};
use crate::error::{CommandError, ExitStatus};
use crate::output::{Format, SortOrder, Sorter, Summary};
use crate::query::{self, BuiltinCluster, EntryQuery, SourceQuery};
use crate::session::caveats;
use crate::session::namespaces::{GIVE_ONE, Namespaces, Scanned, Visited, refuse_names};
use crate::session::pipeline::EntryPipeline;
use crate::session::table_scan::{self, Looks};
use crate::terminal::messages::note;
use crate::terminal::printing::{ListingEnd, printer};
use ctnetlink::netns::Netns;

pub fn run(
    builtin: BuiltinCluster,
    args: &LsArgs,
    entries: &EntryQuery,
    text: &str,
) -> Result<ExitStatus, CommandError> {
    check(args)?;
    let source = SourceQuery::in_netns(&args.source, builtin, Netns::current());
    refuse_names(&source, entries.needs_cluster())?;
    if args.explain {
        entries.filter.explain().iter().for_each(note);
    }
    let namespaces = Namespaces::open(text);
    match print(args, entries, &namespaces) {
        Ok((visited, shown)) => Ok(print_caveats(args, entries, &visited, shown)),
        Err(end) => end.status(),
    }
}

/// Refuses what belongs to one namespace, or has no place for its name.
fn check(args: &LsArgs) -> Result<(), CommandError> {
    let refused = if args.lost_source {
        "--lost-source compares with the addresses of one namespace"
    } else if args.packet.is_some() {
        "--packet looks up the entry of one namespace"
    } else if args.sample.is_some() || args.select.refreshing {
        "several namespaces are read once: --sample and --refreshing do not go with them"
    } else if args.table == TableChoice::Expect {
        "expectations are listed for one namespace"
    } else if args.output.report.format == Format::Conntrack {
        "-o conntrack has no field for the namespace"
    } else {
        return Ok(());
    };
    Err(CommandError::usage(refused).hint(GIVE_ONE))
}

/// Prints the entries, and returns how many were shown.
fn print<'n>(
    args: &LsArgs,
    entries: &'n EntryQuery,
    namespaces: &'n Namespaces,
) -> Result<(Visited<'n>, u64), ListingEnd> {
    let mut options = query::output::options(&args.output, false);
    options.netns = true;
    let mut rows = Rows {
        printer: printer(options),
        holders: None,
    };
    let mut pipeline = EntryPipeline::new(entries, None)?.hide_own();
    let looks = Looks {
        kind: match args.table {
            TableChoice::Dying => TableKind::Dying,
            TableChoice::Unconfirmed => TableKind::Unconfirmed,
            TableChoice::Conntrack | TableChoice::Expect => TableKind::Conntrack,
        },
        sample: None,
    };
    let limit = args.output.limit;
    let mut sorter = (args.output.sort.is_some() || limit.is_some()).then(|| {
        let order = args.output.sort.clone();
        Sorter::new(order.unwrap_or_else(SortOrder::as_found), limit)
    });
    let visited = namespaces.visit(|name, mut table| {
        pipeline.enter(name);
        pipeline.start_over();
        if let Some(sorter) = &mut sorter {
            return Ok(sort(&mut table, &mut pipeline, looks, sorter));
        }
        let streamed = stream(looks, &mut table, &mut pipeline, &mut rows)?;
        Ok(streamed.map(|report| (pipeline.counts, report)))
    })?;
    for entry in sorter.into_iter().flat_map(Sorter::into_sorted) {
        rows.entry(&entry)?;
    }
    let limit = limit.map_or(u64::MAX, |limit| limit as u64);
    let shown = visited.counts.passed.min(limit);
    rows.printer.finish(&Summary {
        shown,
        scanned: visited.counts.scanned,
        consistent: !visited.report.inconsistent,
        unreadable: visited.report.unreadable,
        extra: [
            ("own_connections".to_owned(), visited.counts.own.into()),
            ("netns".to_owned(), visited.read.as_slice().into()),
        ]
        .into_iter()
        .collect(),
        ..Summary::default()
    })?;
    Ok((visited, shown))
}

/// Adds the entries of one table to those of the tables before.
fn sort<'n>(
    table: &mut Table,
    pipeline: &mut EntryPipeline<'n>,
    looks: Looks<'_>,
    sorter: &mut Sorter<'n>,
) -> Scanned {
    let before = &*sorter;
    let scanned = table_scan::gather(
        table,
        pipeline,
        looks,
        || before.clone(),
        |pipeline, sorter, flow, seen| {
            pipeline.show(flow, seen, |entry| sorter.push(entry));
        },
    );
    scanned.map(|(gathered, report)| {
        *sorter = gathered;
        (pipeline.counts, report)
    })
}

/// Prints counts and caveats to stderr, and returns the exit status.
fn print_caveats(
    args: &LsArgs,
    entries: &EntryQuery,
    visited: &Visited<'_>,
    shown: u64,
) -> ExitStatus {
    let counts = &visited.counts;
    note_counts(counts, shown);
    visited.missing.iter().for_each(note);
    let report = visited.report;
    let mut caveats = caveats::of_table(report.unreadable, report.inconsistent);
    caveats.add_selection(entries, false, None, counts);
    if caveats.report() || !visited.missing.is_empty() {
        ExitStatus::Partial
    } else if args.exit_code && counts.passed > 0 {
        ExitStatus::Found
    } else {
        ExitStatus::Done
    }
}
