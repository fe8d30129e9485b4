//! Table with every kind of entry, the same in every run.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ctnetlink::Netns;
use ctnetlink::Table;
use ctnetlink::flow::{Direction, Flow, L4, ProtocolState, Status, TcpDirection, Tuple, Zone};

use crate::tools::{nft, run, sysctl};

/// Number of entries that [`fill`] inserts, beside those of real packets.
pub const ENTRIES: usize = 12_000;

pub const REPLIED: Status = Status::CONFIRMED.with(Status::SEEN_REPLY);
pub const ASSURED: Status = REPLIED.with(Status::ASSURED);

/// Number of kinds of entry that [`flow`] makes in turn.
const KINDS: usize = 24;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const GRE: u8 = 47;
const ICMPV6: u8 = 58;
const OSPF: u8 = 89;
const SCTP: u8 = 132;
const UDPLITE: u8 = 136;

/// Fills this namespace's table: the first half without accounting and timestamps, the second half with them, and some
/// flows with real packets.
pub fn fill() {
    run("ip", &["link", "set", "lo", "up"]);
    // The kernel keeps labels and tracks packets only where a rule needs that.
    nft(
        "table inet t { chain c { type filter hook output priority 0; ct state new ct label set 1; }; }",
    );
    let mut table = Table::open(&Netns::current()).unwrap();
    let mut insert = |range: std::ops::Range<usize>| {
        let results = table.insert_all(range.clone().map(flow));
        for (i, result) in range.zip(results) {
            assert_eq!(result, Ok(()), "entry {i}: {:?}", flow(i));
        }
    };
    insert(0..ENTRIES / 2);
    sysctl("acct", "1");
    sysctl("timestamp", "1");
    insert(ENTRIES / 2..ENTRIES);
    if table.insert(&helped()).is_err() {
        eprintln!("this kernel has no FTP helper: no entry has one");
    }
    packets();
}

/// Makes flows of real packets: one way, both ways, and of IPv6. Their timers must outlast the test.
fn packets() {
    sysctl("udp_timeout", "600");
    sysctl("udp_timeout_stream", "600");
    for address in ["127.0.0.1", "::1"] {
        let socket = || UdpSocket::bind((address, 0)).unwrap();
        let (client, server) = (socket(), socket());
        for answers in [0, 1, 3] {
            let client = if answers == 3 { &client } else { &socket() };
            for size in [10, 100, 1000] {
                client
                    .send_to(&vec![0; size], server.local_addr().unwrap())
                    .unwrap();
            }
            for _ in 0..answers {
                server
                    .send_to(&[0; 77], client.local_addr().unwrap())
                    .unwrap();
            }
        }
    }
}

pub fn tuple(protocol: u8, src: &str, dst: &str, l4: L4) -> Tuple {
    Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        l4,
    }
}

pub fn ports(src: u16, dst: u16) -> L4 {
    L4::Ports { src, dst }
}

/// Flow without translation.
pub fn plain(original: Tuple, status: Status) -> Flow {
    translated(original, original.inverted().unwrap(), status)
}

pub fn translated(original: Tuple, reply: Tuple, status: Status) -> Flow {
    let mut flow = Flow::new(original, reply);
    flow.status = status;
    flow.timeout = Some(3600);
    flow.mark = Some(0);
    if original.protocol == TCP {
        flow.state = Some(tcp(3));
    }
    flow
}

pub fn tcp(state: u8) -> ProtocolState {
    let side = TcpDirection {
        flags: Some(0x0a),
        window_scale: Some(7),
    };
    ProtocolState::Tcp {
        state,
        original: side,
        reply: side,
    }
}

fn v4(net: u8, n: usize) -> IpAddr {
    let [high, low] = (n as u16).to_be_bytes();
    Ipv4Addr::new(10, net, high, low).into()
}

fn v6(net: u16, n: usize) -> IpAddr {
    Ipv6Addr::new(0xfd00, net, 0, 0, 0, 0, 1, n as u16).into()
}

/// Entry number `i`. Kinds take turns; entries of one kind differ in addresses, ports and states. Timers outlast a test.
pub fn flow(i: usize) -> Flow {
    let (kind, n) = (i % KINDS, i / KINDS);
    let mut flow = of_kind(kind, n);
    flow.timeout = Some(if n.is_multiple_of(4) { 100_000 } else { 3600 } + n as u32 % 600);
    if kind % 5 == 1 {
        flow.mark = Some(n as u32 % 0x140);
    }
    if kind == 7 {
        flow.mark = Some(u32::MAX - n as u32);
    }
    flow
}

fn of_kind(kind: usize, n: usize) -> Flow {
    let port = 20_000 + n as u16;
    let original = |protocol, l4| Tuple {
        src: v4(128, n),
        dst: v4(64, n % 40),
        protocol,
        l4,
    };
    let original6 = |protocol, l4| Tuple {
        src: v6(0x10, n),
        dst: v6(0x96, n % 40),
        protocol,
        l4,
    };
    let answered = [Status::CONFIRMED, REPLIED, ASSURED][n % 3];
    let udp = |dport| plain(original(UDP, ports(port, dport)), answered);
    match kind {
        0 => dnat(n, [53, 5353][n % 2], answered.with(Status::DST_NAT)),
        1 => udp([53, 123, 514, 8125][n % 4]),
        2 => with_state(original(TCP, ports(port, 443)), tcp((n % 10) as u8)),
        3 => snat(n),
        4 => with_state(original6(TCP, ports(port, 443)), tcp((n % 10) as u8)),
        5 => dnat6(n, answered),
        6 => plain(original(ICMP, icmp([8, 13][n % 2], n)), answered),
        7 => plain(original6(ICMPV6, icmp(128, n)), answered),
        8 => plain(original(GRE, gre(n)), answered),
        9 => with_state(original(SCTP, ports(port, 3868)), sctp(n)),
        10 => plain(original(UDPLITE, ports(port, 4000)), answered),
        11 => plain(original6(UDPLITE, ports(port, 4000)), answered),
        12 => plain(original(OSPF, L4::None), answered),
        13 => plain(original6(253, L4::None), answered),
        // Without a DCCP tracker the kernel tracks it by addresses alone, without ports.
        14 => plain(original(DCCP, L4::None), answered),
        15 => zoned(udp(4001), n, None),
        16 => zoned(udp(4002), n, Some(Direction::Original)),
        17 => zoned(udp(4003), n, Some(Direction::Reply)),
        18 => labelled(udp(4004), n),
        19 => hairpin(n),
        20 => node_port(n),
        21 => with_state(original6(SCTP, ports(port, 3868)), sctp(n)),
        // As of IPVS: translated, without the status bits of translation.
        22 => dnat(n, 5300, answered),
        _ => plain(original6(UDP, ports(port, 53)), answered),
    }
}

fn with_state(original: Tuple, state: ProtocolState) -> Flow {
    let status = match state.number() {
        0..=2 => Status::CONFIRMED,
        _ => ASSURED,
    };
    let mut flow = plain(original, status);
    flow.state = Some(state);
    flow
}

fn icmp(kind: u8, n: usize) -> L4 {
    L4::Icmp {
        kind,
        code: 0,
        id: n as u16,
    }
}

fn gre(n: usize) -> L4 {
    L4::Gre {
        src: n as u16,
        dst: 0x1000 + n as u16,
    }
}

fn sctp(n: usize) -> ProtocolState {
    ProtocolState::Sctp {
        // Newer kernels have no state 9 (HEARTBEAT_ACKED).
        state: (n % 9) as u8,
        vtag_original: Some(0x1111 + n as u32),
        vtag_reply: Some(0x2222),
    }
}

/// Flow to one of eight endpoints of a Service.
fn dnat(n: usize, endpoint_port: u16, status: Status) -> Flow {
    let (client, vip) = (v4(129, n), Ipv4Addr::new(10, 96, 0, 10).into());
    let port = 20_000 + n as u16;
    let to = |src, dst, l4| Tuple {
        src,
        dst,
        protocol: UDP,
        l4,
    };
    // Another destination port for each kind, so that their original tuples differ.
    let vip_port = if endpoint_port == 5300 { 54 } else { 53 };
    translated(
        to(client, vip, ports(port, vip_port)),
        to(v4(244, n % 8), client, ports(endpoint_port, port)),
        status,
    )
}

fn dnat6(n: usize, status: Status) -> Flow {
    let (client, vip, port) = (v6(0x11, n), v6(0x96, 0xa), 20_000 + n as u16);
    let to = |src, dst, l4| Tuple {
        src,
        dst,
        protocol: UDP,
        l4,
    };
    translated(
        to(client, vip, ports(port, 53)),
        to(v6(0x244, n % 8), client, ports(53, port)),
        status.with(Status::DST_NAT),
    )
}

fn snat(n: usize) -> Flow {
    let (client, server) = (v4(130, n), "203.0.113.9".parse().unwrap());
    let to = |src, dst, l4| Tuple {
        src,
        dst,
        protocol: TCP,
        l4,
    };
    translated(
        to(client, server, ports(20_000 + n as u16, 443)),
        to(
            server,
            "192.0.2.11".parse().unwrap(),
            ports(443, 30_000 + n as u16),
        ),
        ASSURED.with(Status::SRC_NAT),
    )
}

fn hairpin(n: usize) -> Flow {
    let client = v4(131, n);
    let mut flow = dnat(n, 8080, ASSURED.with(Status::SRC_NAT).with(Status::DST_NAT));
    flow.original.src = client;
    flow.original.dst = "10.96.8.8".parse().unwrap();
    flow.reply.src = client;
    flow.reply.dst = "192.0.2.11".parse().unwrap();
    flow
}

fn node_port(n: usize) -> Flow {
    let mut flow = dnat(n, 53, ASSURED.with(Status::SRC_NAT).with(Status::DST_NAT));
    flow.original.src = v4(132, n);
    flow.original.dst = "192.0.2.11".parse().unwrap();
    flow.original.l4 = ports(20_000 + n as u16, 32_053);
    flow.reply.dst = "192.0.2.11".parse().unwrap();
    flow.reply.l4 = ports(53, 1024 + n as u16);
    flow
}

fn zoned(mut flow: Flow, n: usize, direction: Option<Direction>) -> Flow {
    flow.zone = Zone {
        id: 1 + n as u16 % 5,
        direction,
    };
    flow
}

fn labelled(mut flow: Flow, n: usize) -> Flow {
    let bits: u128 = [1 << 1, 1 << 1 | 1 << 33, 1 << 127, 1 << 63 | 1 << 64][n % 4];
    flow.rare_mut().labels = Some(bits.to_le_bytes());
    flow
}

/// Flow with a helper. Kernels without the module refuse it.
pub fn helped() -> Flow {
    let mut flow = plain(
        tuple(TCP, "10.133.0.1", "10.64.0.1", ports(4000, 21)),
        ASSURED,
    );
    flow.rare_mut().helper = Some("ftp".into());
    flow
}

/// Inserts entries into the table of the calling thread's namespace.
pub fn insert(flows: &[Flow]) {
    let results = Table::open(&Netns::current()).unwrap().insert_all(flows);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

/// Inserts the flows of these numbers, in portions: memory of this process counts as that of its children until they have
/// executed their programs.
pub fn insert_range(numbers: std::ops::Range<u32>, flow: impl Fn(u32) -> Flow) {
    const PORTION: u32 = 1000;
    for first in numbers.clone().step_by(PORTION as usize) {
        let portion: Vec<Flow> = (first..numbers.end.min(first + PORTION))
            .map(&flow)
            .collect();
        insert(&portion);
    }
}

/// Answered flow to an external DNS server.
pub fn udp(client: &str, sport: u16) -> Flow {
    plain(tuple(17, client, "10.64.0.1", ports(sport, 53)), ASSURED)
}

/// Flow to kube-dns that is translated to this endpoint.
pub fn to_dns(protocol: u8, sport: u16, endpoint: &str) -> Flow {
    translated(
        tuple(protocol, "10.244.1.5", "10.96.0.10", ports(sport, 53)),
        tuple(protocol, endpoint, "10.244.1.5", ports(53, sport)),
        ASSURED.with(Status::DST_NAT),
    )
}
