//! Log on stderr, for `-v`. An error of stderr never ends a command.

use std::io::{self, IsTerminal, Write};

/// Writer of log lines. It drops what stderr does not take: the reader may be gone, or the disk full.
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the log: nothing without `-v`, steps with one, requests with two, everything with three.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    // The demo runs several commands in one process: the log may have been started already.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| LogWriter)
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .without_time()
        .try_init();
}
