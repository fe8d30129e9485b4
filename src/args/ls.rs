//! Arguments of `ctk ls`.

use super::select::SelectArgs;
use super::{OutputArgs, SourceArgs};
use crate::filter::packet::Packet;
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableChoice {
    /// Confirmed entries
    #[default]
    Conntrack,
    /// Removed entries that are still referenced
    Dying,
    /// Entries whose first packet has not left yet; kernel 5.19 and later keep no such list
    Unconfirmed,
    /// Expectations of helpers
    Expect,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk ls --svc kube-dns           list the clients of a Service, and the endpoint of each
  ctk ls --stale                  list UDP entries that lead to an endpoint that is gone
  ctk ls --tcp --state established --sort -timeout --limit 20 -o wide")]
pub struct LsArgs {
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Entry of one packet, looked up by its tuple in either direction: 'udp 10.0.0.1:53 > 10.0.0.2:4000'; in zone 0, or those
    /// of --zone
    #[arg(long, value_name = "PACKET", help_heading = super::SOURCES)]
    pub packet: Option<Packet>,
    /// Source translated to an address that no interface of this host has
    #[arg(long, help_heading = super::SOURCES)]
    pub lost_source: bool,
    /// List of the kernel to read
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "LIST",
        help_heading = super::SOURCES
    )]
    pub table: TableChoice,
    /// Look three times within this time (at least 6s), to fill refreshing and replies [default: look once; 6s with
    /// --refreshing]
    #[arg(long, value_name = "DURATION", value_parser = super::sample)]
    pub sample: Option<Duration>,
    /// Print to stderr which selectors the kernel evaluated and which ctk
    #[arg(long)]
    pub explain: bool,
    /// Exit with status 5 if an entry matched
    #[arg(long)]
    pub exit_code: bool,
}
