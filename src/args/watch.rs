//! `ctk watch`: follow entries; as it is typed.

use super::select::SelectArgs;
use super::{OutputArgs, SourceArgs, duration};
use clap::{Args, ValueEnum};
use ctnetlink::EventOptions;
use std::time::Duration;

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
