//! Bytes of one ctnetlink message to a [`Flow`]. No I/O.
//!
//! Attributes that are unknown, missing or too short never fail an entry: kernels add and drop them. What fails is a
//! message whose lengths do not add up, or one that does not say both tuples.

use std::net::{IpAddr, Ipv4Addr};

use super::abi::{self, counters, cta, protoinfo, seq_adj, timestamp};
use super::attr::{Attribute, Attributes, Broken, header_bytes};
use super::tuple::{any_tuple, tuple, usual_tuple};
use crate::flow::{
    Counters, Direction, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple, Zone,
};

/// Bytes of `struct nfgenmsg` before the attributes.
pub(crate) const NFGENMSG: usize = 4;

/// Why a message is no entry. Counted, never fatal to a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("message shorter than its header")]
    Short,
    #[error("attribute lengths do not add up")]
    Broken,
    #[error("no {} tuple", .0.name())]
    NoTuple(Direction),
    /// An expectation without its own or its master's tuple.
    #[error("no tuple")]
    NoExpectedTuple,
}

impl From<Broken> for DecodeError {
    fn from(_: Broken) -> Self {
        DecodeError::Broken
    }
}

/// An entry from what follows the netlink header: `nfgenmsg` and attributes. The family in `nfgenmsg` is not looked at, as
/// the addresses tell.
///
/// # Errors
/// See [`DecodeError`].
pub fn flow(message: &[u8]) -> Result<Flow, DecodeError> {
    let mut flow = blank();
    read(message, &mut flow)?;
    Ok(flow)
}

/// A flow to [`read`] a message into.
pub(crate) fn blank() -> Flow {
    let mut flow = Flow::new(NOWHERE, NOWHERE);
    flow.status = Status::default();
    flow
}

/// Stands where a tuple is not read yet.
const NOWHERE: Tuple = Tuple {
    src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    protocol: 0,
    l4: L4::None,
};

/// As [`flow`], into a [`blank`] one: a dump hands the flow on from where it was read, without moving it.
///
/// Not inlined, so that its fields stay where they are. Taken apart into variables they do not fit into the registers, and
/// moving them back and forth takes half of the time.
#[inline(never)]
pub(crate) fn read(message: &[u8], flow: &mut Flow) -> Result<(), DecodeError> {
    let attributes = message.get(NFGENMSG..).ok_or(DecodeError::Short)?;
    let mut attributes = Attributes::new(attributes);
    let (mut original, mut reply) = (false, false);
    for attribute in &mut attributes {
        match attribute.kind {
            cta::TUPLE_ORIG => {
                original = place(
                    attribute,
                    Direction::Original,
                    &mut flow.original,
                    &mut flow.zone,
                )?;
            }
            cta::TUPLE_REPLY => {
                reply = place(attribute, Direction::Reply, &mut flow.reply, &mut flow.zone)?;
            }
            cta::STATUS => flow.status = Status(attribute.be32().unwrap_or_default()),
            cta::MARK => flow.mark = attribute.be32(),
            cta::ID => flow.id = attribute.be32(),
            cta::USE => flow.use_count = attribute.be32(),
            cta::TIMEOUT => flow.timeout = attribute.be32(),
            cta::PROTOINFO => flow.state = state(attribute)?,
            cta::COUNTERS_ORIG => flow.counters_original = counted(attribute)?,
            cta::COUNTERS_REPLY => flow.counters_reply = counted(attribute)?,
            cta::TIMESTAMP => times(attribute, flow)?,
            cta::ZONE => set_zone(&mut flow.zone, attribute.be16(), None),
            _ => seldom(attribute, flow)?,
        }
    }
    attributes.finish()?;
    if !original {
        return Err(DecodeError::NoTuple(Direction::Original));
    }
    if !reply {
        return Err(DecodeError::NoTuple(Direction::Reply));
    }
    Ok(())
}

/// Puts a tuple and its zone into their places. Whether there was a tuple.
#[inline]
fn place(
    attribute: Attribute<'_>,
    direction: Direction,
    place: &mut Tuple,
    zone: &mut Zone,
) -> Result<bool, Broken> {
    if let Some(tuple) = usual_tuple(attribute.value) {
        *place = tuple;
        return Ok(true);
    }
    let (tuple, id) = any_tuple(attribute)?;
    set_zone(zone, id, Some(direction));
    *place = tuple.unwrap_or(NOWHERE);
    Ok(tuple.is_some())
}

fn set_zone(zone: &mut Zone, id: Option<u16>, direction: Option<Direction>) {
    if let Some(id) = id {
        *zone = Zone { id, direction };
    }
}

fn state(attribute: Attribute<'_>) -> Result<Option<ProtocolState>, Broken> {
    let mut state = None;
    let mut protocols = attribute.nested();
    for protocol in &mut protocols {
        match protocol.kind {
            protoinfo::TCP => state = tcp(protocol)?,
            protoinfo::SCTP => state = sctp(protocol)?,
            protoinfo::DCCP => state = dccp(protocol)?,
            _ => {}
        }
    }
    protocols.finish()?;
    Ok(state)
}

fn tcp(attribute: Attribute<'_>) -> Result<Option<ProtocolState>, Broken> {
    let mut state = None;
    let (mut original, mut reply) = (TcpDirection::default(), TcpDirection::default());
    let mut parts = attribute.nested();
    for part in &mut parts {
        match part.kind {
            protoinfo::TCP_STATE => state = part.u8(),
            protoinfo::TCP_WSCALE_ORIGINAL => original.window_scale = part.u8(),
            protoinfo::TCP_WSCALE_REPLY => reply.window_scale = part.u8(),
            // `struct nf_ct_tcp_flags`: flags, then a mask that the kernel leaves 0 in what it sends.
            protoinfo::TCP_FLAGS_ORIGINAL => original.flags = part.u8(),
            protoinfo::TCP_FLAGS_REPLY => reply.flags = part.u8(),
            _ => {}
        }
    }
    parts.finish()?;
    Ok(state.map(|state| ProtocolState::Tcp {
        state,
        original,
        reply,
    }))
}

fn sctp(attribute: Attribute<'_>) -> Result<Option<ProtocolState>, Broken> {
    let (mut state, mut vtag_original, mut vtag_reply) = (None, None, None);
    let mut parts = attribute.nested();
    for part in &mut parts {
        match part.kind {
            protoinfo::SCTP_STATE => state = part.u8(),
            protoinfo::SCTP_VTAG_ORIGINAL => vtag_original = part.be32(),
            protoinfo::SCTP_VTAG_REPLY => vtag_reply = part.be32(),
            _ => {}
        }
    }
    parts.finish()?;
    Ok(state.map(|state| ProtocolState::Sctp {
        state,
        vtag_original,
        vtag_reply,
    }))
}

fn dccp(attribute: Attribute<'_>) -> Result<Option<ProtocolState>, Broken> {
    let (mut state, mut role) = (None, None);
    let mut parts = attribute.nested();
    for part in &mut parts {
        match part.kind {
            protoinfo::DCCP_STATE => state = part.u8(),
            protoinfo::DCCP_ROLE => role = part.u8(),
            _ => {}
        }
    }
    parts.finish()?;
    Ok(state.map(|state| ProtocolState::Dccp { state, role }))
}

/// 64-bit counters, or the 32-bit ones of kernels before 2.6.33. `None` unless both packets and bytes are there.
fn counted(attribute: Attribute<'_>) -> Result<Option<Counters>, Broken> {
    match usual_counters(attribute.value) {
        Some(counters) => Ok(Some(counters)),
        None => any_counters(attribute),
    }
}

/// The one layout that kernels since 2.6.33 send where 64-bit numbers need no padding: compared with constants in a fraction
/// of the time of a walk.
fn usual_counters(value: &[u8]) -> Option<Counters> {
    const PACKETS: [u8; 4] = header_bytes(12, counters::PACKETS);
    const BYTES: [u8; 4] = header_bytes(12, counters::BYTES);
    let value: &[u8; 24] = value.try_into().ok()?;
    let (packets, bytes) = value.split_first_chunk::<12>()?;
    Some(Counters {
        packets: be64_after(PACKETS, packets)?,
        bytes: be64_after(BYTES, bytes)?,
    })
}

/// The 64-bit number in an attribute with just this header.
#[inline]
fn be64_after(header: [u8; 4], attribute: &[u8]) -> Option<u64> {
    let (found, value) = attribute.split_first_chunk()?;
    let value: &[u8; 8] = value.try_into().ok()?;
    (*found == header).then(|| u64::from_be_bytes(*value))
}

fn any_counters(attribute: Attribute<'_>) -> Result<Option<Counters>, Broken> {
    let (mut packets, mut bytes) = (None, None);
    let mut parts = attribute.nested();
    for part in &mut parts {
        match part.kind {
            counters::PACKETS => packets = part.be64(),
            counters::BYTES => bytes = part.be64(),
            counters::PACKETS32 => packets = packets.or(part.be32().map(u64::from)),
            counters::BYTES32 => bytes = bytes.or(part.be32().map(u64::from)),
            _ => {}
        }
    }
    parts.finish()?;
    Ok(packets
        .zip(bytes)
        .map(|(packets, bytes)| Counters { packets, bytes }))
}

fn times(attribute: Attribute<'_>, flow: &mut Flow) -> Result<(), Broken> {
    // All there is of an entry that lives.
    const START: [u8; 4] = header_bytes(12, timestamp::START);
    if let Some(start) = be64_after(START, attribute.value) {
        flow.start = Some(start);
        return Ok(());
    }
    let mut parts = attribute.nested();
    for part in &mut parts {
        match part.kind {
            timestamp::START => flow.start = part.be64(),
            timestamp::STOP => {
                if let Some(stop) = part.be64() {
                    flow.rare_mut().stop = Some(stop);
                }
            }
            _ => {}
        }
    }
    parts.finish()
}

/// Attributes that make a flow allocate.
fn seldom(attribute: Attribute<'_>, flow: &mut Flow) -> Result<(), Broken> {
    match attribute.kind {
        cta::LABELS => {
            if let Some(labels) = labels(attribute.value) {
                flow.rare_mut().labels = Some(labels);
            }
        }
        cta::HELP => {
            if let Some(name) = name(attribute)? {
                flow.rare_mut().helper = Some(name);
            }
        }
        cta::SECCTX => {
            if let Some(name) = name(attribute)? {
                flow.rare_mut().secctx = Some(name);
            }
        }
        cta::TUPLE_MASTER => {
            if let (Some(master), _) = tuple(attribute)? {
                flow.rare_mut().master = Some(master);
            }
        }
        cta::SEQ_ADJ_ORIG => {
            if let Some(adjustment) = adjustment(attribute)? {
                flow.rare_mut().seq_adj_original = Some(adjustment);
            }
        }
        cta::SEQ_ADJ_REPLY => {
            if let Some(adjustment) = adjustment(attribute)? {
                flow.rare_mut().seq_adj_reply = Some(adjustment);
            }
        }
        _ => {}
    }
    Ok(())
}

/// 1 to 16 bytes; kernels before 4.x sent only as many as rules used, the rest is zero.
fn labels(value: &[u8]) -> Option<[u8; 16]> {
    let mut labels = [0; 16];
    if value.is_empty() {
        return None;
    }
    labels.get_mut(..value.len())?.copy_from_slice(value);
    Some(labels)
}

fn name(attribute: Attribute<'_>) -> Result<Option<Box<str>>, Broken> {
    let mut name = None;
    let mut parts = attribute.nested();
    for part in &mut parts {
        if part.kind == abi::NAME {
            name = Some(part.text());
        }
    }
    parts.finish()?;
    Ok(name)
}

fn adjustment(attribute: Attribute<'_>) -> Result<Option<SeqAdj>, Broken> {
    let (mut correction_pos, mut before, mut after) = (None, None, None);
    let mut parts = attribute.nested();
    for part in &mut parts {
        match part.kind {
            seq_adj::CORRECTION_POS => correction_pos = part.be32(),
            seq_adj::OFFSET_BEFORE => before = part.be32(),
            seq_adj::OFFSET_AFTER => after = part.be32(),
            _ => {}
        }
    }
    parts.finish()?;
    Ok((|| {
        Some(SeqAdj {
            correction_pos: correction_pos?,
            offset_before: before?,
            offset_after: after?,
        })
    })())
}
