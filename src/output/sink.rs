//! The one place where data leaves the program.
//!
//! Formats append to a reused buffer and call [`Sink::checkpoint`] after each line, so that a million entries cost a few
//! thousand writes and no allocation.

use std::io::{self, Write};

/// Bytes gathered before they are written: large enough that the system call does not count, small enough that a reader
/// of a pipe sees rows soon.
const CHUNK: usize = 64 * 1024;

/// A buffered writer whose buffer the formats fill directly.
///
/// Nothing is written when it is dropped: what matters is flushed by whoever ends the output, and its error is seen.
pub struct Sink<'w> {
    out: Box<dyn Write + 'w>,
    buffer: Vec<u8>,
}

impl<'w> Sink<'w> {
    pub fn new(out: Box<dyn Write + 'w>) -> Self {
        Sink {
            out,
            buffer: Vec::with_capacity(CHUNK + CHUNK / 8),
        }
    }

    /// Where the next bytes go.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Hands the gathered bytes on when there are enough of them. Call it between lines, never inside one.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        if self.buffer.len() < CHUNK {
            return Ok(());
        }
        self.drain()
    }

    /// Hands on everything, to the end.
    pub fn flush(&mut self) -> io::Result<()> {
        self.drain()?;
        self.out.flush()
    }

    fn drain(&mut self) -> io::Result<()> {
        let result = self.out.write_all(&self.buffer);
        self.buffer.clear();
        result
    }
}

/// The reader of a pipe went away (`ctk ls | head`): the caller ends quietly instead of reporting an error.
pub fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_told_apart_from_other_errors() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut sink = Sink::new(Box::new(writer));
        sink.buffer().extend_from_slice(b"line\n");
        assert!(is_closed(&sink.flush().unwrap_err()));

        let mut full = Sink::new(Box::new(std::fs::File::create("/dev/full").unwrap()));
        full.buffer().extend_from_slice(b"line\n");
        assert!(!is_closed(&full.flush().unwrap_err()));
    }

    #[test]
    fn bytes_are_held_until_there_are_enough_and_then_come_in_order() {
        let mut written = Vec::new();
        let mut sink = Sink::new(Box::new(&mut written));
        for line in 0..20_000u32 {
            writeln!(sink.buffer(), "{line}").unwrap();
            sink.checkpoint().unwrap();
            assert!(sink.buffer().len() < CHUNK);
        }
        sink.flush().unwrap();
        drop(sink);
        let expected: String = (0..20_000u32).map(|line| format!("{line}\n")).collect();
        assert_eq!(written, expected.as_bytes());
    }
}
