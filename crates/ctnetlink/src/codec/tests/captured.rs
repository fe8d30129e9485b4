//! Messages captured from the kernel.

use netlink_packet_core::ParseableParametrized;
use netlink_packet_netfilter::conntrack::{
    ConntrackAttribute, ConntrackMessage, IPTuple, ProtoInfo, ProtoInfoTCP, ProtoTuple,
    Tuple as CrateTuple,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner};

use super::{CAPTURED, bytes, tuple};
use crate::codec::decode;
use crate::flow::{
    Counters, Direction, Flow, L4, ProtocolState, Status, TcpDirection, Tuple, Zone,
};

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
fn captured_messages_are_decoded_completely() {
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
        // conntrack 1.4.7 sends the tags in host byte order.
        vtag_original: Some(17 << 24),
        vtag_reply: Some(34 << 24),
    });

    // The directions have different types.
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

/// Compares with the values that the netlink crate decodes.
#[test]
fn netlink_crate_decodes_the_same_values() {
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
