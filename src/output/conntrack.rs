//! Lines as `conntrack -L -o extended,id` prints them, for scripts that read those.
//!
//! Field order and spelling follow libnetfilter_conntrack 1.0.9, and were compared with conntrack 1.4.7 on real tables.
//! Labels are not part of that form: the tool prints their names, and only with `-o labels`.

use crate::flow::{Counters, Direction, Family, Flow, L4, ProtocolState, Status, Tuple, Zone};

use super::row::Row;
use super::{safe, write};

/// Appends one line, without its end.
pub(super) fn line(row: &Row<'_>, out: &mut Vec<u8>) {
    out.reserve(320);
    let flow = row.flow;
    head(flow, out);
    tuple(out, &flow.original);
    zone(out, flow.zone, Some(Direction::Original), b"zone-orig=");
    counters(out, flow.counters_original);
    if flow.status.is_unreplied() {
        out.extend_from_slice(b"[UNREPLIED] ");
    }
    tuple(out, &flow.reply);
    zone(out, flow.zone, Some(Direction::Reply), b"zone-reply=");
    counters(out, flow.counters_reply);
    out.extend_from_slice(fate(flow.status));
    field(out, b"mark=", flow.mark);
    foreign(out, b"secctx=", flow.secctx());
    zone(out, flow.zone, None, b"zone=");
    field(out, b"delta-time=", row.age());
    foreign(out, b"helper=", flow.helper());
    field(out, b"use=", flow.use_count);
    field(out, b"id=", flow.id);
    // Every field ends in a blank; a line does not.
    out.pop();
}

/// Family, protocol, timer and state.
fn head(flow: &Flow, out: &mut Vec<u8>) {
    out.extend_from_slice(match flow.family() {
        Family::Ipv4 => b"ipv4     2 ",
        Family::Ipv6 => b"ipv6     10 ",
    });
    // The protocols that the tool has names for; `unknown` for all others.
    let name: &[u8] = match flow.protocol() {
        1 => b"icmp     ",
        6 => b"tcp      ",
        17 => b"udp      ",
        33 => b"dccp     ",
        47 => b"gre      ",
        58 => b"icmpv6   ",
        132 => b"sctp     ",
        136 => b"udplite  ",
        _ => b"unknown  ",
    };
    out.extend_from_slice(name);
    write::number(out, flow.protocol());
    out.push(b' ');
    field(out, b"", flow.timeout);
    if let Some(state) = flow.state {
        state_word(out, state);
    }
}

fn state_word(out: &mut Vec<u8>, state: ProtocolState) {
    match state.name() {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => write::unknown_state(out, state.number()),
    }
    out.push(b' ');
}

fn tuple(out: &mut Vec<u8>, tuple: &Tuple) {
    out.extend_from_slice(b"src=");
    write::address_like_c(out, tuple.src);
    out.extend_from_slice(b" dst=");
    write::address_like_c(out, tuple.dst);
    out.push(b' ');
    match tuple.protocol {
        6 | 17 | 33 | 132 | 136 => {
            // A kernel without a tracker for the protocol sends no ports; the tool prints zeros.
            let (src, dst) = match tuple.l4 {
                L4::Ports { src, dst } => (src, dst),
                _ => (0, 0),
            };
            field(out, b"sport=", Some(src));
            field(out, b"dport=", Some(dst));
        }
        1 | 58 => {
            let (kind, code, id) = match tuple.l4 {
                L4::Icmp { kind, code, id } => (kind, code, id),
                _ => (0, 0, 0),
            };
            field(out, b"type=", Some(kind));
            field(out, b"code=", Some(code));
            field(out, b"id=", Some(id));
        }
        47 => {
            let (src, dst) = match tuple.l4 {
                L4::Gre { src, dst } => (src, dst),
                _ => (0, 0),
            };
            out.extend_from_slice(b"srckey=");
            write::hex16(out, src);
            out.extend_from_slice(b" dstkey=");
            write::hex16(out, dst);
            out.push(b' ');
        }
        _ => {}
    }
}

/// The zone, when it holds for just this direction (`None` = both) and is not the default one.
fn zone(out: &mut Vec<u8>, zone: Zone, direction: Option<Direction>, key: &[u8]) {
    if zone.id != 0 && zone.direction == direction {
        field(out, key, Some(zone.id));
    }
}

fn counters(out: &mut Vec<u8>, counters: Option<Counters>) {
    field(out, b"packets=", counters.map(|c| c.packets));
    field(out, b"bytes=", counters.map(|c| c.bytes));
}

/// Only one of the three is shown: an offloaded entry is assured, too.
fn fate(status: Status) -> &'static [u8] {
    if status.contains(Status::HW_OFFLOAD) {
        b"[HW_OFFLOAD] "
    } else if status.contains(Status::OFFLOAD) {
        b"[OFFLOAD] "
    } else if status.contains(Status::ASSURED) {
        b"[ASSURED] "
    } else {
        b""
    }
}

fn field(out: &mut Vec<u8>, key: &[u8], value: Option<impl itoa::Integer>) {
    if let Some(value) = value {
        out.extend_from_slice(key);
        write::number(out, value);
        out.push(b' ');
    }
}

fn foreign(out: &mut Vec<u8>, key: &[u8], value: Option<&str>) {
    if let Some(value) = value {
        out.extend_from_slice(key);
        safe::text(out, value);
        out.push(b' ');
    }
}
