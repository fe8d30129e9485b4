//! Notes on stderr, and errors of the output.

use std::fmt::Display;
use std::io;

use crate::error::{CommandError, ExitStatus};
use crate::output::{is_closed, safe_text};

use super::screen;

/// Prints a note to stderr. Control characters in it are replaced.
pub fn note(text: impl Display) {
    screen::write_stderr(&format!("ctk: {}", safe_text(&text.to_string())));
}

/// An error of the output.
pub fn writing(error: io::Error) -> CommandError {
    CommandError::failed("writing the output").with_source(error)
}

/// End of a command that could not write: a closed pipe ends it without an error.
pub fn unwritten(error: io::Error) -> Result<ExitStatus, CommandError> {
    match is_closed(&error) {
        true => Ok(ExitStatus::Done),
        false => Err(writing(error)),
    }
}
