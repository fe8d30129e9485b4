//! The lines that `ctk restore` reads: all of them before anything is changed, then those that are wanted.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::ControlFlow;
use std::path::Path;

use crate::error::CommandError;
use crate::purge::undo::{DELETED, Wanted};
use crate::text::json::{self, ReadError, Saved};

pub const CHANGED: &str = "the file changed while it was read";

/// What the input holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines {
    pub all: u64,
    pub wanted: u64,
}

/// Where the lines come from. A file is read again for each pass; of what can be read once only, what is wanted is held.
pub enum Input {
    File { file: File, name: String },
    Held(Vec<Wanted>),
}

impl Input {
    /// Opens the input, and reads it to its end: whatever is wrong with it is told now, before anything is changed.
    pub fn open(path: &Path, from_stdin: bool) -> Result<(Self, Lines), CommandError> {
        if from_stdin {
            return Self::held(io::stdin().lock(), "standard input");
        }
        let name = path.display().to_string();
        let failed = |error| CommandError::failed(format!("{name}: {error}"));
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Self::held(file, &name);
        }
        let mut lines = Lines::default();
        read(&file, &name, &mut lines, &mut |_| ControlFlow::Continue(()))?;
        Ok((Input::File { file, name }, lines))
    }

    fn held(reader: impl Read, name: &str) -> Result<(Self, Lines), CommandError> {
        let (mut held, mut lines) = (Vec::new(), Lines::default());
        read(reader, name, &mut lines, &mut |wanted| {
            held.push(wanted);
            ControlFlow::Continue(())
        })?;
        Ok((Input::Held(held), lines))
    }

    /// Gives every entry that is to be put back, until `on_wanted` breaks.
    pub fn each(
        &mut self,
        on_wanted: &mut dyn FnMut(Wanted) -> ControlFlow<()>,
    ) -> Result<(), CommandError> {
        match self {
            Input::Held(held) => {
                let _ = held.iter().cloned().try_for_each(on_wanted);
                Ok(())
            }
            Input::File { file, name } => {
                file.rewind()
                    .map_err(|error| CommandError::failed(format!("{name}: {error}")))?;
                // It was good a moment ago.
                read(&*file, name, &mut Lines::default(), on_wanted)
                    .map_err(|error| CommandError::failed(format!("{CHANGED}: {}", error.text())))
            }
        }
    }
}

/// One pass over an input.
fn read(
    mut reader: impl Read,
    name: &str,
    lines: &mut Lines,
    on_wanted: &mut dyn FnMut(Wanted) -> ControlFlow<()>,
) -> Result<(), CommandError> {
    let mut refused = None;
    let read = json::read(&mut reader, &mut |saved| {
        let Saved {
            flow,
            result,
            place,
        } = saved;
        lines.all += 1;
        match Wanted::of(flow, result.as_deref()) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(wanted)) => {
                lines.wanted += 1;
                on_wanted(wanted)
            }
            Err(error) => {
                let message = format!("{name}: {place}: {error}");
                refused = Some(CommandError::usage(message).hint(format!(
                    "restore reads what ctk purge printed; add \"result\":\"{DELETED}\" to what is to be put back"
                )));
                ControlFlow::Break(())
            }
        }
    });
    match (refused, read) {
        (Some(refused), _) => Err(refused),
        (None, read) => read.map_err(|error| unreadable(name, &error)),
    }
}

fn unreadable(name: &str, error: &ReadError) -> CommandError {
    let message = format!("{name}: {error}");
    match error {
        ReadError::Foreign { .. } => CommandError::usage(message)
            .hint("restore reads what ctk purge -o jsonl or -o json printed"),
        ReadError::Cut { .. } => CommandError::failed(message)
            .hint("a purge was stopped while it wrote; without the last line the rest is whole"),
        _ => CommandError::failed(message).hint("nothing was put back"),
    }
}
