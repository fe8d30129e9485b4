//! Errors of commands: message, source, hints and exit status. The only module that turns an error into a number.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// End of a command. The numbers are a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The command succeeded, also when nothing matched.
    Done,
    Failed,
    Usage,
    /// The answer lacks something, or some entries failed.
    Partial,
    /// The read, or every delete that was tried, was refused with EPERM.
    NotPermitted,
    /// `ls --exit-code` matched something, or `doctor` found something above info.
    Found,
}

impl ExitStatus {
    pub const fn code(self) -> u8 {
        match self {
            ExitStatus::Done => 0,
            ExitStatus::Failed => 1,
            ExitStatus::Usage => 2,
            ExitStatus::Partial => 3,
            ExitStatus::NotPermitted => 4,
            ExitStatus::Found => 5,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        ExitCode::from(status.code())
    }
}

/// Text of an error and its sources, joined by colons: `reading the conntrack table failed: Invalid argument`.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// An error that ends a command: message, source, hints and exit status.
#[derive(Debug)]
pub struct CommandError {
    pub status: ExitStatus,
    /// Text without that of the source.
    pub message: String,
    pub hints: Vec<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
    /// The message is that of `source`, whose own source comes next.
    is_transparent: bool,
}

impl CommandError {
    pub fn new(status: ExitStatus, message: impl fmt::Display) -> Self {
        CommandError {
            status,
            message: message.to_string(),
            hints: Vec::new(),
            source: None,
            is_transparent: false,
        }
    }

    /// An error that ends the command with its own text.
    pub fn of(status: ExitStatus, error: impl Error + Send + Sync + 'static) -> Self {
        CommandError {
            is_transparent: true,
            ..Self::new(status, &error).with_source(error)
        }
    }

    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(ExitStatus::Usage, message)
    }

    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(ExitStatus::Failed, message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hints.push(hint.to_string());
        self
    }

    /// Adds the error that caused this one. Its text follows the message, after a colon.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Message with the texts of all sources, without hints.
    pub fn text(&self) -> String {
        chain(self)
    }

    /// Everything that is printed for the error: the message with its sources, then the hints.
    pub fn report(&self) -> String {
        let mut report = format!("ctk: error: {}", self.text());
        for hint in &self.hints {
            report.push_str("\nhint: ");
            report.push_str(hint);
        }
        report
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CommandError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = self.source.as_deref()?;
        match self.is_transparent {
            true => source.source(),
            false => Some(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_an_error_has_every_source_before_the_hints() {
        let inner = CommandError::failed("inner").with_source(std::io::Error::other("deepest"));
        let error = CommandError::usage("outer")
            .with_source(inner)
            .hint("try this");
        assert_eq!(
            error.report(),
            "ctk: error: outer: inner: deepest\nhint: try this"
        );
        assert_eq!(CommandError::failed("alone").report(), "ctk: error: alone");
        let cause = CommandError::failed("itself").with_source(std::io::Error::other("cause"));
        let error = CommandError::of(ExitStatus::Failed, cause);
        assert_eq!(error.report(), "ctk: error: itself: cause");
    }
}
