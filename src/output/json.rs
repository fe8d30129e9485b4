//! Items of `-o json` and `-o jsonl`.
//!
//! Written by hand, because a listing of a million entries spends most of its time here and serde would write every key
//! separately. A test reads each field back with serde_json. Every item has every key; a field that does not apply or is not
//! known is null.

use std::fmt::Write;
use std::sync::OnceLock;

use crate::attribution::{EndpointName, Names, Party, ServiceName};
use ctnetlink::flow::{Counters, Direction, Family, Flow, L4, ProtocolState, Status, Tuple};

use super::row::Row;
use super::{escape, write};

/// Bytes of a long item without long names, so that the buffer grows at most once per item.
const TYPICAL_ITEM_LEN: usize = 1280;

/// Appends one item, without a line end.
pub(super) fn item(row: &Row<'_>, out: &mut Vec<u8>) {
    out.reserve(TYPICAL_ITEM_LEN);
    head(row, out);
    let (vtag_original, vtag_reply) = vtags(row.flow.state);
    out.extend_from_slice(b",\"original\":");
    tuple(
        out,
        &row.flow.original,
        vtag_original,
        row.flow.counters_original,
    );
    out.extend_from_slice(b",\"reply\":");
    tuple(out, &row.flow.reply, vtag_reply, row.flow.counters_reply);
    kernel_state(row, out);
    nat(row.flow, out);
    if row.verdict.is_none() && *row.names == Names::default() {
        // The same text in every item without a cluster.
        out.extend_from_slice(
            b",\"client\":null,\"service\":null,\"endpoint\":null,\"verdict\":null,\"reason\":null,\
              \"evidence\":null,\"refreshing\":\"",
        );
    } else {
        names(row, out);
        verdict(row, out);
    }
    out.extend_from_slice(row.refreshing.name().as_bytes());
    out.extend_from_slice(b"\",\"replies\":\"");
    out.extend_from_slice(row.replies.name().as_bytes());
    out.push(b'"');
    if let Some(netns) = row.netns {
        out.extend_from_slice(b",\"netns\":");
        text(out, Some(netns));
    }
    if let Some(result) = row.result {
        out.extend_from_slice(b",\"result\":\"");
        out.extend_from_slice(result.result.as_bytes());
        out.extend_from_slice(b"\",\"error\":");
        text(out, result.error.as_deref());
    }
    out.push(b'}');
}

/// The fields from `family` to `id`.
fn head(row: &Row<'_>, out: &mut Vec<u8>) {
    let flow = row.flow;
    out.extend_from_slice(prefix(flow.family(), flow.protocol()));
    write::number(out, flow.zone.id);
    // Here and below each arm appends its own text: a copy of known length is inlined.
    match flow.zone.direction {
        None => out.extend_from_slice(b",\"zone_direction\":null,\"id\":"),
        Some(Direction::Original) => {
            out.extend_from_slice(b",\"zone_direction\":\"original\",\"id\":");
        }
        Some(Direction::Reply) => {
            out.extend_from_slice(b",\"zone_direction\":\"reply\",\"id\":");
        }
    }
    optional(out, flow.id);
}

/// Text made on first use.
type LazyText = OnceLock<Box<[u8]>>;

/// Beginning of an item, up to the value of `zone`.
fn prefix(family: Family, protocol: u8) -> &'static [u8] {
    static PREFIXES: [[LazyText; 256]; 2] = [const { [const { LazyText::new() }; 256] }; 2];
    let [ipv4, ipv6] = &PREFIXES;
    let of_family = match family {
        Family::Ipv4 => ipv4,
        Family::Ipv6 => ipv6,
    };
    of_family[usize::from(protocol)].get_or_init(|| {
        let mut out = Vec::new();
        out.extend_from_slice(b"{\"family\":\"");
        out.extend_from_slice(family.name().as_bytes());
        out.extend_from_slice(b"\",\"protocol\":\"");
        write::protocol(&mut out, protocol);
        out.extend_from_slice(b"\",\"protocol_number\":");
        write::number(&mut out, protocol);
        out.extend_from_slice(b",\"zone\":");
        out.into()
    })
}

pub(super) fn tuple(
    out: &mut Vec<u8>,
    tuple: &Tuple,
    vtag: Option<u32>,
    counters: Option<Counters>,
) {
    out.extend_from_slice(b"{\"src\":\"");
    write::address(out, tuple.src);
    out.extend_from_slice(b"\",\"dst\":\"");
    write::address(out, tuple.dst);
    match tuple.l4 {
        L4::Ports { src, dst } => {
            out.extend_from_slice(b"\",\"sport\":");
            write::number(out, src);
            out.extend_from_slice(b",\"dport\":");
            write::number(out, dst);
            out.extend_from_slice(
                b",\"type\":null,\"code\":null,\"icmp_id\":null,\"srckey\":null,\"dstkey\":null,\"vtag\":",
            );
        }
        L4::Icmp { kind, code, id } => {
            out.extend_from_slice(b"\",\"sport\":null,\"dport\":null,\"type\":");
            write::number(out, kind);
            out.extend_from_slice(b",\"code\":");
            write::number(out, code);
            out.extend_from_slice(b",\"icmp_id\":");
            write::number(out, id);
            out.extend_from_slice(b",\"srckey\":null,\"dstkey\":null,\"vtag\":");
        }
        L4::Gre { src, dst } => {
            out.extend_from_slice(
                b"\",\"sport\":null,\"dport\":null,\"type\":null,\"code\":null,\"icmp_id\":null,\"srckey\":",
            );
            write::number(out, src);
            out.extend_from_slice(b",\"dstkey\":");
            write::number(out, dst);
            out.extend_from_slice(b",\"vtag\":");
        }
        L4::None => out.extend_from_slice(
            b"\",\"sport\":null,\"dport\":null,\"type\":null,\"code\":null,\"icmp_id\":null,\"srckey\":null,\
              \"dstkey\":null,\"vtag\":",
        ),
    }
    match (vtag, counters) {
        (None, None) => out.extend_from_slice(b"null,\"packets\":null,\"bytes\":null}"),
        (vtag, counters) => {
            optional(out, vtag);
            out.extend_from_slice(b",\"packets\":");
            optional(out, counters.map(|c| c.packets));
            out.extend_from_slice(b",\"bytes\":");
            optional(out, counters.map(|c| c.bytes));
            out.push(b'}');
        }
    }
}

/// The fields from `status` to `start`.
fn kernel_state(row: &Row<'_>, out: &mut Vec<u8>) {
    let flow = row.flow;
    out.extend_from_slice(b",\"status\":[");
    status(out, flow.status);
    out.extend_from_slice(b"],\"state\":");
    match flow.state {
        None => out.extend_from_slice(b"null"),
        Some(state) => {
            out.push(b'"');
            write::state(out, state);
            out.push(b'"');
        }
    }
    tcp_flags(row, out);
    out.extend_from_slice(b",\"timeout\":");
    optional(out, flow.timeout);
    out.extend_from_slice(b",\"mark\":");
    optional(out, flow.mark);
    if flow.rare.is_none() {
        out.extend_from_slice(
            b",\"labels\":null,\"helper\":null,\"master\":null,\"secctx\":null,\"use\":",
        );
    } else {
        out.extend_from_slice(b",\"labels\":");
        match flow.labels() {
            None => out.extend_from_slice(b"null"),
            Some(labels) => {
                out.push(b'"');
                write::labels(out, labels);
                out.push(b'"');
            }
        }
        out.extend_from_slice(b",\"helper\":");
        text(out, flow.helper());
        master(out, flow.master());
        out.extend_from_slice(b",\"secctx\":");
        text(out, flow.secctx());
        out.extend_from_slice(b",\"use\":");
    }
    optional(out, flow.use_count);
    match flow.start {
        None => out.extend_from_slice(b",\"start\":null"),
        Some(start) => {
            out.extend_from_slice(b",\"start\":\"");
            write::time(out, start);
            out.push(b'"');
        }
    }
}

/// Tuple of the connection whose helper expected the entry.
fn master(out: &mut Vec<u8>, master: Option<&Tuple>) {
    let Some(master) = master else {
        out.extend_from_slice(b",\"master\":null");
        return;
    };
    out.extend_from_slice(b",\"master\":{\"protocol\":\"");
    write::protocol(out, master.protocol);
    out.extend_from_slice(b"\",\"src\":\"");
    write::address(out, master.src);
    out.extend_from_slice(b"\",\"dst\":\"");
    write::address(out, master.dst);
    out.extend_from_slice(b"\",\"sport\":");
    optional(out, master.sport());
    out.extend_from_slice(b",\"dport\":");
    optional(out, master.dport());
    out.push(b'}');
}

/// The nine low status bits, which cover nearly all entries.
const COMMON: u32 = 0x1ff;

/// Inside of the JSON array for a set of the common bits.
fn common_status(common: u32) -> &'static [u8] {
    static STATUSES: [LazyText; COMMON as usize + 1] =
        [const { LazyText::new() }; COMMON as usize + 1];
    STATUSES[common as usize].get_or_init(|| {
        let names = Status(common).names().map(|name| format!("\"{name}\""));
        names.collect::<Vec<_>>().join(",").into_bytes().into()
    })
}

fn status(out: &mut Vec<u8>, status: Status) {
    let common = status.0 & COMMON;
    out.extend_from_slice(common_status(common));
    for (i, name) in Status(status.0 & !COMMON).names().enumerate() {
        out.extend_from_slice(if common != 0 || i > 0 { b",\"" } else { b"\"" });
        out.extend_from_slice(name.as_bytes());
        out.push(b'"');
    }
}

fn tcp_flags(row: &Row<'_>, out: &mut Vec<u8>) {
    const TCP: u8 = 6;
    if row.flow.protocol() != TCP {
        out.extend_from_slice(b",\"tcp_flags\":null");
        return;
    }
    let (original, reply) = match row.flow.state {
        Some(ProtocolState::Tcp {
            original, reply, ..
        }) => (original.flags, reply.flags),
        _ => (None, None),
    };
    out.extend_from_slice(b",\"tcp_flags\":{\"original\":");
    optional(out, original);
    out.extend_from_slice(b",\"reply\":");
    optional(out, reply);
    out.push(b'}');
}

fn vtags(state: Option<ProtocolState>) -> (Option<u32>, Option<u32>) {
    match state {
        Some(ProtocolState::Sctp {
            vtag_original,
            vtag_reply,
            ..
        }) => (vtag_original, vtag_reply),
        _ => (None, None),
    }
}

fn nat(flow: &Flow, out: &mut Vec<u8>) {
    let dnat = flow.is_dnat();
    match (flow.is_snat(), dnat) {
        (false, false) => out.extend_from_slice(b",\"nat\":[],\"hairpin\":"),
        (true, false) => out.extend_from_slice(b",\"nat\":[\"snat\"],\"hairpin\":"),
        (false, true) => out.extend_from_slice(b",\"nat\":[\"dnat\"],\"hairpin\":"),
        (true, true) => out.extend_from_slice(b",\"nat\":[\"snat\",\"dnat\"],\"hairpin\":"),
    }
    boolean(out, dnat && flow.is_hairpin());
}

fn names(row: &Row<'_>, out: &mut Vec<u8>) {
    match &row.names.client {
        None => out.extend_from_slice(b",\"client\":null"),
        Some(client) => {
            out.extend_from_slice(b",\"client\":");
            party(out, client);
            out.push(b'}');
        }
    }
    match &row.names.service {
        None => out.extend_from_slice(b",\"service\":null"),
        Some(found) => service(out, found),
    }
    match &row.names.endpoint {
        None => out.extend_from_slice(b",\"endpoint\":null"),
        Some(found) => endpoint(out, found),
    }
}

/// Appends a party without the closing brace: an endpoint has further fields.
fn party(out: &mut Vec<u8>, party: &Party<'_>) {
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(party.kind.name().as_bytes());
    out.extend_from_slice(b"\",\"namespace\":");
    text(out, party.namespace);
    out.extend_from_slice(b",\"name\":");
    text(out, party.name);
    out.extend_from_slice(b",\"node\":");
    text(out, party.node);
}

fn service(out: &mut Vec<u8>, service: &ServiceName<'_>) {
    out.extend_from_slice(b",\"service\":{\"namespace\":");
    text(out, service.namespace);
    out.extend_from_slice(b",\"name\":");
    text(out, service.name);
    out.extend_from_slice(b",\"port\":");
    text(out, service.port);
    out.extend_from_slice(b",\"frontend\":\"");
    out.extend_from_slice(service.frontend.name().as_bytes());
    out.extend_from_slice(b"\"}");
}

fn endpoint(out: &mut Vec<u8>, endpoint: &EndpointName<'_>) {
    out.extend_from_slice(b",\"endpoint\":");
    endpoint_fields(out, endpoint);
    out.push(b'}');
}

/// Appends an endpoint without the closing brace: a record has further fields.
pub(super) fn endpoint_fields(out: &mut Vec<u8>, endpoint: &EndpointName<'_>) {
    party(out, &endpoint.party);
    for (key, condition) in [
        (&b",\"ready\":"[..], endpoint.ready),
        (b",\"serving\":", endpoint.serving),
        (b",\"terminating\":", endpoint.terminating),
    ] {
        out.extend_from_slice(key);
        match condition {
            None => out.extend_from_slice(b"null"),
            Some(value) => boolean(out, value),
        }
    }
}

fn verdict(row: &Row<'_>, out: &mut Vec<u8>) {
    match row.verdict {
        None => out.extend_from_slice(b",\"verdict\":null,\"reason\":null"),
        Some((verdict, reason)) => {
            out.extend_from_slice(b",\"verdict\":\"");
            out.extend_from_slice(verdict.name().as_bytes());
            out.extend_from_slice(b"\",\"reason\":\"");
            out.extend_from_slice(reason.name().as_bytes());
            out.push(b'"');
        }
    }
    match row.evidence {
        None => out.extend_from_slice(b",\"evidence\":null,\"refreshing\":\""),
        Some(evidence) => {
            out.extend_from_slice(b",\"evidence\":\"");
            // Writing to a buffer cannot fail.
            let _ = write!(escape::EscapedJson(out), "{evidence}");
            out.extend_from_slice(b"\",\"refreshing\":\"");
        }
    }
}

pub(super) fn optional(out: &mut Vec<u8>, n: Option<impl Into<u64>>) {
    match n {
        None => out.extend_from_slice(b"null"),
        Some(n) => write::number(out, n),
    }
}

pub(super) fn text(out: &mut Vec<u8>, value: Option<&str>) {
    match value {
        None => out.extend_from_slice(b"null"),
        Some(value) => {
            out.push(b'"');
            escape::json(out, value);
            out.push(b'"');
        }
    }
}

fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests;
