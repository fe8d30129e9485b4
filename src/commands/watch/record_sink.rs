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
use super::live_table::LiveTable;
use crate::terminal::interruptible_stdout::{self, InterruptibleStdout};

enum Output {
    Records(RecordPrinter<'static>, RecordFormat),
    Live(Box<LiveTable>),
}

/// Prints records, and counts those that may end the watch.
pub struct RecordSink {
    output: Output,
    /// Prints only records of entries that are being refreshed.
    only_refreshing: bool,
    max_records: Option<u64>,
    /// Time of the records that follow, in nanoseconds since the Unix epoch.
    pub time: u64,
    /// Number of records, without snapshots, gaps and synced.
    counted: u64,
    /// Time of the last change of an entry.
    pub last_activity: Instant,
    /// First error of writing; nothing is written after it.
    failed: Option<io::Error>,
}

impl RecordSink {
    /// `began`: start of `--for`. `stop`: set when the watch has to end.
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
        let output = if args.live {
            Output::Live(Box::new(LiveTable::open(palette)?))
        } else {
            let format = match args.output.report.format {
                Format::Jsonl => RecordFormat::Jsonl,
                _ => RecordFormat::Lines,
            };
            let end = args.time.and_then(|time| began.checked_add(time));
            let out = InterruptibleStdout::new(Arc::clone(stop), end);
            Output::Records(RecordPrinter::new(format, palette, Box::new(out)), format)
        };
        Ok(RecordSink {
            output,
            only_refreshing: args.select.refreshing,
            max_records: args.count,
            time: 0,
            counted: 0,
            last_activity: Instant::now(),
            failed: None,
        })
    }

    /// Sets the time of the records that follow to the present.
    pub fn set_time_to_now(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.time = since.map_or(0, |since| since.as_nanos() as u64);
    }

    /// Prints and counts a record. An error is returned by the next [`RecordSink::check`].
    pub fn push(&mut self, record: Record<'_>) {
        let entry = record.entry();
        if self.only_refreshing && entry.is_some_and(|entry| entry.refreshing != Refreshing::Yes) {
            return;
        }
        if self.is_full() {
            return;
        }
        if !matches!(
            record,
            Record::Snapshot(_) | Record::Synced | Record::Gap { .. }
        ) {
            self.counted += u64::from(self.shows(&record));
            if entry.is_some() {
                self.last_activity = Instant::now();
            }
        }
        let time = self.time;
        if let (Output::Records(printer, _), None) = (&mut self.output, &self.failed) {
            self.failed = printer.record(&record, time).err();
        }
    }

    /// Returns whether `--count` is reached.
    pub fn is_full(&self) -> bool {
        self.max_records.is_some_and(|max| self.counted >= max)
    }

    /// Returns whether the output shows this record: JSON has none for a move.
    fn shows(&self, record: &Record<'_>) -> bool {
        !matches!(self.output, Output::Records(_, RecordFormat::Jsonl)) || record.name().is_some()
    }

    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// # Errors
    /// The first error of writing since the last call.
    pub fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Writes the records so far.
    ///
    /// # Errors
    /// An error of writing, also that the reader went away.
    pub fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        match &mut self.output {
            Output::Records(printer, _) => {
                printer.flush()?;
                interruptible_stdout::check_reader()
            }
            Output::Live(_) => Ok(()),
        }
    }

    /// The table of `--live`.
    pub fn live_table(&mut self) -> Option<&mut LiveTable> {
        match &mut self.output {
            Output::Records(..) => None,
            Output::Live(live) => Some(live),
        }
    }
}
