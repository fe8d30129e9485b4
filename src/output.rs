//! Everything that prints entries.
//!
//! A [`Printer`] takes entries one by one and writes them in one of the formats through one [`Sink`]. Memory is constant in
//! every format; ordering, which is not, happens before, in a [`Sorter`]. Text of others never reaches a terminal as it
//! came (see `safe`).

mod bar;
mod bounded;
mod cell;
mod color;
mod column;
mod conntrack;
mod csv;
mod digits;
mod endpoint;
mod expect;
#[cfg(test)]
pub(crate) mod fixture;
mod groups;
mod json;
mod layout;
mod record;
mod row;
mod safe;
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
pub use bounded::{Lean, TextCell, bounded_table};
pub use color::{ColorChoice, Palette, Style};
pub use column::{COLUMNS, Column, Columns, UnknownColumn, find};
pub use expect::ExpectationPrinter;
pub use groups::{GroupStyle, group_csv, group_document, group_lines, group_table};
pub use record::{RecordFormat, RecordPrinter};
pub use row::ItemResult;
pub use service::{ServiceStyle, service_document, service_table};
pub use sink::{Sink, is_closed};
pub use sort::{SortOrder, Sorter};
pub use stat::{StatOptions, delta_json, delta_line, stat_json, stat_table};
pub use summary::{ClusterSummary, Summary};

use csv::Csv;
use row::Row;
use summary::Document;
use table::{Kind, Table};

/// Entries between two looks at the clock: ages are whole seconds.
const CLOCK_EVERY: u32 = 64;

/// What `-o` says.
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
    /// Whether `--columns` and `--no-header` mean anything here. The other formats are contracts of their own.
    pub fn has_columns(self) -> bool {
        matches!(self, Format::Table | Format::Wide | Format::Csv)
    }
}

/// How to print.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub format: Format,
    /// In place of the format's own columns, where it has any.
    pub columns: Option<Columns>,
    pub palette: Palette,
    pub header: bool,
    /// Columns of the terminal that the output is; `None` when it is none: then no cell is ever shortened.
    pub terminal: Option<usize>,
    /// Entries come with an [`ItemResult`], for which tables and csv get a column.
    pub results: bool,
}

/// Writes entries in one format. Call [`Printer::finish`] at the end: tables hold their first rows back until then.
pub struct Printer<'w> {
    sink: Sink<'w>,
    form: Form,
    clock: Clock,
}

enum Form {
    Table(Table),
    Json(Document),
    Lines(fn(&Row<'_>, &mut Vec<u8>)),
    /// The header, while it is not out yet.
    Csv {
        csv: Csv,
        header: bool,
    },
}

impl<'w> Printer<'w> {
    pub fn new(options: Options, out: Box<dyn Write + 'w>) -> Self {
        let kind = |usual| options.columns.clone().map_or(usual, Kind::Chosen);
        let table = |kind| {
            Form::Table(Table::new(
                kind,
                options.results,
                options.palette,
                options.header,
                options.terminal,
            ))
        };
        let form = match options.format {
            Format::Table => table(kind(Kind::Usual)),
            Format::Wide => table(kind(Kind::Wide)),
            Format::Json => Form::Json(Document::default()),
            Format::Jsonl => Form::Lines(json::item),
            Format::Conntrack => Form::Lines(conntrack::line),
            Format::Csv => Form::Csv {
                csv: Csv::new(options.columns, options.results),
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
    ///
    /// What writing says; [`is_closed`] tells a reader who went away.
    pub fn entry(&mut self, entry: &Entry<'_>, result: Option<&ItemResult>) -> io::Result<()> {
        let now = self.clock.now();
        self.row(&Row::of(entry, result, now))
    }

    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        let out = self.sink.buffer();
        match &mut self.form {
            Form::Table(table) => table.row(row, out),
            Form::Json(document) => {
                document.before_item(out);
                json::item(row, out);
            }
            Form::Lines(line) => {
                line(row, out);
                out.push(b'\n');
            }
            Form::Csv { csv, header } => {
                if std::mem::take(header) {
                    csv.header(out);
                }
                csv.record(row, out);
            }
        }
        self.sink.checkpoint()
    }

    /// Shows everything printed so far: after each batch of a purge, whose lines may be its only record. A table fixes its
    /// widths by the rows it has.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Form::Table(table) = &mut self.form {
            table.release(self.sink.buffer());
        }
        self.sink.flush()
    }

    /// Prints what is left, and the summary in the format that has one.
    pub fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        let out = self.sink.buffer();
        match &mut self.form {
            Form::Table(_) | Form::Lines(_) => {}
            Form::Json(document) => document.end(summary, out)?,
            Form::Csv { csv, header } => {
                if std::mem::take(header) {
                    csv.header(out);
                }
            }
        }
        self.flush()
    }
}

/// The time, asked for now and then.
#[derive(Default)]
struct Clock {
    now: u64,
    uses: u32,
}

impl Clock {
    fn now(&mut self) -> u64 {
        if self.uses == 0 {
            self.now = nanoseconds_now();
            self.uses = CLOCK_EVERY;
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

/// Appends the wide columns of an entry joined by one blank, unpadded, uncoloured, `-` for what is absent: the line that
/// `--match` looks at.
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

/// The JSON item of an entry.
#[cfg(test)]
pub(crate) fn json_item(entry: &Entry<'_>, line: &mut String) {
    append(line, |out| json::item(&Row::of(entry, None, 0), out));
}

/// Text of others, safe to show on a terminal: what could steer it becomes an escape.
pub fn safe_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    append(&mut safe, |out| safe::text(out, text));
    safe
}

/// A JSON value on one line. What could steer a terminal is escaped, as in every item (see `safe`).
pub fn safe_json(value: &serde_json::Value) -> String {
    safe::escaped_json(&value.to_string())
}

/// Lends the bytes of a string to a writer that only appends whole characters.
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

    fn printed(options: Options, samples: &[fixture::Sample], summary: &Summary) -> String {
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
    fn a_json_document_is_whole_with_any_number_of_items() {
        let mut summary = Summary {
            shown: 4,
            scanned: 9,
            consistent: true,
            ..Summary::default()
        };
        summary.extra.insert("held_back".to_owned(), json!(2));
        summary.cluster.extra.insert("pods".to_owned(), json!(3));
        let samples = fixture::table_of_the_contract();
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
    fn formats_print_one_line_an_entry_and_a_header_where_they_have_one() {
        let samples = fixture::table_of_the_contract();
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
    fn the_line_for_matching_is_appended_to_what_is_there() {
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
