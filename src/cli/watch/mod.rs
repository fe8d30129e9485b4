//! `ctk watch`: follow entries.
//!
//! One thread drains the kernel's events into a queue and never waits for printing; this one applies them to the view,
//! looks at the table every interval, and prints. Printing that is slower than the events fills the queue, which becomes a
//! gap and a fresh dump, like an overrun of the kernel's buffer.

mod ended;
mod endpoints;
mod live;
mod run;
mod sight;
mod source;
mod tell;
mod young;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::error::{CommandError, Status};
use crate::netlink::{EventOptions, EventQueue, Events, Table};
use crate::netns::Netns;
use crate::output::Format;
use crate::sysctl;

use super::World;
use super::args::{OutputArgs, SourceArgs, duration};
use super::context::{self, note};
use super::select::SelectArgs;

/// Items that wait between the reader and the view, at 232 bytes each: 14.5 MiB when it is full, and as much again while
/// what was in it is worked on.
const QUEUE: usize = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// A stale entry is seen
    Stale,
    /// No stale entry is left
    Gone,
    /// Nothing happened for one interval: no event, no refresh
    Quiet,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk watch --svc kube-dns --for 2s           flows as they come, move, end, and are kept alive; Ctrl-C ends it, too
  ctk watch --svc kube-dns --live --for 2s    a table that repaints itself, the stale ones on top; q ends it
  ctk watch --until stale -o jsonl            a record a line, until a stale entry is seen")]
pub struct WatchArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Look at the table this often: a refilled timer makes no event. At least 1s; 0 = never
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s", help_heading = "Watching")]
    pub interval: Duration,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, help_heading = "Watching")]
    pub time: Option<Duration>,
    /// End after this many records; those of the beginning, gap and synced aside
    #[arg(long, value_name = "N", help_heading = "Watching")]
    pub count: Option<u64>,
    /// End when this is so; status 1 when --for ends it first, 3 when events were lost before
    #[arg(long, value_enum, value_name = "WHEN", help_heading = "Watching")]
    pub until: Option<Until>,
    /// Repaint a table of the most urgent entries; q ends it
    #[arg(long, help_heading = "Watching")]
    pub live: bool,
    /// Bytes of receive buffer for events to ask the kernel for; -v shows what it gave
    #[arg(long, value_name = "BYTES", default_value_t = EventOptions::default().buffer_bytes, value_parser = buffer_size, help_heading = "Watching")]
    pub buffer_size: usize,
}

/// What a receive buffer can be; the kernel gives twice of it, and counts it in 32 bits.
fn buffer_size(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(bytes) if (1..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("it takes a number of bytes from 1 to 1073741824".to_owned()),
    }
}

pub fn run(world: World, args: &WatchArgs) -> Result<Status, CommandError> {
    check(args)?;
    // An impossible selector is said before anything is opened.
    args.select.to_filter()?;
    let netns = context::netns(&args.source)?;
    let options = EventOptions::default().with_buffer_bytes(args.buffer_size);
    let events = Events::open(&netns, options).map_err(context::netlink_error)?;
    tracing::info!(
        asked = args.buffer_size,
        granted = events.granted_buffer(),
        "receive buffer"
    );
    let queue = EventQueue::start(events, QUEUE).map_err(context::netlink_error)?;
    let table = Table::open(&netns).map_err(context::netlink_error)?;
    note_silence(&netns, args.interval);
    run::Watch::new(world, args, netns, table, queue)?.run()
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
    if !matches!(output.output, Format::Table | Format::Jsonl) {
        return Err(CommandError::usage("watch prints -o table or -o jsonl"));
    }
    if output.sort.is_some() || output.limit.is_some() || output.columns.is_some() {
        return Err(CommandError::usage(
            "watch takes no --sort, --limit or --columns",
        ));
    }
    if args.live && output.output == Format::Jsonl {
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
