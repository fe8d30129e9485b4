//! Flows for the tables of the tests.

use ctnetlink::flow::{
    Direction, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple, Zone,
};
pub use testkit::mixed::{ASSURED, REPLIED, ports, tuple};

/// Flow without translation and without a protocol state.
pub fn plain(original: Tuple, status: Status) -> Flow {
    let mut flow = Flow::new(original, original.inverted().unwrap());
    flow.status = status;
    flow.timeout = Some(3600);
    flow.mark = Some(0);
    flow
}

pub fn translated(original: Tuple, reply: Tuple, nat: Status) -> Flow {
    let mut flow = plain(original, ASSURED.with(nat));
    flow.reply = reply;
    flow
}

pub fn tcp_state(state: u8) -> ProtocolState {
    let side = TcpDirection {
        flags: Some(0x0b),
        window_scale: Some(7),
    };
    ProtocolState::Tcp {
        state,
        original: side,
        reply: side,
    }
}

/// Every protocol kind, both families, NAT each way, zones, marks, helper, sequence adjustment, labels.
pub fn every_kind() -> Vec<(&'static str, Flow)> {
    let udp = tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53));
    let mut all = vec![
        ("udp unreplied", plain(udp, Status::CONFIRMED)),
        (
            "udp6",
            plain(tuple(17, "fd00::1", "fd00::2", ports(4000, 53)), REPLIED),
        ),
        (
            "udplite",
            plain(tuple(136, "10.0.0.1", "10.0.0.2", ports(1, 2)), REPLIED),
        ),
        (
            "icmp",
            plain(
                tuple(
                    1,
                    "10.0.0.1",
                    "10.0.0.2",
                    L4::Icmp {
                        kind: 8,
                        code: 0,
                        id: 77,
                    },
                ),
                Status::CONFIRMED,
            ),
        ),
        (
            "icmpv6",
            plain(
                tuple(
                    58,
                    "fd00::1",
                    "fd00::2",
                    L4::Icmp {
                        kind: 128,
                        code: 0,
                        id: 9,
                    },
                ),
                Status::CONFIRMED,
            ),
        ),
        (
            "gre",
            plain(
                tuple(
                    47,
                    "10.0.0.1",
                    "10.0.0.2",
                    L4::Gre {
                        src: 0x11,
                        dst: 0x22,
                    },
                ),
                ASSURED,
            ),
        ),
        (
            "ospf",
            plain(tuple(89, "10.0.0.1", "10.0.0.2", L4::None), REPLIED),
        ),
        (
            "dnat",
            translated(
                tuple(17, "10.0.0.1", "10.96.0.10", ports(4001, 53)),
                tuple(17, "10.244.1.7", "10.0.0.1", ports(5353, 4001)),
                Status::DST_NAT,
            ),
        ),
        (
            "snat with another port",
            translated(
                tuple(6, "10.0.0.1", "203.0.113.9", ports(4001, 443)),
                tuple(6, "203.0.113.9", "192.0.2.1", ports(443, 61_001)),
                Status::SRC_NAT,
            ),
        ),
        (
            "masqueraded node port",
            translated(
                tuple(17, "198.51.100.7", "192.0.2.1", ports(4001, 30_053)),
                tuple(17, "10.244.1.7", "192.0.2.1", ports(53, 1024)),
                Status::SRC_NAT.with(Status::DST_NAT),
            ),
        ),
        (
            "hairpin",
            translated(
                tuple(17, "10.244.1.9", "10.96.0.10", ports(4001, 53)),
                tuple(17, "10.244.1.9", "192.0.2.1", ports(53, 2000)),
                Status::SRC_NAT.with(Status::DST_NAT),
            ),
        ),
        (
            "dnat6",
            translated(
                tuple(17, "fd00::1", "fd00:96::a", ports(4001, 53)),
                tuple(17, "fd00:10::7", "fd00::1", ports(53, 4001)),
                Status::DST_NAT,
            ),
        ),
        (
            "snat of a ping",
            translated(
                tuple(
                    1,
                    "10.0.0.1",
                    "203.0.113.9",
                    L4::Icmp {
                        kind: 8,
                        code: 0,
                        id: 5,
                    },
                ),
                tuple(
                    1,
                    "203.0.113.9",
                    "192.0.2.1",
                    L4::Icmp {
                        kind: 0,
                        code: 0,
                        id: 6,
                    },
                ),
                Status::SRC_NAT,
            ),
        ),
        (
            "dnat of gre with two keys",
            translated(
                tuple(47, "10.0.0.1", "10.96.0.10", L4::Gre { src: 0, dst: 0x22 }),
                tuple(47, "10.244.1.7", "10.0.0.1", L4::Gre { src: 0, dst: 0x33 }),
                Status::DST_NAT,
            ),
        ),
        (
            "translated by ipvs, not by the kernel",
            translated(
                tuple(17, "10.0.0.1", "10.96.0.11", ports(4001, 53)),
                tuple(17, "10.244.1.7", "10.0.0.1", ports(53, 4001)),
                Status::default(),
            ),
        ),
    ];
    for (_, flow) in all.iter_mut().filter(|(_, flow)| flow.protocol() == 6) {
        flow.state = Some(tcp_state(3));
    }
    let mut tcp = plain(tuple(6, "10.0.0.1", "10.0.0.2", ports(4000, 443)), ASSURED);
    tcp.state = Some(tcp_state(3));
    tcp.mark = Some(0xffff_ffff);
    tcp.rare_mut().seq_adj_original = Some(SeqAdj {
        correction_pos: 100,
        offset_before: 0,
        offset_after: 0xffff_fffb,
    });
    tcp.rare_mut().seq_adj_reply = Some(SeqAdj {
        correction_pos: 1,
        offset_before: 2,
        offset_after: 3,
    });
    all.push(("tcp with sequence adjustment", tcp));
    let mut tcp6 = plain(tuple(6, "fd00::1", "fd00::2", ports(4000, 443)), ASSURED);
    tcp6.state = Some(tcp_state(7));
    all.push(("tcp6 time_wait", tcp6));
    let mut sctp = plain(
        tuple(132, "10.0.0.1", "10.0.0.2", ports(4000, 3868)),
        ASSURED,
    );
    sctp.state = Some(ProtocolState::Sctp {
        state: 4,
        vtag_original: Some(0x1111),
        vtag_reply: Some(0x2222),
    });
    all.push(("sctp", sctp));
    let mut ftp = plain(tuple(6, "10.0.0.1", "10.0.0.2", ports(4000, 21)), ASSURED);
    ftp.state = Some(tcp_state(3));
    ftp.rare_mut().helper = Some("ftp".into());
    all.push(("ftp helper", ftp));
    for (name, id, direction) in [
        ("zone 12", 12, None),
        ("zone 13", 13, None),
        (
            "zone of the original direction",
            14,
            Some(Direction::Original),
        ),
        ("zone of the reply direction", 15, Some(Direction::Reply)),
    ] {
        let mut zoned = plain(udp, REPLIED);
        zoned.zone = Zone { id, direction };
        if direction.is_some() {
            // The other direction is in zone 0, where these tuples must be free.
            let other = tuple(17, "10.0.7.1", "10.0.7.2", ports(id, 53));
            (zoned.original, zoned.reply) = (other, other.inverted().unwrap());
        }
        all.push((name, zoned));
    }
    let mut labelled = plain(tuple(17, "10.0.8.1", "10.0.8.2", ports(1, 2)), REPLIED);
    labelled.rare_mut().labels = Some([0, 0xfe, 0, 0, 2, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]);
    all.push(("labels", labelled));
    all
}
