//! Writes and counts the records of a watch.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::args::watch::{RecordKind, WatchFormat};
use crate::error::CommandError;
use crate::output::{Palette, RecordFormat, RecordPrinter};
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
    /// Kinds that are printed; all when it is empty.
    kinds: Vec<RecordKind>,
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
        let color = args.report.color;
        let palette = Palette::of_environment(color, terminal);
        let output = if args.live {
            Output::Live(Box::new(LiveTable::open(palette)?))
        } else {
            let format = match args.report.format {
                WatchFormat::Jsonl => RecordFormat::Jsonl,
                WatchFormat::Table => RecordFormat::Lines,
                WatchFormat::Conntrack => RecordFormat::Conntrack,
            };
            let end = args.time.and_then(|time| began.checked_add(time));
            let out = InterruptibleStdout::new(Arc::clone(stop), end);
            Output::Records(RecordPrinter::new(format, palette, Box::new(out)), format)
        };
        Ok(RecordSink {
            output,
            only_refreshing: args.select.refreshing,
            kinds: args.kinds.clone(),
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
        let is_change = !matches!(
            record,
            Record::Snapshot(_) | Record::Synced | Record::Gap { .. }
        );
        if is_change && entry.is_some() {
            self.last_activity = Instant::now();
        }
        if !self.shows(&record) {
            return;
        }
        self.counted += u64::from(is_change);
        let time = self.time;
        if let (Output::Records(printer, _), None) = (&mut self.output, &self.failed) {
            self.failed = printer.record(&record, time).err();
        }
    }

    /// Returns whether `--count` is reached.
    pub fn is_full(&self) -> bool {
        self.max_records.is_some_and(|max| self.counted >= max)
    }

    /// Returns whether this record is printed: its kind is selected, and the format has it.
    fn shows(&self, record: &Record<'_>) -> bool {
        let Some(kind) = kind(record) else {
            return true;
        };
        let is_selected = self.kinds.is_empty() || self.kinds.contains(&kind);
        let has_format = match &self.output {
            Output::Records(_, RecordFormat::Jsonl) => kind != RecordKind::Move,
            Output::Records(_, RecordFormat::Conntrack) => matches!(
                kind,
                RecordKind::New | RecordKind::Update | RecordKind::Destroy
            ),
            Output::Records(_, RecordFormat::Lines) | Output::Live(_) => true,
        };
        is_selected && has_format
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

/// Kind of a record; `None` for marks of the stream.
fn kind(record: &Record<'_>) -> Option<RecordKind> {
    Some(match record {
        Record::Snapshot(_) => RecordKind::Snapshot,
        Record::New(_) => RecordKind::New,
        Record::Update(_) => RecordKind::Update,
        Record::Destroy(_) => RecordKind::Destroy,
        Record::Refresh { .. } => RecordKind::Refresh,
        Record::Verdict { .. } => RecordKind::Verdict,
        Record::Move { .. } => RecordKind::Move,
        Record::Endpoint(_) => RecordKind::Endpoint,
        Record::Gap { .. } | Record::Synced => return None,
    })
}
