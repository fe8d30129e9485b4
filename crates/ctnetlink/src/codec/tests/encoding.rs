//! Attributes of encoded requests.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer};

use super::{UDP, bytes};
use crate::codec::attr::Attributes;
use crate::codec::encode::{self, DeleteTarget};
use crate::codec::{decode, insert::insert};
use crate::filter::{DumpFilter, Masked, TableKind, TupleMatch};
use crate::flow::{Direction, Family, Flow, Status, Zone};

/// Fields of the header, and types of the top-level attributes.
fn request(message: &[u8]) -> (u16, u16, u8, Vec<u16>) {
    let header = NetlinkBuffer::new_checked(message).unwrap();
    assert_eq!(
        (header.length() as usize, message.len() % 4),
        (message.len(), 0)
    );
    assert_eq!(header.sequence_number(), 9);
    let attributes = Attributes::new(&message[20..]).map(|a| a.kind).collect();
    (
        header.message_type(),
        header.flags(),
        message[16],
        attributes,
    )
}

#[test]
fn delete_always_has_a_reply_tuple_and_never_an_original_one() {
    let flow = decode::flow(&bytes(UDP)).unwrap();
    let zoned = |id, direction| Zone { id, direction };
    for (zone, kinds) in [
        (zoned(0, None), &[2, 12][..]),
        (zoned(5, None), &[2, 12, 18]),
        (zoned(5, Some(Direction::Reply)), &[2, 12, 18]),
        // With a zone of the other direction the kernel would not find the entry.
        (zoned(5, Some(Direction::Original)), &[2, 12]),
    ] {
        let mut out = Vec::new();
        encode::delete(&mut out, 9, &DeleteTarget::new(flow.reply, 7, zone));
        let expected = (0x0102, NLM_F_REQUEST, 2, kinds.to_vec());
        assert_eq!(request(&out), expected, "{zone:?}");
        // A dump flag on a delete would flush the table.
        assert_eq!(expected.1 & NLM_F_DUMP, 0);
    }
    let mut nameless = flow;
    nameless.id = None;
    assert_eq!(DeleteTarget::of(&nameless), None);
}

#[test]
fn dump_has_only_the_conditions_that_the_kernel_applies_correctly() {
    let any = TupleMatch::default();
    let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let dns = TupleMatch {
        src: ip("10.0.0.1"),
        protocol: Some(17),
        dport: Some(53),
        ..any
    };
    let masked = |value, mask| Some(Masked { value, mask });
    let asked = |family, original, reply| DumpFilter {
        family,
        original,
        reply,
        ..DumpFilter::default()
    };
    let (v4, v6) = (Some(Family::Ipv4), Some(Family::Ipv6));
    let of6 = TupleMatch {
        src: ip("fd00::1"),
        ..any
    };
    let portless = TupleMatch {
        dport: Some(53),
        ..any
    };
    for (name, filter, family, kinds) in [
        ("nothing", asked(None, any, any), 0, &[][..]),
        ("tuples", asked(v4, dns, dns), 2, &[1, 2, 25]),
        ("reply only", asked(v4, any, dns), 2, &[2, 25]),
        ("tuple without family", asked(None, dns, any), 0, &[]),
        ("IPv6 address", asked(v6, of6, any), 10, &[]),
        (
            "address of the other family",
            asked(v6, dns, any),
            10,
            &[1, 25],
        ),
        ("port without protocol", asked(v4, portless, any), 2, &[]),
        (
            "mark, status, zone",
            DumpFilter {
                mark: masked(1, 1),
                status: masked(2, 2),
                zone: Some(0),
                ..DumpFilter::default()
            },
            0,
            &[8, 21, 3, 26, 18],
        ),
        (
            "status without mask",
            DumpFilter {
                status: masked(0, 0),
                ..DumpFilter::default()
            },
            0,
            &[],
        ),
    ] {
        let mut out = Vec::new();
        encode::dump(&mut out, 9, TableKind::Conntrack, &filter);
        let expected = (0x0101, NLM_F_REQUEST | NLM_F_DUMP, family, kinds.to_vec());
        assert_eq!(request(&out), expected, "{name}");
        out.clear();
        encode::dump(&mut out, 9, TableKind::Dying, &filter);
        assert_eq!(request(&out).3, [0; 0], "{name}, dying");
    }
}

#[test]
fn insert_translates_only_with_a_status_bit_of_translation() {
    let mut flow = decode::flow(&bytes(UDP)).unwrap();
    let kinds = |flow: &Flow| {
        let mut out = Vec::new();
        insert(&mut out, 9, flow).unwrap();
        let sent = decode::flow(&out[16..]).unwrap();
        (request(&out), sent)
    };
    let ((kind, flags, _, attributes), sent) = kinds(&flow);
    assert_eq!(
        (kind, flags),
        (0x0100, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL)
    );
    assert_eq!(attributes, [1, 2, 13, 6, 3, 7, 8, 18]);
    // The kernel starts from the untranslated reply.
    assert_eq!(sent.reply.source(), flow.original.destination());
    flow.status = flow.status.without(Status::DST_NAT);
    let ((.., attributes), sent) = kinds(&flow);
    assert_eq!(attributes, [1, 2, 3, 7, 8, 18]);
    assert_eq!(sent.reply, flow.reply);

    flow.timeout = None;
    let mut out = Vec::new();
    assert!(insert(&mut out, 9, &flow).is_err());
    assert!(out.is_empty(), "nothing is left behind by a refused flow");
}
