//! Targets `saved_table` and `undo`: entries as `-o json`, `-o jsonl` and a purge print them.

use std::ops::ControlFlow;

use ctk::entry::Entry;
use ctk::error::chain;
use ctk::output::{Format, ItemResult};
use ctk::purge::restore::{DELETED, RestoreRequest};
use ctk::saved_table::{SavedEntry, SavedTableError, read};
use ctnetlink::flow::{Flow, ProtocolState, Status};

use crate::{entry, print, samples};

/// Most entries of one input that are held at once.
const MAX_HELD: usize = 16;

/// Reads a text; returns its first entries, and their number.
fn all(text: &[u8]) -> (Vec<SavedEntry>, usize, Result<(), SavedTableError>) {
    let (mut saved, mut number) = (Vec::new(), 0);
    let mut reader = text;
    let result = read(&mut reader, &mut |item| {
        number += 1;
        if saved.len() < MAX_HELD {
            saved.push(item);
        }
        ControlFlow::Continue(())
    });
    (saved, number, result)
}

pub fn target(data: &[u8]) -> usize {
    let (saved, number, result) = all(data);
    assert!(number <= data.len(), "more entries than bytes");
    if let Err(error) = result {
        drop(chain(&error));
    }
    for item in saved {
        print::flow_everywhere(&item.flow);
        let printed = print::entry(Format::Jsonl, &Entry::bare(item.flow.clone()), None);
        let (read, _, result) = all(printed.as_bytes());
        assert!(result.is_ok(), "{printed}: {result:?}");
        let read: Vec<Flow> = read.into_iter().map(|item| item.flow).collect();
        assert_eq!(read, [carried(item.flow)], "{printed}");
    }
    number
}

/// A printed entry is refused by name, or is read and printed as the same text.
pub fn check_round_trip(printed: &str) {
    let (read, number, result) = all(printed.as_bytes());
    match result {
        Ok(()) => {
            assert_eq!((number, read.len()), (1, 1), "{printed}");
            for item in read {
                let again = print::entry(Format::Jsonl, &Entry::bare(item.flow), None);
                assert_eq!(again, printed);
            }
        }
        Err(SavedTableError::Item { .. }) => {}
        Err(error) => unreachable!("{error}: {printed}"),
    }
}

/// The entry without what JSON does not hold.
fn carried(mut flow: Flow) -> Flow {
    flow.status = Status(flow.status.0 & 0xffff);
    if let Some(ProtocolState::Tcp {
        original, reply, ..
    }) = &mut flow.state
    {
        (original.window_scale, reply.window_scale) = (None, None);
    }
    flow
}

/// The input of `ctk restore`.
pub fn undo(data: &[u8]) -> usize {
    let (saved, _, result) = all(data);
    let mut requests = 0;
    if let Err(error) = result {
        drop(chain(&error));
    }
    for item in saved {
        let deleted = item.result.as_deref() == Some(DELETED);
        let flow = item.flow.clone();
        match RestoreRequest::of(item.flow, item.result.as_deref()) {
            Err(_) => assert_eq!(item.result, None),
            Ok(None) => assert!(!deleted, "a deleted entry is skipped"),
            Ok(Some(request)) => {
                assert!(deleted, "an entry that was not deleted is put back");
                assert_eq!(request.flow, flow);
                if request.obstacle.is_none() {
                    let sent = ctnetlink::testing::insert_request(&flow);
                    assert!(sent.is_ok(), "{sent:?} was no obstacle");
                }
                entry::check_requests(&flow);
                requests += 1;
            }
        }
    }
    requests
}

/// See [`Target::grown`](crate::Target).
pub const GROWN: &[fn(usize) -> Vec<u8>] = &[listing, document, unknown_keys];
/// See [`Target::grown`](crate::Target).
pub const GROWN_UNDO: &[fn(usize) -> Vec<u8>] = &[purge];

/// One document of items.
fn document(pieces: usize) -> Vec<u8> {
    let item = String::from_utf8(listing(1)).unwrap_or_default();
    let items = vec![item.trim_end(); pieces].join(",");
    format!(r#"{{"schema":"ctk/v1","items":[{items}],"summary":{{}}}}"#).into()
}

/// An item, and keys that are not known.
fn unknown_keys(pieces: usize) -> Vec<u8> {
    let item = String::from_utf8(listing(1)).unwrap_or_default();
    let rest = item.trim_end().strip_suffix('}').unwrap_or_default();
    let keys = r#","later":{"a":[1]}"#.repeat(pieces);
    format!("{rest}{keys}}}").into()
}

/// Lines of a listing.
fn listing(pieces: usize) -> Vec<u8> {
    let flow = samples::flows()[0].clone();
    print::entry(Format::Jsonl, &Entry::bare(flow), None)
        .repeat(pieces)
        .into()
}

/// Lines of a purge.
fn purge(pieces: usize) -> Vec<u8> {
    let flow = samples::flows()[0].clone();
    let result = ItemResult {
        result: DELETED,
        error: None,
    };
    print::entry(Format::Jsonl, &Entry::bare(flow), Some(&result))
        .repeat(pieces)
        .into()
}
