//! The request that puts an entry into the table as it was.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};

use super::abi::{self, cta, entry, nat, protoinfo, seq_adj};
use super::attr::Writer;
use super::encode::{ENTRIES, put_tuple, put_zone, request};
use crate::flow::{Direction, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple};

/// Longest helper name that the kernel takes (`NF_CT_HELPER_NAME_LEN` less the NUL).
const HELPER_NAME: usize = 15;

/// What an entry lacks so that the kernel would take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be put into the table: {0}")]
pub struct Incomplete(pub &'static str);

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

fn own_zone(flow: &Flow, direction: Direction) -> Option<u16> {
    (flow.zone.direction == Some(direction) && flow.zone.id != 0).then_some(flow.zone.id)
}
