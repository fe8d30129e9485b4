//! Cost of the parts of a listing, on the same few entries repeatedly, as hot in the caches as a datagram just received.

use std::hint::black_box;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ctk::entry::Entry;
use ctk::output::{Format, Options, Printer};
use ctnetlink::netns::Netns;
use ctnetlink::{DumpFilter, Table, decode};

/// About three datagrams.
const ENTRIES: usize = 400;
const PASSES: u32 = 200;
const ROUNDS: usize = 50;

/// Prints nanoseconds for each entry, one line for each part.
pub fn run() {
    let messages = capture();
    report("decode", messages.len(), || {
        for message in &messages {
            let _ = black_box(decode(black_box(message)));
        }
    });
    let entries: Vec<Entry> = messages
        .iter()
        .filter_map(|message| decode(message).ok())
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

/// First messages of a dump, without their netlink headers.
fn capture() -> Vec<Vec<u8>> {
    let mut table = Table::open(&Netns::current()).expect("a socket");
    let mut messages = Vec::new();
    let dump = table.dump_raw(&DumpFilter::default(), &mut |message| {
        messages.push(message.to_vec());
        match messages.len() < ENTRIES {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    dump.expect("a dump");
    messages
}
