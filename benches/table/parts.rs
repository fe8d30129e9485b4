//! What the parts of a listing cost by themselves: the same few entries again and again, as hot in the caches as a datagram
//! is that was just received.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use ctk::entry::Entry;
use ctk::netlink::codec::{decode, encode};
use ctk::netlink::socket::{Message, Socket};
use ctk::netlink::{DumpFilter, TableKind};
use ctk::netns::Netns;
use ctk::output::{Format, Options, Printer};

/// About three datagrams.
const ENTRIES: usize = 400;
const PASSES: u32 = 200;
const ROUNDS: usize = 50;

/// Prints nanoseconds an entry, one line a part.
pub fn run() {
    let messages = capture();
    report("decode", messages.len(), || {
        for message in &messages {
            let _ = black_box(decode::flow(black_box(message)));
        }
    });
    let entries: Vec<Entry> = messages
        .iter()
        .filter_map(|message| decode::flow(message).ok())
        .map(Entry::bare)
        .collect();
    for (name, format) in [
        ("print a table line", Format::Table),
        ("print a wide line", Format::Wide),
        ("print a conntrack line", Format::Conntrack),
        ("print a JSON item", Format::Jsonl),
        ("print a csv record", Format::Csv),
    ] {
        let options = Options {
            format,
            ..Options::default()
        };
        let mut printer = Printer::new(options, Box::new(io::sink()));
        report(name, entries.len(), || {
            for entry in &entries {
                printer.entry(black_box(entry), None).expect("a sink");
            }
        });
    }
}

fn report(name: &str, entries: usize, mut pass: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..PASSES).for_each(|_| pass());
        best = best.min(start.elapsed());
    }
    let each = best.as_secs_f64() * 1e9 / f64::from(PASSES) / entries as f64;
    println!("{name:45} {each:5.0} ns");
}

/// The first messages of a dump, from behind their netlink headers.
fn capture() -> Vec<Vec<u8>> {
    let mut socket = Socket::open(&Netns::current()).expect("a socket");
    let mut request = Vec::new();
    let sequence = socket.next_sequence();
    let everything = DumpFilter::default();
    encode::dump(&mut request, sequence, TableKind::Conntrack, &everything);
    socket.send("dump", &request).expect("sent");
    let mut messages = Vec::new();
    while messages.len() < ENTRIES {
        for message in socket.receive("dump").expect("a datagram") {
            match message.expect("a message") {
                Message::Data { payload, .. } => messages.push(payload.to_vec()),
                _ => return messages,
            }
        }
    }
    messages
}
