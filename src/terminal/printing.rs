//! Printing of entries to standard output, and the early end of a listing.

use std::io::{self, IsTerminal};

use crate::error::{CommandError, ExitStatus};
use crate::output::{self, Options, Printer};

use crate::terminal::messages;

/// Reason for the early end of a listing.
pub(crate) enum ListingEnd {
    /// The reader closed the pipe.
    Closed,
    Failed(CommandError),
}

impl From<io::Error> for ListingEnd {
    fn from(error: io::Error) -> Self {
        if output::is_closed(&error) {
            ListingEnd::Closed
        } else {
            ListingEnd::Failed(messages::writing(error))
        }
    }
}

impl From<CommandError> for ListingEnd {
    fn from(error: CommandError) -> Self {
        ListingEnd::Failed(error)
    }
}

impl ListingEnd {
    /// Result of the command: a closed pipe ends it without an error.
    pub(crate) fn status(self) -> Result<ExitStatus, CommandError> {
        match self {
            ListingEnd::Closed => Ok(ExitStatus::Done),
            ListingEnd::Failed(error) => Err(error),
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
