//! Input of `ctk restore`: all lines are read and checked before anything is changed, then the requests among them are given.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::ControlFlow;
use std::path::Path;

use crate::error::{CommandError, chain};
use crate::purge::restore::{DELETED, RestoreRequest};
use crate::saved_table::{self, SavedEntry, SavedTableError};

pub const CHANGED: &str = "the file changed while it was read";

/// Numbers of lines of an input.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineCounts {
    pub all: u64,
    /// Lines of deleted entries.
    pub requests: u64,
}

/// A file is read again for each pass. The requests of an input that can be read only once are kept in memory.
pub enum RestoreInput {
    File { file: File, name: String },
    Memory(Vec<RestoreRequest>),
}

impl RestoreInput {
    /// Opens the input and reads it to its end.
    ///
    /// # Errors
    /// The input cannot be read, or a line is no item of a purge.
    pub fn open(path: &Path, from_stdin: bool) -> Result<(Self, LineCounts), CommandError> {
        if from_stdin {
            return Self::read_once(io::stdin().lock(), "standard input");
        }
        let name = path.display().to_string();
        let failed = |error: io::Error| CommandError::failed(&name).with_source(error);
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Self::read_once(file, &name);
        }
        let mut lines = LineCounts::default();
        read(&file, &name, &mut lines, &mut |_| ControlFlow::Continue(()))?;
        Ok((RestoreInput::File { file, name }, lines))
    }

    fn read_once(reader: impl Read, name: &str) -> Result<(Self, LineCounts), CommandError> {
        let (mut requests, mut lines) = (Vec::new(), LineCounts::default());
        read(reader, name, &mut lines, &mut |request| {
            requests.push(request);
            ControlFlow::Continue(())
        })?;
        Ok((RestoreInput::Memory(requests), lines))
    }

    /// Gives every request, until `on_request` breaks.
    ///
    /// # Errors
    /// The file changed since it was opened.
    pub fn each(
        &mut self,
        on_request: &mut dyn FnMut(RestoreRequest) -> ControlFlow<()>,
    ) -> Result<(), CommandError> {
        match self {
            RestoreInput::Memory(requests) => {
                let _ = requests.iter().cloned().try_for_each(on_request);
                Ok(())
            }
            RestoreInput::File { file, name } => {
                file.rewind()
                    .map_err(|error| CommandError::failed(&name).with_source(error))?;
                // The first pass found no error.
                read(&*file, name, &mut LineCounts::default(), on_request)
                    .map_err(|error| CommandError::failed(CHANGED).with_source(error))
            }
        }
    }
}

/// One pass over an input.
fn read(
    mut reader: impl Read,
    name: &str,
    lines: &mut LineCounts,
    on_request: &mut dyn FnMut(RestoreRequest) -> ControlFlow<()>,
) -> Result<(), CommandError> {
    let mut refused = None;
    let result = saved_table::read(&mut reader, &mut |saved| {
        let SavedEntry {
            flow,
            result,
            position,
        } = saved;
        lines.all += 1;
        match RestoreRequest::of(flow, result.as_deref()) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(request)) => {
                lines.requests += 1;
                on_request(request)
            }
            Err(error) => {
                let message = format!("{name}: {position}: {error}");
                refused = Some(CommandError::usage(message).hint(format!(
                    "restore reads the output of ctk purge; add \"result\":\"{DELETED}\" to lines that are to be put back"
                )));
                ControlFlow::Break(())
            }
        }
    });
    match (refused, result) {
        (Some(refused), _) => Err(refused),
        (None, result) => result.map_err(|error| unreadable(name, &error)),
    }
}

fn unreadable(name: &str, error: &SavedTableError) -> CommandError {
    let message = format!("{name}: {}", chain(error));
    match error {
        SavedTableError::UnknownFormat { .. } => CommandError::usage(message)
            .hint("restore reads the output of ctk purge -o jsonl or -o json"),
        SavedTableError::Truncated { .. } => CommandError::failed(message)
            .hint("a purge was stopped while it wrote; without the last line the rest is whole"),
        _ => CommandError::failed(message).hint("nothing was put back"),
    }
}
