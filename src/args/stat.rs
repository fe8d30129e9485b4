//! Arguments of `ctk stat`.

use super::{NetnsArgs, ReportArgs, duration_of_at_least};
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatFormat {
    /// Text in sections
    Table,
    /// One document
    Json,
    /// One record for each look, on one line
    Jsonl,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk stat                show size, limits, settings, counters and timeouts
  ctk stat --per-cpu      add the counters of each CPU
  ctk stat -o json        print one document, for scripts

--interval 10s prints the differences every 10 s until Ctrl-C.

Counters are those of the network namespace since its creation. Counters that the kernel does not have are - (null in JSON).")]
pub struct StatArgs {
    /// Print the differences at this interval (at least 200ms), after the totals; Ctrl-C ends it [default: totals only]
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub interval: Option<Duration>,
    /// Print the counters of each CPU as well
    #[arg(long)]
    pub per_cpu: bool,
    #[command(flatten)]
    pub netns: NetnsArgs,
    #[command(flatten)]
    pub report: ReportArgs<StatFormat>,
    /// Omit the header lines
    #[arg(long, help_heading = super::OUTPUT)]
    pub no_header: bool,
}

/// Smallest interval: each look runs ethtool.
const MIN_INTERVAL: Duration = Duration::from_millis(200);

fn interval(text: &str) -> Result<Duration, String> {
    duration_of_at_least(MIN_INTERVAL, text)
}
