//! Requests to ctnetlink, as bytes.
//!
//! A DELETE without a tuple empties the whole table. Here none can be built: the only way to a DELETE is a
//! [`DeleteTarget`], and that has a reply tuple.

use std::net::IpAddr;

use netlink_packet_core::{
    Emitable, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterProtoFamily, NetfilterSubsystem};

use super::abi::{self, cta, entry, filter, nat, protoinfo, seq_adj};
use super::attr::Writer;
use super::{DumpFilter, TableKind, TupleMatch};
use crate::flow::{
    Direction, Family, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple, Zone,
};

/// Longest helper name that the kernel takes (`NF_CT_HELPER_NAME_LEN` less the NUL).
const HELPER_NAME: usize = 15;

/// One entry to be deleted: pinned by reply tuple, id and the zone of the reply direction.
///
/// The original tuple is never sent. Beside it the kernel ignores the reply tuple, and the id is a hash that a re-created
/// entry gets again, so only the reply tuple tells the entry of a dead endpoint from its healthy successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeleteTarget {
    reply: Tuple,
    id: u32,
    zone: u16,
}

impl DeleteTarget {
    /// `zone` is sent only where it holds for the reply direction: with a zone of the original direction the kernel
    /// answers ENOENT for a living entry.
    pub fn new(reply: Tuple, id: u32, zone: Zone) -> Self {
        DeleteTarget {
            reply,
            id,
            zone: zone.of(Direction::Reply),
        }
    }

    /// `None` for an entry whose id is not known (read from text): nothing pins it.
    pub fn of(flow: &Flow) -> Option<Self> {
        Some(Self::new(flow.reply, flow.id?, flow.zone))
    }

    pub fn reply(&self) -> &Tuple {
        &self.reply
    }
}

/// What an entry lacks so that the kernel would take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be put into the table: {0}")]
pub struct Incomplete(pub &'static str);

/// A dump of `kind`. Of `asked`, only what [`DumpFilter::kernel_part`] leaves is sent; the tables of dying and unconfirmed
/// entries know no filter but the family.
pub fn dump(out: &mut Vec<u8>, sequence: u32, kind: TableKind, asked: &DumpFilter) {
    let (message, asked) = match kind {
        TableKind::Conntrack => (entry::GET, asked.kernel_part()),
        TableKind::Dying => (entry::GET_DYING, asked.family_only()),
        TableKind::Unconfirmed => (entry::GET_UNCONFIRMED, asked.family_only()),
    };
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    request(out, ENTRIES, message, flags, sequence, asked.family, |w| {
        put_filter(w, &asked);
    });
}

/// A dump of the expectations, of one family or both.
pub fn dump_expectations(out: &mut Vec<u8>, sequence: u32, family: Option<Family>) {
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    request(
        out,
        EXPECT,
        abi::expect::GET,
        flags,
        sequence,
        family,
        |_| {},
    );
}

/// One entry by the tuple of one of its directions.
pub fn get(out: &mut Vec<u8>, sequence: u32, tuple: &Tuple, direction: Direction, zone: Zone) {
    let family = Some(tuple.family());
    request(
        out,
        ENTRIES,
        entry::GET,
        NLM_F_REQUEST,
        sequence,
        family,
        |w| {
            put_tuple(w, tuple_kind(direction), tuple, None);
            put_zone(w, zone.of(direction));
        },
    );
}

/// The table's global figures.
pub fn stats(out: &mut Vec<u8>, sequence: u32) {
    request(
        out,
        ENTRIES,
        entry::GET_STATS,
        NLM_F_REQUEST,
        sequence,
        None,
        |_| {},
    );
}

/// The kernel answers a failure; success only where `NLM_F_ACK` is set on the message.
pub fn delete(out: &mut Vec<u8>, sequence: u32, target: &DeleteTarget) {
    let flags = NLM_F_REQUEST;
    let family = Some(target.reply.family());
    request(out, ENTRIES, entry::DELETE, flags, sequence, family, |w| {
        put_tuple(w, cta::TUPLE_REPLY, &target.reply, None);
        w.be32(cta::ID, target.id);
        put_zone(w, target.zone);
    });
}

/// A new entry that equals `flow`; the kernel refuses it (EEXIST) where one of its tuples is taken.
///
/// Status bits [`Status::SRC_NAT`] and [`Status::DST_NAT`] decide about translation: with either, the kernel is asked to
/// translate, to exactly the addresses and ports of `flow.reply`. Without them the reply tuple is stored as it is, as IPVS
/// leaves it, and the kernel translates nothing. Id, counters, start and use are the kernel's to give; the master is left
/// out, as it may be gone. Labels are stored only where a rule of the namespace uses labels.
///
/// # Errors
/// [`Incomplete`] when the kernel would answer with a bare EINVAL. Nothing is written then.
pub fn insert(out: &mut Vec<u8>, sequence: u32, flow: &Flow) -> Result<(), Incomplete> {
    check(flow)?;
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL;
    let family = Some(flow.family());
    request(out, ENTRIES, entry::NEW, flags, sequence, family, |w| {
        let translated = flow.status.intersects(NAT);
        let reply = if translated {
            untranslated(flow)
        } else {
            flow.reply
        };
        put_tuple(
            w,
            cta::TUPLE_ORIG,
            &flow.original,
            own_zone(flow, Direction::Original),
        );
        put_tuple(
            w,
            cta::TUPLE_REPLY,
            &reply,
            own_zone(flow, Direction::Reply),
        );
        if translated {
            put_nat(
                w,
                cta::NAT_DST,
                flow.reply.src,
                flow.reply.l4,
                Direction::Original,
            );
            put_nat(
                w,
                cta::NAT_SRC,
                flow.reply.dst,
                flow.reply.l4,
                Direction::Reply,
            );
        }
        put_facts(w, flow);
    });
    Ok(())
}

const NAT: Status = Status::SRC_NAT.with(Status::DST_NAT);
/// The bits that a new entry may be given (`nf_ct_change_status_common`); CONFIRMED must be among them.
const SETTABLE: Status = Status::SEEN_REPLY
    .with(Status::ASSURED)
    .with(Status::FIXED_TIMEOUT);

/// Whether a flow has all that the kernel needs for a new entry.
///
/// # Errors
/// [`Incomplete`].
pub fn check(flow: &Flow) -> Result<(), Incomplete> {
    if flow.timeout.is_none() {
        return Err(Incomplete("it has no timeout"));
    }
    match flow.state {
        Some(ProtocolState::Sctp {
            vtag_original,
            vtag_reply,
            ..
        }) if vtag_original.is_none() || vtag_reply.is_none() => {
            return Err(Incomplete("SCTP state without verification tags"));
        }
        Some(ProtocolState::Dccp { role: None, .. }) => {
            return Err(Incomplete("DCCP state without a role"));
        }
        _ => {}
    }
    if flow.helper().is_some_and(|name| name.len() > HELPER_NAME) {
        return Err(Incomplete("the helper's name is too long"));
    }
    Ok(())
}

/// The reply as it was before translation, from which the kernel starts when it is given NAT attributes. ICMP types and GRE
/// keys are no part of a translation and stay.
fn untranslated(flow: &Flow) -> Tuple {
    let l4 = match (flow.reply.l4, flow.original.l4) {
        (L4::Ports { .. }, L4::Ports { src, dst }) => L4::Ports { src: dst, dst: src },
        (L4::Icmp { kind, code, .. }, L4::Icmp { id, .. }) => L4::Icmp { kind, code, id },
        (other, _) => other,
    };
    Tuple {
        src: flow.original.dst,
        dst: flow.original.src,
        protocol: flow.reply.protocol,
        l4,
    }
}

fn put_facts(w: &mut Writer<'_>, flow: &Flow) {
    let status = flow.status.0 & SETTABLE.0 | Status::CONFIRMED.0;
    w.be32(cta::STATUS, status);
    if let Some(timeout) = flow.timeout {
        w.be32(cta::TIMEOUT, timeout);
    }
    if let Some(mark) = flow.mark {
        w.be32(cta::MARK, mark);
    }
    if flow.zone.direction.is_none() {
        put_zone(w, flow.zone.id);
    }
    if let Some(state) = flow.state {
        w.nested(cta::PROTOINFO, |w| put_state(w, state));
    }
    let Some(rare) = &flow.rare else {
        return;
    };
    if let Some(labels) = &rare.labels {
        w.put(cta::LABELS, labels);
    }
    if let Some(helper) = &rare.helper {
        w.nested(cta::HELP, |w| w.text(abi::NAME, helper));
    }
    if let Some(adjustment) = rare.seq_adj_original {
        put_adjustment(w, cta::SEQ_ADJ_ORIG, adjustment);
    }
    if let Some(adjustment) = rare.seq_adj_reply {
        put_adjustment(w, cta::SEQ_ADJ_REPLY, adjustment);
    }
}

fn put_state(w: &mut Writer<'_>, state: ProtocolState) {
    match state {
        ProtocolState::Tcp {
            state,
            original,
            reply,
        } => w.nested(protoinfo::TCP, |w| {
            w.u8(protoinfo::TCP_STATE, state);
            put_tcp(
                w,
                original,
                protoinfo::TCP_WSCALE_ORIGINAL,
                protoinfo::TCP_FLAGS_ORIGINAL,
            );
            put_tcp(
                w,
                reply,
                protoinfo::TCP_WSCALE_REPLY,
                protoinfo::TCP_FLAGS_REPLY,
            );
        }),
        ProtocolState::Sctp {
            state,
            vtag_original,
            vtag_reply,
        } => w.nested(protoinfo::SCTP, |w| {
            w.u8(protoinfo::SCTP_STATE, state);
            w.be32(
                protoinfo::SCTP_VTAG_ORIGINAL,
                vtag_original.unwrap_or_default(),
            );
            w.be32(protoinfo::SCTP_VTAG_REPLY, vtag_reply.unwrap_or_default());
        }),
        ProtocolState::Dccp { state, role } => w.nested(protoinfo::DCCP, |w| {
            w.u8(protoinfo::DCCP_STATE, state);
            w.u8(protoinfo::DCCP_ROLE, role.unwrap_or_default());
        }),
    }
}

fn put_tcp(w: &mut Writer<'_>, direction: TcpDirection, scale: u16, flags: u16) {
    if let Some(value) = direction.window_scale {
        w.u8(scale, value);
    }
    if let Some(value) = direction.flags {
        // All bits are set to what they were: the mask is full.
        w.put(flags, &[value, 0xff]);
    }
}

fn put_adjustment(w: &mut Writer<'_>, kind: u16, adjustment: SeqAdj) {
    w.nested(kind, |w| {
        w.be32(seq_adj::CORRECTION_POS, adjustment.correction_pos);
        w.be32(seq_adj::OFFSET_BEFORE, adjustment.offset_before);
        w.be32(seq_adj::OFFSET_AFTER, adjustment.offset_after);
    });
}

/// `side` says which half of the reply's ports is the target: destination NAT shows in its source, source NAT in its
/// destination. Both are given even where one does not translate: left out, the kernel would be free to choose a port.
fn put_nat(w: &mut Writer<'_>, kind: u16, address: IpAddr, l4: L4, side: Direction) {
    w.nested(kind, |w| {
        match address {
            IpAddr::V4(a) => {
                w.put(nat::V4_MIN, &a.octets());
                w.put(nat::V4_MAX, &a.octets());
            }
            IpAddr::V6(a) => {
                w.put(nat::V6_MIN, &a.octets());
                w.put(nat::V6_MAX, &a.octets());
            }
        }
        let port = match (l4, side) {
            (L4::Ports { src, .. }, Direction::Original) => Some(src),
            (L4::Ports { dst, .. }, Direction::Reply) => Some(dst),
            (L4::Icmp { id, .. }, Direction::Reply) => Some(id),
            _ => None,
        };
        if let Some(port) = port {
            w.nested(nat::PROTO, |w| {
                w.be16(nat::PORT_MIN, port);
                w.be16(nat::PORT_MAX, port);
            });
        }
    });
}

fn put_filter(w: &mut Writer<'_>, asked: &DumpFilter) {
    if let Some(mark) = asked.mark {
        w.be32(cta::MARK, mark.value);
        w.be32(cta::MARK_MASK, mark.mask);
    }
    if let Some(status) = asked.status {
        w.be32(cta::STATUS, status.value);
        w.be32(cta::STATUS_MASK, status.mask);
    }
    if let Some(zone) = asked.zone {
        w.be16(cta::ZONE, zone);
    }
    let (original, reply) = (match_flags(&asked.original), match_flags(&asked.reply));
    if original | reply == 0 {
        return;
    }
    for (kind, flags, wanted) in [
        (cta::TUPLE_ORIG, original, &asked.original),
        (cta::TUPLE_REPLY, reply, &asked.reply),
    ] {
        if flags != 0 {
            put_match(w, kind, wanted);
        }
    }
    w.nested(cta::FILTER, |w| {
        // These two are in the byte order of the machine.
        w.put(filter::ORIG_FLAGS, &original.to_ne_bytes());
        w.put(filter::REPLY_FLAGS, &reply.to_ne_bytes());
    });
}

fn match_flags(wanted: &TupleMatch) -> u32 {
    [
        (wanted.src.is_some(), filter::SRC),
        (wanted.dst.is_some(), filter::DST),
        (wanted.protocol.is_some(), filter::PROTO_NUM),
        (wanted.sport.is_some(), filter::SRC_PORT),
        (wanted.dport.is_some(), filter::DST_PORT),
    ]
    .into_iter()
    .fold(0, |flags, (is, bit)| if is { flags | bit } else { flags })
}

fn put_match(w: &mut Writer<'_>, kind: u16, wanted: &TupleMatch) {
    w.nested(kind, |w| {
        w.nested(abi::tuple::IP, |w| {
            if let Some(src) = wanted.src {
                put_address(w, src, abi::tuple::V4_SRC, abi::tuple::V6_SRC);
            }
            if let Some(dst) = wanted.dst {
                put_address(w, dst, abi::tuple::V4_DST, abi::tuple::V6_DST);
            }
        });
        let Some(protocol) = wanted.protocol else {
            return;
        };
        w.nested(abi::tuple::PROTO, |w| {
            w.u8(abi::tuple::PROTO_NUM, protocol);
            if let Some(port) = wanted.sport {
                w.be16(abi::tuple::SRC_PORT, port);
            }
            if let Some(port) = wanted.dport {
                w.be16(abi::tuple::DST_PORT, port);
            }
        });
    });
}

fn put_tuple(w: &mut Writer<'_>, kind: u16, tuple: &Tuple, zone: Option<u16>) {
    w.nested(kind, |w| {
        w.nested(abi::tuple::IP, |w| {
            put_address(w, tuple.src, abi::tuple::V4_SRC, abi::tuple::V6_SRC);
            put_address(w, tuple.dst, abi::tuple::V4_DST, abi::tuple::V6_DST);
        });
        w.nested(abi::tuple::PROTO, |w| put_protocol(w, tuple));
        if let Some(zone) = zone {
            w.be16(abi::tuple::ZONE, zone);
        }
    });
}

fn put_address(w: &mut Writer<'_>, address: IpAddr, v4: u16, v6: u16) {
    match address {
        IpAddr::V4(a) => w.put(v4, &a.octets()),
        IpAddr::V6(a) => w.put(v6, &a.octets()),
    }
}

fn put_protocol(w: &mut Writer<'_>, tuple: &Tuple) {
    w.u8(abi::tuple::PROTO_NUM, tuple.protocol);
    match tuple.l4 {
        L4::Ports { src, dst } | L4::Gre { src, dst } => {
            w.be16(abi::tuple::SRC_PORT, src);
            w.be16(abi::tuple::DST_PORT, dst);
        }
        L4::Icmp { kind, code, id } => {
            let (types, codes, ids) = if tuple.protocol == abi::ICMPV6 {
                (
                    abi::tuple::ICMPV6_TYPE,
                    abi::tuple::ICMPV6_CODE,
                    abi::tuple::ICMPV6_ID,
                )
            } else {
                (
                    abi::tuple::ICMP_TYPE,
                    abi::tuple::ICMP_CODE,
                    abi::tuple::ICMP_ID,
                )
            };
            w.be16(ids, id);
            w.u8(types, kind);
            w.u8(codes, code);
        }
        L4::None => {}
    }
}

/// Zone 0 is said by saying nothing.
fn put_zone(w: &mut Writer<'_>, zone: u16) {
    if zone != 0 {
        w.be16(cta::ZONE, zone);
    }
}

fn own_zone(flow: &Flow, direction: Direction) -> Option<u16> {
    (flow.zone.direction == Some(direction) && flow.zone.id != 0).then_some(flow.zone.id)
}

fn tuple_kind(direction: Direction) -> u16 {
    match direction {
        Direction::Original => cta::TUPLE_ORIG,
        Direction::Reply => cta::TUPLE_REPLY,
    }
}

const ENTRIES: NetfilterSubsystem = NetfilterSubsystem::Conntrack;
const EXPECT: NetfilterSubsystem = NetfilterSubsystem::Other(abi::SUBSYSTEM_EXPECT);

/// Appends one message: netlink header, `nfgenmsg`, attributes.
fn request(
    out: &mut Vec<u8>,
    subsystem: NetfilterSubsystem,
    message: u8,
    flags: u16,
    sequence: u32,
    family: Option<Family>,
    fill: impl FnOnce(&mut Writer<'_>),
) {
    const HEADERS: usize = 20;
    let family = match family {
        None => NetfilterProtoFamily::Unspec,
        Some(Family::Ipv4) => NetfilterProtoFamily::IPv4,
        Some(Family::Ipv6) => NetfilterProtoFamily::IPv6,
    };
    let start = out.len();
    let mut headers = [0; HEADERS];
    NetfilterHeader::new(family, 0, 0).emit(&mut headers[16..]);
    out.extend_from_slice(&headers);
    fill(&mut Writer::new(out));
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    let mut header = NetlinkBuffer::new(&mut out[start..]);
    header.set_length(length);
    header.set_message_type(u16::from(u8::from(subsystem)) << 8 | u16::from(message));
    header.set_flags(flags);
    header.set_sequence_number(sequence);
}
