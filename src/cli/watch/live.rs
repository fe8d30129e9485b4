//! `watch --live`: a table that repaints itself, the most urgent entries on top.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::{cursor, execute, queue, terminal};

use crate::entry::Entry;
use crate::error::CommandError;
use crate::output::{Format, Options, Palette, Printer, Summary};
use crate::verdict::{Refreshing, Verdict};

/// Between two paintings.
const PAINT: Duration = Duration::from_millis(500);

/// The terminal while it is used for the table. Dropping it gives it back as it was.
pub struct Live {
    palette: Palette,
    painted: Option<Instant>,
}

impl Live {
    /// # Errors
    /// Usage, where stdin and stdout are no terminal.
    pub fn open(palette: Palette) -> Result<Self, CommandError> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(CommandError::usage("--live needs a terminal")
                .hint("without --live there is a line for each change"));
        }
        let failed = |error: io::Error| CommandError::failed(format!("the terminal: {error}"));
        terminal::enable_raw_mode().map_err(failed)?;
        let live = Live {
            palette,
            painted: None,
        };
        // A row that is wider than the terminal is cut off: in two lines it would push the top out of it.
        execute!(
            io::stdout(),
            terminal::EnterAlternateScreen,
            terminal::DisableLineWrap,
            cursor::Hide
        )
        .map_err(failed)?;
        Ok(live)
    }

    /// Paints when it is time to. Whether the user wants to leave.
    ///
    /// # Errors
    /// What the terminal says.
    pub fn paint<'c>(
        &mut self,
        entries: impl Iterator<Item = Entry<'c>>,
        gaps: u64,
    ) -> io::Result<bool> {
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        return Ok(true);
                    }
                    _ => {}
                },
                Event::Resize(..) => self.painted = None,
                _ => {}
            }
        }
        if self
            .painted
            .is_some_and(|painted| painted.elapsed() < PAINT)
        {
            return Ok(false);
        }
        self.painted = Some(Instant::now());
        let (columns, rows) = terminal::size()?;
        let mut totals = Totals::default();
        let mut top = Top::new(usize::from(rows).saturating_sub(3));
        for entry in entries {
            totals.add(&entry);
            top.add(entry);
        }
        let text = self.table(top.into_sorted(), usize::from(columns))?;
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        let lines = std::iter::once(totals.line(gaps));
        for line in lines.chain(text.lines().map(str::to_owned)) {
            write!(out, "{line}")?;
            queue!(
                out,
                terminal::Clear(terminal::ClearType::UntilNewLine),
                cursor::MoveToNextLine(1)
            )?;
        }
        queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        out.flush()?;
        Ok(false)
    }

    fn table(&self, entries: Vec<Entry<'_>>, columns: usize) -> io::Result<String> {
        let mut text = Vec::new();
        let options = Options {
            format: Format::Table,
            columns: None,
            palette: self.palette,
            header: true,
            terminal: Some(columns),
            results: false,
        };
        let mut printer = Printer::new(options, Box::new(&mut text));
        for entry in &entries {
            printer.entry(entry, None)?;
        }
        printer.finish(&Summary::default())?;
        drop(printer);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Live {
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

#[derive(Default)]
struct Totals {
    entries: usize,
    stale: usize,
    refreshing: usize,
}

impl Totals {
    fn add(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        self.stale += usize::from(is_stale(entry));
        self.refreshing += usize::from(is_stale(entry) && entry.refreshing == Refreshing::Yes);
    }

    fn line(&self, gaps: u64) -> String {
        let Totals {
            entries,
            stale,
            refreshing,
        } = self;
        let gaps = match gaps {
            0 => String::new(),
            gaps => format!(", {gaps} overruns"),
        };
        format!("{entries} entries, {stale} stale, {refreshing} of them refreshing{gaps}   q quits")
    }
}

fn is_stale(entry: &Entry<'_>) -> bool {
    entry
        .judgement
        .is_some_and(|judgement| judgement.verdict() == Verdict::Stale)
}

/// Stale and refreshing first, then by verdict as listed in [`Verdict`]; the shortest time left on top of each.
fn urgency(entry: &Entry<'_>) -> (Verdict, bool, u32) {
    let verdict = entry
        .judgement
        .map_or(Verdict::Unrelated, |judgement| judgement.verdict());
    let calm = entry.refreshing != Refreshing::Yes;
    (verdict, calm, entry.flow.timeout.unwrap_or(u32::MAX))
}

/// The most urgent entries, as many as there are lines for them.
struct Top<'c> {
    lines: usize,
    entries: Vec<Entry<'c>>,
}

impl<'c> Top<'c> {
    fn new(lines: usize) -> Self {
        Top {
            lines,
            entries: Vec::new(),
        }
    }

    fn add(&mut self, entry: Entry<'c>) {
        self.entries.push(entry);
        // Now and then, so that memory stays that of the lines.
        if self.entries.len() > 4 * self.lines + 64 {
            self.sort();
        }
    }

    fn sort(&mut self) {
        self.entries
            .sort_by_key(|entry| (urgency(entry), entry.flow.original));
        self.entries.truncate(self.lines);
    }

    fn into_sorted(mut self) -> Vec<Entry<'c>> {
        self.sort();
        self.entries
    }
}
