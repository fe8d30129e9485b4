//! Decoder of entries: the bytes of one ctnetlink message to a [`Flow`].
//!
//! Attributes that are unknown, missing or too short are no error: kernels add and drop them. Wrong attribute lengths and a
//! missing tuple are.

use std::net::{IpAddr, Ipv4Addr};

use super::abi::{self, counters, cta, protoinfo, seq_adj, timestamp};
use super::attr::{Attribute, Attributes, Broken, header_bytes};
use super::tuple::{any_tuple, tuple, typical_tuple};
use crate::flow::{
    Counters, Direction, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple, Zone,
};

/// Length of `struct nfgenmsg`, which precedes the attributes.
pub(crate) const NFGENMSG: usize = 4;

/// Reason why a message is no entry. A dump counts such messages and continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message is shorter than `struct nfgenmsg` (4 bytes).
    #[error("message shorter than its header")]
    Short,
    /// The length of an attribute is below 4 or reaches beyond the enclosing bytes.
    #[error("attribute lengths do not add up")]
    Broken,
    /// The tuple of this direction is missing or incomplete.
    #[error("no {} tuple", .0.name())]
    NoTuple(Direction),
    /// An expectation lacks its own tuple or that of its master.
    #[error("no tuple")]
    NoExpectedTuple,
}

impl From<Broken> for DecodeError {
    fn from(_: Broken) -> Self {
        DecodeError::Broken
    }
}

/// Decodes one ctnetlink message (NEW, UPDATE, DESTROY or an answer to GET). `message` is the payload behind the 16 bytes of
/// the netlink header: `struct nfgenmsg` and attributes. The family in `nfgenmsg` is ignored; the addresses have it.
///
/// [`Table`](crate::Table) and [`Events`](crate::Events) decode what they receive. This function is for messages from
/// elsewhere: from [`Table::dump_raw`](crate::Table::dump_raw), or captured on an `nlmon` interface.
///
/// # Errors
/// [`DecodeError`], when the message is no entry. Unknown attributes are skipped.
///
/// ```
/// use ctnetlink::DecodeError;
///
/// assert_eq!(ctnetlink::decode(&[2, 0]), Err(DecodeError::Short));
/// ```
pub fn flow(message: &[u8]) -> Result<Flow, DecodeError> {
    let mut flow = blank();
    read(message, &mut flow)?;
    Ok(flow)
}

/// Blank flow for [`read`].
pub(crate) fn blank() -> Flow {
    let mut flow = Flow::new(UNSET, UNSET);
    flow.status = Status::default();
    flow
}

/// Placeholder for a tuple that is not decoded yet.
const UNSET: Tuple = Tuple {
    src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    protocol: 0,
    l4: L4::None,
};

/// Decodes into a [`blank`] flow. A dump passes the flow on from there without a move.
///
/// Not inlined: split into variables, the fields exceed the registers, and moving them takes half of the time.
#[inline(never)]
pub(crate) fn read(message: &[u8], flow: &mut Flow) -> Result<(), DecodeError> {
    let attributes = message.get(NFGENMSG..).ok_or(DecodeError::Short)?;
    let mut attributes = Attributes::new(attributes);
    let (mut original, mut reply) = (false, false);
    for attribute in &mut attributes {
        match attribute.kind {
            cta::TUPLE_ORIG => {
                original = set_tuple(
                    attribute,
                    Direction::Original,
                    &mut flow.original,
                    &mut flow.zone,
                )?;
            }
            cta::TUPLE_REPLY => {
                reply = set_tuple(attribute, Direction::Reply, &mut flow.reply, &mut flow.zone)?;
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
            _ => extension(attribute, flow)?,
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

/// Decodes a tuple and its zone. Returns whether the tuple is complete.
#[inline]
fn set_tuple(
    attribute: Attribute<'_>,
    direction: Direction,
    target: &mut Tuple,
    zone: &mut Zone,
) -> Result<bool, Broken> {
    if let Some(tuple) = typical_tuple(attribute.value) {
        *target = tuple;
        return Ok(true);
    }
    let (tuple, id) = any_tuple(attribute)?;
    set_zone(zone, id, Some(direction));
    *target = tuple.unwrap_or(UNSET);
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
            // `struct nf_ct_tcp_flags`: flags, then a mask that is 0 in messages of the kernel.
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

/// 64-bit counters, or the 32-bit ones of kernels before 2.6.33. `None` unless both packets and bytes are present.
fn counted(attribute: Attribute<'_>) -> Result<Option<Counters>, Broken> {
    match typical_counters(attribute.value) {
        Some(counters) => Ok(Some(counters)),
        None => any_counters(attribute),
    }
}

/// Counters in the layout that kernels since 2.6.33 send on machines where 64-bit numbers need no padding. A comparison with
/// constants takes a fraction of the time of an iteration.
fn typical_counters(value: &[u8]) -> Option<Counters> {
    const PACKETS: [u8; 4] = header_bytes(12, counters::PACKETS);
    const BYTES: [u8; 4] = header_bytes(12, counters::BYTES);
    let value: &[u8; 24] = value.try_into().ok()?;
    let (packets, bytes) = value.split_first_chunk::<12>()?;
    Some(Counters {
        packets: be64_after(PACKETS, packets)?,
        bytes: be64_after(BYTES, bytes)?,
    })
}

/// 64-bit number of an attribute, if the attribute has exactly this header.
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
    // The only part in an entry that has not ended.
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

/// Attributes that need the boxed extensions.
fn extension(attribute: Attribute<'_>, flow: &mut Flow) -> Result<(), Broken> {
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

/// Labels: 1 to 16 bytes. Kernels before 4.x send only as many as rules use; the rest is zero.
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
