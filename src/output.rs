//! Formats of entries, expectations, records, groups, Services and statistics.
//!
//! A [`Printer`] takes entries one by one and writes them in one format through one [`Sink`]. Every format needs constant
//! memory; a [`Sorter`], which does not, comes before it. Untrusted text is escaped before it is written (`escape`).

mod bar;
mod bounded;
mod cell;
mod color;
mod column;
mod conntrack;
mod csv;
mod digits;
mod endpoint_change;
mod escape;
mod expectation;
#[cfg(test)]
pub(crate) mod fixture;
mod groups;
mod json;
mod layout;
mod record;
mod row;
mod service;
mod sink;
mod sort;
mod stat;
mod summary;
mod table;
mod value;
mod write;

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::entry::Entry;

pub use bar::{Glyphs, bar};
pub use bounded::{Alignment, TextCell, bounded_table};
pub use color::{ColorChoice, Palette, Style};
pub use column::{COLUMNS, Column, Columns, UnknownColumn, find};
pub use expectation::ExpectationPrinter;
pub use groups::{GroupStyle, group_csv, group_document, group_lines, group_table};
pub use record::{RecordFormat, RecordPrinter};
pub use row::ItemResult;
pub use service::{ServiceStyle, service_document, service_table};
pub use sink::{Sink, is_closed};
pub use sort::{SortOrder, Sorter};
pub use stat::{StatOptions, delta_json, delta_line, namespaces_table, stat_json, stat_table};
pub use summary::{ClusterSummary, Summary};
pub(crate) use write::state_byte;

use csv::Csv;
use row::Row;
use summary::JsonDocument;
use table::{EntryTable, TableColumns};

/// Entries printed between two reads of the clock. Ages are whole seconds, so that a slightly old time is exact enough.
const ENTRIES_PER_CLOCK_READ: u32 = 64;

/// Value of `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns, with names if known, else addresses
    #[default]
    Table,
    /// Columns with both tuples, counters, mark, zone, id and names
    Wide,
    /// One document with items and a summary
    Json,
    /// One item a line
    Jsonl,
    /// Lines as `conntrack -L -o extended,id` prints them
    Conntrack,
    /// RFC 4180 with a header of JSON names
    Csv,
}

impl Format {
    /// Whether `--columns` and `--no-header` apply. The other formats have fixed fields.
    pub fn has_columns(self) -> bool {
        matches!(self, Format::Table | Format::Wide | Format::Csv)
    }
}

/// Options of a [`Printer`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub format: Format,
    /// Replace the columns of the format; ignored by formats without columns.
    pub columns: Option<Columns>,
    pub palette: Palette,
    pub header: bool,
    /// Width of the terminal in columns; `None` when the output is no terminal, and then no cell is shortened.
    pub terminal: Option<usize>,
    /// Entries come with an [`ItemResult`]; tables and CSV get a column for it.
    pub results: bool,
    /// Entries are of several network namespaces; tables and CSV get a column for it.
    pub netns: bool,
}

/// Writes entries in one format. Tables hold their first rows back until [`Printer::finish`] is called.
pub struct Printer<'w> {
    sink: Sink<'w>,
    form: EntryWriter,
    clock: Clock,
}

enum EntryWriter {
    Table(EntryTable),
    Json(JsonDocument),
    Lines(fn(&Row<'_>, &mut Vec<u8>)),
    /// `header` is true until the header is written.
    Csv {
        csv: Csv,
        header: bool,
    },
}

impl<'w> Printer<'w> {
    pub fn new(options: Options, out: Box<dyn Write + 'w>) -> Self {
        let kind = |default| {
            options
                .columns
                .clone()
                .map_or(default, TableColumns::Chosen)
        };
        let table = |kind| {
            EntryWriter::Table(EntryTable::new(
                kind,
                options.results,
                options.palette,
                options.header,
                options.terminal,
            ))
        };
        let form = match options.format {
            Format::Table => table(kind(TableColumns::Default)),
            Format::Wide => table(kind(TableColumns::Wide)),
            Format::Json => EntryWriter::Json(JsonDocument::default()),
            Format::Jsonl => EntryWriter::Lines(json::item),
            Format::Conntrack => EntryWriter::Lines(conntrack::line),
            Format::Csv => EntryWriter::Csv {
                csv: Csv::new(options.columns, options.results, options.netns),
                header: options.header,
            },
        };
        Printer {
            sink: Sink::new(out),
            form,
            clock: Clock::default(),
        }
    }

    /// Prints one entry.
    ///
    /// # Errors
    /// The error of the write; [`is_closed`] recognises a pipe whose reader has closed it.
    pub fn entry(&mut self, entry: &Entry<'_>, result: Option<&ItemResult>) -> io::Result<()> {
        let now = self.clock.now();
        self.row(&Row::of(entry, result, now))
    }

    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        let out = self.sink.buffer();
        match &mut self.form {
            EntryWriter::Table(table) => table.row(row, out),
            EntryWriter::Json(document) => {
                document.before_item(out);
                json::item(row, out);
            }
            EntryWriter::Lines(line) => {
                line(row, out);
                out.push(b'\n');
            }
            EntryWriter::Csv { csv, header } => {
                if std::mem::take(header) {
                    csv.header(out);
                }
                csv.record(row, out);
            }
        }
        self.sink.checkpoint()
    }

    /// Writes everything printed so far. A purge calls it after each batch, because its lines may be the only record of
    /// what was deleted. A table fixes its widths by the rows it has.
    ///
    /// # Errors
    /// The error of the write.
    pub fn flush(&mut self) -> io::Result<()> {
        if let EntryWriter::Table(table) = &mut self.form {
            table.release(self.sink.buffer());
        }
        self.sink.flush()
    }

    /// Prints the rows held back, and the summary where the format has one.
    ///
    /// # Errors
    /// The error of the write.
    pub fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        let out = self.sink.buffer();
        match &mut self.form {
            EntryWriter::Table(_) | EntryWriter::Lines(_) => {}
            EntryWriter::Json(document) => document.end(summary, out)?,
            EntryWriter::Csv { csv, header } => {
                if std::mem::take(header) {
                    csv.header(out);
                }
            }
        }
        self.flush()
    }
}

/// System time, read once every [`ENTRIES_PER_CLOCK_READ`] uses.
#[derive(Default)]
struct Clock {
    now: u64,
    uses: u32,
}

impl Clock {
    fn now(&mut self) -> u64 {
        if self.uses == 0 {
            self.now = nanoseconds_now();
            self.uses = ENTRIES_PER_CLOCK_READ;
        }
        self.uses -= 1;
        self.now
    }
}

fn nanoseconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.ok()
        .and_then(|now| u64::try_from(now.as_nanos()).ok())
        .unwrap_or(0)
}

/// Appends the line that `--match` is applied to: the wide columns of an entry joined by one blank, without padding and
/// colour, `-` for absent values.
pub fn wide_line(entry: &Entry<'_>, line: &mut String) {
    let now = if entry.flow.start.is_some() {
        nanoseconds_now()
    } else {
        0
    };
    append(line, |out| {
        table::wide_line(&Row::of(entry, None, now), out)
    });
}

/// Appends the JSON item of an entry.
#[cfg(test)]
pub(crate) fn json_item(entry: &Entry<'_>, line: &mut String) {
    append(line, |out| json::item(&Row::of(entry, None, 0), out));
}

/// Untrusted text with control characters escaped, so that it can be shown on a terminal.
pub fn safe_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    append(&mut safe, |out| escape::text(out, text));
    safe
}

/// A JSON value on one line, with control characters escaped as in every item.
pub fn safe_json(value: &serde_json::Value) -> String {
    escape::escaped_json(&value.to_string())
}

/// Appends to a string with a function that writes bytes; it must append whole UTF-8 characters.
fn append(line: &mut String, write: impl FnOnce(&mut Vec<u8>)) {
    let mut out = std::mem::take(line).into_bytes();
    write(&mut out);
    *line = String::from_utf8(out)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn printed(options: Options, samples: &[fixture::SampleEntry], summary: &Summary) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(options, Box::new(&mut out));
        for sample in samples {
            printer.row(&sample.row()).unwrap();
        }
        printer.finish(summary).unwrap();
        drop(printer);
        String::from_utf8(out).unwrap()
    }

    fn options(format: Format) -> Options {
        Options {
            format,
            header: true,
            ..Options::default()
        }
    }

    #[test]
    fn a_json_document_is_valid_with_any_number_of_items() {
        let mut summary = Summary {
            shown: 4,
            scanned: 9,
            consistent: true,
            ..Summary::default()
        };
        summary.extra.insert("held_back".to_owned(), json!(2));
        summary.cluster.extra.insert("pods".to_owned(), json!(3));
        let samples = fixture::documented_table();
        for count in [0, 1, 4] {
            let text = printed(options(Format::Json), &samples[..count], &summary);
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read["schema"], "ctk/v1");
            assert_eq!(read["items"].as_array().map(Vec::len), Some(count));
            assert_eq!(
                read["summary"],
                json!({
                    "shown": 4, "scanned": 9, "consistent": true, "unreadable": 0, "held_back": 2,
                    "cluster": {"source": "none", "complete": false, "pods": 3},
                })
            );
        }
    }

    #[test]
    fn formats_print_one_line_per_entry_and_one_header_if_any() {
        let samples = fixture::documented_table();
        for (format, header) in [
            (Format::Table, 1),
            (Format::Wide, 1),
            (Format::Jsonl, 0),
            (Format::Conntrack, 0),
            (Format::Csv, 1),
        ] {
            let summary = Summary::default();
            let text = printed(options(format), &samples, &summary);
            assert_eq!(text.lines().count(), 4 + header, "{format:?}");
            let empty = printed(options(format), &[], &summary);
            assert_eq!(empty.lines().count(), header, "{format:?}");
            let bare = Options {
                header: false,
                ..options(format)
            };
            assert_eq!(
                printed(bare, &samples, &summary).lines().count(),
                4,
                "{format:?}"
            );
        }
    }

    #[test]
    fn flushing_a_table_shows_its_rows_before_the_end() {
        let shared = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        struct Tee(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);
        impl Write for Tee {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.borrow_mut().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut printer = Printer::new(options(Format::Table), Box::new(Tee(shared.clone())));
        printer.row(&fixture::dns().row()).unwrap();
        printer.flush().unwrap();
        assert_eq!(
            shared
                .borrow()
                .iter()
                .filter(|byte| **byte == b'\n')
                .count(),
            2
        );
    }

    #[test]
    fn the_line_for_match_is_appended_without_changing_earlier_text() {
        let sample = fixture::dns();
        let entry = Entry::bare(sample.flow);
        let mut line = "é ".to_owned();
        wide_line(&entry, &mut line);
        assert!(
            line.starts_with("é udp assured 10.244.2.9:40123 10.96.0.10:53"),
            "{line}"
        );
        let mut item = String::new();
        json_item(&entry, &mut item);
        let item: Value = serde_json::from_str(&item).unwrap();
        assert_eq!(item["client"], Value::Null);
        assert_eq!(item["original"]["packets"], 15);
    }
}
