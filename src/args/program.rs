//! Definition of the command line, for the name by which the program was started: `ctk` or `kubectl ctk`.

use std::ffi::OsStr;
use std::path::Path;

use clap::CommandFactory;

use super::Cli;

/// File name of the program as a kubectl plugin.
const PLUGIN: &str = "kubectl-ctk";

/// Returns the name for usage and examples, for a process that was started as `program`.
pub fn program_name(program: Option<&OsStr>) -> &'static str {
    let file = program.and_then(|program| Path::new(program).file_name());
    if file == Some(OsStr::new(PLUGIN)) {
        "kubectl ctk"
    } else {
        "ctk"
    }
}

/// Returns the definition of the command line, with `program` as the name in usage and examples.
pub fn command(program: &'static str) -> clap::Command {
    let command = Cli::command();
    if program == command.get_name() {
        return command;
    }
    let rename = |command: clap::Command| {
        let Some(text) = command.get_after_help() else {
            return command;
        };
        let text = text.to_string();
        command.after_help(text.replace("  ctk ", &format!("  {program} ")))
    };
    rename(command.bin_name(program)).mut_subcommands(rename)
}
