//! `ctk ls`: list entries; as it is typed.

use super::select::SelectArgs;
use super::{OutputArgs, SourceArgs};
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableChoice {
    #[default]
    Conntrack,
    /// Entries that were removed, but are still referenced
    Dying,
    /// Entries whose first packet has not left yet (kernels since 5.19 keep no such list)
    Unconfirmed,
    /// What helpers expect
    Expect,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk ls --svc kube-dns           who talks to which DNS pod
  ctk ls --stale                  UDP flows sent to an endpoint that is gone; --refreshing for those kept alive
  ctk ls --tcp --state established --sort -timeout --limit 20 -o wide")]
pub struct LsArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which of the kernel's lists
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "LIST",
        help_heading = "Where things come from"
    )]
    pub table: TableChoice,
    /// Look three times during this time (at least 6s), to tell which entries are being refreshed, and answered
    #[arg(long, value_name = "DURATION", value_parser = super::sample)]
    pub sample: Option<Duration>,
    /// Say on stderr which selectors ran in the kernel and which here
    #[arg(long)]
    pub explain: bool,
    /// Exit with status 5 when an entry matched
    #[arg(long)]
    pub exit_code: bool,
}
