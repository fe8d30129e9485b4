//! The terminal while a table repaints itself on it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::{cursor, execute, queue, terminal};

use crate::error::CommandError;

/// The terminal, taken over. Dropping it gives it back as it was.
pub struct Screen(());

/// What the user did since it was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    /// The terminal has another size now.
    Repaint,
    Leave,
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
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(Wish::Leave),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        return Ok(Wish::Leave);
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

    /// Paints these lines over what was there; lines that do not fit are left out.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn paint(&self, text: &str) -> io::Result<()> {
        let (_, rows) = self.size()?;
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        // The cursor stays in the last row, so nothing is written there.
        for line in text.lines().take(rows.saturating_sub(1)) {
            write!(out, "{line}")?;
            queue!(
                out,
                terminal::Clear(terminal::ClearType::UntilNewLine),
                cursor::MoveToNextLine(1)
            )?;
        }
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
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
    }
}
