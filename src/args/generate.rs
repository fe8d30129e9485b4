//! `ctk generate`: manuals and completion scripts; as it is typed.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// A manual page for each command, in section 1
    Man,
    /// Completion scripts for bash, zsh and fish
    Completions,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk generate man man
  ctk generate completions completions")]
pub struct GenerateArgs {
    pub what: What,
    /// Folder that the files are written into; it is made where it is missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
