//! `ctk watch`: follow entries.
//!
//! One thread drains the kernel's events into a queue and never waits for printing. The main thread applies them to the view,
//! looks at the table every interval, and prints. Printing that is slower than the events fills the queue, which gives a gap
//! and a new dump, like an overrun of the kernel's buffer.

mod end;
mod live_table;
mod record_sink;
mod resolver;
mod rules_poller;
mod run;
mod watched_cluster;

use crate::args::watch::{RecordKind, Until, WatchArgs, WatchFormat};
use std::time::Duration;

use clap::ValueEnum;

use crate::error::{CommandError, ExitStatus};
use crate::sysctl;
use ctnetlink::netns::Netns;
use ctnetlink::{EventOptions, EventQueue, Events, Table};

use crate::query::{BuiltinCluster, EntryQuery, SourceQuery};
use crate::session::table_access;
use crate::terminal::messages::note;

/// Most items that wait between the reader and the view, at 232 bytes each: 14.5 MiB when the queue is full, and as much again
/// while a batch is applied.
const MAX_QUEUED: usize = 65_536;

pub fn run(builtin: BuiltinCluster, args: &WatchArgs) -> Result<ExitStatus, CommandError> {
    check(args)?;
    let mut entries = EntryQuery::new(&args.select)?;
    // `--refreshing` selects the printed records, not the followed entries: two looks are needed to know.
    entries.selectors.refreshing = false;
    let source = SourceQuery::new(&args.source, builtin)?;
    let options = EventOptions::default().with_buffer_bytes(args.buffer_size);
    let events = Events::open(&source.netns, options).map_err(table_access::netlink_error)?;
    tracing::info!(
        asked = args.buffer_size,
        granted = events.granted_buffer(),
        "receive buffer"
    );
    let queue = EventQueue::start(events, MAX_QUEUED).map_err(table_access::netlink_error)?;
    let table = Table::open(&source.netns).map_err(table_access::netlink_error)?;
    note_missing_events(&source.netns, args.interval);
    run::Watch::new(args, &entries, &source, table, queue)?.run()
}

fn check(args: &WatchArgs) -> Result<(), CommandError> {
    let interval = args.interval;
    if !interval.is_zero() && interval < Duration::from_secs(1) {
        return Err(CommandError::usage(
            "--interval: at least 1s, or 0 for no polling",
        ));
    }
    if args.until == Some(Until::Quiet) && interval.is_zero() {
        return Err(CommandError::usage("--until quiet needs an --interval"));
    }
    let format = args.report.format;
    if args.live && (format != WatchFormat::Table || !args.kinds.is_empty()) {
        return Err(CommandError::usage(
            "--live is a table of entries: it does not go with another -o, nor with --type",
        ));
    }
    let never = |kind: &&RecordKind| match format {
        WatchFormat::Table => false,
        WatchFormat::Jsonl => **kind == RecordKind::Move,
        WatchFormat::Conntrack => !matches!(
            kind,
            RecordKind::New | RecordKind::Update | RecordKind::Destroy
        ),
    };
    match args.kinds.iter().find(never) {
        Some(kind) => Err(CommandError::usage(format!(
            "--type {}: -o {} has no such record",
            word(kind),
            word(&format)
        ))),
        None => Ok(()),
    }
}

/// Word of a value on the command line.
fn word(value: &impl ValueEnum) -> String {
    let word = value.to_possible_value();
    word.map_or_else(String::new, |word| word.get_name().to_owned())
}

/// Prints a note when the kernel sends no events for some entries.
fn note_missing_events(netns: &Netns, interval: Duration) {
    let Ok(settings) = sysctl::conntrack(netns) else {
        return;
    };
    let polling = match interval.is_zero() {
        true => "never polled, because --interval is 0".to_owned(),
        false => format!("polled every {}", humantime::format_duration(interval)),
    };
    match settings.events {
        Some(0) => note(format!(
            "the kernel sends no events here (net.netfilter.nf_conntrack_events is 0); the table is {polling}"
        )),
        Some(2) => note(format!(
            "flows older than this watch send no events (net.netfilter.nf_conntrack_events is 2); they are {polling}"
        )),
        _ => {}
    }
}
