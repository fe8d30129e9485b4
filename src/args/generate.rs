//! Arguments of `ctk generate`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Artifact {
    /// Manual pages of section 1, one for each command
    Man,
    /// Completion scripts for bash, zsh and fish
    Completions,
}

#[derive(Args)]
#[command(after_help = "Examples:
  ctk generate man man
  ctk generate completions completions")]
pub struct GenerateArgs {
    /// Files to write
    pub artifact: Artifact,
    /// Folder to write to; it is created if missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
