//! An error of selectors that are each possible, but not together.

use crate::error::CommandError;

/// Selectors that are each possible, but not together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UsageError {
    pub message: String,
    pub hint: Option<String>,
}

impl From<UsageError> for CommandError {
    fn from(error: UsageError) -> Self {
        let usage = CommandError::usage(error.message);
        match error.hint {
            Some(hint) => usage.hint(hint),
            None => usage,
        }
    }
}
