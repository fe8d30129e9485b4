//! `ctk demo`: try everything without a cluster; as it is typed.

use clap::Args;
use std::ffi::OsString;

#[derive(Args)]
#[command(after_help = "Examples:
  ctk demo                       a short tour
  ctk demo -- ls --stale         one command in the same world
  ctk demo -- ls --explain --udp 53")]
pub struct DemoArgs {
    /// A ctk command to run in the demo's world instead of the tour
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
