//! The commands, one a file: wiring, progress, messages and exit statuses.

mod demo;
mod doctor;
mod expect;
mod generate;
mod ls;
mod purge;
mod restore;
mod stat;
mod svc;
mod top;
mod watch;

use std::ffi::OsString;
use std::io::Write;

use clap::FromArgMatches;

use crate::args;
use crate::args::program::{command, program_name};
use crate::error::{CommandError, ExitStatus};
use crate::output::safe_text;
use crate::query::BuiltinCluster;
use crate::shell;
use crate::terminal::{log, messages, signals};

/// Runs the program: answers a shell that asks for completions, or runs the command line of this process.
pub fn main() -> ExitStatus {
    signals::fail_large_writes();
    let program = std::env::args_os().next();
    match shell::answer(program_name(program.as_deref())) {
        Some(answered) => finish(answered),
        None => run(std::env::args_os()),
    }
}

/// Runs one command line and returns its exit status. Errors are printed to stderr, here and nowhere else.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitStatus {
    run_in(BuiltinCluster::default(), args)
}

fn run_in(builtin: BuiltinCluster, args: impl IntoIterator<Item = OsString>) -> ExitStatus {
    let args: Vec<OsString> = args.into_iter().collect();
    let command = command(program_name(args.first().map(OsString::as_os_str)));
    let parsed = command
        .try_get_matches_from(args)
        .and_then(|matches| args::Cli::from_arg_matches(&matches));
    finish(match parsed {
        Ok(cli) => {
            log::start(cli.verbose);
            dispatch(builtin, cli.command)
        }
        Err(error) => parse_failed(&error),
    })
}

/// Prints the error, if any, and returns the status.
fn finish(result: Result<ExitStatus, CommandError>) -> ExitStatus {
    result.unwrap_or_else(|error| {
        for line in error.report().lines() {
            // An error of stderr itself cannot be reported.
            let _ = writeln!(std::io::stderr(), "{}", safe_text(line));
        }
        error.status
    })
}

fn dispatch(builtin: BuiltinCluster, command: args::Command) -> Result<ExitStatus, CommandError> {
    match command {
        args::Command::Ls(args) => ls::run(builtin, &args),
        args::Command::Watch(args) => watch::run(builtin, &args),
        args::Command::Top(args) => top::run(builtin, &args),
        args::Command::Svc(args) => svc::run(builtin, &args),
        args::Command::Purge(args) => purge::run(builtin, &args),
        args::Command::Restore(args) => restore::run(&args),
        args::Command::Stat(args) => stat::run(&args),
        args::Command::Doctor(args) => doctor::run(builtin, &args),
        args::Command::Demo(args) => demo::run(&args),
        args::Command::Generate(args) => generate::run(&args),
    }
}

/// Prints help or the version; turns a parse error into an error of this program.
fn parse_failed(error: &clap::Error) -> Result<ExitStatus, CommandError> {
    if !error.use_stderr() {
        let mut stdout = std::io::stdout();
        let printed = error.print().and_then(|()| stdout.flush());
        return printed.map_or_else(messages::unwritten, |()| Ok(ExitStatus::Done));
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let (message, usage) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut failed = CommandError::usage(message);
    for line in usage.lines().map(str::trim).filter(|line| !line.is_empty()) {
        failed = failed.hint(line.strip_prefix("tip: ").unwrap_or(line));
    }
    Err(failed)
}
