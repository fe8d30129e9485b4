//! Arguments of `ctk purge`.

use super::select::SelectArgs;
use super::{OutputArgs, SourceArgs, duration};
use crate::purge::policy::IncludeWord;
use clap::Args;
use std::time::Duration;

/// Heading in help texts.
const DELETING: &str = "Deleting";

#[derive(Args)]
#[command(after_help = "Examples:
  ctk purge --stale --dry-run                    show the entries and reasons, delete nothing
  ctk purge --stale --svc kube-dns               show the entries, ask, delete
  ctk purge --stale --yes -o jsonl > gone.jsonl  delete in a script; undo: ctk restore gone.jsonl")]
pub struct PurgeArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Delete all entries of the table; only without a selector
    #[arg(long, help_heading = DELETING)]
    pub all: bool,
    /// Delete without asking; required if stdin or stderr is no terminal
    #[arg(long, short, help_heading = DELETING)]
    pub yes: bool,
    /// Show the entries that a purge would delete now, and those it would leave; delete nothing
    #[arg(long, help_heading = DELETING)]
    pub dry_run: bool,
    /// Refuse to delete more than N entries
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        help_heading = DELETING
    )]
    pub max: usize,
    /// Verdicts to delete as well: draining, pending, suspect, detached
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = DELETING
    )]
    pub include: Vec<IncludeWord>,
    /// Wait between the two looks at the cluster [default: 2s with a selector by verdict, else 0s]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = DELETING)]
    pub settle: Option<Duration>,
    /// Look at the table again after this time, for flows that came back; 0: do not look [default: 1s; 3s if the node's rules
    /// still lead to a dead endpoint; with --sample at least the longest time seen between two packets]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = DELETING)]
    pub verify: Option<Duration>,
    /// Look three times within this time (at least 6s) before judging, to fill refreshing and replies [default: look once;
    /// 6s with --refreshing]
    #[arg(long, value_name = "DURATION", value_parser = super::sample, help_heading = DELETING)]
    pub sample: Option<Duration>,
    /// Largest age of a cluster FILE for a purge by name or verdict
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s", help_heading = super::SOURCES)]
    pub max_age: Duration,
}
