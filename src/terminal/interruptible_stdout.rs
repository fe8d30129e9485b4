//! Standard output of a long-running command. A reader that pauses does not keep the command from ending, and a closed pipe
//! ends it even when there is nothing to print.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// `PIPE_BUF` of Linux: a pipe that is ready for writing takes so many bytes without blocking (pipe(7)).
const PIPE_BUF: usize = 4096;
/// Interval at which the end of the command is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Writes to standard output until the command is to end.
pub struct InterruptibleStdout {
    stop: Arc<AtomicBool>,
    end: Option<Instant>,
}

impl InterruptibleStdout {
    /// Writing fails with [`io::ErrorKind::TimedOut`] when the reader takes nothing and `stop` is set or `end` has passed.
    pub fn new(stop: Arc<AtomicBool>, end: Option<Instant>) -> Self {
        InterruptibleStdout { stop, end }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.end.is_some_and(|end| end <= Instant::now())
    }
}

impl Write for InterruptibleStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stdout = io::stdout();
        while wait(PollFlags::OUT, POLL_INTERVAL)?.is_empty() {
            if self.is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let piece = bytes.get(..PIPE_BUF).unwrap_or(bytes);
        Ok(rustix::io::write(&stdout, piece)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks the reader of standard output.
///
/// # Errors
/// [`io::ErrorKind::BrokenPipe`]: standard output is a pipe whose reader closed it.
pub fn check_reader() -> io::Result<()> {
    match wait(PollFlags::empty(), Duration::ZERO)?.contains(PollFlags::ERR) {
        true => Err(io::ErrorKind::BrokenPipe.into()),
        false => Ok(()),
    }
}

/// Operations that standard output is ready for. Errors are always among them.
fn wait(wanted: PollFlags, time: Duration) -> io::Result<PollFlags> {
    let stdout = io::stdout();
    let mut waiting = [PollFd::new(&stdout, wanted)];
    let time = Timespec::try_from(time).ok();
    match poll(&mut waiting, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(waiting[0].revents()),
        Err(error) => Err(error.into()),
    }
}
