//! `ctk purge`: delete entries; as it is typed.

use super::select::SelectArgs;
use super::{OutputArgs, SourceArgs, duration};
use crate::purge::policy::IncludeWord;
use clap::Args;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Examples:
  ctk purge --stale --dry-run                    what would be deleted, and why
  ctk purge --stale --svc kube-dns               show the set, ask, delete
  ctk purge --stale --yes -o jsonl > gone.jsonl  in a script; ctk restore gone.jsonl puts them back")]
pub struct PurgeArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Every entry of the table, where no selector is given
    #[arg(long, help_heading = "Deleting")]
    pub all: bool,
    /// Do not ask
    #[arg(long, short, help_heading = "Deleting")]
    pub yes: bool,
    /// Show what a purge right now would delete, and what it would leave; delete nothing
    #[arg(long, help_heading = "Deleting")]
    pub dry_run: bool,
    /// Refuse a larger set
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        help_heading = "Deleting"
    )]
    pub max: usize,
    /// Also delete, by verdict: draining, pending, suspect, detached
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Deleting"
    )]
    pub include: Vec<IncludeWord>,
    /// Wait between the two looks at the cluster [default: 2s with a selector by verdict, else 0]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Deleting")]
    pub settle: Option<Duration>,
    /// Look after this time which flows came back, and where to; 0 = do not look [default: 1s; 3s where this node's rules
    /// still lead to a dead endpoint; with --sample at least the longest time between two packets that it saw]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Deleting")]
    pub verify: Option<Duration>,
    /// Look three times during this time (at least 6s) before judging
    #[arg(long, value_name = "DURATION", value_parser = super::sample, help_heading = "Deleting")]
    pub sample: Option<Duration>,
    /// Oldest cluster FILE that a purge by verdict accepts
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s", help_heading = "Where things come from")]
    pub max_age: Duration,
}
