//! How entries are written to standard output, and how a command ends that cannot write.

use std::io::{self, IsTerminal};

use crate::error::CommandError;
use crate::output::{self, Options, Printer};

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

/// Prints entries to stdout.
pub(crate) fn printer(options: Options) -> Printer<'static> {
    Printer::new(options, Box::new(io::stdout()))
}

/// Stdout is a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal that stdout is, if it is one.
pub(crate) fn stdout_width() -> Option<usize> {
    terminal_width(&io::stdout())
}

/// Columns of the terminal that `out` is, if it is one.
pub(crate) fn terminal_width(out: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    let width = usize::from(size.ws_col);
    (out.is_terminal() && width > 0).then_some(width)
}
