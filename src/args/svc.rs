//! Arguments of `ctk svc`.

use super::select::SelectArgs;
use super::{ReportArgs, SourceArgs};
use crate::filter::list::{BadValue, List};
use crate::select::name::ServiceRef;
use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SvcFormat {
    /// Sections, with a bar for each share
    Table,
    /// One document
    Json,
}

#[derive(Args)]
#[command(
    override_usage = "ctk svc [NS/]NAME[:PORT] [OPTIONS]",
    mut_arg("svc", |arg| arg.hide(true)),
    mut_arg("refreshing", |arg| arg.hide(true)),
    after_help = "Open flows are UDP flows, and connections in the handshake or established.
Flows and skew are those of this node. Other nodes have their own tables.

Examples:
  ctk svc kube-dns                          show endpoints, flows on each, skew, new flows
  ctk svc shop/api:http --client web-1      show one port of a Service, and the flows of one client
  ctk svc shop/api -o json                  print one document, for scripts (.skew has the skew)"
)]
pub struct SvcArgs {
    /// Service; PORT is a name or number
    #[arg(value_name = "[NS/]NAME[:PORT]", value_parser = service)]
    pub name: List<ServiceRef>,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub report: ReportArgs<SvcFormat>,
    /// Draw bars with # instead of block characters
    #[arg(long, help_heading = super::OUTPUT)]
    pub ascii: bool,
}

/// Parses one name, and returns the list of one that the selector takes.
fn service(text: &str) -> Result<List<ServiceRef>, BadValue> {
    text.parse::<ServiceRef>()?;
    text.parse()
}
