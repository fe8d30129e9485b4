//! The terminal while a command repaints it.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::{cursor, execute, queue, terminal};

use crate::error::CommandError;

/// Different lines of stderr that are held while the screen is in use.
const MAX_HELD: usize = 100;

/// Lines of stderr, held because the frame would overwrite them. The last one is shown below the frame, and all are written
/// when the screen is released. `None` while no screen is in use.
static HELD_LINES: Mutex<Option<Vec<String>>> = Mutex::new(None);

fn held_lines() -> std::sync::MutexGuard<'static, Option<Vec<String>>> {
    HELD_LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line to stderr, at once or when the screen is released.
pub fn write_stderr(line: &str) {
    if let Some(lines) = held_lines().as_mut() {
        lines.retain(|other| other != line);
        if lines.len() >= MAX_HELD {
            lines.remove(0);
        }
        lines.push(line.to_owned());
        if io::stderr().is_terminal() {
            return;
        }
    }
    // An error of stderr itself cannot be reported.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The alternate screen of the terminal in raw mode. Dropping it restores the terminal.
pub struct Screen(());

/// Stdout is a terminal that can be repainted: `TERM` is there, and not `dumb`.
pub fn can_repaint() -> bool {
    let name = std::env::var_os("TERM").unwrap_or_default();
    !name.is_empty() && name != "dumb" && io::stdout().is_terminal()
}

/// Action of the user since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAction {
    None,
    /// The size of the terminal changed.
    Resize,
    /// `q`, Esc or Ctrl-C.
    Quit,
}

impl Screen {
    /// Both stdin and stdout are terminals that can be repainted.
    pub fn is_possible() -> bool {
        can_repaint() && io::stdin().is_terminal()
    }

    /// # Errors
    /// The terminal cannot be set up.
    pub fn open() -> Result<Self, CommandError> {
        let failed = |error: io::Error| CommandError::failed("the terminal").with_source(error);
        terminal::enable_raw_mode().map_err(failed)?;
        let screen = Screen(());
        *held_lines() = Some(Vec::new());
        // A row that is wider than the terminal is cut off. Wrapped, it would push the first row out of view.
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
    /// The terminal cannot be read.
    pub fn user_action(&self) -> io::Result<UserAction> {
        let mut action = UserAction::None;
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(UserAction::Quit),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        return Ok(UserAction::Quit);
                    }
                    _ => {}
                },
                Event::Resize(..) => action = UserAction::Resize,
                _ => {}
            }
        }
        Ok(action)
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// The size is not known.
    pub fn size(&self) -> io::Result<(usize, usize)> {
        let (columns, rows) = terminal::size()?;
        Ok((columns.into(), rows.into()))
    }

    /// Replaces the screen by the lines of `text`, with the last line of stderr below. Lines that do not fit are left out.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn paint(&self, text: &str) -> io::Result<()> {
        let (_, rows) = self.size()?;
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        // A line end in the last row would scroll the screen.
        for line in text.lines().take(rows.saturating_sub(1)) {
            write!(out, "{line}")?;
            queue!(
                out,
                terminal::Clear(terminal::ClearType::UntilNewLine),
                cursor::MoveToNextLine(1)
            )?;
        }
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        if let Some(line) = held_lines().as_ref().and_then(|lines| lines.last()) {
            let bottom = u16::try_from(rows.saturating_sub(1)).unwrap_or(u16::MAX);
            queue!(out, cursor::MoveTo(0, bottom))?;
            write!(out, "{line}")?;
        }
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error of the terminal cannot be reported.
        let _ = execute!(
            io::stdout(),
            cursor::Show,
            terminal::EnableLineWrap,
            terminal::LeaveAlternateScreen
        );
        let _ = terminal::disable_raw_mode();
        let lines = held_lines().take().unwrap_or_default();
        // Where stderr is not the terminal, the lines were written at once.
        if io::stderr().is_terminal() {
            lines.iter().for_each(|line| write_stderr(line));
        }
    }
}
