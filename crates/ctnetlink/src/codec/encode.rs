//! Encoder of requests to ctnetlink.
//!
//! The kernel takes a DELETE without a tuple as a flush of the whole table. Such a request cannot be built here: a DELETE
//! requires a [`DeleteTarget`], which has a reply tuple.

use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterProtoFamily, NetfilterSubsystem};

use super::abi::{self, cta, entry, filter};
use super::attr::Writer;
use crate::filter::{DumpFilter, TableKind, TupleMatch};
use crate::flow::{Direction, Family, Flow, L4, Tuple, Zone};

/// Identity of one entry to delete: reply tuple, id, and the zone of the reply direction.
///
/// The original tuple is never sent. With an original tuple the kernel ignores the reply tuple
/// (`ctnetlink_del_conntrack` in `net/netfilter/nf_conntrack_netlink.c`). The id is a hash that a re-created entry gets
/// again, so only the reply tuple distinguishes an entry from a successor with the same original tuple and another
/// translation.
///
/// A target cannot lack its tuple, so no request is built that the kernel would take as a flush of the table.
///
/// ```
/// use ctnetlink::DeleteTarget;
/// use ctnetlink::flow::{Flow, L4, Tuple};
///
/// let l4 = L4::Ports { src: 4000, dst: 53 };
/// let original = Tuple { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into(), protocol: 17, l4 };
/// let mut flow = Flow::new(original, original.inverted().expect("UDP has a reply"));
/// // Without an id nothing pins the entry.
/// assert_eq!(DeleteTarget::of(&flow), None);
/// flow.id = Some(0x5eed);
/// assert_eq!(DeleteTarget::of(&flow), Some(DeleteTarget::new(flow.reply, 0x5eed, flow.zone)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeleteTarget {
    reply: Tuple,
    id: u32,
    zone: u16,
}

impl DeleteTarget {
    /// Target from its parts. Of `zone`, only a part that applies to the reply direction is sent: with a zone of the
    /// original direction the kernel answers ENOENT for an existing entry.
    pub fn new(reply: Tuple, id: u32, zone: Zone) -> Self {
        DeleteTarget {
            reply,
            id,
            zone: zone.of(Direction::Reply),
        }
    }

    /// Target for an entry. `None` when its id is not known, as in an entry that was read from text.
    pub fn of(flow: &Flow) -> Option<Self> {
        Some(Self::new(flow.reply, flow.id?, flow.zone))
    }

    /// Reply tuple of the entry.
    pub fn reply(&self) -> &Tuple {
        &self.reply
    }
}

/// Appends a dump request for the entries of `kind`. Of `asked`, only [`DumpFilter::kernel_part`] is sent. The lists of dying
/// and unconfirmed entries support no filter but the family.
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

/// Appends a dump request for the expectations of one family or both.
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

/// Appends a request for one entry, by the tuple of one of its directions.
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

/// Appends a request for the table's global statistics.
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

/// Appends a request for the counters of each CPU about entries.
pub fn cpu_stats(out: &mut Vec<u8>, sequence: u32) {
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    let message = entry::GET_STATS_CPU;
    request(out, ENTRIES, message, flags, sequence, None, |_| {});
}

/// Appends a request for the counters of each CPU about expectations.
pub fn expect_cpu_stats(out: &mut Vec<u8>, sequence: u32) {
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    let message = abi::expect::GET_STATS_CPU;
    request(out, EXPECT, message, flags, sequence, None, |_| {});
}

/// Appends a request to delete one entry. The kernel answers a failure always, success only where `NLM_F_ACK` is set.
pub fn delete(out: &mut Vec<u8>, sequence: u32, target: &DeleteTarget) {
    let flags = NLM_F_REQUEST;
    let family = Some(target.reply.family());
    request(out, ENTRIES, entry::DELETE, flags, sequence, family, |w| {
        put_tuple(w, cta::TUPLE_REPLY, &target.reply, None);
        w.be32(cta::ID, target.id);
        put_zone(w, target.zone);
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
    for (kind, flags, part) in [
        (cta::TUPLE_ORIG, original, &asked.original),
        (cta::TUPLE_REPLY, reply, &asked.reply),
    ] {
        if flags != 0 {
            put_match(w, kind, part);
        }
    }
    w.nested(cta::FILTER, |w| {
        // These two attributes are in host byte order.
        w.put(filter::ORIG_FLAGS, &original.to_ne_bytes());
        w.put(filter::REPLY_FLAGS, &reply.to_ne_bytes());
    });
}

fn match_flags(part: &TupleMatch) -> u32 {
    [
        (part.src.is_some(), filter::SRC),
        (part.dst.is_some(), filter::DST),
        (part.protocol.is_some(), filter::PROTO_NUM),
        (part.sport.is_some(), filter::SRC_PORT),
        (part.dport.is_some(), filter::DST_PORT),
    ]
    .into_iter()
    .fold(0, |flags, (is, bit)| if is { flags | bit } else { flags })
}

fn put_match(w: &mut Writer<'_>, kind: u16, part: &TupleMatch) {
    w.nested(kind, |w| {
        w.nested(abi::tuple::IP, |w| {
            if let Some(src) = part.src {
                put_address(w, src, abi::tuple::V4_SRC, abi::tuple::V6_SRC);
            }
            if let Some(dst) = part.dst {
                put_address(w, dst, abi::tuple::V4_DST, abi::tuple::V6_DST);
            }
        });
        let Some(protocol) = part.protocol else {
            return;
        };
        w.nested(abi::tuple::PROTO, |w| {
            w.u8(abi::tuple::PROTO_NUM, protocol);
            if let Some(port) = part.sport {
                w.be16(abi::tuple::SRC_PORT, port);
            }
            if let Some(port) = part.dport {
                w.be16(abi::tuple::DST_PORT, port);
            }
        });
    });
}

pub(crate) fn put_tuple(w: &mut Writer<'_>, kind: u16, tuple: &Tuple, zone: Option<u16>) {
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

/// Appends the zone. Zone 0, the default, has no attribute.
pub(crate) fn put_zone(w: &mut Writer<'_>, zone: u16) {
    if zone != 0 {
        w.be16(cta::ZONE, zone);
    }
}

fn tuple_kind(direction: Direction) -> u16 {
    match direction {
        Direction::Original => cta::TUPLE_ORIG,
        Direction::Reply => cta::TUPLE_REPLY,
    }
}

pub(crate) const ENTRIES: NetfilterSubsystem = NetfilterSubsystem::Conntrack;
const EXPECT: NetfilterSubsystem = NetfilterSubsystem::Other(abi::SUBSYSTEM_EXPECT);

/// Appends one message: netlink header, `nfgenmsg`, attributes.
pub(crate) fn request(
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
