//! Arguments of `ctk demo`.

use clap::Args;
use std::ffi::OsString;

#[derive(Args)]
#[command(after_help = "Examples:
  ctk demo                            take a short tour
  ctk demo -- ls --stale              run one command on the demo's table
  ctk demo -- ls --explain --udp 53   see which selectors the kernel evaluates")]
pub struct DemoArgs {
    /// ctk command to run on the demo's table, instead of the tour
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
