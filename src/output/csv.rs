//! `-o csv`: RFC 4180, a header of JSON names, one record per entry. Absent values are empty fields.

use super::column::{COLUMNS, Column, Columns};
use super::row::Row;

/// Columns without `--columns`: both tuples with counters, the names, and the verdict.
const DEFAULT_COLUMNS: [&str; 29] = [
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
    /// Where `columns` is `None`, `results` adds the columns `result` and `error`, and `netns` the column of that name.
    pub fn new(columns: Option<Columns>, results: bool, netns: bool) -> Self {
        let columns = columns.map_or_else(|| default_columns(results, netns), |columns| columns.0);
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

fn default_columns(results: bool, netns: bool) -> Vec<&'static Column> {
    let chosen = |key: &str| {
        DEFAULT_COLUMNS.contains(&key)
            || results && matches!(key, "result" | "error")
            || netns && key == "netns"
    };
    let position = |key: &str| DEFAULT_COLUMNS.iter().position(|default| *default == key);
    let mut columns: Vec<_> = COLUMNS.iter().filter(|column| chosen(column.key)).collect();
    columns.sort_by_key(|column| position(column.key).unwrap_or(DEFAULT_COLUMNS.len()));
    columns
}

/// Appends a field, quoted where it holds a comma or a quote. It holds no line end, because text is escaped before.
pub(super) fn field(text: &[u8], out: &mut Vec<u8>) {
    let needs = |byte: &u8| matches!(byte, b',' | b'"');
    // No early exit: a loop over every byte is vectorised by the compiler.
    if !text.iter().fold(false, |found, byte| found | needs(byte)) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::{self, SampleEntry};
    use super::*;

    fn printed(columns: Option<&str>, samples: &[SampleEntry]) -> String {
        let results = samples.iter().any(|sample| sample.result.is_some());
        let mut csv = Csv::new(columns.map(|list| list.parse().unwrap()), results, false);
        let mut out = Vec::new();
        csv.header(&mut out);
        for sample in samples {
            csv.record(&sample.row(), &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    /// Fields of one record, parsed as RFC 4180 describes.
    fn fields(record: &str) -> Vec<String> {
        let mut fields = vec![String::new()];
        let mut quoted = false;
        let mut rest = record.chars().peekable();
        while let Some(c) = rest.next() {
            let field = fields.last_mut().unwrap();
            match c {
                '"' if quoted && rest.next_if_eq(&'"').is_some() => field.push('"'),
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                c => field.push(c),
            }
        }
        fields
    }

    #[test]
    fn the_default_columns_are_written_as_documented() {
        let mut sample = fixture::dns();
        sample.evidence = "a \"quoted\", listed thing".to_owned();
        assert_eq!(
            printed(None, &[sample]),
            "family,protocol,state,original.src,original.sport,original.dst,original.dport,reply.src,reply.sport,\
             reply.dst,reply.dport,original.packets,original.bytes,reply.packets,reply.bytes,status,timeout,mark,zone,id,\
             start,client,service,endpoint,verdict,reason,evidence,refreshing,replies\r\n\
             ipv4,udp,,10.244.2.9,40123,10.96.0.10,53,10.244.1.7,53,10.244.2.9,40123,15,900,5,700,\
             \"seen-reply,assured,confirmed\",118,0,0,3912345678,,shop/web-7d,kube-system/kube-dns:dns,\
             kube-system/coredns-b,ok,endpoint,\"a \"\"quoted\"\", listed thing\",unknown,unknown\r\n"
        );
    }

    #[test]
    fn every_default_column_exists_and_results_come_last() {
        assert_eq!(default_columns(false, false).len(), DEFAULT_COLUMNS.len());
        let keys: Vec<_> = default_columns(true, true)
            .iter()
            .map(|column| column.key)
            .collect();
        assert!(
            keys.ends_with(&["replies", "netns", "result", "error"]),
            "{keys:?}"
        );
    }

    proptest! {
        #[test]
        fn a_record_has_every_field_even_with_hostile_names(sample in fixture::any_sample()) {
            let all: Vec<_> = COLUMNS.iter().map(|column| column.key).collect();
            let text = printed(Some(&all.join(",")), std::slice::from_ref(&sample));
            let records: Vec<_> = text.split_terminator("\r\n").collect();
            prop_assert_eq!(records.len(), 2);
            let fields = fields(records[1]);
            prop_assert_eq!(fields.len(), all.len());
            let field = |key: &str| &fields[all.iter().position(|k| *k == key).unwrap()];
            prop_assert_eq!(field("original.src"), &sample.flow.original.src.to_string());
            let helper: String = sample.flow.helper().unwrap_or("").chars().filter(|c| !c.is_control()).collect();
            prop_assert!(field("helper").len() >= helper.len());
        }
    }
}
