//! `ctk ls --table expect`: lists the connections that helpers expect.

use std::io;
use std::ops::ControlFlow;

use crate::error::{CommandError, ExitStatus};
use crate::output::{ExpectationPrinter, Summary};
use ctnetlink::Table;
use ctnetlink::flow::Family;
use ctnetlink::netns::Netns;

use crate::args::ls::LsArgs;
use crate::query::output::options;
use crate::session::caveats;
use crate::session::table_access;
use crate::terminal::printing::ListingEnd;

/// The selected family. An expectation is no entry, so that no other selector applies.
fn family(args: &LsArgs) -> Result<Option<Family>, CommandError> {
    let mut others = args.select.clone();
    others.ipv4 = false;
    others.ipv6 = false;
    if !others.is_empty() {
        return Err(CommandError::usage(
            "--table expect takes no selectors but -4 and -6",
        ));
    }
    let output = &args.output;
    if output.sort.is_some() || output.limit.is_some() || output.columns.is_some() {
        return Err(CommandError::usage(
            "--table expect takes no --sort, --limit or --columns",
        ));
    }
    Ok(match (args.select.ipv4, args.select.ipv6) {
        (true, _) => Some(Family::Ipv4),
        (_, true) => Some(Family::Ipv6),
        _ => None,
    })
}

pub fn run(args: &LsArgs, netns: &Netns) -> Result<ExitStatus, CommandError> {
    let family = family(args)?;
    let mut table = Table::open(netns).map_err(table_access::netlink_error)?;
    match list(args, &mut table, family) {
        Ok(status) => Ok(status),
        Err(end) => end.status(),
    }
}

fn list(
    args: &LsArgs,
    table: &mut Table,
    family: Option<Family>,
) -> Result<ExitStatus, ListingEnd> {
    let stdout = io::stdout();
    let mut printer = ExpectationPrinter::new(&options(&args.output, false), Box::new(stdout));
    let mut shown = 0;
    let mut failed = None;
    let dump = table.dump_expectations(family, &mut |expectation| {
        shown += 1;
        match printer.expectation(&expectation) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    let report = dump.map_err(|error| ListingEnd::Failed(table_access::netlink_error(error)))?;
    printer.finish(&Summary {
        shown,
        scanned: shown,
        consistent: report.is_consistent(),
        unreadable: report.unreadable,
        ..Summary::default()
    })?;
    let partial = caveats::of_table(report.unreadable, !report.is_consistent()).report();
    Ok(match (partial, args.exit_code && shown > 0) {
        (true, _) => ExitStatus::Partial,
        (false, true) => ExitStatus::Found,
        (false, false) => ExitStatus::Done,
    })
}
