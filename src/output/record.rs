//! Records of a watch: one line or one JSON object each.

use std::io::{self, Write};
use std::time::Duration;

use crate::plural::count;
use crate::watch::record::{Record, WatchedEntry};
use ctnetlink::flow::Flow;

use super::color::{Palette, Style};
use super::row::Row;
use super::sink::Sink;
use super::{cell, conntrack, endpoint_change, escape, json, write};

/// Format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    Lines,
    Jsonl,
    /// Lines of `conntrack -E -o extended,id`, of new, changed and ended entries only.
    Conntrack,
}

/// Writes records. They are buffered until [`RecordPrinter::flush`], or until the buffer is full.
pub struct RecordPrinter<'w> {
    sink: Sink<'w>,
    format: RecordFormat,
    palette: Palette,
    /// Number of entries in the initial snapshot; `None` after it.
    snapshots: Option<u64>,
}

impl<'w> RecordPrinter<'w> {
    pub fn new(format: RecordFormat, palette: Palette, out: Box<dyn Write + 'w>) -> Self {
        RecordPrinter {
            sink: Sink::new(out),
            format,
            palette,
            snapshots: Some(0),
        }
    }

    /// Prints one record. `time` is in nanoseconds since the Unix epoch.
    ///
    /// # Errors
    /// The error of the write; [`super::is_closed`] recognises a pipe whose reader has closed it.
    pub fn record(&mut self, record: &Record<'_>, time: u64) -> io::Result<()> {
        match self.format {
            RecordFormat::Jsonl => object(record, time, self.sink.buffer()),
            RecordFormat::Lines => self.line(record, time),
            RecordFormat::Conntrack => conntrack_line(record, self.sink.buffer()),
        }
        self.sink.checkpoint()
    }

    /// Writes everything printed so far; called after each batch of events.
    ///
    /// # Errors
    /// The error of the write.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn line(&mut self, record: &Record<'_>, time: u64) {
        if let Record::Snapshot(_) = record {
            self.snapshots = self.snapshots.map(|count| count + 1);
        }
        let out = self.sink.buffer();
        clock(out, time);
        let (word, style) = title(record);
        out.extend_from_slice(b"  ");
        self.palette.begin(out, style);
        out.extend_from_slice(format!("{word:8}").as_bytes());
        self.palette.end(out, style);
        out.extend_from_slice(b"  ");
        if let Some(watched) = record.watched() {
            flow(out, watched, !matches!(record, Record::Move { .. }));
        }
        match record {
            Record::Refresh {
                before,
                after,
                watched,
            } => {
                let replies = watched.entry.replies.name();
                let text = format!("  {before}s -> {after}s, replies {replies}");
                out.extend_from_slice(text.as_bytes());
            }
            Record::Verdict {
                before, watched, ..
            } => {
                let before = before.map_or("-", |verdict| verdict.name());
                out.extend_from_slice(format!("  (was {before})").as_bytes());
                if let Some(judgement) = &watched.entry.judgement {
                    out.extend_from_slice(b": ");
                    escape::text(out, &judgement.evidence.to_string());
                }
            }
            Record::Move { watched, before } => {
                out.extend_from_slice(b": ");
                escape::text(out, before);
                out.extend_from_slice(b" -> ");
                endpoint(&Row::of(&watched.entry, None, 0), watched, out);
            }
            Record::Destroy(watched) => {
                if let Some(lasted) = lifetime(&watched.entry.flow) {
                    let lasted = Duration::from_millis(lasted.as_millis() as u64);
                    let lasted = humantime::format_duration(lasted);
                    out.extend_from_slice(format!("  lasted {lasted}").as_bytes());
                }
            }
            Record::Endpoint(endpoint) => endpoint_change::line(endpoint, out),
            Record::Gap { overruns } => {
                let text =
                    format!("{overruns} overruns: events were lost, the table is read again");
                out.extend_from_slice(text.as_bytes());
            }
            Record::Synced => {
                let text = match self.snapshots.take() {
                    None => "the view equals the table again".to_owned(),
                    Some(n) => format!("{} to begin with", count(n, "entry", "entries")),
                };
                out.extend_from_slice(text.as_bytes());
            }
            _ => {}
        }
        out.push(b'\n');
    }
}

fn title(record: &Record<'_>) -> (&'static str, Style) {
    let word = record.name().unwrap_or("move");
    let style = match record {
        Record::New(_) | Record::Move { .. } => Style::Good,
        Record::Destroy(_) | Record::Snapshot(_) => Style::Faint,
        Record::Endpoint(endpoint) => endpoint_change::style(endpoint),
        Record::Gap { .. } => Style::Bad,
        Record::Verdict { .. } => Style::Warning,
        Record::Update(_) | Record::Refresh { .. } | Record::Synced => Style::Plain,
    };
    (word, style)
}

/// Protocol, client, Service and, when `whole`, endpoint, state, time left and verdict.
fn flow(out: &mut Vec<u8>, watched: &WatchedEntry<'_>, whole: bool) {
    let row = Row::of(&watched.entry, None, 0);
    cell::protocol(&row, out);
    out.extend_from_slice(b"  ");
    cell::client(&row, out);
    out.extend_from_slice(b"  ");
    cell::service(&row, out);
    if !whole {
        return;
    }
    out.extend_from_slice(b"  ");
    endpoint(&row, watched, out);
    for part in [cell::state, cell::ttl, cell::verdict] {
        let start = out.len();
        out.extend_from_slice(b"  ");
        part(&row, out);
        if out.len() == start + 2 {
            out.push(b'-');
        }
    }
}

/// The endpoint, with the earlier owner of an address that nobody has now.
fn endpoint(row: &Row<'_>, watched: &WatchedEntry<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    cell::endpoint(row, out);
    if out.len() == start {
        out.push(b'-');
    }
    if let Some(pod) = &watched.endpoint_was {
        escape::text(out, &format!(", was {pod}"));
    }
}

/// `23:24:30.123`, UTC.
fn clock(out: &mut Vec<u8>, time: u64) {
    let millis = time / 1_000_000;
    let seconds = millis / 1000;
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    out.extend_from_slice(format!("{h:02}:{m:02}:{s:02}.{:03}", millis % 1000).as_bytes());
}

fn object(record: &Record<'_>, time: u64, out: &mut Vec<u8>) {
    // A move is printed as its destroy and new records.
    let Some(name) = record.name() else {
        return;
    };
    out.extend_from_slice(b"{\"schema\":\"ctk/v1\",\"time\":\"");
    write::time(out, time);
    out.extend_from_slice(format!("\",\"type\":\"{name}\"").as_bytes());
    match record {
        Record::Refresh { before, after, .. } => {
            let text = format!(",\"timeout_before\":{before},\"timeout_after\":{after}");
            out.extend_from_slice(text.as_bytes());
        }
        Record::Verdict { before, after, .. } => {
            for (key, verdict) in [("before", before), ("after", after)] {
                let value = match verdict {
                    Some(verdict) => format!("\"{}\"", verdict.name()),
                    None => "null".to_owned(),
                };
                out.extend_from_slice(format!(",\"{key}\":{value}").as_bytes());
            }
        }
        Record::Destroy(watched) => {
            let flow = &watched.entry.flow;
            out.extend_from_slice(b",\"stop\":");
            match stop(flow) {
                Some(stop) => {
                    out.push(b'"');
                    write::time(out, stop);
                    out.push(b'"');
                }
                None => out.extend_from_slice(b"null"),
            }
            let duration = lifetime(flow).map(|lasted| lasted.as_secs_f64());
            let duration = duration.map_or_else(|| "null".to_owned(), |s| s.to_string());
            out.extend_from_slice(format!(",\"duration\":{duration}").as_bytes());
        }
        Record::Endpoint(endpoint) => endpoint_change::fields(endpoint, out),
        Record::Gap { overruns } => {
            out.extend_from_slice(format!(",\"overruns\":{overruns}").as_bytes());
        }
        _ => {}
    }
    if let Some(watched) = record.watched() {
        endpoint_was(watched, out);
        out.extend_from_slice(b",\"entry\":");
        json::item(&Row::of(&watched.entry, None, 0), out);
    }
    out.extend_from_slice(b"}\n");
}

/// Time of the end in nanoseconds since the Unix epoch, as the kernel sends it with the event.
fn stop(flow: &Flow) -> Option<u64> {
    flow.rare.as_ref()?.stop
}

/// Time from the creation to the end of an entry.
fn lifetime(flow: &Flow) -> Option<Duration> {
    let nanoseconds = stop(flow)?.checked_sub(flow.start?)?;
    Some(Duration::from_nanos(nanoseconds))
}

/// `    [NEW] ipv4     2 udp ...`: the word is right-aligned in nine columns (`nfct_snprintf` of libnetfilter_conntrack).
fn conntrack_line(record: &Record<'_>, out: &mut Vec<u8>) {
    let (word, watched) = match record {
        Record::New(watched) => ("[NEW]", watched),
        Record::Update(watched) => ("[UPDATE]", watched),
        Record::Destroy(watched) => ("[DESTROY]", watched),
        _ => return,
    };
    out.extend_from_slice(format!("{word:>9} ").as_bytes());
    let mut flow = watched.entry.flow.clone();
    if !matches!(record, Record::New(_)) {
        // Later events leave out a mark of 0 (`ctnetlink_conntrack_event`).
        flow.mark = flow.mark.filter(|mark| *mark != 0);
    }
    let row = Row {
        flow: &flow,
        ..Row::of(&watched.entry, None, 0)
    };
    conntrack::line(&row, out);
    out.push(b'\n');
}

fn endpoint_was(watched: &WatchedEntry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"endpoint_was\":");
    let Some(pod) = &watched.endpoint_was else {
        return out.extend_from_slice(b"null");
    };
    out.extend_from_slice(b"{\"namespace\":");
    json::text(out, Some(&pod.namespace));
    out.extend_from_slice(b",\"name\":");
    json::text(out, Some(&pod.name));
    out.push(b'}');
}
