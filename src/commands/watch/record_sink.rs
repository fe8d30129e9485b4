//! Writes and counts the records of a watch.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::CommandError;
use crate::output::{Format, Palette, RecordFormat, RecordPrinter};
use crate::verdict::Refreshing;
use crate::watch::record::Record;

use super::WatchArgs;
use super::live::Live;
use crate::terminal::interruptible_stdout::{self, InterruptibleStdout};

enum Show {
    Records(RecordPrinter<'static>, RecordFormat),
    Live(Box<Live>),
}

/// Prints records and remembers what ends a watch.
pub struct RecordSink {
    show: Show,
    /// Only of entries that are being refreshed.
    refreshing: bool,
    /// No more records than this.
    most: Option<u64>,
    /// Nanoseconds since the Unix epoch of what is told now.
    pub time: u64,
    /// Records told; those of the beginning, gaps and what follows them aside.
    pub told: u64,
    /// When something happened last.
    pub busy: Instant,
    /// What writing said; nothing is written after it.
    failed: Option<io::Error>,
}

impl RecordSink {
    /// `began`: what `--for` counts from. `stop`: the watch is to end.
    ///
    /// # Errors
    /// `--live` without a terminal.
    pub fn new(
        args: &WatchArgs,
        began: Instant,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, CommandError> {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let color = args.output.report.color;
        let palette = Palette::of_environment(color, terminal);
        let show = if args.live {
            Show::Live(Box::new(Live::open(palette)?))
        } else {
            let format = match args.output.report.format {
                Format::Jsonl => RecordFormat::Jsonl,
                _ => RecordFormat::Lines,
            };
            let end = args.time.and_then(|time| began.checked_add(time));
            let out = InterruptibleStdout::new(Arc::clone(stop), end);
            Show::Records(RecordPrinter::new(format, palette, Box::new(out)), format)
        };
        Ok(RecordSink {
            show,
            refreshing: args.select.refreshing,
            most: args.count,
            time: 0,
            told: 0,
            busy: Instant::now(),
            failed: None,
        })
    }

    /// What is told from here on happens now.
    pub fn is_now(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.time = since.map_or(0, |since| since.as_nanos() as u64);
    }

    /// Takes a record. A failure shows at the next [`RecordSink::check`].
    pub fn tell(&mut self, record: Record<'_>) {
        let entry = record.entry();
        if self.refreshing && entry.is_some_and(|entry| entry.refreshing != Refreshing::Yes) {
            return;
        }
        if self.is_full() {
            return;
        }
        if !matches!(
            record,
            Record::Snapshot(_) | Record::Synced | Record::Gap { .. }
        ) {
            self.told += u64::from(self.shows(&record));
            if entry.is_some() {
                self.busy = Instant::now();
            }
        }
        let time = self.time;
        if let (Show::Records(printer, _), None) = (&mut self.show, &self.failed) {
            self.failed = printer.record(&record, time).err();
        }
    }

    /// As many records were told as were asked for.
    pub fn is_full(&self) -> bool {
        self.most.is_some_and(|most| self.told >= most)
    }

    /// JSON has no record of a move.
    fn shows(&self, record: &Record<'_>) -> bool {
        !matches!(self.show, Show::Records(_, RecordFormat::Jsonl)) || record.name().is_some()
    }

    /// Nothing can be written any more.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// # Errors
    /// What writing said.
    pub fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Shows what was told so far.
    ///
    /// # Errors
    /// What writing says, also that nobody reads on.
    pub fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        match &mut self.show {
            Show::Records(printer, _) => {
                printer.flush()?;
                interruptible_stdout::check_reader()
            }
            Show::Live(_) => Ok(()),
        }
    }

    /// The table that repaints itself, if there is one.
    pub fn live(&mut self) -> Option<&mut Live> {
        match &mut self.show {
            Show::Records(..) => None,
            Show::Live(live) => Some(live),
        }
    }
}
