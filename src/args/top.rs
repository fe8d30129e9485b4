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
    /// Source translated to an address that no interface of this host has
    #[arg(long, help_heading = super::SOURCES)]
    pub lost_source: bool,
    /// Keys to group by, comma separated; several keys make a group of each combination [default: client if the cluster
    /// source has Pods, else src; netns for several namespaces]
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

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        select: SelectArgs,
    }

    /// Selectors that have no single value of each entry: those of several places, of numbers that differ for nearly all
    /// entries, and short forms of others.
    const NO_KEYS: [&str; 12] = [
        "tcp", "udp", "sctp", "ip", "port", "ttl", "age", "packets", "bytes", "label", "id",
        "match",
    ];

    #[test]
    fn every_selector_with_one_value_is_a_key() {
        let command = Flags::command();
        let flags = command.get_arguments().filter(|arg| {
            let takes_value = arg.get_action().takes_values();
            takes_value && !NO_KEYS.contains(&arg.get_long().unwrap_or_default())
        });
        let names: Vec<_> = flags.filter_map(|arg| arg.get_long()).collect();
        assert!(names.len() > 15, "{names:?}");
        for name in names {
            let known = GroupKey::value_variants()
                .iter()
                .any(|key| key.name() == name);
            assert!(known, "--by {name}");
        }
        // The list of exceptions holds no word that is no flag.
        for name in NO_KEYS {
            let known = command
                .get_arguments()
                .any(|arg| arg.get_long() == Some(name));
            assert!(known, "--{name}");
        }
        let matches = command.get_matches_from(["ctk"]);
        assert!(Flags::from_arg_matches(&matches).unwrap().select.is_empty());
    }
}
