//! The terminal while a table repaints itself on it.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::{cursor, execute, queue, terminal};

use crate::error::CommandError;

/// As many different lines of stderr are kept while the screen is taken over.
const MOST_SAID: usize = 100;

/// They would be painted over: the last one stands below the table, and all are written when the terminal is given back.
/// `None` where it is not taken over.
static SAID: Mutex<Option<Vec<String>>> = Mutex::new(None);

fn said() -> std::sync::MutexGuard<'static, Option<Vec<String>>> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line to stderr, now or when the screen is free again.
pub fn say(line: &str) {
    if let Some(lines) = said().as_mut() {
        lines.retain(|other| other != line);
        if lines.len() >= MOST_SAID {
            lines.remove(0);
        }
        lines.push(line.to_owned());
        if io::stderr().is_terminal() {
            return;
        }
    }
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The terminal, taken over. Dropping it gives it back as it was.
pub struct Screen(());

/// What the user did since it was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    /// The terminal has another size now.
    Repaint,
    Consent,
}

impl Screen {
    /// Somebody can look at it, and press a key.
    pub fn is_possible() -> bool {
        io::stdout().is_terminal() && io::stdin().is_terminal()
    }

    /// # Errors
    /// What the terminal says.
    pub fn open() -> Result<Self, CommandError> {
        let failed = |error: io::Error| CommandError::failed(format!("the terminal: {error}"));
        terminal::enable_raw_mode().map_err(failed)?;
        let screen = Screen(());
        *said() = Some(Vec::new());
        // A row that is wider than the terminal is cut off: in two lines it would push the top out of it.
        execute!(
            io::stdout(),
            terminal::EnterAlternateScreen,
            terminal::DisableLineWrap,
            cursor::Hide
        )
        .map_err(failed)?;
        Ok(screen)
    }

    /// # Errors
    /// What the terminal says.
    pub fn wish(&self) -> io::Result<Wish> {
        let mut wish = Wish::Nothing;
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(Wish::Consent),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        return Ok(Wish::Consent);
                    }
                    _ => {}
                },
                Event::Resize(..) => wish = Wish::Repaint,
                _ => {}
            }
        }
        Ok(wish)
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn size(&self) -> io::Result<(usize, usize)> {
        let (columns, rows) = terminal::size()?;
        Ok((columns.into(), rows.into()))
    }

    /// Paints these lines over what was there, and the last line of stderr below; lines that do not fit are left out.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn paint(&self, text: &str) -> io::Result<()> {
        let (_, rows) = self.size()?;
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        // The cursor stays in the last row, so nothing is written there that ends in a new line.
        for line in text.lines().take(rows.saturating_sub(1)) {
            write!(out, "{line}")?;
            queue!(
                out,
                terminal::Clear(terminal::ClearType::UntilNewLine),
                cursor::MoveToNextLine(1)
            )?;
        }
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        if let Some(line) = said().as_ref().and_then(|lines| lines.last()) {
            let bottom = u16::try_from(rows.saturating_sub(1)).unwrap_or(u16::MAX);
            queue!(out, cursor::MoveTo(0, bottom))?;
            write!(out, "{line}")?;
        }
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody to tell that the terminal is gone.
        let _ = execute!(
            io::stdout(),
            cursor::Show,
            terminal::EnableLineWrap,
            terminal::LeaveAlternateScreen
        );
        let _ = terminal::disable_raw_mode();
        let lines = said().take().unwrap_or_default();
        // Elsewhere than on the terminal they stand already.
        if io::stderr().is_terminal() {
            lines.iter().for_each(|line| say(line));
        }
    }
}
