//! Cells of the tables of entries: names where they are known, else addresses.
//!
//! A cell that writes nothing is absent; the layout shows it as `-`.

use crate::attribution::Party;
use crate::verdict::{Reason, Refreshing, Verdict};
use ctnetlink::flow::{AddressPort, L4, ProtocolState, Status};

use super::color::Style;
use super::row::Row;
use super::{escape, write};

pub(super) fn protocol(row: &Row<'_>, out: &mut Vec<u8>) {
    write::protocol(out, row.flow.protocol());
}

/// The tracker's state for TCP, SCTP and DCCP; unreplied, replied or assured for other protocols. An offloaded entry is
/// always marked, because its state and counters do not change.
pub(super) fn state(row: &Row<'_>, out: &mut Vec<u8>) {
    let state = row.flow.state;
    state_word(
        state.map(|state| (state.name(), state.number())),
        row.flow.status,
        out,
    );
}

/// [`state`] from the kernel's word and number of the state.
pub(super) fn state_word(
    state: Option<(Option<&'static str>, u8)>,
    status: Status,
    out: &mut Vec<u8>,
) {
    let offload: &[u8] = if status.contains(Status::HW_OFFLOAD) {
        b"hw-offload"
    } else {
        b"offload"
    };
    match (state, status.is_offloaded()) {
        (Some((word, number)), false) => write::state_word(out, word, number),
        (Some((word, number)), true) => {
            write::state_word(out, word, number);
            out.push(b',');
            out.extend_from_slice(offload);
        }
        (None, true) => out.extend_from_slice(offload),
        (None, false) if status.is_unreplied() => out.extend_from_slice(b"unreplied"),
        (None, false) if status.contains(Status::ASSURED) => out.extend_from_slice(b"assured"),
        (None, false) => out.extend_from_slice(b"replied"),
    }
}

pub(super) fn netns(row: &Row<'_>, out: &mut Vec<u8>) {
    super::escape::text(out, row.netns.unwrap_or(""));
}

/// Absent in the default zone; `5/reply` for a zone that holds in one direction.
pub(super) fn zone(row: &Row<'_>, out: &mut Vec<u8>) {
    let zone = row.flow.zone;
    if zone.id == 0 {
        return;
    }
    write::number(out, zone.id);
    if let Some(direction) = zone.direction {
        out.push(b'/');
        out.extend_from_slice(direction.name().as_bytes());
    }
}

/// `shop/web-1:40123`, `node1:40123`, `198.51.100.7:50001`.
pub(super) fn client(row: &Row<'_>, out: &mut Vec<u8>) {
    party(row.names.client.as_ref(), row.flow.original.source(), out);
}

/// [`client`], with the source that translation gave it: `shop/web-1:40123 as 192.0.2.11:50001`, or `node1:40123 as :16796`
/// where only the port changed.
pub(super) fn client_as_sent(row: &Row<'_>, out: &mut Vec<u8>) {
    client(row, out);
    if !row.flow.is_snat() {
        return;
    }
    out.extend_from_slice(b" as ");
    let sent = row.flow.reply.destination();
    match sent.port {
        Some(port) if sent.address == row.flow.original.src => {
            out.push(b':');
            write::number(out, port);
        }
        _ => write::address_port(out, sent),
    }
}

/// `kube-system/kube-dns:dns`, or the original destination where no Service matched.
pub(super) fn service(row: &Row<'_>, out: &mut Vec<u8>) {
    let destination = row.flow.original.destination();
    match &row.names.service {
        Some(service) if service.name.is_some() => {
            qualified(service.namespace, service.name, out);
            out.push(b':');
            match service.port {
                Some(port) => escape::text(out, port),
                None => write::number(out, service.port_number),
            }
        }
        _ => write::address_port(out, destination),
    }
}

/// Pod or node at the reply source, which is where the packets go, or its address.
pub(super) fn endpoint(row: &Row<'_>, out: &mut Vec<u8>) {
    let reason = row.verdict.map(|(_, reason)| reason);
    if is_untranslated(row, reason) {
        out.extend_from_slice(b"not translated");
        return;
    }
    let endpoint = row.names.endpoint.as_ref();
    party(
        endpoint.map(|endpoint| &endpoint.party),
        row.flow.reply.source(),
        out,
    );
    if endpoint.is_some_and(|endpoint| endpoint.manual && endpoint.party.name.is_none()) {
        out.extend_from_slice(b" (manual)");
    }
    let gone = matches!(reason, Some(Reason::EndpointGone | Reason::ServiceEmpty));
    if gone && endpoint.is_none() {
        out.extend_from_slice(b" (gone)");
    }
}

/// Whether the destination is a frontend of a Service and packets are sent to that address unchanged. An endpoint may own
/// the same address; such an entry is delivered correctly.
fn is_untranslated(row: &Row<'_>, reason: Option<Reason>) -> bool {
    match reason {
        Some(Reason::NoDnat | Reason::NoDnatNoEndpoint | Reason::NoDnatNoRule) => true,
        _ => row.names.service.is_some() && row.names.endpoint.is_none() && !row.flow.is_dnat(),
    }
}

fn party(party: Option<&Party<'_>>, address: AddressPort, out: &mut Vec<u8>) {
    match party {
        Some(party) if party.name.is_some() => {
            qualified(party.namespace, party.name, out);
            if let Some(port) = address.port {
                out.push(b':');
                write::number(out, port);
            }
        }
        _ => write::address_port(out, address),
    }
}

/// `namespace/name`, or the name alone (nodes have no namespace). Absent without a name.
pub(super) fn qualified(namespace: Option<&str>, name: Option<&str>, out: &mut Vec<u8>) {
    let Some(name) = name else {
        return;
    };
    if let Some(namespace) = namespace {
        escape::text(out, namespace);
        out.push(b'/');
    }
    escape::text(out, name);
}

pub(super) fn ttl(row: &Row<'_>, out: &mut Vec<u8>) {
    if let Some(timeout) = row.flow.timeout {
        write::duration(out, timeout.into());
    }
}

pub(super) fn age(row: &Row<'_>, out: &mut Vec<u8>) {
    if let Some(age) = row.age() {
        write::duration(out, age);
    }
}

/// `stale  endpoint-gone, refreshing`; `ok`; `-` where the destination is no frontend or no verdict was made.
pub(super) fn verdict(row: &Row<'_>, out: &mut Vec<u8>) {
    let refreshing = row.refreshing == Refreshing::Yes;
    let reason = match row.verdict {
        None | Some((Verdict::Unrelated, Reason::NoFrontend)) => {
            out.push(b'-');
            None
        }
        Some((verdict, reason)) => {
            out.extend_from_slice(verdict.name().as_bytes());
            (verdict != Verdict::Ok).then_some(reason)
        }
    };
    if let Some(reason) = reason {
        out.extend_from_slice(b"  ");
        out.extend_from_slice(reason.name().as_bytes());
    }
    if refreshing {
        let gap: &[u8] = if reason.is_some() { b", " } else { b"  " };
        out.extend_from_slice(gap);
        out.extend_from_slice(b"refreshing");
    }
}

pub(super) fn verdict_style(row: &Row<'_>) -> Style {
    match row.verdict.map(|(verdict, _)| verdict) {
        Some(Verdict::Ok) => Style::Good,
        Some(Verdict::Stale) => Style::Bad,
        Some(Verdict::Suspect | Verdict::Detached | Verdict::Pending | Verdict::Draining) => {
            Style::Warning
        }
        Some(Verdict::Unknown | Verdict::Unrelated) | None => Style::Faint,
    }
}

/// Result of a delete or restore with its error: `failed: Operation not permitted`.
pub(super) fn result(row: &Row<'_>, out: &mut Vec<u8>) {
    if let Some(result) = row.result {
        out.extend_from_slice(result.result.as_bytes());
        if let Some(error) = &result.error {
            out.extend_from_slice(b": ");
            escape::text(out, error);
        }
    }
}

pub(super) fn result_style(row: &Row<'_>) -> Style {
    match row.result.map(|result| result.result) {
        Some("deleted" | "restored") => Style::Good,
        Some("failed") => Style::Bad,
        _ => Style::Plain,
    }
}

/// Identifying fields of a protocol without ports, and the verification tags of SCTP.
pub(super) fn detail(row: &Row<'_>, out: &mut Vec<u8>) {
    match (row.flow.original.l4, row.flow.state) {
        (L4::Icmp { kind, code, id }, _) => {
            for (key, value) in [
                (&b"type="[..], u16::from(kind)),
                (b",code=", code.into()),
                (b",id=", id),
            ] {
                out.extend_from_slice(key);
                write::number(out, value);
            }
        }
        (L4::Gre { src, dst }, _) => {
            out.extend_from_slice(b"srckey=");
            write::hex16(out, src);
            out.extend_from_slice(b",dstkey=");
            write::hex16(out, dst);
        }
        (
            _,
            Some(ProtocolState::Sctp {
                vtag_original: Some(original),
                vtag_reply,
                ..
            }),
        ) => {
            out.extend_from_slice(b"vtag=");
            write::number(out, original);
            out.push(b'/');
            write::number(out, vtag_reply.unwrap_or(0));
        }
        _ => {}
    }
}
