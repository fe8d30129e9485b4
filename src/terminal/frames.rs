//! The same look again and again: repainted on a terminal, one after the other where the output is a pipe or a file.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::CommandError;

use crate::terminal::interruptible_stdout::{self, InterruptibleStdout};
use crate::terminal::screen::{Screen, Wish};
use crate::terminal::signals;

/// The longest wait: signals, keys and readers that went away are looked for in between.
const TICK: Duration = Duration::from_millis(100);

/// Where frames go, and when the next one is due.
pub struct Frames {
    interval: Duration,
    /// When the last one began.
    began: Option<Instant>,
    stop: Arc<AtomicBool>,
    show: Show,
}

enum Show {
    /// With what is on it.
    Screen(Screen, String),
    Pipe(InterruptibleStdout),
}

impl Frames {
    /// A frame every `interval`, until Ctrl-C, SIGTERM, or `q` on the screen. `repaint`: frames are text and replace each
    /// other, where that [can be](Screen::is_possible).
    ///
    /// # Errors
    /// What the terminal says.
    pub fn begin(interval: Duration, repaint: bool) -> Result<Self, CommandError> {
        let stop = Arc::new(AtomicBool::new(false));
        signals::on_signals(&stop)?;
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

    /// Waits until the next frame is due, the first at once. False when there is to be none.
    ///
    /// # Errors
    /// What the terminal says, or that nobody reads on.
    pub fn next(&mut self) -> io::Result<bool> {
        let due = self
            .began
            .and_then(|began| began.checked_add(self.interval));
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match &mut self.show {
                Show::Screen(screen, text) => match screen.wish()? {
                    Wish::Consent => return Ok(false),
                    Wish::Repaint => screen.paint(text)?,
                    Wish::Nothing => {}
                },
                Show::Pipe(_) => interruptible_stdout::check_reader()?,
            }
            let now = Instant::now();
            let Some(left) = due.and_then(|due| due.checked_duration_since(now)) else {
                self.began = Some(now);
                return Ok(true);
            };
            // A signal does not wake it up; the next tick sees it.
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Rows of the screen that lines go to; `None` where nothing is repainted.
    pub fn rows(&self) -> Option<usize> {
        match &self.show {
            Show::Screen(screen, _) => screen.size().ok().map(|(_, rows)| rows.saturating_sub(1)),
            Show::Pipe(_) => None,
        }
    }

    /// Shows the frame that `write` writes.
    ///
    /// # Errors
    /// What writing says; [`io::ErrorKind::TimedOut`] when it was time to end and the reader had not taken it.
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
