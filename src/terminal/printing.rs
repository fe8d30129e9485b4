//! How entries are written to standard output, and how a command ends that cannot write.

use std::io::{self, IsTerminal};

use crate::args::OutputArgs;
use crate::error::CommandError;
use crate::output::{self, Options, Palette, Printer};

use crate::terminal::messages;

/// Why a listing ended early.
pub(crate) enum Ended {
    /// Nobody reads on.
    Closed,
    Failed(CommandError),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        if output::is_closed(&error) {
            Ended::Closed
        } else {
            Ended::Failed(messages::writing(error))
        }
    }
}

/// Prints to stdout as the flags say; `results`: every entry comes with what became of it.
pub(crate) fn printer(args: &OutputArgs, results: bool) -> Printer<'static> {
    let options = Options {
        results,
        ..options(args)
    };
    Printer::new(options, Box::new(io::stdout()))
}

/// How to print to stdout.
pub(crate) fn options(args: &OutputArgs) -> Options {
    let stdout = io::stdout();
    Options {
        format: args.output,
        columns: args.columns.clone(),
        palette: Palette::of_environment(args.color, stdout.is_terminal()),
        header: !args.no_header,
        terminal: terminal_width(&stdout),
        results: false,
    }
}

/// Columns of the terminal that `out` is, if it is one.
pub(crate) fn terminal_width(out: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    let width = usize::from(size.ws_col);
    (out.is_terminal() && width > 0).then_some(width)
}

/// Columns are chosen only where there are any.
pub(crate) fn check_columns(args: &OutputArgs) -> Result<(), CommandError> {
    if args.columns.is_some() && !args.output.has_columns() {
        return Err(
            CommandError::usage("--columns goes with -o table, wide and csv")
                .hint("json, jsonl and conntrack always print every field"),
        );
    }
    Ok(())
}
