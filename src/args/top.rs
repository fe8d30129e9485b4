//! Arguments of `ctk top`.

use super::select::SelectArgs;
use super::{ReportArgs, SourceArgs, duration_of_at_least};
use crate::top::{GroupKey, SortTerm};
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopFormat {
    /// Columns, with a bar for each share
    Table,
    /// One document with items and a summary
    Json,
    /// One group a line
    Jsonl,
    /// RFC 4180 with a header
    Csv,
}

/// Heading in help texts.
const GROUPING: &str = "Grouping";

#[derive(Args)]
#[command(after_help = "Examples:
  ctk top                       count by client: pods if the cluster source has them, else addresses
  ctk top --by svc,verdict      count the stale entries of each Service
  ctk top --by state --tcp      count TCP entries by state, such as TIME_WAIT

--interval 2s repaints the table every 2 s, as top(1) does.")]
pub struct TopArgs {
    /// Keys to group by, comma separated; several keys make a group of each combination [default: client if the cluster
    /// source has Pods, else src]
    #[arg(
        long,
        value_enum,
        value_name = "KEYS",
        value_delimiter = ',',
        help_heading = GROUPING
    )]
    pub by: Vec<GroupKey>,
    /// Sort by count, packets or bytes, the largest first, or by a key of --by; a leading - sorts a key in descending order
    /// [default: count]
    #[arg(
        long,
        value_name = "KEY[,-KEY]",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = GROUPING
    )]
    pub sort: Vec<SortTerm>,
    /// Print at most N groups [default: 20 in a table on a terminal, else all]
    #[arg(long, value_name = "N", help_heading = GROUPING)]
    pub limit: Option<usize>,
    /// Repeat at this interval (at least 1s). On a terminal the table is repainted, and q ends it. Otherwise the results follow
    /// each other: table under a line with the time, jsonl and csv with the time in each line, json as one document each
    /// [default: once]
    #[arg(long, value_name = "DURATION", value_parser = interval, help_heading = GROUPING)]
    pub interval: Option<Duration>,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub report: ReportArgs<TopFormat>,
    /// Omit the header line
    #[arg(long, help_heading = super::OUTPUT)]
    pub no_header: bool,
    /// Draw bars with # instead of block characters
    #[arg(long, help_heading = super::OUTPUT)]
    pub ascii: bool,
}

/// Smallest interval between two looks.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

fn interval(text: &str) -> Result<Duration, String> {
    duration_of_at_least(MIN_INTERVAL, text)
}
