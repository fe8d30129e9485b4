//! Expectations (`ls --table expect`) in the formats of entries.
//!
//! Their number is small: `nf_conntrack_expect_max` is a fraction of the limit of entries.

use std::io::{self, Write};

use ctnetlink::Expectation;

use super::color::Style;
use super::conntrack::{self, EXPECTATION_FLAGS};
use super::layout::{ColumnLayout, Layout};
use super::sink::Sink;
use super::summary::{JsonDocument, Summary};
use super::{Format, Options, csv, escape, json, write};

/// Writes expectations in one format. Ignores the options `columns` and `results`.
pub struct ExpectationPrinter<'w> {
    sink: Sink<'w>,
    form: ExpectationWriter,
}

enum ExpectationWriter {
    Table(Layout),
    Json(JsonDocument),
    Jsonl,
    Conntrack,
    /// True until the header is written.
    Csv(bool),
}

impl<'w> ExpectationPrinter<'w> {
    pub fn new(options: &Options, out: Box<dyn Write + 'w>) -> Self {
        let form = match options.format {
            Format::Table | Format::Wide => ExpectationWriter::Table(layout(options)),
            Format::Json => ExpectationWriter::Json(JsonDocument::default()),
            Format::Jsonl => ExpectationWriter::Jsonl,
            Format::Conntrack => ExpectationWriter::Conntrack,
            Format::Csv => ExpectationWriter::Csv(options.header),
        };
        ExpectationPrinter {
            sink: Sink::new(out),
            form,
        }
    }

    /// Prints one expectation.
    ///
    /// # Errors
    /// The error of the write; [`super::is_closed`] recognises a pipe whose reader has closed it.
    pub fn expectation(&mut self, expectation: &Expectation) -> io::Result<()> {
        let out = self.sink.buffer();
        match &mut self.form {
            ExpectationWriter::Table(layout) => layout.row(out, |cells| {
                for field in FIELDS.iter().filter(|field| field.heading.is_some()) {
                    cells.push(Style::Plain, |text| (field.show)(expectation, text));
                }
            }),
            ExpectationWriter::Json(document) => {
                document.before_item(out);
                item(expectation, out);
            }
            ExpectationWriter::Jsonl => {
                item(expectation, out);
                out.push(b'\n');
            }
            ExpectationWriter::Conntrack => {
                conntrack::expectation(expectation, out);
                out.push(b'\n');
            }
            ExpectationWriter::Csv(header) => {
                csv_header(header, out);
                csv_record(expectation, out);
            }
        }
        self.sink.checkpoint()
    }

    /// Prints the rows held back, and the summary where the format has one.
    ///
    /// # Errors
    /// The error of the write.
    pub fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        let out = self.sink.buffer();
        match &mut self.form {
            ExpectationWriter::Table(layout) => layout.release(out),
            ExpectationWriter::Json(document) => document.end(summary, out)?,
            ExpectationWriter::Jsonl | ExpectationWriter::Conntrack => {}
            ExpectationWriter::Csv(header) => csv_header(header, out),
        }
        self.sink.flush()
    }
}

/// A column of CSV, and of the table where it has a heading.
struct ExpectationField {
    key: &'static str,
    heading: Option<&'static str>,
    show: fn(&Expectation, &mut Vec<u8>),
}

const FIELDS: [ExpectationField; 11] = [
    field("protocol", Some("PROTO"), |e, out| {
        write::protocol(out, e.tuple.protocol)
    }),
    field("expected.source", Some("SOURCE"), |e, out| {
        write::address_port(out, e.tuple.source())
    }),
    field("expected.destination", Some("DESTINATION"), |e, out| {
        write::address_port(out, e.tuple.destination());
    }),
    field("mask.source", Some("SOURCE-MASK"), |e, out| {
        if let Some(mask) = &e.mask {
            write::address_port(out, mask.source());
        }
    }),
    field("mask.destination", Some("DESTINATION-MASK"), |e, out| {
        if let Some(mask) = &e.mask {
            write::address_port(out, mask.destination());
        }
    }),
    field("master.source", Some("MASTER-SOURCE"), |e, out| {
        write::address_port(out, e.master.source());
    }),
    field(
        "master.destination",
        Some("MASTER-DESTINATION"),
        |e, out| {
            write::address_port(out, e.master.destination());
        },
    ),
    field("timeout", Some("TTL"), |e, out| {
        if let Some(timeout) = e.timeout {
            write::duration(out, timeout.into());
        }
    }),
    field("helper", Some("HELPER"), |e, out| {
        escape::text(out, e.helper.as_deref().unwrap_or(""));
    }),
    field("flags", Some("FLAGS"), |e, out| {
        let words: Vec<_> = flags(e).collect();
        out.extend_from_slice(words.join(",").as_bytes());
    }),
    field("id", None, |e, out| {
        if let Some(id) = e.id {
            write::number(out, id);
        }
    }),
];

const fn field(
    key: &'static str,
    heading: Option<&'static str>,
    show: fn(&Expectation, &mut Vec<u8>),
) -> ExpectationField {
    ExpectationField { key, heading, show }
}

fn layout(options: &Options) -> Layout {
    let column = |heading: &'static str| ColumnLayout {
        heading: heading.to_owned(),
        optional: heading == "FLAGS",
        flexible: false,
    };
    let columns = FIELDS.iter().filter_map(|field| field.heading).map(column);
    Layout::new(
        columns.collect(),
        options.palette,
        options.header,
        options.terminal,
    )
}

fn csv_header(header: &mut bool, out: &mut Vec<u8>) {
    if std::mem::take(header) {
        let keys: Vec<_> = FIELDS.iter().map(|field| field.key).collect();
        out.extend_from_slice(keys.join(",").as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

fn csv_record(expectation: &Expectation, out: &mut Vec<u8>) {
    let mut text = Vec::new();
    for (i, field) in FIELDS.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        text.clear();
        match (field.key, expectation.timeout) {
            // Seconds in CSV, `1m58s` in tables.
            ("timeout", Some(timeout)) => write::number(&mut text, timeout),
            _ => (field.show)(expectation, &mut text),
        }
        csv::field(&text, out);
    }
    out.extend_from_slice(b"\r\n");
}

fn flags(expectation: &Expectation) -> impl Iterator<Item = &'static str> {
    let flags = expectation.flags.unwrap_or(0);
    EXPECTATION_FLAGS
        .into_iter()
        .filter(move |(bit, _)| flags & bit != 0)
        .map(|(_, word)| word)
}

/// Appends one item; tuples have the keys of the tuples of entries.
fn item(expectation: &Expectation, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"family\":\"");
    out.extend_from_slice(expectation.tuple.family().name().as_bytes());
    out.extend_from_slice(b"\",\"protocol\":\"");
    write::protocol(out, expectation.tuple.protocol);
    out.extend_from_slice(b"\",\"protocol_number\":");
    write::number(out, expectation.tuple.protocol);
    out.extend_from_slice(b",\"zone\":");
    json::optional(out, expectation.zone);
    out.extend_from_slice(b",\"id\":");
    json::optional(out, expectation.id);
    out.extend_from_slice(b",\"expected\":");
    json::tuple(out, &expectation.tuple, None, None);
    out.extend_from_slice(b",\"mask\":");
    match &expectation.mask {
        Some(mask) => json::tuple(out, mask, None, None),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"master\":");
    json::tuple(out, &expectation.master, None, None);
    out.extend_from_slice(b",\"timeout\":");
    json::optional(out, expectation.timeout);
    out.extend_from_slice(b",\"helper\":");
    json::text(out, expectation.helper.as_deref());
    out.extend_from_slice(b",\"class\":");
    json::optional(out, expectation.class);
    out.extend_from_slice(b",\"flags\":[");
    for (i, word) in flags(expectation).enumerate() {
        out.extend_from_slice(if i > 0 { b",\"" } else { b"\"" });
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b"],\"function\":");
    json::text(out, expectation.function.as_deref());
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::fixture::ports;
    use super::*;

    fn ftp() -> Expectation {
        let mut expectation = Expectation::new(
            ports(6, ("127.0.0.1", 0), ("127.0.0.1", 10241)),
            ports(6, ("127.0.0.1", 53276), ("127.0.0.1", 2121)),
        );
        expectation.mask = Some(ports(6, ("255.255.255.255", 0), ("255.255.255.255", 65535)));
        expectation.timeout = Some(299);
        expectation.id = Some(7);
        expectation.helper = Some("ftp".into());
        expectation.class = Some(0);
        expectation.flags = Some(0);
        expectation
    }

    fn printed(format: Format, expectations: &[Expectation]) -> String {
        let options = Options {
            format,
            header: true,
            ..Options::default()
        };
        let mut out = Vec::new();
        let mut printer = ExpectationPrinter::new(&options, Box::new(&mut out));
        for expectation in expectations {
            printer.expectation(expectation).unwrap();
        }
        printer.finish(&Summary::default()).unwrap();
        drop(printer);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_line_equals_what_the_tool_printed() {
        assert_eq!(
            printed(Format::Conntrack, &[ftp()]),
            "299 proto=6 src=127.0.0.1 dst=127.0.0.1 sport=0 dport=10241 mask-src=255.255.255.255 \
             mask-dst=255.255.255.255 sport=0 dport=65535 master-src=127.0.0.1 master-dst=127.0.0.1 sport=53276 \
             dport=2121 class=0 helper=ftp\n"
        );
        let mut flagged = ftp();
        flagged.flags = Some(5);
        let text = printed(Format::Conntrack, &[flagged]);
        assert!(text.contains(" PERMANENT,USERSPACE class=0 "), "{text}");
    }

    #[test]
    fn json_holds_every_field_and_is_valid_without_items() {
        let read: Value = serde_json::from_str(&printed(Format::Json, &[ftp(), ftp()])).unwrap();
        assert_eq!(read["items"].as_array().map(Vec::len), Some(2));
        let item: Value = serde_json::from_str(&printed(Format::Jsonl, &[ftp()])).unwrap();
        assert_eq!(read["items"][0], item);
        assert_eq!(item["expected"]["dport"], 10241);
        assert_eq!(item["mask"]["src"], "255.255.255.255");
        assert_eq!(item["master"]["sport"], 53276);
        assert_eq!(item["zone"], Value::Null);
        assert_eq!((&item["helper"], &item["id"]), (&"ftp".into(), &7.into()));
        assert!(serde_json::from_str::<Value>(&printed(Format::Json, &[])).is_ok());
    }

    #[test]
    fn tables_and_csv_carry_no_control_characters() {
        let mut hostile = ftp();
        hostile.helper = Some("\u{1b}[2J,\n".into());
        let table = printed(Format::Table, std::slice::from_ref(&hostile));
        assert!(table.ends_with("  4m59s  \\x1b[2J,\\x0a\n"), "{table}");
        let csv = printed(Format::Csv, &[hostile]);
        let record = csv.lines().nth(1).unwrap();
        assert!(record.ends_with(",299,\"\\x1b[2J,\\x0a\",,7"), "{record}");
    }
}
