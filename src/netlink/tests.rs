//! Decoder and encoder over bytes: captured from the kernel, built by hand, mutated, random.

use std::net::IpAddr;

use netlink_packet_core::ParseableParametrized;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer};
use netlink_packet_netfilter::conntrack::{
    ConntrackAttribute, ConntrackMessage, IPTuple, ProtoInfo, ProtoInfoTCP, ProtoTuple,
    Tuple as CrateTuple,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner};
use proptest::prelude::*;

use super::attr::{Attribute, Attributes, Writer};
use super::socket::{Message, Messages};
use super::{DeleteTarget, DumpFilter, Masked, TableKind, TupleMatch, decode, encode, expect};
use crate::flow::{
    Counters, Direction, Family, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple, Zone,
};
use decode::DecodeError;

/// Linux 6.18: UDP, DNAT, mark, zone, accounting and timestamps on.
const UDP: &str = "020000003400018014000180080001000af40209080002000a60000a1c0002800500010011000000060002009cbb000006000300003500003400028014000180080001000af40107080002000af402091c00028005000100110000000600020000350000060003009cbb0000060012000005000008000300000001ae080008000000001008000c003f452d1d08000b000000000108000700000000771c0009800c00010000000000000000000c00020000000000000000001c000a800c00010000000000000000000c0002000000000000000000100014800c00010018eca5913cf915451c001880080001000000000008000200000000000800030000000000";
const GRE: &str = "020000003400018014000180080001000a000001080002000a0000021c000280050001002f000000060002000011000006000300002200003400028014000180080001000a000002080002000a0000011c000280050001002f000000060002000022000006000300001100000800030000000008080008000000000008000c000ad1e79008000b0000000001080007000000001e1c001880080001000000000008000200000000000800030000000000";
const TCP6: &str = "0a0000004c0001802c0001801400030020010db80000000000000000000000011400040020010db80000000000000000000000021c000280050001000600000006000200c35000000600030001bb00004c0002802c0001801400030020010db80000000000000000000000021400040020010db80000000000000000000000011c00028005000100060000000600020001bb000006000300c3500000080003000000000e080008000000000008000c00d9040f5908000b0000000001080007000006977f300004802c000180050001000300000005000200000000000500030000000000060004000a000000060005000a0000001c001880080001000000000008000200000000000800030000000000";
/// In zone 7 of the original direction.
const SCTP: &str = "020000003c00018014000180080001000a000001080002000a0000021c00028005000100840000000600020000010000060003000f1c000006000300000700003400028014000180080001000a000002080002000a0000011c0002800500010084000000060002000f1c000006000300000100000800030000000008080008000000000008000c004d49175e08000b0000000001080007000000001d200004801c0003800500010002000000080002001100000008000300220000001c001880080001000000000008000200000000000800030000000000";
const ICMPV6: &str = "0a000000540001802c0001801400030020010db80000000000000000000000011400040020010db800000000000000000000000224000280050001003a000000060007000009000005000800800000000500090000000000540002802c0001801400030020010db80000000000000000000000021400040020010db800000000000000000000000124000280050001003a0000000600070000090000050008008100000005000900000000000800030000000008080008000000000008000c00cd56136f08000b0000000001080007000000001b1c001880080001000000000008000200000000000800030000000000";
const CAPTURED: [&str; 5] = [UDP, GRE, TCP6, SCTP, ICMPV6];

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    hex.as_bytes()
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn tuple(protocol: u8, src: &str, dst: &str, l4: L4) -> Tuple {
    Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        l4,
    }
}

fn expected(original: Tuple, reply: Tuple, status: u32, timeout: u32, id: u32) -> Flow {
    let mut flow = Flow::new(original, reply);
    flow.status = Status(status);
    flow.timeout = Some(timeout);
    flow.mark = Some(0);
    flow.id = Some(id);
    flow.use_count = Some(1);
    flow
}

#[test]
fn captured_messages_are_read_completely() {
    let ports = |src, dst| L4::Ports { src, dst };
    let icmp = |kind| L4::Icmp {
        kind,
        code: 0,
        id: 9,
    };
    let (a, b) = ("10.0.0.1", "10.0.0.2");
    let (a6, b6) = ("2001:db8::1", "2001:db8::2");
    let zero = Counters {
        packets: 0,
        bytes: 0,
    };

    let mut udp = expected(
        tuple(17, "10.244.2.9", "10.96.0.10", ports(40123, 53)),
        tuple(17, "10.244.1.7", "10.244.2.9", ports(53, 40123)),
        0x1ae,
        119,
        0x3f45_2d1d,
    );
    udp.mark = Some(16);
    udp.zone.id = 5;
    (udp.counters_original, udp.counters_reply) = (Some(zero), Some(zero));
    udp.start = Some(0x18ec_a591_3cf9_1545);

    let gre = expected(
        tuple(47, a, b, L4::Gre { src: 17, dst: 34 }),
        tuple(47, b, a, L4::Gre { src: 34, dst: 17 }),
        8,
        30,
        0x0ad1_e790,
    );

    let mut tcp = expected(
        tuple(6, a6, b6, ports(50000, 443)),
        tuple(6, b6, a6, ports(443, 50000)),
        0x0e,
        431_999,
        0xd904_0f59,
    );
    let side = TcpDirection {
        flags: Some(0x0a),
        window_scale: Some(0),
    };
    tcp.state = Some(ProtocolState::Tcp {
        state: 3,
        original: side,
        reply: side,
    });

    let mut sctp = expected(
        tuple(132, a, b, ports(1, 3868)),
        tuple(132, b, a, ports(3868, 1)),
        8,
        29,
        0x4d49_175e,
    );
    sctp.zone = Zone {
        id: 7,
        direction: Some(Direction::Original),
    };
    sctp.state = Some(ProtocolState::Sctp {
        state: 2,
        // conntrack 1.4.7 sends the tags in the byte order of the machine.
        vtag_original: Some(17 << 24),
        vtag_reply: Some(34 << 24),
    });

    // C22: each direction keeps its own type.
    let icmpv6 = expected(
        tuple(58, a6, b6, icmp(128)),
        tuple(58, b6, a6, icmp(129)),
        8,
        27,
        0xcd56_136f,
    );

    for (hex, flow) in CAPTURED.iter().zip([udp, gre, tcp, sctp, icmpv6]) {
        assert_eq!(decode::flow(&bytes(hex)), Ok(flow));
    }
}

/// A UDP entry, and what `more` adds.
fn built(more: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut message = vec![2, 0, 0, 0];
    let mut writer = Writer::new(&mut message);
    for (kind, src, dst) in [(1, 1, 2), (2, 2, 1)] {
        writer.nested(kind, |w| {
            w.nested(1, |w| {
                w.put(1, &[10, 0, 0, src]);
                w.put(2, &[10, 0, 0, dst]);
            });
            w.nested(2, |w| {
                w.u8(1, 17);
                w.be16(2, u16::from(src));
                w.be16(3, u16::from(dst));
            });
        });
    }
    more(&mut writer);
    message
}

fn read(more: impl FnOnce(&mut Writer<'_>)) -> Flow {
    decode::flow(&built(more)).unwrap()
}

#[test]
fn c17_offloaded_entries_without_timer_and_state_are_read() {
    for (bit, state) in [(1 << 14, None), (1 << 15, None), (1 << 15, Some(3))] {
        let flow = read(|w| {
            w.be32(3, bit);
            if let Some(state) = state {
                w.nested(4, |w| w.nested(1, |w| w.u8(1, state)));
            }
        });
        assert!(flow.status.is_offloaded());
        assert_eq!(
            (flow.timeout, flow.state.map(ProtocolState::number)),
            (None, state)
        );
    }
}

#[test]
fn c23_missing_and_new_attributes_fail_nothing() {
    let state = |number| {
        read(|w| w.nested(4, |w| w.nested(1, |w| w.u8(1, number))))
            .state
            .unwrap()
    };
    let bare = TcpDirection::default();
    assert_eq!(
        state(8),
        ProtocolState::Tcp {
            state: 8,
            original: bare,
            reply: bare
        }
    );
    assert_eq!((state(8).name(), state(42).name()), (Some("CLOSE"), None));

    let padded = read(|w| {
        w.nested(9, |w| {
            w.put(5, &[]);
            w.put(1, &7u64.to_be_bytes());
            w.put(2, &700u64.to_be_bytes());
            w.put(5, &[0; 4]);
        });
        w.put(99, &[1; 8]);
    });
    assert_eq!(
        padded.counters_original,
        Some(Counters {
            packets: 7,
            bytes: 700
        })
    );
    assert_eq!(padded.counters_reply, None);

    let nothing = read(|_| {});
    assert_eq!((nothing.status, nothing.zone), (Status(0), Zone::default()));
    assert!(nothing.mark.is_none() && nothing.id.is_none() && nothing.rare.is_none());
    // Values shorter than they should be are absent.
    let short = read(|w| {
        for kind in [3, 7, 8, 11, 12, 18, 22] {
            w.put(kind, &[]);
        }
    });
    assert_eq!(short, nothing);
}

#[test]
fn broken_messages_are_errors_with_a_reason() {
    let whole = built(|w| w.be32(7, 1));
    let no_reply = {
        let mut message = built(|_| {});
        message.truncate(4 + 52);
        message
    };
    let tail = |tail: &[u8]| [&whole[..], tail].concat();
    for (name, message, error) in [
        ("empty", vec![], DecodeError::Short),
        (
            "no attribute",
            vec![2, 0, 0, 0],
            DecodeError::NoTuple(Direction::Original),
        ),
        ("no reply", no_reply, DecodeError::NoTuple(Direction::Reply)),
        ("length 2", tail(&[2, 0, 8, 0]), DecodeError::Broken),
        (
            "beyond the end",
            tail(&[12, 0, 8, 0, 1, 1, 1, 1]),
            DecodeError::Broken,
        ),
        (
            "broken nest",
            tail(&[8, 0, 9, 0x80, 9, 0, 1, 0]),
            DecodeError::Broken,
        ),
    ] {
        assert_eq!(decode::flow(&message), Err(error), "{name}");
    }
}

#[test]
fn seldom_attributes_are_kept() {
    let flow = read(|w| {
        w.put(22, &[0xfe, 0, 2]);
        w.nested(5, |w| w.text(1, "ftp"));
        w.nested(19, |w| w.text(1, "system_u:object_r:x"));
        w.nested(20, |w| {
            w.put(1, &5u64.to_be_bytes());
            w.put(2, &6u64.to_be_bytes());
        });
        w.nested(15, |w| {
            w.be32(1, 1);
            w.be32(2, 2);
            w.be32(3, 3);
        });
        // One of three: not an adjustment.
        w.nested(16, |w| w.be32(1, 1));
        w.nested(14, |w| {
            w.nested(1, |w| {
                w.put(1, &[10, 0, 0, 8]);
                w.put(2, &[10, 0, 0, 9]);
            });
            w.nested(2, |w| w.u8(1, 6));
        });
    });
    let rare = flow.rare.as_deref().unwrap();
    let mut labels = [0; 16];
    labels[..3].copy_from_slice(&[0xfe, 0, 2]);
    assert_eq!(flow.labels(), Some(&labels));
    assert_eq!(
        (flow.helper(), flow.secctx()),
        (Some("ftp"), Some("system_u:object_r:x"))
    );
    assert_eq!((flow.start, rare.stop), (Some(5), Some(6)));
    assert_eq!(
        rare.master,
        Some(tuple(6, "10.0.0.8", "10.0.0.9", L4::None))
    );
    let adjustment = SeqAdj {
        correction_pos: 1,
        offset_before: 2,
        offset_after: 3,
    };
    assert_eq!(rare.seq_adj_original, Some(adjustment));
    assert_eq!(rare.seq_adj_reply, None);
}

/// C58: labels verbatim; none, or an impossible length, is no labels.
#[test]
fn c58_labels_are_verbatim_or_absent() {
    let labels = |value: &[u8]| read(|w| w.put(22, value)).labels().copied();
    let all: [u8; 16] = std::array::from_fn(|n| n as u8);
    assert_eq!(labels(&all), Some(all));
    assert_eq!((labels(&[]), labels(&[1; 17])), (None, None));
}

#[test]
fn old_counters_and_protocols_without_ports_are_read() {
    let old = read(|w| {
        w.nested(10, |w| {
            w.be32(3, 3);
            w.be32(4, 300);
        });
    });
    assert_eq!(
        old.counters_reply,
        Some(Counters {
            packets: 3,
            bytes: 300
        })
    );
    let l4 = |fill: &dyn Fn(&mut Writer<'_>)| {
        let mut own = Vec::new();
        let mut writer = Writer::new(&mut own);
        writer.nested(1, |w| {
            w.put(1, &[10, 0, 0, 8]);
            w.put(2, &[10, 0, 0, 9]);
        });
        writer.nested(2, |w| fill(w));
        let (tuple, zone) = decode::tuple(Attribute {
            kind: 1,
            value: &own,
        })
        .unwrap();
        assert_eq!(zone, None);
        tuple.map(|tuple| tuple.l4)
    };
    let with = |protocol: u8, kinds: &'static [u16]| {
        l4(&move |w| {
            w.u8(1, protocol);
            for kind in kinds {
                w.be16(*kind, 0x0102);
            }
        })
    };
    let both = (0x0102, 0x0102);
    assert_eq!(with(89, &[]), Some(L4::None));
    assert_eq!(with(33, &[]), Some(L4::None), "DCCP without its tracker");
    assert_eq!(
        with(33, &[2, 3]),
        Some(L4::Ports {
            src: both.0,
            dst: both.1
        })
    );
    assert_eq!(
        with(47, &[2, 3]),
        Some(L4::Gre {
            src: both.0,
            dst: both.1
        })
    );
    assert_eq!(with(47, &[]), Some(L4::None));
    assert_eq!(with(1, &[]), Some(L4::None));
    assert_eq!(with(17, &[2]), Some(L4::None));
    assert_eq!(l4(&|w| w.be16(2, 1)), None, "no protocol, no tuple");
}

#[test]
fn an_expectation_without_its_tuples_is_an_error() {
    assert_eq!(expect::expectation(&[]), Err(DecodeError::Short));
    assert_eq!(
        expect::expectation(&[2, 0, 0, 0]),
        Err(DecodeError::NoExpectedTuple)
    );
    // Attributes 1 and 2 of an entry are master and tuple of an expectation.
    let mut message = built(|_| {});
    Writer::new(&mut message).text(6, "sip");
    let read = expect::expectation(&message).unwrap();
    assert_eq!(
        (read.master.sport(), read.tuple.sport()),
        (Some(1), Some(2))
    );
    assert_eq!(
        (read.helper.as_deref(), read.mask, read.id),
        (Some("sip"), None, None)
    );
}

/// What the netlink crate decodes, it must read as we do.
#[test]
fn the_crates_decoder_reads_the_same_values() {
    for hex in CAPTURED {
        let message = bytes(hex);
        let ours = decode::flow(&message).unwrap();
        let theirs = NetfilterMessage::parse_with_param(&message, 0x0100).unwrap();
        let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = theirs.inner
        else {
            panic!("not a new entry");
        };
        let mut compared = 0;
        for attribute in attributes {
            match attribute {
                ConntrackAttribute::CtaTupleOrig(parts) => same_tuple(&parts, &ours.original),
                ConntrackAttribute::CtaTupleReply(parts) => same_tuple(&parts, &ours.reply),
                ConntrackAttribute::CtaStatus(bits) => assert_eq!(bits.bits(), ours.status.0),
                ConntrackAttribute::CtaTimeout(n) => assert_eq!(Some(n), ours.timeout),
                ConntrackAttribute::CtaMark(n) => assert_eq!(Some(n), ours.mark),
                ConntrackAttribute::CtaProtoInfo(info) => same_state(&info, ours.state),
                _ => continue,
            }
            compared += 1;
        }
        assert!(compared >= 5, "{compared}");
    }
}

fn same_tuple(theirs: &[CrateTuple], ours: &Tuple) {
    for part in theirs {
        match part {
            CrateTuple::Ip(addresses) => {
                for address in addresses {
                    match address {
                        IPTuple::SourceAddress(a) => assert_eq!(*a, ours.src),
                        IPTuple::DestinationAddress(a) => assert_eq!(*a, ours.dst),
                        other => panic!("{other:?}"),
                    }
                }
            }
            CrateTuple::Proto(parts) => {
                let ports = match ours.l4 {
                    L4::Ports { src, dst } | L4::Gre { src, dst } => Some((src, dst)),
                    _ => None,
                };
                for part in parts {
                    match part {
                        ProtoTuple::Protocol(p) => assert_eq!(u8::from(*p), ours.protocol),
                        ProtoTuple::SourcePort(n) => assert_eq!(Some(*n), ports.map(|p| p.0)),
                        ProtoTuple::DestinationPort(n) => assert_eq!(Some(*n), ports.map(|p| p.1)),
                        _ => assert_eq!(ports, None),
                    }
                }
            }
            _ => {}
        }
    }
}

fn same_state(theirs: &[ProtoInfo], ours: Option<ProtocolState>) {
    let [ProtoInfo::TCP(parts)] = theirs else {
        return;
    };
    let Some(ProtocolState::Tcp {
        state,
        original,
        reply,
    }) = ours
    else {
        panic!("{ours:?}");
    };
    for part in parts {
        match part {
            ProtoInfoTCP::State(n) => assert_eq!(*n, state),
            ProtoInfoTCP::OriginalWindowScale(n) => assert_eq!(Some(*n), original.window_scale),
            ProtoInfoTCP::ReplyWindowScale(n) => assert_eq!(Some(*n), reply.window_scale),
            ProtoInfoTCP::OriginalFlags(f) => assert_eq!(Some(f.flags), original.flags),
            ProtoInfoTCP::ReplyFlags(f) => assert_eq!(Some(f.flags), reply.flags),
            other => panic!("{other:?}"),
        }
    }
}

/// Header fields and the kinds of the top-level attributes.
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
fn a_delete_always_carries_a_reply_tuple_and_never_an_original_one() {
    let flow = decode::flow(&bytes(UDP)).unwrap();
    let zoned = |id, direction| Zone { id, direction };
    for (zone, kinds) in [
        (zoned(0, None), &[2, 12][..]),
        (zoned(5, None), &[2, 12, 18]),
        (zoned(5, Some(Direction::Reply)), &[2, 12, 18]),
        // With a zone of the other direction the kernel would not find it.
        (zoned(5, Some(Direction::Original)), &[2, 12]),
    ] {
        let mut out = Vec::new();
        encode::delete(&mut out, 9, &DeleteTarget::new(flow.reply, 7, zone));
        let wanted = (0x0102, NLM_F_REQUEST, 2, kinds.to_vec());
        assert_eq!(request(&out), wanted, "{zone:?}");
        // A dump flag on a delete would empty the table.
        assert_eq!(wanted.1 & NLM_F_DUMP, 0);
    }
    let mut nameless = flow;
    nameless.id = None;
    assert_eq!(DeleteTarget::of(&nameless), None);
}

#[test]
fn a_dump_asks_only_for_what_the_kernel_gets_right() {
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
        let wanted = (0x0101, NLM_F_REQUEST | NLM_F_DUMP, family, kinds.to_vec());
        assert_eq!(request(&out), wanted, "{name}");
        out.clear();
        encode::dump(&mut out, 9, TableKind::Dying, &filter);
        assert_eq!(request(&out).3, [0; 0], "{name}, dying");
    }
}

#[test]
fn an_insert_translates_only_where_the_status_says_so() {
    let mut flow = decode::flow(&bytes(UDP)).unwrap();
    let kinds = |flow: &Flow| {
        let mut out = Vec::new();
        encode::insert(&mut out, 9, flow).unwrap();
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
    assert!(encode::insert(&mut out, 9, &flow).is_err());
    assert!(out.is_empty(), "nothing is left behind by a refused flow");
}

fn any_address(v6: bool) -> BoxedStrategy<IpAddr> {
    if v6 {
        any::<[u8; 16]>().prop_map(IpAddr::from).boxed()
    } else {
        any::<[u8; 4]>().prop_map(IpAddr::from).boxed()
    }
}

fn any_l4(protocol: u8) -> BoxedStrategy<L4> {
    let pair = any::<(u16, u16)>();
    match protocol {
        1 | 58 => any::<(u8, u8, u16)>()
            .prop_map(|(kind, code, id)| L4::Icmp { kind, code, id })
            .boxed(),
        47 => pair.prop_map(|(src, dst)| L4::Gre { src, dst }).boxed(),
        89 => Just(L4::None).boxed(),
        _ => pair.prop_map(|(src, dst)| L4::Ports { src, dst }).boxed(),
    }
}

fn any_tuples() -> impl Strategy<Value = (Tuple, Tuple)> {
    let protocol = prop::sample::select(vec![1u8, 6, 17, 33, 47, 58, 89, 132, 136]);
    (any::<bool>(), protocol).prop_flat_map(|(v6, protocol)| {
        let one = move || {
            (any_address(v6), any_address(v6), any_l4(protocol)).prop_map(move |(src, dst, l4)| {
                Tuple {
                    src,
                    dst,
                    protocol,
                    l4,
                }
            })
        };
        (one(), one())
    })
}

fn any_state() -> impl Strategy<Value = Option<ProtocolState>> {
    let side = any::<(Option<u8>, Option<u8>)>().prop_map(|(flags, window_scale)| TcpDirection {
        flags,
        window_scale,
    });
    let tcp =
        (any::<u8>(), side.clone(), side).prop_map(|(state, original, reply)| ProtocolState::Tcp {
            state,
            original,
            reply,
        });
    let sctp = any::<(u8, u32, u32)>().prop_map(|(state, a, b)| ProtocolState::Sctp {
        state,
        vtag_original: Some(a),
        vtag_reply: Some(b),
    });
    let dccp = any::<(u8, u8)>().prop_map(|(state, role)| ProtocolState::Dccp {
        state,
        role: Some(role),
    });
    prop::option::of(prop_oneof![tcp, sctp, dccp])
}

/// Flows that nobody translates, made of what an insert carries.
fn any_flow() -> impl Strategy<Value = Flow> {
    let direction = prop::sample::select(vec![
        None,
        Some(Direction::Original),
        Some(Direction::Reply),
    ]);
    let zone = (1u16.., direction).prop_map(|(id, direction)| Zone { id, direction });
    let zone = prop_oneof![Just(Zone::default()), zone];
    let adjustment = prop::option::of(any::<(u32, u32, u32)>().prop_map(|(a, b, c)| SeqAdj {
        correction_pos: a,
        offset_before: b,
        offset_after: c,
    }));
    let rare = (
        prop::option::of(any::<[u8; 16]>()),
        prop::option::of("[a-z]{1,15}"),
        adjustment,
    );
    (
        any_tuples(),
        zone,
        any_state(),
        any::<(u32, Option<u32>, bool)>(),
        rare,
    )
        .prop_map(
            |(
                (original, reply),
                zone,
                state,
                (timeout, mark, replied),
                (labels, helper, adjusted),
            )| {
                let mut flow = Flow::new(original, reply);
                flow.zone = zone;
                flow.state = state;
                (flow.timeout, flow.mark) = (Some(timeout), mark);
                if replied {
                    flow.status = flow.status.with(Status::SEEN_REPLY);
                }
                if labels.is_some() || helper.is_some() || adjusted.is_some() {
                    let rare = flow.rare_mut();
                    rare.labels = labels;
                    rare.helper = helper.map(Into::into);
                    rare.seq_adj_reply = adjusted;
                }
                flow
            },
        )
}

proptest! {
    #[test]
    fn a_flow_that_is_encoded_and_decoded_is_the_same(flow in any_flow()) {
        let mut out = Vec::new();
        encode::insert(&mut out, 1, &flow).unwrap();
        prop_assert_eq!(decode::flow(&out[16..]), Ok(flow));
    }

    #[test]
    fn a_mutated_message_never_panics(
        which in 0..CAPTURED.len(),
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..8),
    ) {
        let mut message = bytes(CAPTURED[which]);
        for (at, bits) in flips {
            let at = at.index(message.len());
            message[at] ^= bits;
        }
        message.truncate(cut.index(message.len() + 1));
        let _ = decode::flow(&message);
        let _ = expect::expectation(&message);
    }

    #[test]
    fn a_cut_message_is_never_taken_for_another(which in 0..CAPTURED.len(), cut in any::<prop::sample::Index>()) {
        let whole = bytes(CAPTURED[which]);
        let cut = cut.index(whole.len());
        if let Ok(flow) = decode::flow(&whole[..cut]) {
            // Cut between two attributes: what is left is true.
            let full = decode::flow(&whole).unwrap();
            prop_assert_eq!((flow.original, flow.reply), (full.original, full.reply));
            prop_assert!(flow.timeout.is_none() || flow.timeout == full.timeout);
        }
    }

    #[test]
    fn random_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode::flow(&noise);
        let _ = expect::expectation(&noise);
        let _ = Messages::over(&noise).count();
    }

    #[test]
    fn random_datagrams_end(lengths in prop::collection::vec((0u32..80, 0u16..5), 0..20)) {
        let mut datagram = Vec::new();
        for (length, kind) in lengths {
            datagram.extend(length.to_ne_bytes());
            datagram.extend(kind.to_ne_bytes());
            datagram.resize(datagram.len() + 14, 0);
        }
        for message in Messages::over(&datagram) {
            if let Ok(Message::Data { payload, .. }) = message {
                let _ = decode::flow(payload);
            }
        }
    }
}
