//! Entries of every kind that a restore has to reproduce.

use ctnetlink::flow::{Direction, Flow, L4, ProtocolState, Status, TcpDirection, Zone};
use testkit::mixed::{ASSURED, REPLIED, plain, ports, tuple};

use crate::{BOTH, translated, udp};

fn ping(kind: u8, id: u16) -> L4 {
    L4::Icmp { kind, code: 0, id }
}

fn tcp(port: u16, state: u8, flags: (u8, u8)) -> Flow {
    let side = |flags| TcpDirection {
        flags: Some(flags),
        window_scale: Some(7),
    };
    let mut flow = plain(tuple(6, "10.0.0.1", "10.0.0.2", ports(port, 443)), ASSURED);
    flow.state = Some(ProtocolState::Tcp {
        state,
        original: side(flags.0),
        reply: side(flags.1),
    });
    flow
}

/// Entries of all protocols, with translation of each kind, zones, marks, labels, a helper.
pub fn every_kind() -> Vec<Flow> {
    let v4 = |protocol, l4| plain(tuple(protocol, "10.0.0.1", "10.0.0.2", l4), REPLIED);
    let v6 = |protocol, l4| plain(tuple(protocol, "fd00::1", "fd00::2", l4), ASSURED);
    let mut all = vec![
        plain(udp(4000).original, Status::CONFIRMED),
        plain(udp(4001).original, ASSURED),
        plain(udp(4002).original, ASSURED.with(Status::FIXED_TIMEOUT)),
        v6(17, ports(4000, 53)),
        v4(136, ports(1, 2)),
        // Kernels since 6.16 have no tracker for DCCP.
        v4(33, L4::None),
        v4(1, ping(8, 77)),
        v6(58, ping(128, 9)),
        v4(47, L4::Gre { src: 7, dst: 9 }),
        v4(89, L4::None),
        v6(200, L4::None),
    ];
    all.extend((1..=9).map(|state| tcp(4000 + u16::from(state), state, (0x0b, 0x0a))));
    let mut sctp = v4(132, ports(4000, 3868));
    sctp.state = Some(ProtocolState::Sctp {
        state: 4,
        vtag_original: Some(0x1111),
        vtag_reply: Some(u32::MAX),
    });
    all.push(sctp);
    all.extend(translations());
    all.extend(zones());
    let mut marked = udp(4100);
    marked.mark = Some(u32::MAX);
    let mut labelled = udp(4101);
    labelled.rare_mut().labels = Some([0, 0xfe, 0, 0, 2, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]);
    let mut helped = tcp(4102, 3, (0x0a, 0x0a));
    helped.original.l4 = ports(4102, 21);
    helped.reply.l4 = ports(21, 4102);
    helped.rare_mut().helper = Some("ftp".into());
    all.extend([marked, labelled, helped]);
    all
}

fn translations() -> Vec<Flow> {
    let mut snat = tcp(4200, 3, (0x0a, 0x0a));
    snat.status = ASSURED.with(Status::SRC_NAT);
    snat.reply = tuple(6, "10.0.0.2", "192.0.2.1", ports(443, 61_001));
    vec![
        snat,
        translated(
            tuple(17, "10.0.0.1", "10.96.0.10", ports(4201, 53)),
            tuple(17, "10.244.1.7", "10.0.0.1", ports(5353, 4201)),
            Status::DST_NAT,
        ),
        translated(
            tuple(17, "198.51.100.7", "192.0.2.1", ports(4201, 30_053)),
            tuple(17, "10.244.1.7", "192.0.2.1", ports(53, 1024)),
            BOTH,
        ),
        translated(
            tuple(17, "10.244.1.9", "10.96.0.10", ports(4201, 53)),
            tuple(17, "10.244.1.9", "192.0.2.1", ports(53, 2000)),
            BOTH,
        ),
        translated(
            tuple(17, "fd00::1", "fd00:96::a", ports(4201, 53)),
            tuple(17, "fd00:10::7", "fd00::1", ports(53, 4201)),
            Status::DST_NAT,
        ),
        translated(
            tuple(1, "10.0.0.1", "203.0.113.9", ping(8, 5)),
            tuple(1, "203.0.113.9", "192.0.2.1", ping(0, 6)),
            Status::SRC_NAT,
        ),
        // As IPVS leaves it: the reply differs, and the kernel translates nothing.
        translated(
            tuple(17, "10.0.0.1", "10.96.0.11", ports(4201, 53)),
            tuple(17, "10.244.1.7", "10.0.0.1", ports(53, 4201)),
            Status::default(),
        ),
    ]
}

/// One tuple in three zones, and zones of one direction, whose other direction is in zone 0.
fn zones() -> impl Iterator<Item = Flow> {
    let zoned = |port, id, direction| {
        let mut flow = udp(port);
        flow.zone = Zone { id, direction };
        flow
    };
    let twins = [0, 12, 13].map(|id| zoned(4300, id, None));
    let original = zoned(4301, 14, Some(Direction::Original));
    let reply = zoned(4302, 15, Some(Direction::Reply));
    twins.into_iter().chain([original, reply])
}
