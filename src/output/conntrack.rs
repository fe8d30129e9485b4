//! Lines as `conntrack -L -o extended,id` prints them, for scripts that parse them.
//!
//! Field order and spelling follow libnetfilter_conntrack 1.0.9; they were compared with conntrack 1.4.7 on real tables.
//! Labels are left out: the tool prints their names, and only with `-o labels`.

use ctnetlink::Expectation;
use ctnetlink::flow::{Counters, Direction, Family, Flow, L4, ProtocolState, Status, Tuple, Zone};

use super::row::Row;
use super::{escape, write};

/// Appends the line of an entry, without a line end.
pub(super) fn line(row: &Row<'_>, out: &mut Vec<u8>) {
    out.reserve(320);
    let flow = row.flow;
    head(flow, out);
    tuple(out, &flow.original);
    zone(out, flow.zone, Some(Direction::Original), b" zone-orig=");
    counters(out, flow.counters_original);
    if flow.status.is_unreplied() {
        out.extend_from_slice(b" [UNREPLIED]");
    }
    tuple(out, &flow.reply);
    zone(out, flow.zone, Some(Direction::Reply), b" zone-reply=");
    counters(out, flow.counters_reply);
    offload_or_assured(flow.status, out);
    field(out, b" mark=", flow.mark);
    untrusted_field(out, b" secctx=", flow.secctx());
    zone(out, flow.zone, None, b" zone=");
    field(out, b" delta-time=", row.age());
    untrusted_field(out, b" helper=", flow.helper());
    field(out, b" use=", flow.use_count);
    field(out, b" id=", flow.id);
}

/// Appends the line of an expectation, without a line end, as `conntrack -L expect` prints it.
pub(super) fn expectation(expectation: &Expectation, out: &mut Vec<u8>) {
    field(out, b"", expectation.timeout);
    if expectation.timeout.is_some() {
        out.push(b' ');
    }
    field(out, b"proto=", Some(expectation.tuple.protocol));
    tuple(out, &expectation.tuple);
    if let Some(mask) = &expectation.mask {
        named_tuple(out, mask, b" mask-src=", b" mask-dst=");
    }
    named_tuple(out, &expectation.master, b" master-src=", b" master-dst=");
    field(out, b" zone=", expectation.zone);
    let flags = expectation.flags.unwrap_or(0);
    let mut before = b' ';
    for (bit, word) in EXPECTATION_FLAGS {
        if flags & bit != 0 {
            out.push(before);
            out.extend_from_slice(word.to_uppercase().as_bytes());
            before = b',';
        }
    }
    if flags != 0 && before == b' ' {
        out.push(b' '); // flags without names
    }
    field(out, b" class=", expectation.class);
    untrusted_field(out, b" helper=", expectation.helper.as_deref());
}

/// `NF_CT_EXPECT_*` of nf_conntrack_common.h.
pub(super) const EXPECTATION_FLAGS: [(u32, &str); 3] =
    [(1, "permanent"), (2, "inactive"), (4, "userspace")];

/// Family, protocol, timer and state.
fn head(flow: &Flow, out: &mut Vec<u8>) {
    out.extend_from_slice(match flow.family() {
        Family::Ipv4 => b"ipv4     2 ",
        Family::Ipv6 => b"ipv6     10 ",
    });
    // Names of the tool, which has `unknown` for every other protocol.
    let name: &[u8; 9] = match flow.protocol() {
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
    field(out, b" ", flow.timeout);
    if let Some(state) = flow.state {
        state_word(out, state);
    }
}

fn state_word(out: &mut Vec<u8>, state: ProtocolState) {
    out.push(b' ');
    match state.name() {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => write::unknown_state(out, state.number()),
    }
}

fn tuple(out: &mut Vec<u8>, tuple: &Tuple) {
    named_tuple(out, tuple, b" src=", b" dst=");
}

/// A tuple with these keys for its addresses; the keys of ports are always the same.
#[inline(always)] // for the reason given at `field`
fn named_tuple(out: &mut Vec<u8>, tuple: &Tuple, src: &[u8], dst: &[u8]) {
    out.extend_from_slice(src);
    write::address_like_c(out, tuple.src);
    out.extend_from_slice(dst);
    write::address_like_c(out, tuple.dst);
    l4(out, tuple);
}

/// Identifying fields of the protocol: ports, ICMP type, code and id, or GRE keys.
fn l4(out: &mut Vec<u8>, tuple: &Tuple) {
    match tuple.protocol {
        6 | 17 | 33 | 132 | 136 => {
            // A kernel without a tracker for the protocol sends no ports; the tool prints zeros.
            let (src, dst) = match tuple.l4 {
                L4::Ports { src, dst } => (src, dst),
                _ => (0, 0),
            };
            field(out, b" sport=", Some(src));
            field(out, b" dport=", Some(dst));
        }
        1 | 58 => {
            let (kind, code, id) = match tuple.l4 {
                L4::Icmp { kind, code, id } => (kind, code, id),
                _ => (0, 0, 0),
            };
            field(out, b" type=", Some(kind));
            field(out, b" code=", Some(code));
            field(out, b" id=", Some(id));
        }
        47 => {
            let (src, dst) = match tuple.l4 {
                L4::Gre { src, dst } => (src, dst),
                _ => (0, 0),
            };
            out.extend_from_slice(b" srckey=");
            write::hex16(out, src);
            out.extend_from_slice(b" dstkey=");
            write::hex16(out, dst);
        }
        _ => {}
    }
}

/// The zone, if it is not the default one and applies to exactly this direction (`None` = both).
fn zone(out: &mut Vec<u8>, zone: Zone, direction: Option<Direction>, key: &[u8]) {
    if zone.id != 0 && zone.direction == direction {
        field(out, key, Some(zone.id));
    }
}

fn counters(out: &mut Vec<u8>, counters: Option<Counters>) {
    field(out, b" packets=", counters.map(|c| c.packets));
    field(out, b" bytes=", counters.map(|c| c.bytes));
}

/// `[HW_OFFLOAD]`, `[OFFLOAD]` or `[ASSURED]`: the tool shows only the first that applies.
fn offload_or_assured(status: Status, out: &mut Vec<u8>) {
    if status.contains(Status::HW_OFFLOAD) {
        out.extend_from_slice(b" [HW_OFFLOAD]");
    } else if status.contains(Status::OFFLOAD) {
        out.extend_from_slice(b" [OFFLOAD]");
    } else if status.contains(Status::ASSURED) {
        out.extend_from_slice(b" [ASSURED]");
    }
}

// Inlined, because a key of known length is copied by one or two instructions instead of a call.
#[inline(always)]
fn field(out: &mut Vec<u8>, key: &[u8], value: Option<impl Into<u64>>) {
    if let Some(value) = value {
        out.extend_from_slice(key);
        write::number(out, value);
    }
}

fn untrusted_field(out: &mut Vec<u8>, key: &[u8], value: Option<&str>) {
    if let Some(value) = value {
        out.extend_from_slice(key);
        escape::text(out, value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, SampleEntry, ports};
    use super::*;

    fn written(sample: &SampleEntry) -> String {
        let mut out = Vec::new();
        line(&sample.row(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn flow(original: Tuple, reply: Tuple, id: u32) -> Flow {
        let mut flow = Flow::new(original, reply);
        flow.timeout = Some(49);
        flow.mark = Some(0);
        flow.use_count = Some(1);
        flow.id = Some(id);
        flow
    }

    fn portless(protocol: u8, source: &str, destination: &str, l4: L4) -> Tuple {
        Tuple {
            l4,
            ..ports(protocol, (source, 0), (destination, 0))
        }
    }

    /// A flow without translation.
    fn plain(protocol: u8, source: (&str, u16), destination: (&str, u16), id: u32) -> Flow {
        flow(
            ports(protocol, source, destination),
            ports(protocol, destination, source),
            id,
        )
    }

    /// Lines as conntrack 1.4.7 printed them for entries made in a private namespace, kernel 6.18.
    #[test]
    fn lines_equal_what_the_tool_printed() {
        let (a, b) = ("1.1.1.1", "2.2.2.2");
        let mut zone = plain(17, (a, 1), (b, 4), 1_455_868_418);
        zone.zone.id = 7;
        let mut original = plain(17, (a, 1), (b, 2), 3_129_674_937);
        original.zone = Zone {
            id: 5,
            direction: Some(Direction::Original),
        };
        let mut reply = plain(17, (a, 1), (b, 3), 2_737_393_752);
        reply.zone = Zone {
            id: 6,
            direction: Some(Direction::Reply),
        };
        for flow in [&mut original, &mut reply] {
            flow.counters_original = Some(Counters {
                packets: 0,
                bytes: 0,
            });
            flow.counters_reply = Some(Counters {
                packets: 0,
                bytes: 0,
            });
        }
        let gre = |src, dst| L4::Gre { src, dst };
        let icmp = |kind| L4::Icmp {
            kind,
            code: 0,
            id: 20019,
        };
        let mut last_ack = plain(6, ("::ffff:1.2.3.4", 5), ("::1.2.3.4", 21), 3_742_947_066);
        last_ack.state = Some(fixture::tcp(6));
        let mut sctp = plain(
            132,
            ("10.128.0.0", 20016),
            ("10.96.0.10", 3868),
            636_482_891,
        );
        sctp.status = fixture::ANSWERED;
        sctp.mark = Some(u32::MAX);
        sctp.state = Some(ProtocolState::Sctp {
            state: 4,
            vtag_original: Some(1),
            vtag_reply: None,
        });
        let keys = [(16, 32), (32, 16)].map(|(x, y)| gre(x, y));
        for (flow, expected) in [
            (
                zone,
                "ipv4     2 udp      17 49 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=4 [UNREPLIED] src=2.2.2.2 dst=1.1.1.1 sport=4 dport=1 mark=0 zone=7 use=1 id=1455868418",
            ),
            (
                original,
                "ipv4     2 udp      17 49 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2 zone-orig=5 packets=0 bytes=0 [UNREPLIED] src=2.2.2.2 dst=1.1.1.1 sport=2 dport=1 packets=0 bytes=0 mark=0 use=1 id=3129674937",
            ),
            (
                reply,
                "ipv4     2 udp      17 49 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=3 packets=0 bytes=0 [UNREPLIED] src=2.2.2.2 dst=1.1.1.1 sport=3 dport=1 zone-reply=6 packets=0 bytes=0 mark=0 use=1 id=2737393752",
            ),
            (
                flow(
                    portless(47, a, b, keys[0]),
                    portless(47, b, a, keys[1]),
                    78_026_828,
                ),
                "ipv4     2 gre      47 49 src=1.1.1.1 dst=2.2.2.2 srckey=0x10 dstkey=0x20 [UNREPLIED] src=2.2.2.2 dst=1.1.1.1 srckey=0x20 dstkey=0x10 mark=0 use=1 id=78026828",
            ),
            (
                flow(
                    portless(89, a, b, L4::None),
                    portless(89, b, a, L4::None),
                    654_157_643,
                ),
                "ipv4     2 unknown  89 49 src=1.1.1.1 dst=2.2.2.2 [UNREPLIED] src=2.2.2.2 dst=1.1.1.1 mark=0 use=1 id=654157643",
            ),
            (
                flow(
                    portless(33, a, b, L4::None),
                    portless(33, b, a, L4::None),
                    1_558_693_510,
                ),
                "ipv4     2 dccp     33 49 src=1.1.1.1 dst=2.2.2.2 sport=0 dport=0 [UNREPLIED] src=2.2.2.2 dst=1.1.1.1 sport=0 dport=0 mark=0 use=1 id=1558693510",
            ),
            (
                plain(136, (a, 5), (b, 6), 2_319_203_521),
                "ipv4     2 udplite  136 49 src=1.1.1.1 dst=2.2.2.2 sport=5 dport=6 [UNREPLIED] src=2.2.2.2 dst=1.1.1.1 sport=6 dport=5 mark=0 use=1 id=2319203521",
            ),
            (
                flow(
                    portless(58, "fd00:10::", "fd00:96::10", icmp(128)),
                    portless(58, "fd00:96::10", "fd00:10::", icmp(129)),
                    3_646_266_606,
                ),
                "ipv6     10 icmpv6   58 49 src=fd00:10:: dst=fd00:96::10 type=128 code=0 id=20019 [UNREPLIED] src=fd00:96::10 dst=fd00:10:: type=129 code=0 id=20019 mark=0 use=1 id=3646266606",
            ),
            (
                last_ack,
                "ipv6     10 tcp      6 49 LAST_ACK src=::ffff:1.2.3.4 dst=::1.2.3.4 sport=5 dport=21 [UNREPLIED] src=::1.2.3.4 dst=::ffff:1.2.3.4 sport=21 dport=5 mark=0 use=1 id=3742947066",
            ),
            (
                sctp,
                "ipv4     2 sctp     132 49 ESTABLISHED src=10.128.0.0 dst=10.96.0.10 sport=20016 dport=3868 src=10.96.0.10 dst=10.128.0.0 sport=3868 dport=20016 [ASSURED] mark=4294967295 use=1 id=636482891",
            ),
        ] {
            assert_eq!(written(&SampleEntry::bare(flow)), expected);
        }
    }

    #[test]
    fn rare_fields_have_the_position_that_the_tool_gives_them() {
        let mut sample = fixture::dns();
        sample.flow.status = sample.flow.status.with(Status::OFFLOAD);
        sample.flow.timeout = None;
        sample.flow.zone.id = 9;
        sample.flow.start = Some(1_700_000_000_900_000_000);
        sample.now = 1_700_000_031_100_000_000;
        let rare = sample.flow.rare_mut();
        rare.helper = Some("ftp".into());
        rare.secctx = Some("system_u:object_r:unlabeled_t:s0\u{1b}[2J".into());
        rare.labels = Some([1; 16]);
        assert_eq!(
            written(&sample),
            "ipv4     2 udp      17 src=10.244.2.9 dst=10.96.0.10 sport=40123 dport=53 packets=15 bytes=900 \
             src=10.244.1.7 dst=10.244.2.9 sport=53 dport=40123 packets=5 bytes=700 [OFFLOAD] mark=0 \
             secctx=system_u:object_r:unlabeled_t:s0\\x1b[2J zone=9 delta-time=31 helper=ftp use=1 id=3912345678"
        );
        sample.flow.status = sample.flow.status.with(Status::HW_OFFLOAD);
        assert!(written(&sample).contains(" [HW_OFFLOAD] "));
    }
}
