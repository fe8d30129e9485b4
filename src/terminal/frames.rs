//! Repeated output: repainted on a terminal, one frame after the other in a pipe or file.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::CommandError;

use crate::terminal::interruptible_stdout::{self, InterruptibleStdout};
use crate::terminal::screen::{Screen, UserAction};
use crate::terminal::signals;

/// Interval at which signals, keys and a closed pipe are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Destination of frames, and the time of the next one.
pub struct Frames {
    interval: Duration,
    /// Begin of the last frame.
    began: Option<Instant>,
    stop: Arc<AtomicBool>,
    show: Show,
}

enum Show {
    /// The screen and its text.
    Screen(Screen, String),
    Pipe(InterruptibleStdout),
}

impl Frames {
    /// Frames every `interval`, until Ctrl-C, SIGTERM, or `q` on the screen. `repaint`: frames are text and replace each other,
    /// where that is [possible](Screen::is_possible).
    ///
    /// # Errors
    /// The terminal cannot be set up.
    pub fn begin(interval: Duration, repaint: bool) -> Result<Self, CommandError> {
        let stop = Arc::new(AtomicBool::new(false));
        signals::set_on_signals(&stop)?;
        let show = if repaint && Screen::is_possible() {
            Show::Screen(Screen::open()?, String::new())
        } else {
            Show::Pipe(InterruptibleStdout::new(Arc::clone(&stop), None))
        };
        Ok(Frames {
            interval,
            began: None,
            stop,
            show,
        })
    }

    /// Waits until the next frame is due. The first is due at once. Returns false when the user ends the command.
    ///
    /// # Errors
    /// The terminal fails, or the reader closed the pipe.
    pub fn next(&mut self) -> io::Result<bool> {
        let due = self
            .began
            .and_then(|began| began.checked_add(self.interval));
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match &mut self.show {
                Show::Screen(screen, text) => match screen.user_action()? {
                    UserAction::Quit => return Ok(false),
                    UserAction::Resize => screen.paint(text)?,
                    UserAction::None => {}
                },
                Show::Pipe(_) => interruptible_stdout::check_reader()?,
            }
            let now = Instant::now();
            let Some(left) = due.and_then(|due| due.checked_duration_since(now)) else {
                self.began = Some(now);
                return Ok(true);
            };
            // A signal does not end the sleep.
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }

    /// Rows of the screen for lines of a frame. `None` where nothing is repainted.
    pub fn rows(&self) -> Option<usize> {
        match &self.show {
            Show::Screen(screen, _) => screen.size().ok().map(|(_, rows)| rows.saturating_sub(1)),
            Show::Pipe(_) => None,
        }
    }

    /// Shows the frame that `write` writes.
    ///
    /// # Errors
    /// Writing fails. [`io::ErrorKind::TimedOut`]: the command is to end, and the reader had not taken the frame.
    pub fn show(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        match &mut self.show {
            Show::Screen(screen, text) => {
                let mut bytes = Vec::new();
                write(&mut bytes)?;
                *text = String::from_utf8_lossy(&bytes).into_owned();
                screen.paint(text)
            }
            Show::Pipe(out) => write(out),
        }
    }
}
