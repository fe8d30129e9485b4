//! `ctk ls`: the table, once.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::error::{CommandError, Status};
use crate::netlink::{Table, TableKind};
use crate::output::{self, Format, Options, Palette, Printer, SortOrder, Sorter, Summary};
use crate::plural::count;

use super::World;
use super::args::{self, OutputArgs, SourceArgs};
use super::cluster::{self, Cluster};
use super::conclude;
use super::context::{self, note};
use super::pick::{Picker, Prints};
use super::remote::Purpose;
use super::sample::{self, Sample};
use super::scan::{self, Looks, Report};
use super::select::SelectArgs;
use super::wanted;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableChoice {
    #[default]
    Conntrack,
    /// Entries that were removed, but are still referenced
    Dying,
    /// Entries whose first packet has not left yet (kernels since 5.19 keep no such list)
    Unconfirmed,
    /// What helpers expect
    Expect,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk ls --svc kube-dns           who talks to which DNS pod
  ctk ls --stale                  UDP flows sent to an endpoint that is gone; --refreshing for those kept alive
  ctk ls --tcp --state established --sort -timeout --limit 20 -o wide")]
pub struct LsArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which of the kernel's lists
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "LIST",
        help_heading = "Where things come from"
    )]
    pub table: TableChoice,
    /// Look three times during this time (at least 6s), to tell which entries are being refreshed, and answered
    #[arg(long, value_name = "DURATION", value_parser = args::sample)]
    pub sample: Option<Duration>,
    /// Say on stderr which selectors ran in the kernel and which here
    #[arg(long)]
    pub explain: bool,
    /// Exit with status 5 when an entry matched
    #[arg(long)]
    pub exit_code: bool,
}

pub fn run(world: World, args: &LsArgs) -> Result<Status, CommandError> {
    check(args)?;
    let filter = args.select.to_filter()?;
    let netns = context::netns(&args.source)?;
    let kind = match args.table {
        TableChoice::Conntrack => TableKind::Conntrack,
        TableChoice::Dying => TableKind::Dying,
        TableChoice::Unconfirmed => TableKind::Unconfirmed,
        TableChoice::Expect => return super::expect::run(args, &netns),
    };
    if args.explain {
        filter.explain().iter().for_each(note);
    }
    let asked = args.select.wants_cluster();
    let cluster = if asked || args.output.output != Format::Conntrack {
        let wanted = wanted::first(&args.source, &netns, &filter, &args.select.to_selectors());
        Cluster::read(world, &args.source, &netns, Purpose::Show, wanted)?
    } else {
        None
    };
    cluster::require(&args.source, cluster.as_ref(), asked)?;
    let zones = args.select.named_zones();
    let mut picker = Picker::new(filter, &args.select, &zones, cluster.as_ref())?
        .hide_own()
        .for_names(printed_names(&args.output));
    let mut table = Table::open(&netns).map_err(context::netlink_error)?;
    let sample = sample::wanted(args.sample, args.select.refreshing)
        .map(|duration| Sample::take(&mut table, &mut picker, duration))
        .transpose()?;
    let looks = Looks {
        kind,
        sample: sample.as_ref(),
    };
    match list(args, looks, &mut table, &mut picker, cluster.as_ref()) {
        Ok((shown, report)) => {
            if picker.counts.scanned == 0 && picker.filter().is_empty() {
                context::note_empty(&netns);
            }
            Ok(conclude(
                args,
                asked,
                cluster.as_ref(),
                &picker,
                shown,
                &report,
            ))
        }
        Err(Ended::Closed) => Ok(Status::Done),
        Err(Ended::Failed(error)) => Err(error),
    }
}

/// Flags that make no sense, alone or together.
fn check(args: &LsArgs) -> Result<(), CommandError> {
    let sample = sample::wanted(args.sample, args.select.refreshing);
    if sample.is_some() && args.table != TableChoice::Conntrack {
        let flag = match args.sample {
            Some(_) => "--sample",
            None => "--refreshing",
        };
        return Err(CommandError::usage(format!(
            "{flag} goes with --table conntrack: no other list has timers that packets refill"
        ))
        .hint("drop one of the two"));
    }
    check_columns(&args.output)
}

/// Columns are chosen only where there are any.
pub(super) fn check_columns(args: &OutputArgs) -> Result<(), CommandError> {
    if args.columns.is_some() && !args.output.has_columns() {
        return Err(
            CommandError::usage("--columns goes with -o table, wide and csv")
                .hint("json, jsonl and conntrack always print every field"),
        );
    }
    Ok(())
}

/// Why a listing ended early.
pub(super) enum Ended {
    /// Nobody reads on.
    Closed,
    Failed(CommandError),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        if output::is_closed(&error) {
            Ended::Closed
        } else {
            Ended::Failed(context::writing(error))
        }
    }
}

fn list<'c>(
    args: &LsArgs,
    looks: Looks<'_>,
    table: &mut Table,
    picker: &mut Picker<'c>,
    cluster: Option<&'c Cluster>,
) -> Result<(u64, Report), Ended> {
    let mut printer = printer(&args.output, false);
    let OutputArgs { sort, limit, .. } = &args.output;
    let mut report = if sort.is_some() || limit.is_some() {
        let order = sort.clone().unwrap_or_else(SortOrder::as_found);
        let (sorter, report) = scan::gather(
            table,
            picker,
            looks,
            || Sorter::new(order.clone(), *limit),
            |picker, sorter, flow, seen| {
                picker.show(flow, seen, |entry| sorter.push(entry));
            },
        )
        .map_err(Ended::Failed)?;
        for entry in sorter.into_sorted() {
            printer.entry(&entry, None)?;
        }
        report
    } else {
        stream(looks, table, picker, &mut printer)?
    };
    let limit = limit.map_or(u64::MAX, |limit| limit as u64);
    report.inconsistent |= looks.sample.is_some_and(|sample| sample.inconsistent);
    let shown = picker.counts.passed.min(limit);
    printer.finish(&Summary {
        shown,
        scanned: picker.counts.scanned,
        consistent: !report.inconsistent,
        unreadable: report.unreadable,
        cluster: cluster::summary(cluster),
        extra: [("own_connections".to_owned(), picker.counts.own.into())]
            .into_iter()
            .collect(),
    })?;
    Ok((shown, report))
}

/// Prints every entry as it comes: memory does not grow, and what is printed cannot be taken back.
fn stream(
    looks: Looks<'_>,
    table: &mut Table,
    picker: &mut Picker<'_>,
    printer: &mut Printer<'_>,
) -> Result<Report, Ended> {
    let mut report = Report::default();
    for filter in picker.filter().dumps() {
        let mut failed = None;
        let dump = table.dump_timed(looks.kind, &filter, &mut |flow, at| {
            let seen = looks.sample.map(|sample| sample.seen(&flow, at));
            match picker.show(flow, seen, |entry| printer.entry(entry, None)) {
                None | Some(Ok(())) => ControlFlow::Continue(()),
                Some(Err(error)) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        report.add(&dump.map_err(|error| Ended::Failed(context::netlink_error(error)))?);
    }
    Ok(report)
}

/// Prints to stdout as the flags say; `results`: every entry comes with what became of it.
pub(super) fn printer(args: &OutputArgs, results: bool) -> Printer<'static> {
    let options = Options {
        results,
        ..options(args)
    };
    Printer::new(options, Box::new(io::stdout()))
}

/// How to print to stdout.
pub(super) fn options(args: &OutputArgs) -> Options {
    let stdout = io::stdout();
    Options {
        format: args.output,
        columns: args.columns.clone(),
        palette: Palette::of_environment(args.color, stdout.is_terminal()),
        header: !args.no_header,
        terminal: terminal_width(&stdout),
        results: false,
    }
}

/// Columns of the terminal that `out` is, if it is one.
pub(super) fn terminal_width(out: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    let width = usize::from(size.ws_col);
    (out.is_terminal() && width > 0).then_some(width)
}

/// Says on stderr what the listing leaves open, and how it ended.
fn conclude(
    args: &LsArgs,
    asked: bool,
    cluster: Option<&Cluster>,
    picker: &Picker<'_>,
    shown: u64,
    report: &Report,
) -> Status {
    let counts = &picker.counts;
    if io::stderr().is_terminal() {
        note(count_line(
            shown,
            counts.passed,
            counts.scanned - counts.own,
        ));
        if counts.own > 0 {
            note(own_line(counts.own));
        }
    }
    let mut open = conclude::of_table(report.unreadable, report.inconsistent);
    open.add_selection(&args.select, asked, cluster, counts);
    if open.say() {
        Status::Partial
    } else if args.exit_code && counts.passed > 0 {
        Status::Found
    } else {
        Status::Done
    }
}

fn count_line(shown: u64, passed: u64, scanned: u64) -> String {
    match (shown == passed, passed == scanned) {
        (true, true) => format!("{shown} entries"),
        (true, false) => format!("{shown} of {scanned} entries match"),
        (false, _) => format!("{shown} of {passed} matching entries shown, {scanned} looked at"),
    }
}

/// What is said of connections that are left out.
pub(super) fn own_line(own: u64) -> String {
    format!(
        "{} of ctk itself to the API server left out; --port shows them",
        count(own, "connection", "connections")
    )
}

/// Names that some column holds.
fn printed_names(args: &OutputArgs) -> Prints {
    let printed = |party: &str| match &args.columns {
        Some(columns) => columns.0.iter().any(|column| column.key.starts_with(party)),
        None => args.output != Format::Conntrack,
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
    use crate::flow::{Flow, L4, Tuple};

    #[test]
    fn the_count_says_what_was_left_out() {
        assert_eq!(count_line(3, 3, 3), "3 entries");
        assert_eq!(count_line(3, 3, 9), "3 of 9 entries match");
        assert_eq!(
            count_line(2, 3, 9),
            "2 of 3 matching entries shown, 9 looked at"
        );
    }

    #[test]
    fn a_limit_without_an_order_keeps_the_entries_as_they_come() {
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
