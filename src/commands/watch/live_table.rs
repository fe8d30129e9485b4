//! Table of `watch --live`, which repaints itself with the most urgent entries on top.

use std::io;
use std::time::{Duration, Instant};

use crate::entry::Entry;
use crate::error::CommandError;
use crate::output::{Format, Options, Palette, Printer, Summary};
use crate::plural::count;
use crate::verdict::{Refreshing, Verdict};

use crate::terminal::screen::{Screen, UserAction};

/// Pause between two paintings.
const PAINT_INTERVAL: Duration = Duration::from_millis(500);

/// The table on the terminal.
pub struct LiveTable {
    screen: Screen,
    palette: Palette,
    painted: Option<Instant>,
}

impl LiveTable {
    /// # Errors
    /// A usage error when stdin or stdout is no terminal.
    pub fn open(palette: Palette) -> Result<Self, CommandError> {
        if !Screen::is_possible() {
            return Err(CommandError::usage(
                "--live needs a terminal that can be repainted (TERM)",
            )
            .hint("without --live there is a line for each change"));
        }
        Ok(LiveTable {
            screen: Screen::open()?,
            palette,
            painted: None,
        })
    }

    /// Paints when a painting is due. Returns whether the user wants to quit. `overruns`: number so far.
    ///
    /// # Errors
    /// An error of the terminal.
    pub fn paint<'c>(
        &mut self,
        entries: impl Iterator<Item = Entry<'c>>,
        overruns: u64,
    ) -> io::Result<bool> {
        match self.screen.user_action()? {
            UserAction::Quit => return Ok(true),
            UserAction::Resize => self.painted = None,
            UserAction::None => {}
        }
        if self
            .painted
            .is_some_and(|painted| painted.elapsed() < PAINT_INTERVAL)
        {
            return Ok(false);
        }
        self.painted = Some(Instant::now());
        let (columns, rows) = self.screen.size()?;
        let mut totals = Totals::default();
        let mut top = MostUrgent::new(rows.saturating_sub(3));
        for entry in entries {
            totals.add(&entry);
            top.add(entry);
        }
        let table = self.table(top.into_sorted(), columns)?;
        self.screen
            .paint(&format!("{}\n{table}", totals.line(overruns)))?;
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
            netns: false,
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
    entries: u64,
    stale: u64,
    refreshing: u64,
}

impl Totals {
    fn add(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        self.stale += u64::from(is_stale(entry));
        self.refreshing += u64::from(is_stale(entry) && entry.refreshing == Refreshing::Yes);
    }

    fn line(&self, overruns: u64) -> String {
        let Totals {
            entries,
            stale,
            refreshing,
        } = self;
        let entries = count(*entries, "entry", "entries");
        let overruns = match overruns {
            0 => String::new(),
            number => format!(", {}", count(number, "overrun", "overruns")),
        };
        format!("{entries}, {stale} stale, {refreshing} of them refreshing{overruns}   q quits")
    }
}

fn is_stale(entry: &Entry<'_>) -> bool {
    entry
        .judgement
        .is_some_and(|judgement| judgement.verdict() == Verdict::Stale)
}

/// Sort key: stale and refreshing first, then by the order of [`Verdict`]; the shortest time left first in each group.
fn urgency(entry: &Entry<'_>) -> (Verdict, bool, u32) {
    let verdict = entry
        .judgement
        .map_or(Verdict::Unrelated, |judgement| judgement.verdict());
    let is_calm = entry.refreshing != Refreshing::Yes;
    (verdict, is_calm, entry.flow.timeout.unwrap_or(u32::MAX))
}

/// The most urgent entries, as many as fit on the screen.
struct MostUrgent<'c> {
    lines: usize,
    entries: Vec<Entry<'c>>,
}

impl<'c> MostUrgent<'c> {
    fn new(lines: usize) -> Self {
        MostUrgent {
            lines,
            entries: Vec::new(),
        }
    }

    fn add(&mut self, entry: Entry<'c>) {
        self.entries.push(entry);
        // Bounds the memory by the number of lines.
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
