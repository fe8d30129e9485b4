//! Arguments of `ctk watch`.

use super::select::SelectArgs;
use super::{ReportArgs, SourceArgs, duration};
use clap::{Args, ValueEnum};
use ctnetlink::EventOptions;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// A stale entry is seen
    Stale,
    /// No stale entry is left
    Gone,
    /// No event and no refresh for one interval
    Quiet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WatchFormat {
    /// One line a record, with names if known
    Table,
    /// One JSON record a line
    Jsonl,
    /// New, changed and ended entries as `conntrack -E -o extended,id` prints them
    Conntrack,
}

/// Kind of a record. Marks of the stream (gap, synced) are no kind and always printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecordKind {
    /// Entries of the beginning
    Snapshot,
    /// Entries that were created, or match from now on
    New,
    /// Changes of status, mark, state or another attribute
    Update,
    /// Flows with another endpoint than before (JSON has destroy and new)
    Move,
    /// Timers that a packet refilled
    Refresh,
    /// Changed verdicts
    Verdict,
    /// Entries that ended
    Destroy,
    /// Changes of endpoints of Services
    Endpoint,
}

/// Heading in help texts.
const WATCHING: &str = "Watching";

#[derive(Args)]
#[command(after_help = "Examples:
  ctk watch --svc kube-dns --for 2s           print new, moved, refreshed and ended flows for 2 s
  ctk watch --svc kube-dns --live --for 2s    repaint a table with the stale entries first; q ends it
  ctk watch --until stale -o jsonl            print one record a line, until a stale entry is seen")]
pub struct WatchArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub report: ReportArgs<WatchFormat>,
    /// Print only records of these kinds; gap and synced are always printed [default: all]
    #[arg(long = "type", value_enum, value_name = "KIND", value_delimiter = ',', help_heading = WATCHING)]
    pub kinds: Vec<RecordKind>,
    /// Read the table at this interval (at least 1s), because a refreshed timer makes no event; 0: never
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s", help_heading = WATCHING)]
    pub interval: Duration,
    /// End after this time [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, help_heading = WATCHING)]
    pub time: Option<Duration>,
    /// End after N records, without counting snapshot, gap and synced
    #[arg(long, value_name = "N", help_heading = WATCHING)]
    pub count: Option<u64>,
    /// End on this condition. Exit status 1 if --for ends first, 3 if events were lost
    #[arg(long, value_enum, value_name = "WHEN", help_heading = WATCHING)]
    pub until: Option<Until>,
    /// Repaint a table with the most urgent entries first; q ends it
    #[arg(long, help_heading = WATCHING)]
    pub live: bool,
    /// Receive buffer for events, in bytes; -v prints the size that the kernel granted
    #[arg(long, value_name = "BYTES", default_value_t = EventOptions::default().buffer_bytes, value_parser = buffer_size, help_heading = WATCHING)]
    pub buffer_size: usize,
}

/// Parses a size in bytes from 1 to 2^30. The kernel doubles the size and stores it in a signed 32-bit number.
fn buffer_size(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(bytes) if (1..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("it takes a number of bytes from 1 to 1073741824".to_owned()),
    }
}
