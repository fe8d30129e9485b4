//! Encoder of the request that inserts an entry.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST};

use super::abi::{self, cta, entry, nat, protoinfo, seq_adj};
use super::attr::Writer;
use super::encode::{ENTRIES, put_tuple, put_zone, request};
use crate::flow::{Direction, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple};

/// Longest helper name in bytes (`NF_CT_HELPER_NAME_LEN` less the NUL).
const MAX_HELPER_NAME: usize = 15;

/// Part that an entry lacks for an insert. The kernel would answer EINVAL without a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Incomplete {
    /// [`Flow::timeout`] is `None`.
    #[error("cannot be put into the table: it has no timeout")]
    NoTimeout,
    /// An SCTP state lacks one of its verification tags (`sctp_nlattr_to_ct` in `nf_conntrack_proto_sctp.c`).
    #[error("cannot be put into the table: SCTP state without verification tags")]
    NoVerificationTags,
    /// A DCCP state lacks its role.
    #[error("cannot be put into the table: DCCP state without a role")]
    NoDccpRole,
    /// The name of the helper has more than 15 bytes (`NF_CT_HELPER_NAME_LEN`).
    #[error("cannot be put into the table: the helper's name is too long")]
    HelperNameTooLong,
}

/// Appends the request for a new entry equal to `flow`, see [`Table::insert`](crate::Table::insert).
///
/// # Errors
/// [`Incomplete`]. Nothing is appended then.
pub(crate) fn insert(out: &mut Vec<u8>, sequence: u32, flow: &Flow) -> Result<(), Incomplete> {
    check_insertable(flow)?;
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
            direction_zone(flow, Direction::Original),
        );
        put_tuple(
            w,
            cta::TUPLE_REPLY,
            &reply,
            direction_zone(flow, Direction::Reply),
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
        put_properties(w, flow);
    });
    Ok(())
}

const NAT: Status = Status::SRC_NAT.with(Status::DST_NAT);
/// Bits that may be set on a new entry in addition to CONFIRMED, which is required (`nf_ct_change_status_common` in
/// `net/netfilter/nf_conntrack_core.c`).
const SETTABLE: Status = Status::SEEN_REPLY
    .with(Status::ASSURED)
    .with(Status::FIXED_TIMEOUT);

/// Checks that a flow has everything that the kernel requires of a new entry. [`Table::insert`](crate::Table::insert) does
/// the same before it sends a request.
///
/// # Errors
/// [`Incomplete`] names the missing part.
///
/// ```
/// use ctnetlink::flow::{Flow, L4, Tuple};
/// use ctnetlink::{Incomplete, check_insertable};
///
/// let l4 = L4::Ports { src: 4000, dst: 53 };
/// let original = Tuple { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into(), protocol: 17, l4 };
/// let mut flow = Flow::new(original, original.inverted().expect("UDP has a reply"));
/// assert_eq!(check_insertable(&flow), Err(Incomplete::NoTimeout));
/// flow.timeout = Some(120);
/// assert_eq!(check_insertable(&flow), Ok(()));
/// ```
pub fn check_insertable(flow: &Flow) -> Result<(), Incomplete> {
    if flow.timeout.is_none() {
        return Err(Incomplete::NoTimeout);
    }
    match flow.state {
        Some(ProtocolState::Sctp {
            vtag_original,
            vtag_reply,
            ..
        }) if vtag_original.is_none() || vtag_reply.is_none() => {
            return Err(Incomplete::NoVerificationTags);
        }
        Some(ProtocolState::Dccp { role: None, .. }) => {
            return Err(Incomplete::NoDccpRole);
        }
        _ => {}
    }
    if flow
        .helper()
        .is_some_and(|name| name.len() > MAX_HELPER_NAME)
    {
        return Err(Incomplete::HelperNameTooLong);
    }
    Ok(())
}

/// Reply tuple before translation. The kernel starts from it when the request has NAT attributes. ICMP types and GRE keys are
/// not translated and stay.
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

/// Everything but tuples and translation.
fn put_properties(w: &mut Writer<'_>, flow: &Flow) {
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
        // The full mask sets all bits.
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

/// Appends one translation. `side` selects the half of the reply's ports: destination NAT shows in the reply's source, source
/// NAT in its destination. Both are sent even where one does not translate: without it the kernel may choose another port.
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

/// Zone that applies to this direction only, if it is not the default.
fn direction_zone(flow: &Flow, direction: Direction) -> Option<u16> {
    (flow.zone.direction == Some(direction) && flow.zone.id != 0).then_some(flow.zone.id)
}
