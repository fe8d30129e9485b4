//! Decoders and encoders without a socket, for tests and fuzzing of other crates.

use crate::codec::attr::Attributes;
use crate::codec::decode::NFGENMSG;
use crate::codec::{abi, expect, insert, stats, tuple};
use crate::event::queue::Queue;
use crate::event::{Received, decode_all};
use crate::socket::{Message, Messages};
use crate::{
    CpuStats, DecodeError, DeleteTarget, DumpFilter, EventBatch, Expectation, Flow, Incomplete,
    TableKind,
};

/// Length of the netlink header that precedes a payload.
pub const HEADER: usize = 16;

/// Encodes the request that inserts `flow`, with its netlink header.
///
/// # Errors
/// [`Incomplete`].
pub fn insert_request(flow: &Flow) -> Result<Vec<u8>, Incomplete> {
    let mut bytes = Vec::new();
    insert::insert(&mut bytes, 1, flow)?;
    Ok(bytes)
}

/// Encodes the request that deletes `target`, with its netlink header.
pub fn delete_request(target: &DeleteTarget) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::codec::encode::delete(&mut bytes, 1, target);
    bytes
}

/// Encodes the request that dumps the entries which pass `filter`, with its netlink header.
pub fn dump_request(filter: &DumpFilter) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::codec::encode::dump(&mut bytes, 1, TableKind::Conntrack, filter);
    bytes
}

/// Decodes the payload of an expectation.
///
/// # Errors
/// [`DecodeError`].
pub fn expectation(message: &[u8]) -> Result<Expectation, DecodeError> {
    expect::expectation(message)
}

/// Decodes the counters of one CPU about entries, then those about expectations.
///
/// # Errors
/// [`DecodeError`].
pub fn cpu_stats(message: &[u8]) -> Result<[CpuStats; 2], DecodeError> {
    Ok([
        stats::cpu_stats(message)?,
        stats::expect_cpu_stats(message)?,
    ])
}

/// Reports whether the fast decoder of tuples agrees with the general one on every tuple of an entry.
pub fn tuples_agree(message: &[u8]) -> bool {
    let attributes = message.get(NFGENMSG..).unwrap_or_default();
    Attributes::new(attributes)
        .filter(|attribute| [abi::cta::TUPLE_ORIG, abi::cta::TUPLE_REPLY].contains(&attribute.kind))
        .all(|attribute| tuple::tuple(attribute) == tuple::any_tuple(attribute))
}

/// Result of [`events`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Taken {
    /// Content of the queue.
    pub batch: EventBatch,
    /// Number of messages that are no answers, unreadable ones included.
    pub messages: u64,
    /// Number of events that were passed to the queue.
    pub events: u64,
    /// Number of messages that could not be decoded.
    pub unreadable: u64,
}

/// Passes the events of datagrams to a queue of `capacity` items, as [`EventQueue`](crate::EventQueue) does. An empty datagram
/// is an overrun of the kernel's buffer.
pub fn events<'d>(datagrams: impl IntoIterator<Item = &'d [u8]>, capacity: usize) -> Taken {
    let mut queue = Queue::new(capacity);
    let (mut messages, mut all, mut lost) = (0, 0, 0);
    for datagram in datagrams {
        if datagram.is_empty() {
            queue.overrun();
            continue;
        }
        messages += Messages::over(datagram)
            .filter(|message| !matches!(message, Ok(Message::Done { .. } | Message::Answer { .. })))
            .count() as u64;
        let mut push = |event| queue.push(event);
        if let Received::Events { events, unreadable } =
            decode_all(Messages::over(datagram), &mut push)
        {
            all += events;
            lost += unreadable;
        }
    }
    Taken {
        batch: queue.take().unwrap_or_default(),
        messages,
        events: all,
        unreadable: lost,
    }
}
