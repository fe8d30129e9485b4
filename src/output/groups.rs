//! Groups of entries (`ctk top`) as table, JSON and CSV.

use std::io::{self, Write};
use std::net::IpAddr;

use crate::attribution::Party;
use crate::top::{Group, GroupKey, GroupName, GroupNames, KeyValue, Ranked};
use crate::verdict::Verdict;

use super::bar::{Glyphs, bar};
use super::bounded::{Alignment, TextCell, bounded_table};
use super::color::{Palette, Style};
use super::sink::Sink;
use super::summary::{JsonDocument, Summary};
use super::{cell, csv, escape, json, write};

/// Length of the longest bar in characters; an eighth of a character is 0.6 %.
const MAX_BAR_WIDTH: usize = 20;
/// Rows laid out together: comfy-table needs 2.6 KB per row.
const ROWS_PER_LAYOUT: usize = 1000;

/// Options for printing groups.
pub struct GroupStyle<'a> {
    pub palette: Palette,
    pub header: bool,
    pub glyphs: Glyphs,
    /// Pod or node that has an address; its name is shown after the address.
    pub address_owner: &'a dyn Fn(IpAddr) -> Option<Party<'a>>,
}

impl<'a> GroupStyle<'a> {
    /// Name of the owner of an address; `None` for other values.
    fn name(&self, part: &KeyValue) -> Option<String> {
        let KeyValue::Address(address) = part else {
            return None;
        };
        let party = (self.address_owner)(*address)?;
        let mut out = Vec::new();
        raw_name(party.namespace, party.name?, &mut out);
        Some(into_text(out))
    }
}

/// Writes a table with a bar for each share.
///
/// # Errors
/// The error of the write.
pub fn group_table(
    ranked: &Ranked<'_>,
    style: &GroupStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let names: Vec<String> = ranked
        .by
        .iter()
        .map(|key| key.name().to_uppercase())
        .collect();
    let keys = names.iter().zip(&ranked.by).map(|(name, key)| {
        let lean = match key.is_number() {
            true => Alignment::Right,
            false => Alignment::Left,
        };
        (name.as_str(), lean)
    });
    let numbers = ["COUNT", "SHARE", "PACKETS", "BYTES"].map(|name| (name, Alignment::Right));
    let mut columns: Vec<_> = keys.chain(numbers).collect();
    columns.push(("", Alignment::Left));
    let mut header = style.header;
    // The loop runs once without groups, for the header.
    let mut rest = ranked.groups.as_slice();
    loop {
        let (part, others) = rest.split_at(rest.len().min(ROWS_PER_LAYOUT));
        let rows = part.iter().map(|group| cells(group, ranked, style));
        let text = bounded_table(&columns, rows, header, style.palette);
        out.write_all(text.as_bytes())?;
        header = false;
        rest = others;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn cells(group: &Group, ranked: &Ranked<'_>, style: &GroupStyle<'_>) -> Vec<TextCell> {
    let mut cells = Vec::with_capacity(ranked.by.len() + 5);
    for (key, part) in ranked.by.iter().zip(&group.values) {
        let shown = text(part, &ranked.names);
        let name = key.is_address().then(|| style.name(part)).flatten();
        cells.push(match (shown, name) {
            (Some(shown), Some(name)) => TextCell::plain(format!("{shown} ({name})")),
            (Some(shown), None) => TextCell::styled(shown, part_style(part)),
            (None, _) => TextCell::plain("-"),
        });
    }
    let tally = &group.tally;
    // `+` marks a number that may be too small; it is never too large.
    let number = |n: u64, missed: u64| match missed {
        0 => n.to_string(),
        _ => format!("{n}+"),
    };
    let share = ranked.share(group);
    cells.push(TextCell::plain(number(tally.count, tally.missed.count)));
    cells.push(TextCell::plain(percent(share)));
    cells.push(TextCell::or_dash(
        tally.packets.map(|n| number(n, tally.missed.packets)),
    ));
    cells.push(TextCell::or_dash(
        tally.bytes.map(|n| number(n, tally.missed.bytes)),
    ));
    cells.push(TextCell::plain(bar(share, MAX_BAR_WIDTH, style.glyphs)));
    cells
}

/// A share of 1 in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{}%", crate::percent::rounded(share * 100.0))
}

fn part_style(part: &KeyValue) -> Style {
    match part {
        KeyValue::Verdict(Verdict::Stale) => Style::Bad,
        KeyValue::Verdict(Verdict::Ok) => Style::Good,
        KeyValue::Verdict(Verdict::Unknown | Verdict::Unrelated) => Style::Faint,
        KeyValue::Verdict(_) => Style::Warning,
        _ => Style::Plain,
    }
}

/// Value as text, not escaped; `None` where it is absent.
fn text(part: &KeyValue, names: &GroupNames<'_>) -> Option<String> {
    let mut out = Vec::new();
    match *part {
        KeyValue::Absent => return None,
        KeyValue::Number(n) => write::number(&mut out, n),
        KeyValue::Protocol(protocol) => write::protocol(&mut out, protocol),
        KeyValue::Address(address) => write::address(&mut out, address),
        KeyValue::AddressPort(address) => write::address_port(&mut out, address),
        KeyValue::Name { id, port } => named(names.get(id)?, port, &mut out),
        KeyValue::State { tracked, status } => cell::state_word(tracked, status, &mut out),
        KeyValue::Status(status) => write::status(&mut out, status),
        KeyValue::ZoneOf(id, direction) => {
            write::number(&mut out, id);
            out.push(b'/');
            out.extend_from_slice(direction.name().as_bytes());
        }
        KeyValue::Verdict(verdict) => out.extend_from_slice(verdict.name().as_bytes()),
        KeyValue::Reason(reason) => out.extend_from_slice(reason.name().as_bytes()),
        KeyValue::Word(id) => out.extend_from_slice(names.word(id)?.as_bytes()),
        KeyValue::Masquerade {
            source,
            destination,
            protocol,
        } => {
            write::address(&mut out, source);
            out.extend_from_slice(b" -> ");
            write::address_port(&mut out, destination);
            out.push(b'/');
            write::protocol(&mut out, protocol);
        }
    }
    Some(into_text(out))
}

fn named(name: GroupName<'_>, port: Option<u16>, out: &mut Vec<u8>) {
    raw_name(name.namespace, name.name, out);
    if let Some(port) = name.port {
        out.push(b':');
        out.extend_from_slice(port.as_bytes());
    }
    if let Some(port) = port {
        out.push(b':');
        write::number(out, port);
    }
}

/// `namespace/name`, not escaped.
fn raw_name(namespace: Option<&str>, name: &str, out: &mut Vec<u8>) {
    if let Some(namespace) = namespace {
        out.extend_from_slice(namespace.as_bytes());
        out.push(b'/');
    }
    out.extend_from_slice(name.as_bytes());
}

fn into_text(out: Vec<u8>) -> String {
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes one document that ends with `summary`.
///
/// An item is `{"key":{..},"names":{..},"count":N,"share":S,"packets":N|null,"bytes":N|null,"error_at_most":N}`. `key` has
/// the words of `--by`: ports, zones and marks as numbers, everything else as text in the words of the items of `ctk ls`
/// (`status` joined by commas), null where entries have no such value. `names` has the owners of the addresses, under the words
/// of their keys. `share` is the part of all entries that matched. `error_at_most` is the largest number of entries that `count` may
/// lack, 0 where it is exact.
///
/// # Errors
/// The error of the write.
pub fn group_document(
    ranked: &Ranked<'_>,
    style: &GroupStyle<'_>,
    summary: &Summary,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut sink = Sink::new(Box::new(out));
    let mut document = JsonDocument::default();
    for group in &ranked.groups {
        let out = sink.buffer();
        document.before_item(out);
        out.push(b'{');
        item(group, ranked, style, out);
        sink.checkpoint()?;
    }
    document.end(summary, sink.buffer())?;
    sink.flush()
}

/// Writes one item per line. With `time`, when the table was read, each begins with `"schema":"ctk/v1","time":"..."`.
///
/// # Errors
/// The error of the write.
pub fn group_lines(
    ranked: &Ranked<'_>,
    style: &GroupStyle<'_>,
    time: Option<u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut sink = Sink::new(Box::new(out));
    for group in &ranked.groups {
        let out = sink.buffer();
        out.push(b'{');
        if let Some(time) = time {
            out.extend_from_slice(b"\"schema\":\"ctk/v1\",\"time\":\"");
            write::time(out, time);
            out.extend_from_slice(b"\",");
        }
        item(group, ranked, style, out);
        out.push(b'\n');
        sink.checkpoint()?;
    }
    sink.flush()
}

/// Appends an item without its opening brace.
fn item(group: &Group, ranked: &Ranked<'_>, style: &GroupStyle<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"key\":{");
    let pairs = || ranked.by.iter().zip(&group.values);
    for (i, (key, part)) in pairs().enumerate() {
        begin(i, *key, out);
        match part {
            KeyValue::Number(n) => write::number(out, *n),
            part => json::text(out, text(part, &ranked.names).as_deref()),
        }
    }
    out.extend_from_slice(b"},\"names\":{");
    for (i, (key, part)) in pairs().filter(|(key, _)| key.is_address()).enumerate() {
        begin(i, *key, out);
        json::text(out, style.name(part).as_deref());
    }
    let tally = &group.tally;
    out.extend_from_slice(b"},\"count\":");
    write::number(out, tally.count);
    out.extend_from_slice(format!(",\"share\":{}", rounded(ranked.share(group))).as_bytes());
    out.extend_from_slice(b",\"packets\":");
    json::optional(out, tally.packets);
    out.extend_from_slice(b",\"bytes\":");
    json::optional(out, tally.bytes);
    out.extend_from_slice(b",\"error_at_most\":");
    write::number(out, tally.missed.count);
    out.push(b'}');
}

fn begin(i: usize, key: GroupKey, out: &mut Vec<u8>) {
    out.extend_from_slice(if i > 0 { b",\"" } else { b"\"" });
    out.extend_from_slice(key.name().as_bytes());
    out.extend_from_slice(b"\":");
}

/// Rounds to six decimals, which is one entry in a million.
fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// Writes RFC 4180 records with empty fields for absent values; an address is followed by its owner.
/// With `time`, when the table was read, each record begins with it.
///
/// # Errors
/// The error of the write.
pub fn group_csv(
    ranked: &Ranked<'_>,
    style: &GroupStyle<'_>,
    time: Option<u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut sink = Sink::new(Box::new(out));
    if style.header {
        csv_header(ranked, time.is_some(), sink.buffer());
    }
    for group in &ranked.groups {
        record(group, ranked, style, time, sink.buffer());
        sink.checkpoint()?;
    }
    sink.flush()
}

fn csv_header(ranked: &Ranked<'_>, time: bool, out: &mut Vec<u8>) {
    let time = time.then(|| "time".to_owned());
    let keys = ranked.by.iter().flat_map(|key| {
        let name = key.is_address().then(|| format!("{}_name", key.name()));
        std::iter::once(key.name().to_owned()).chain(name)
    });
    let numbers = ["count", "share", "packets", "bytes", "error_at_most"].map(str::to_owned);
    let fields: Vec<_> = time.into_iter().chain(keys).chain(numbers).collect();
    out.extend_from_slice(fields.join(",").as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn record(
    group: &Group,
    ranked: &Ranked<'_>,
    style: &GroupStyle<'_>,
    time: Option<u64>,
    out: &mut Vec<u8>,
) {
    if let Some(time) = time {
        write::time(out, time);
        out.push(b',');
    }
    for (key, part) in ranked.by.iter().zip(&group.values) {
        field(text(part, &ranked.names), out);
        if key.is_address() {
            field(style.name(part), out);
        }
    }
    let tally = &group.tally;
    field(Some(tally.count.to_string()), out);
    field(Some(rounded(ranked.share(group)).to_string()), out);
    field(tally.packets.map(|n| n.to_string()), out);
    field(tally.bytes.map(|n| n.to_string()), out);
    write::number(out, tally.missed.count);
    out.extend_from_slice(b"\r\n");
}

/// Appends one field and a comma.
fn field(value: Option<String>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        let mut escaped = Vec::new();
        escape::text(&mut escaped, &value);
        csv::field(&escaped, out);
    }
    out.push(b',');
}

#[cfg(test)]
mod tests;
