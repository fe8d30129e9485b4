//! `ctk ls`: lists the entries of the table.

mod namespaces;
mod packet;
mod port_holder;

use port_holder::{PortHolders, Rows};

use crate::args::ls::{LsArgs, TableChoice};
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use crate::error::{CommandError, ExitStatus};
use crate::filter::packet::Packet;
use crate::output::{Format, SortOrder, Sorter, Summary};
use crate::plural::count;
use ctnetlink::netns::Netns;
use ctnetlink::{Table, TableKind};

use crate::args::OutputArgs;
use crate::query::{self, BuiltinCluster, EntryQuery, SourceQuery};
use crate::session::caveats;
use crate::session::cluster::{self, Cluster};
use crate::session::cluster_source::Purpose;
use crate::session::own_addresses;
use crate::session::pipeline::{Counts, EntryPipeline, Prints};
use crate::session::read_scope;
use crate::session::sample::Sample;
use crate::session::table_access;
use crate::session::table_scan::{self, Looks, ScanReport};
use crate::terminal::messages::note;
use crate::terminal::printing::{ListingEnd, printer};

pub fn run(builtin: BuiltinCluster, args: &LsArgs) -> Result<ExitStatus, CommandError> {
    check(args)?;
    let mut entries = EntryQuery::new(&args.select)?;
    if let Some(several) = query::source::several(&args.source.netns) {
        return namespaces::run(builtin, args, &entries, several);
    }
    let source = SourceQuery::new(&args.source, builtin)?;
    if args.lost_source {
        own_addresses::select_lost_sources(&mut entries, &source.netns)?;
    }
    let kind = match args.table {
        TableChoice::Conntrack => TableKind::Conntrack,
        TableChoice::Dying => TableKind::Dying,
        TableChoice::Unconfirmed => TableKind::Unconfirmed,
        TableChoice::Expect => return crate::commands::expect::run(args, &source.netns),
    };
    if args.explain {
        entries.filter.explain().iter().for_each(note);
    }
    let asked = entries.needs_cluster();
    let cluster = if asked || args.output.report.format != Format::Conntrack {
        let scope = read_scope::first(&source, &entries);
        Cluster::read(&source, Purpose::Show, scope)?
    } else {
        None
    };
    cluster::require(&source, cluster.as_ref(), asked)?;
    let mut pipeline = EntryPipeline::new(&entries, cluster.as_ref())?;
    if args.packet.is_none() {
        pipeline = pipeline.hide_own();
    }
    let mut pipeline = pipeline.for_names(printed_names(&args.output));
    let mut table = Table::open(&source.netns).map_err(table_access::netlink_error)?;
    let sample = entries
        .sample(args.sample)
        .map(|duration| Sample::take(&mut table, &mut pipeline, duration))
        .transpose()?;
    let looks = Looks {
        kind,
        sample: sample.as_ref(),
    };
    let listing = Listing {
        args,
        zones: &entries.zones,
        netns: &source.netns,
        looks,
    };
    match listing.print(&mut table, &mut pipeline, cluster.as_ref()) {
        Ok((shown, report)) => {
            if args.packet.is_none() && pipeline.counts.scanned == 0 && pipeline.filter().is_empty()
            {
                table_access::note_empty(&source.netns);
            }
            Ok(print_caveats(
                args,
                &entries,
                cluster.as_ref(),
                &pipeline,
                shown,
                &report,
            ))
        }
        Err(end) => end.status(),
    }
}

/// Refuses flags that do not go together.
fn check(args: &LsArgs) -> Result<(), CommandError> {
    let samples = args.sample.is_some() || args.select.refreshing;
    if samples && args.table != TableChoice::Conntrack {
        let flag = match args.sample {
            Some(_) => "--sample",
            None => "--refreshing",
        };
        return Err(CommandError::usage(format!(
            "{flag} goes with --table conntrack: no other list has timers that packets refill"
        ))
        .hint("drop one of the two"));
    }
    let reads_table = samples || args.output.sort.is_some() || args.output.limit.is_some();
    if args.packet.is_some() && (reads_table || args.table != TableChoice::Conntrack) {
        return Err(CommandError::usage(
            "--packet looks up one entry; it does not go with --sample, --refreshing, --sort, --limit or another --table",
        ));
    }
    query::output::check_columns(&args.output)
}

/// A listing, with what it reads.
struct Listing<'a> {
    args: &'a LsArgs,
    /// Zones that are selected.
    zones: &'a [u16],
    netns: &'a Netns,
    looks: Looks<'a>,
}

impl Listing<'_> {
    fn print<'c>(
        &self,
        table: &mut Table,
        pipeline: &mut EntryPipeline<'c>,
        cluster: Option<&'c Cluster>,
    ) -> Result<(u64, ScanReport), ListingEnd> {
        let (args, looks) = (self.args, self.looks);
        let holders = shows_evidence(&args.output).then(|| PortHolders::open(self.netns));
        let mut rows = Rows {
            printer: printer(query::output::options(&args.output, false)),
            holders: holders.transpose()?,
        };
        let OutputArgs { sort, limit, .. } = &args.output;
        let mut report = if let Some(packet) = args.packet {
            self.look_up(packet, table, pipeline, &mut rows)?
        } else if sort.is_some() || limit.is_some() {
            let order = sort.clone().unwrap_or_else(SortOrder::as_found);
            let (sorter, report) = table_scan::gather(
                table,
                pipeline,
                looks,
                || Sorter::new(order.clone(), *limit),
                |pipeline, sorter, flow, seen| {
                    pipeline.show(flow, seen, |entry| sorter.push(entry));
                },
            )
            .map_err(ListingEnd::Failed)?;
            for entry in sorter.into_sorted() {
                rows.entry(&entry)?;
            }
            report
        } else {
            stream(looks, table, pipeline, &mut rows)?.map_err(ListingEnd::Failed)?
        };
        let limit = limit.map_or(u64::MAX, |limit| limit as u64);
        report.inconsistent |= looks.sample.is_some_and(|sample| sample.inconsistent);
        let shown = pipeline.counts.passed.min(limit);
        rows.printer.finish(&Summary {
            shown,
            scanned: pipeline.counts.scanned,
            consistent: !report.inconsistent,
            unreadable: report.unreadable,
            cluster: cluster::summary(cluster),
            extra: [("own_connections".to_owned(), pipeline.counts.own.into())]
                .into_iter()
                .collect(),
        })?;
        Ok((shown, report))
    }

    /// Prints the entry of one packet, and says on stderr in which direction the packet is.
    fn look_up(
        &self,
        packet: Packet,
        table: &mut Table,
        pipeline: &mut EntryPipeline<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<ScanReport, ListingEnd> {
        let zones = match self.zones {
            [] => &[0],
            zones => zones,
        };
        let hits = packet::find(table, packet, zones)?;
        if hits.is_empty() {
            note(packet::nothing_found(zones));
        }
        for hit in hits {
            let shown = pipeline.show(hit.flow, None, |entry| rows.entry(entry));
            if let Some(written) = shown {
                written?;
                note(format!("the packet is of the {}", hit.direction));
            }
        }
        Ok(ScanReport::default())
    }
}

/// Prints each entry as it is dumped. Memory does not grow with the table, and a printed entry cannot be taken back, so that an
/// interrupted dump is not repeated. The inner error is that of the table, the outer one that of the output.
fn stream(
    looks: Looks<'_>,
    table: &mut Table,
    pipeline: &mut EntryPipeline<'_>,
    rows: &mut Rows<'_>,
) -> io::Result<Result<ScanReport, CommandError>> {
    let mut report = ScanReport::default();
    for filter in pipeline.filter().dumps() {
        let mut failed = None;
        let dump = table.dump_timed(looks.kind, &filter, &mut |flow, at| {
            let seen = looks.sample.map(|sample| sample.seen(&flow, at));
            match pipeline.show(flow, seen, |entry| rows.entry(entry)) {
                None | Some(Ok(())) => ControlFlow::Continue(()),
                Some(Err(error)) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        match dump {
            Ok(dump) => report.add(&dump),
            Err(error) => return Ok(Err(table_access::netlink_error(error))),
        }
    }
    Ok(Ok(report))
}

/// Prints counts and caveats to stderr, and returns the exit status.
fn print_caveats(
    args: &LsArgs,
    entries: &EntryQuery,
    cluster: Option<&Cluster>,
    pipeline: &EntryPipeline<'_>,
    shown: u64,
    report: &ScanReport,
) -> ExitStatus {
    let counts = &pipeline.counts;
    note_counts(counts, shown);
    let mut caveats = caveats::of_table(report.unreadable, report.inconsistent);
    caveats.add_selection(entries, entries.needs_cluster(), cluster, counts);
    if caveats.report() {
        ExitStatus::Partial
    } else if args.exit_code && counts.passed > 0 {
        ExitStatus::Found
    } else {
        ExitStatus::Done
    }
}

/// Prints the numbers of entries to a terminal.
fn note_counts(counts: &Counts, shown: u64) {
    if io::stderr().is_terminal() {
        let scanned = counts.scanned - counts.own;
        note(count_line(shown, counts.passed, scanned));
        if counts.own > 0 {
            note(own_line(counts.own));
        }
    }
}

fn count_line(shown: u64, passed: u64, scanned: u64) -> String {
    match (shown == passed, passed == scanned) {
        (true, true) => count(shown, "entry", "entries"),
        (true, false) => format!("{shown} of {} match", count(scanned, "entry", "entries")),
        (false, _) => format!(
            "{shown} of {} shown, {scanned} scanned",
            count(passed, "matching entry", "matching entries")
        ),
    }
}

/// Note on connections of ctk itself that are left out.
pub(crate) fn own_line(own: u64) -> String {
    format!(
        "{} of ctk itself to the API server left out; --port shows them",
        count(own, "connection", "connections")
    )
}

/// Whether the evidence of verdicts is printed.
fn shows_evidence(args: &OutputArgs) -> bool {
    match &args.columns {
        Some(columns) => columns.0.iter().any(|column| column.key == "evidence"),
        None => matches!(
            args.report.format,
            Format::Json | Format::Jsonl | Format::Csv
        ),
    }
}

/// Names that are printed.
fn printed_names(args: &OutputArgs) -> Prints {
    let printed = |party: &str| match &args.columns {
        Some(columns) => columns.0.iter().any(|column| column.key.starts_with(party)),
        None => args.report.format != Format::Conntrack,
    };
    Prints {
        client: printed("client"),
        endpoint: printed("endpoint"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use ctnetlink::flow::{Flow, L4, Tuple};

    #[test]
    fn the_count_line_tells_matching_from_shown_entries() {
        assert_eq!(count_line(3, 3, 3), "3 entries");
        assert_eq!(count_line(3, 3, 9), "3 of 9 entries match");
        assert_eq!(
            count_line(2, 3, 9),
            "2 of 3 matching entries shown, 9 scanned"
        );
    }

    #[test]
    fn a_limit_without_an_order_keeps_the_first_entries() {
        let mut sorter = Sorter::new(SortOrder::as_found(), Some(2));
        for port in [7, 3, 5] {
            let tuple = Tuple {
                src: [10, 0, 0, 1].into(),
                dst: [10, 0, 0, 2].into(),
                protocol: 17,
                l4: L4::Ports { src: port, dst: 53 },
            };
            sorter.push(&Entry::bare(Flow::new(tuple, tuple)));
        }
        let ports: Vec<_> = sorter
            .into_sorted()
            .map(|entry| entry.flow.original.sport())
            .collect();
        assert_eq!(ports, [Some(7), Some(3)]);
    }
}
