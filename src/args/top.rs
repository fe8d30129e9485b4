//! `ctk top`: count entries in groups; as it is typed.

use super::select::SelectArgs;
use super::{SourceArgs, duration};
use crate::output::ColorChoice;
use crate::top::{GroupKey, SortTerm};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// What `-o` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopFormat {
    /// A bar for each share
    #[default]
    Table,
    /// One document with items and a summary
    Json,
    /// One item a line
    Jsonl,
    /// RFC 4180 with a header
    Csv,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk top                       who has most: pods where a cluster tells, else addresses
  ctk top --by svc,verdict      which Services, and how many of their entries are stale
  ctk top --by state --tcp      is it TIME_WAIT that fills the table?

--interval 2s repaints, like top(1).")]
pub struct TopArgs {
    /// What to group by, comma separated; several count each combination [default: client where a cluster names pods,
    /// else src]
    #[arg(
        long,
        value_enum,
        value_name = "KEYS",
        value_delimiter = ',',
        help_heading = "Grouping"
    )]
    pub by: Vec<GroupKey>,
    /// count, packets or bytes, the largest first; or a key of --by, a leading - sorts it downwards [default: count]
    #[arg(
        long,
        value_name = "KEY[,-KEY]",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "Grouping"
    )]
    pub sort: Vec<SortTerm>,
    /// Show at most this many groups [default: 20 in a table on a terminal, else all]
    #[arg(long, value_name = "N", help_heading = "Grouping")]
    pub limit: Option<usize>,
    /// Look again and again, at least 1s apart. A terminal is repainted (q ends it); else frames follow each other: tables
    /// under a line with the time, jsonl and csv with the time in each line, json as a document each
    #[arg(long, value_name = "DURATION", value_parser = interval, help_heading = "Grouping")]
    pub interval: Option<Duration>,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Output format
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        help_heading = "Output"
    )]
    pub output: TopFormat,
    /// Leave the header line out
    #[arg(long, help_heading = "Output")]
    pub no_header: bool,
    /// Bars of # instead of block characters
    #[arg(long, help_heading = "Output")]
    pub ascii: bool,
    /// Colour
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", help_heading = "Output")]
    pub color: ColorChoice,
}

fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_secs(1) => Err("it takes at least 1s".to_owned()),
        interval => Ok(interval),
    }
}
