//! `ctk watch`: follow entries.
//!
//! One thread drains the kernel's events into a queue and never waits for printing; this one applies them to the view,
//! looks at the table every interval, and prints. Printing that is slower than the events fills the queue, which becomes a
//! gap and a fresh dump, like an overrun of the kernel's buffer.

mod ended;
mod endpoints;
mod freshness;
mod live;
mod record_sink;
mod resolver;
mod run;
mod source;

use crate::args::watch::{Until, WatchArgs};
use std::time::Duration;

use crate::error::{CommandError, Status};
use crate::output::Format;
use crate::sysctl;
use ctnetlink::netns::Netns;
use ctnetlink::{EventOptions, EventQueue, Events, Table};

use crate::query::{BuiltinCluster, EntryQuery, SourceQuery};
use crate::session::table_access;
use crate::terminal::messages::note;

/// Items that wait between the reader and the view, at 232 bytes each: 14.5 MiB when it is full, and as much again while
/// what was in it is worked on.
const QUEUE: usize = 65_536;

pub fn run(builtin: BuiltinCluster, args: &WatchArgs) -> Result<Status, CommandError> {
    check(args)?;
    let mut entries = EntryQuery::new(&args.select)?;
    // `--refreshing` chooses the records that are printed, not the entries that are followed: it takes two looks to know.
    entries.selectors.refreshing = false;
    let source = SourceQuery::new(&args.source, builtin)?;
    let options = EventOptions::default().with_buffer_bytes(args.buffer_size);
    let events = Events::open(&source.netns, options).map_err(table_access::netlink_error)?;
    tracing::info!(
        asked = args.buffer_size,
        granted = events.granted_buffer(),
        "receive buffer"
    );
    let queue = EventQueue::start(events, QUEUE).map_err(table_access::netlink_error)?;
    let table = Table::open(&source.netns).map_err(table_access::netlink_error)?;
    note_silence(&source.netns, args.interval);
    run::Watch::new(args, &entries, &source, table, queue)?.run()
}

fn check(args: &WatchArgs) -> Result<(), CommandError> {
    let interval = args.interval;
    if !interval.is_zero() && interval < Duration::from_secs(1) {
        return Err(CommandError::usage(
            "--interval: at least 1s, or 0 to look never",
        ));
    }
    if args.until == Some(Until::Quiet) && interval.is_zero() {
        return Err(CommandError::usage("--until quiet needs an --interval"));
    }
    let output = &args.output;
    if !matches!(output.report.format, Format::Table | Format::Jsonl) {
        return Err(CommandError::usage("watch prints -o table or -o jsonl"));
    }
    if output.sort.is_some() || output.limit.is_some() || output.columns.is_some() {
        return Err(CommandError::usage(
            "watch takes no --sort, --limit or --columns",
        ));
    }
    if args.live && output.report.format == Format::Jsonl {
        return Err(CommandError::usage(
            "--live is a table; it goes with no -o jsonl",
        ));
    }
    Ok(())
}

/// Says once which changes the kernel does not tell here.
fn note_silence(netns: &Netns, interval: Duration) {
    let Ok(settings) = sysctl::conntrack(netns) else {
        return;
    };
    let polls = match interval.is_zero() {
        true => "never, since --interval is 0".to_owned(),
        false => format!("every {}", humantime::format_duration(interval)),
    };
    match settings.events {
        Some(0) => note(format!(
            "the kernel sends no events here (net.netfilter.nf_conntrack_events is 0); the table is looked at {polls}"
        )),
        Some(2) => note(format!(
            "flows older than this watch send no events (net.netfilter.nf_conntrack_events is 2); they are looked at {polls}"
        )),
        _ => {}
    }
}
