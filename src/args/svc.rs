//! `ctk svc`: show one service; as it is typed.

use super::SourceArgs;
use super::select::SelectArgs;
use crate::filter::list::{BadValue, List};
use crate::output::ColorChoice;
use crate::select::name::ServiceRef;
use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SvcFormat {
    /// Sections, with a bar for each share
    #[default]
    Table,
    /// One document
    Json,
}

#[derive(Args)]
#[command(
    override_usage = "ctk svc [NS/]NAME[:PORT] [OPTIONS]",
    mut_arg("svc", |arg| arg.hide(true)),
    mut_arg("refreshing", |arg| arg.hide(true)),
    after_help = "An open flow can still carry traffic: UDP, and connections that are being made or established.
Flows and skew are those of this node: other nodes have tables of their own.

Examples:
  ctk svc kube-dns                          endpoints, flows on each, stale ones, where new flows go
  ctk svc shop/api:http --client web-1      one port of a Service in a namespace, flows of one client
  ctk svc shop/api -o json                  why one pod is busy (.skew), for scripts"
)]
pub struct SvcArgs {
    /// The Service; PORT by name or number
    #[arg(value_name = "[NS/]NAME[:PORT]", value_parser = service)]
    pub name: List<ServiceRef>,
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
    pub output: SvcFormat,
    /// Bars of # instead of block characters
    #[arg(long, help_heading = "Output")]
    pub ascii: bool,
    /// Colour
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", help_heading = "Output")]
    pub color: ColorChoice,
}

/// One name, as a list of one: so it is selected by.
fn service(text: &str) -> Result<List<ServiceRef>, BadValue> {
    text.parse::<ServiceRef>()?;
    text.parse()
}
