//! `-o csv`: RFC 4180, a header of JSON names, one entry a record. Absent values are empty fields.

use super::column::{COLUMNS, Column, Columns};
use super::row::Row;

/// The columns without `--columns`: what both tuples and counters say, the names, and the verdict.
const USUAL: [&str; 29] = [
    "family",
    "protocol",
    "state",
    "original.src",
    "original.sport",
    "original.dst",
    "original.dport",
    "reply.src",
    "reply.sport",
    "reply.dst",
    "reply.dport",
    "original.packets",
    "original.bytes",
    "reply.packets",
    "reply.bytes",
    "status",
    "timeout",
    "mark",
    "zone",
    "id",
    "start",
    "client",
    "service",
    "endpoint",
    "verdict",
    "reason",
    "evidence",
    "refreshing",
    "replies",
];

pub(super) struct Csv {
    columns: Vec<&'static Column>,
    field: Vec<u8>,
}

impl Csv {
    /// `results` adds what became of each entry, where the caller did not choose columns.
    pub fn new(columns: Option<Columns>, results: bool) -> Self {
        let columns = columns.map_or_else(|| usual(results), |columns| columns.0);
        Csv {
            columns,
            field: Vec::new(),
        }
    }

    pub fn header(&self, out: &mut Vec<u8>) {
        for (i, column) in self.columns.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(column.key.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }

    pub fn record(&mut self, row: &Row<'_>, out: &mut Vec<u8>) {
        for (i, column) in self.columns.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            self.field.clear();
            (column.value)(row).write(&mut self.field);
            field(&self.field, out);
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn usual(results: bool) -> Vec<&'static Column> {
    let chosen = |key: &str| USUAL.contains(&key) || results && matches!(key, "result" | "error");
    let place = |key: &str| USUAL.iter().position(|usual| *usual == key);
    let mut columns: Vec<_> = COLUMNS.iter().filter(|column| chosen(column.key)).collect();
    columns.sort_by_key(|column| place(column.key).unwrap_or(USUAL.len()));
    columns
}

/// Quotes what needs it. Line ends never get here: foreign text is escaped before.
fn field(text: &[u8], out: &mut Vec<u8>) {
    if !text.iter().any(|byte| matches!(byte, b',' | b'"')) {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for byte in text {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}
