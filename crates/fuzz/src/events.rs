//! Target `events`: datagrams of events through the queue into the view of a watch.

use std::time::Duration;

use ctk::attribution::{self, FrontendMatch};
use ctk::entry::Entry;
use ctk::output::{Palette, RecordFormat, RecordPrinter};
use ctk::verdict::{Activity, Judge};
use ctk::watch::record::Record;
use ctk::watch::view::{FlowKey, ResolveEntry, View};
use ctnetlink::testing::{events, insert_request};
use ctnetlink::{Event, EventKind, Flow, QueueItem};

use crate::{print, samples};

/// Capacity of the queue: small, so that it overflows.
const CAPACITY: usize = 24;
/// Separator of datagrams. An empty datagram is an overrun.
const SEPARATOR: &[u8] = b"\xff\xfe\xfd\xfc";

/// `data` is a sequence of datagrams.
pub fn target(data: &[u8]) -> usize {
    let datagrams = split(data);
    let all = events(datagrams.iter().copied(), usize::MAX);
    assert_eq!(
        all.batch.items.len() + losses(&all.batch.items),
        all.events as usize + runs_of_overruns(&all.batch.items)
    );
    assert!(all.events + all.unreadable <= all.messages);
    let bounded = events(datagrams.iter().copied(), CAPACITY);
    assert!(bounded.batch.items.len() <= CAPACITY);
    let dropped = dropped(&bounded.batch.items);
    let kept = bounded.batch.items.len() - runs_of_overruns(&bounded.batch.items);
    assert_eq!(kept as u64 + dropped, bounded.events, "events are missing");
    watch(bounded.batch.items);
    all.events as usize
}

fn split(data: &[u8]) -> Vec<&[u8]> {
    let mut datagrams = Vec::new();
    let mut rest = data;
    while let Some(at) = find(rest, SEPARATOR) {
        datagrams.push(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + SEPARATOR.len()..).unwrap_or_default();
    }
    datagrams.push(rest);
    datagrams
}

fn find(data: &[u8], part: &[u8]) -> Option<usize> {
    data.windows(part.len()).position(|window| window == part)
}

fn gaps(items: &[QueueItem]) -> impl Iterator<Item = &ctnetlink::Gap> {
    items.iter().filter_map(|item| match item {
        QueueItem::Gap(gap) => Some(gap),
        QueueItem::Event(_) => None,
    })
}

fn runs_of_overruns(items: &[QueueItem]) -> usize {
    gaps(items).count()
}

fn dropped(items: &[QueueItem]) -> u64 {
    gaps(items).map(|gap| gap.dropped).sum()
}

/// A queue without a bound drops nothing.
fn losses(items: &[QueueItem]) -> usize {
    dropped(items) as usize
}

/// Names and judges by the cluster of the samples.
struct Resolver;

impl ResolveEntry<'static> for Resolver {
    fn select(&mut self, flow: Flow, seen: Option<Activity>) -> Option<Entry<'static>> {
        Some(self.entry(flow, seen))
    }

    fn entry(&mut self, flow: Flow, seen: Option<Activity>) -> Entry<'static> {
        let mut entry = judged(flow);
        if let Some(seen) = seen {
            entry.add_activity(seen);
        }
        entry
    }

    fn note_created(&mut self, _: FlowKey) {}
}

fn judged(flow: Flow) -> Entry<'static> {
    let index = samples::index();
    let mut entry = Entry::bare(flow);
    let matched = FrontendMatch::of(&entry.flow, index, &samples::NODE);
    entry.names = attribution::names(&entry.flow, matched, index);
    let judge = Judge {
        index: Some(index),
        rules: None,
        node: &samples::NODE,
        kube_proxy_replacement: None,
        zones: &[],
        source_time: None,
    };
    entry.judgement = judge.judge(&entry.flow, matched);
    entry
}

/// Applies the items to a view, with a dump of the samples before and after them, and prints all records.
fn watch(items: Vec<QueueItem>) {
    let mut view = View::default();
    let mut records = Vec::new();
    let number = items.len();
    dump(&mut view, 1, &mut |record| records.push(record));
    for item in items {
        let emit = &mut |record| records.push(record);
        match item {
            QueueItem::Gap(gap) => {
                let overruns = gap.overruns;
                records.push(Record::Gap { overruns });
            }
            QueueItem::Event(Event { kind, flow, .. }) => match kind {
                EventKind::New => view.apply_new(flow, &mut Resolver, emit),
                EventKind::Update => view.apply_update(flow, &mut Resolver, emit),
                EventKind::Destroy => view.apply_destroy(&flow, &mut Resolver, emit),
            },
        }
    }
    dump(&mut view, 3, &mut |record| records.push(record));
    assert!(view.len() <= number + samples::flows().len());
    for format in [RecordFormat::Jsonl, RecordFormat::Lines] {
        let text = print::paged(|page| {
            let mut printer = RecordPrinter::new(format, Palette::default(), page);
            records
                .iter()
                .try_for_each(|record| printer.record(record, 1_790_000_000_000_000_000))?;
            printer.flush()
        });
        if format == RecordFormat::Jsonl {
            let lines = text.lines().map(print::json).count();
            // A move is printed as the records of the two entries.
            let named = records.iter().filter(|record| record.name().is_some());
            assert_eq!(lines, named.count(), "one line a record");
        }
    }
}

fn dump(view: &mut View, second: u64, emit: &mut dyn FnMut(Record<'static>)) {
    view.begin_dump(false);
    for flow in samples::flows() {
        view.apply_dumped(
            flow.clone(),
            Duration::from_secs(second),
            &mut Resolver,
            emit,
        );
    }
    view.end_dump(true, &mut Resolver, emit);
}

/// See [`Target::grown`](crate::Target).
pub const GROWN: &[fn(usize) -> Vec<u8>] = &[one_datagram, overruns];

/// An event, then losses.
fn overruns(pieces: usize) -> Vec<u8> {
    [one_datagram(1), SEPARATOR.repeat(pieces)].concat()
}

/// Events of different entries in one datagram.
fn one_datagram(pieces: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for piece in 0..pieces {
        let mut flow = samples::flows()[0].clone();
        let number = u32::try_from(piece).unwrap_or_default();
        flow.original.src = std::net::Ipv4Addr::from(0x0a00_0000 | number).into();
        flow.reply.dst = flow.original.src;
        let request = insert_request(&flow);
        data.extend(request.unwrap_or_else(|error| unreachable!("{error}")));
    }
    data
}
