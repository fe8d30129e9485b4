//! `watch --live`: a table that repaints itself, the most urgent entries on top.

use std::io;
use std::time::{Duration, Instant};

use crate::entry::Entry;
use crate::error::CommandError;
use crate::output::{Format, Options, Palette, Printer, Summary};
use crate::verdict::{Refreshing, Verdict};

use crate::terminal::screen::{Screen, UserAction};

/// Between two paintings.
const PAINT: Duration = Duration::from_millis(500);

/// The table on the terminal.
pub struct Live {
    screen: Screen,
    palette: Palette,
    painted: Option<Instant>,
}

impl Live {
    /// # Errors
    /// Usage, where stdin and stdout are no terminal.
    pub fn open(palette: Palette) -> Result<Self, CommandError> {
        if !Screen::is_possible() {
            return Err(CommandError::usage("--live needs a terminal")
                .hint("without --live there is a line for each change"));
        }
        Ok(Live {
            screen: Screen::open()?,
            palette,
            painted: None,
        })
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
        match self.screen.user_action()? {
            UserAction::Quit => return Ok(true),
            UserAction::Resize => self.painted = None,
            UserAction::None => {}
        }
        if self
            .painted
            .is_some_and(|painted| painted.elapsed() < PAINT)
        {
            return Ok(false);
        }
        self.painted = Some(Instant::now());
        let (columns, rows) = self.screen.size()?;
        let mut totals = Totals::default();
        let mut top = Top::new(rows.saturating_sub(3));
        for entry in entries {
            totals.add(&entry);
            top.add(entry);
        }
        let table = self.table(top.into_sorted(), columns)?;
        self.screen
            .paint(&format!("{}\n{table}", totals.line(gaps)))?;
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
