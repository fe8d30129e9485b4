//! Buffered output of every format.
//!
//! Formats append to a reused buffer and call [`Sink::checkpoint`] after each line, so that a million entries take a few
//! thousand writes and no allocation.

use std::io::{self, Write};

/// Bytes buffered before a write: enough to make the cost of the system call negligible, few enough for the reader of a pipe
/// to see rows soon.
const CHUNK: usize = 64 * 1024;

/// A buffered writer whose buffer the formats fill directly.
///
/// Dropping it writes nothing, because an error could not be returned: call [`Sink::flush`].
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

    /// Buffer to append to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer when it is full. To be called between lines, never inside one.
    ///
    /// # Errors
    /// The error of the write.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        if self.buffer.len() < CHUNK {
            return Ok(());
        }
        self.drain()
    }

    /// Writes the buffer and flushes the output.
    ///
    /// # Errors
    /// The error of the write.
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

/// Whether the reader of a pipe has closed it (`ctk ls | head`). The caller then ends without an error.
pub fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_distinguished_from_other_errors() {
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
    fn bytes_are_buffered_and_written_in_order() {
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
