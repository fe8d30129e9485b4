//! What can go wrong with a command: kinds, hints, exit status. The one place where an error becomes a number.

use std::fmt;
use std::process::ExitCode;

/// How a command ended; the numbers are a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done, also when nothing matched.
    Done,
    Failed,
    Usage,
    /// Something is missing from the answer, or some entries failed.
    Partial,
    /// The read, or every delete that was tried, was refused with EPERM.
    NotPermitted,
    /// `ls --exit-code` matched something, or `doctor` found something above info.
    Found,
}

impl Status {
    pub const fn code(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Failed => 1,
            Status::Usage => 2,
            Status::Partial => 3,
            Status::NotPermitted => 4,
            Status::Found => 5,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        ExitCode::from(status.code())
    }
}

/// Text of an error and its sources, joined by colons: `reading the conntrack table failed: Invalid argument`.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// An error that ends a command: what happened, what may help, and the exit status.
#[derive(Debug)]
pub struct CommandError {
    pub status: Status,
    pub message: String,
    pub hints: Vec<String>,
}

impl CommandError {
    pub fn new(status: Status, message: impl fmt::Display) -> Self {
        CommandError {
            status,
            message: message.to_string(),
            hints: Vec::new(),
        }
    }

    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Status::Usage, message)
    }

    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(Status::Failed, message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hints.push(hint.to_string());
        self
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ctk: error: {}", self.message)?;
        for hint in &self.hints {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CommandError {}
