//! The netlink rooms against the real kernel, each test in a network namespace of its own.

mod private_netns;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;
use std::process::{Command, Output};

use ctk::flow::{
    Direction, Family, Flow, L4, ProtocolState, SeqAdj, Status, TcpDirection, Tuple, Zone,
};
use ctk::netlink::{
    DeleteTarget, DumpFilter, DumpReport, ErrorKind, InsertError, Masked, NetlinkError, Table,
    TableKind, TupleMatch,
};
use ctk::netns::Netns;
use private_netns::private_netns;
use rustix::io::Errno;

const REPLIED: Status = Status::CONFIRMED.with(Status::SEEN_REPLY);
const ASSURED: Status = REPLIED.with(Status::ASSURED);

fn open() -> Table {
    Table::open(&Netns::current()).unwrap()
}

fn tuple(protocol: u8, src: &str, dst: &str, l4: L4) -> Tuple {
    Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        l4,
    }
}

fn ports(src: u16, dst: u16) -> L4 {
    L4::Ports { src, dst }
}

fn inverted(tuple: &Tuple) -> Tuple {
    Tuple {
        src: tuple.dst,
        dst: tuple.src,
        protocol: tuple.protocol,
        l4: tuple.l4.inverted(tuple.protocol).unwrap(),
    }
}

/// A flow that nobody translates.
fn plain(original: Tuple, status: Status) -> Flow {
    let mut flow = Flow::new(original, inverted(&original));
    flow.status = status;
    flow.timeout = Some(3600);
    flow.mark = Some(0);
    flow
}

fn translated(original: Tuple, reply: Tuple, nat: Status) -> Flow {
    let mut flow = plain(original, ASSURED.with(nat));
    flow.reply = reply;
    flow
}

fn tcp_state(state: u8) -> ProtocolState {
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
fn every_kind() -> Vec<(&'static str, Flow)> {
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
            // The other direction is in zone 0, where these tuples must not be taken.
            let other = tuple(17, "10.0.7.1", "10.0.7.2", ports(id, 53));
            (zoned.original, zoned.reply) = (other, inverted(&other));
        }
        all.push((name, zoned));
    }
    let mut labelled = plain(tuple(17, "10.0.8.1", "10.0.8.2", ports(1, 2)), REPLIED);
    labelled.rare_mut().labels = Some([0, 0xfe, 0, 0, 2, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]);
    all.push(("labels", labelled));
    all
}

/// Labels are kept only where a rule uses them.
fn use_labels() {
    nft("table inet t { chain c { type filter hook input priority 0; ct label set 1; }; }");
}

fn nft(rules: &str) {
    run(Command::new("nft").arg(rules));
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn fill(table: &mut Table, flows: &[(&str, Flow)]) {
    let results = table.insert_all(flows.iter().map(|(_, flow)| flow));
    for ((name, _), result) in flows.iter().zip(results) {
        assert_eq!(result, Ok(()), "{name}");
    }
}

/// Timers run between two looks.
fn timeless(mut flows: Vec<Flow>) -> Vec<Flow> {
    for flow in &mut flows {
        flow.timeout = None;
    }
    flows
}

fn dump_with(table: &mut Table, filter: &DumpFilter) -> (Vec<Flow>, DumpReport) {
    let mut flows = Vec::new();
    let report = table
        .dump(TableKind::Conntrack, filter, &mut |flow| {
            flows.push(flow);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((report.unreadable, report.is_consistent()), (0, true));
    (flows, report)
}

fn dump(table: &mut Table) -> Vec<Flow> {
    dump_with(table, &DumpFilter::default()).0
}

/// Without what only the kernel can know, and with the timer as inserted.
fn comparable(flow: &Flow) -> Flow {
    let mut flow = flow.clone();
    assert!(
        flow.timeout.is_some_and(|t| (3590..=3600).contains(&t)),
        "{flow:?}"
    );
    flow.timeout = Some(3600);
    flow.id = None;
    flow.use_count = None;
    flow.status = flow
        .status
        .without(Status::SRC_NAT_DONE.with(Status::DST_NAT_DONE))
        .without(Status::SEQ_ADJUST.with(Status::HELPER));
    flow
}

#[test]
fn an_entry_put_into_the_kernel_comes_back_equal() {
    private_netns("an_entry_put_into_the_kernel_comes_back_equal", || {
        use_labels();
        let mut table = open();
        let flows = every_kind();
        fill(&mut table, &flows);
        assert_eq!(table.count().unwrap() as usize, flows.len());
        let found = dump(&mut table);
        assert_eq!(found.len(), flows.len());
        for (name, flow) in &flows {
            let key = |f: &Flow| (f.original, f.zone);
            let back = found.iter().find(|f| key(f) == key(flow));
            let back = back.unwrap_or_else(|| panic!("{name} is not there: {found:#?}"));
            assert_eq!(comparable(back), *flow, "{name}");
            assert!(back.id.is_some() && back.use_count.is_some(), "{name}");
            let got = table.get(&flow.reply, Direction::Reply, flow.zone).unwrap();
            assert_eq!(
                got.map(|f| f.id),
                Some(back.id),
                "{name} by its reply tuple"
            );
            let got = table
                .get(&flow.original, Direction::Original, flow.zone)
                .unwrap();
            assert_eq!(
                got.map(|f| f.id),
                Some(back.id),
                "{name} by its original tuple"
            );
        }
    });
}

#[test]
fn conntrack_lists_what_was_inserted_and_agrees_on_ids() {
    private_netns(
        "conntrack_lists_what_was_inserted_and_agrees_on_ids",
        || {
            let mut table = open();
            fill(&mut table, &every_kind());
            let output = run(Command::new("conntrack").args(["-L", "-o", "extended,id"]));
            let text = String::from_utf8(output.stdout).unwrap();
            let flows = dump(&mut table);
            assert_eq!(text.lines().count(), flows.len(), "{text}");
            for flow in flows {
                let id = format!(" id={}", flow.id.unwrap());
                assert_eq!(
                    text.lines().filter(|line| line.contains(&id)).count(),
                    1,
                    "{id}\n{text}"
                );
            }
        },
    );
}

#[test]
fn counters_and_start_are_read_where_the_kernel_keeps_them() {
    private_netns(
        "counters_and_start_are_read_where_the_kernel_keeps_them",
        || {
            for name in ["acct", "timestamp"] {
                std::fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"), "1")
                    .unwrap();
            }
            run(Command::new("ip").args(["link", "set", "lo", "up"]));
            nft(
                "table ip t { chain c { type filter hook output priority 0; ct state new counter; }; }",
            );
            let (a, b) = (udp_socket("127.0.0.1"), udp_socket("127.0.0.1"));
            for _ in 0..3 {
                a.send_to(&[0; 72], b.local_addr().unwrap()).unwrap();
            }
            b.send_to(&[0; 22], a.local_addr().unwrap()).unwrap();
            let flows = dump(&mut open());
            let [flow] = &flows[..] else {
                panic!("{flows:?}")
            };
            let counted = [Direction::Original, Direction::Reply]
                .map(|d| flow.counters(d).map(|c| (c.packets, c.bytes)));
            assert_eq!(counted, [Some((3, 300)), Some((1, 50))]);
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
            let age = now - u128::from(flow.start.unwrap());
            assert!(age < 60_000_000_000, "{age} ns");
        },
    );
}

fn udp_socket(address: &str) -> std::net::UdpSocket {
    std::net::UdpSocket::bind((address, 0)).unwrap()
}

/// Tests in user space what the kernel was asked for.
fn passes(filter: &DumpFilter, flow: &Flow) -> bool {
    let masked =
        |wanted: Option<Masked>, have: u32| wanted.is_none_or(|w| have & w.mask == w.value);
    let tuple = |wanted: &TupleMatch, have: &Tuple| {
        wanted.src.is_none_or(|w| w == have.src)
            && wanted.dst.is_none_or(|w| w == have.dst)
            && wanted.protocol.is_none_or(|w| w == have.protocol)
            && wanted.sport.is_none_or(|w| Some(w) == have.sport())
            && wanted.dport.is_none_or(|w| Some(w) == have.dport())
    };
    filter.family.is_none_or(|f| f == flow.family())
        && masked(filter.mark, flow.mark.unwrap_or(0))
        && masked(filter.status, flow.status.0)
        && filter.zone.is_none_or(|zone| zone == flow.zone.id)
        && tuple(&filter.original, &flow.original)
        && tuple(&filter.reply, &flow.reply)
}

fn filters() -> Vec<(&'static str, DumpFilter)> {
    let v4 = DumpFilter {
        family: Some(Family::Ipv4),
        ..DumpFilter::default()
    };
    let v6 = DumpFilter {
        family: Some(Family::Ipv6),
        ..DumpFilter::default()
    };
    let masked = |value, mask| Some(Masked { value, mask });
    let any = TupleMatch::default();
    let udp53 = TupleMatch {
        protocol: Some(17),
        dport: Some(53),
        ..any
    };
    let ip = |text: &str| Some(text.parse().unwrap());
    vec![
        ("IPv4", v4),
        ("IPv6", v6),
        (
            "mark",
            DumpFilter {
                mark: masked(0xff00, 0xff00),
                ..v4
            },
        ),
        (
            "mark of both families",
            DumpFilter {
                mark: masked(0, u32::MAX),
                ..DumpFilter::default()
            },
        ),
        (
            "assured",
            DumpFilter {
                status: masked(4, 4),
                ..v4
            },
        ),
        (
            "unreplied",
            DumpFilter {
                status: masked(0, 2),
                ..DumpFilter::default()
            },
        ),
        (
            "status without mask",
            DumpFilter {
                status: masked(0, 0),
                ..v4
            },
        ),
        (
            "zone 0",
            DumpFilter {
                zone: Some(0),
                ..DumpFilter::default()
            },
        ),
        (
            "zone 12",
            DumpFilter {
                zone: Some(12),
                ..DumpFilter::default()
            },
        ),
        (
            "original-only zone",
            DumpFilter {
                zone: Some(14),
                ..DumpFilter::default()
            },
        ),
        (
            "reply-only zone",
            DumpFilter {
                zone: Some(15),
                ..v4
            },
        ),
        (
            "original udp 53",
            DumpFilter {
                original: udp53,
                ..v4
            },
        ),
        (
            "original udp 53, IPv6",
            DumpFilter {
                original: udp53,
                ..v6
            },
        ),
        (
            "udp 53 without family",
            DumpFilter {
                original: udp53,
                ..DumpFilter::default()
            },
        ),
        (
            "source",
            DumpFilter {
                original: TupleMatch {
                    src: ip("10.0.0.1"),
                    ..any
                },
                ..v4
            },
        ),
        (
            "destination",
            DumpFilter {
                original: TupleMatch {
                    dst: ip("10.96.0.10"),
                    ..udp53
                },
                ..v4
            },
        ),
        (
            "IPv6 source",
            DumpFilter {
                original: TupleMatch {
                    src: ip("fd00::1"),
                    ..any
                },
                ..v6
            },
        ),
        (
            "IPv6 destination",
            DumpFilter {
                reply: TupleMatch {
                    dst: ip("fd00::1"),
                    ..any
                },
                ..v6
            },
        ),
        (
            "IPv4 address, IPv6 asked",
            DumpFilter {
                original: TupleMatch {
                    src: ip("10.0.0.1"),
                    ..any
                },
                ..v6
            },
        ),
        (
            "reply source",
            DumpFilter {
                reply: TupleMatch {
                    src: ip("10.244.1.7"),
                    ..any
                },
                ..v4
            },
        ),
        (
            "reply source and port, and original destination",
            DumpFilter {
                original: TupleMatch {
                    dst: ip("10.96.0.10"),
                    ..any
                },
                reply: TupleMatch {
                    src: ip("10.244.1.7"),
                    protocol: Some(17),
                    sport: Some(5353),
                    ..any
                },
                ..v4
            },
        ),
        (
            "port without protocol",
            DumpFilter {
                original: TupleMatch {
                    dport: Some(53),
                    ..any
                },
                ..v4
            },
        ),
        (
            "sctp port",
            DumpFilter {
                original: TupleMatch {
                    protocol: Some(132),
                    dport: Some(1),
                    ..any
                },
                ..v4
            },
        ),
        (
            "icmp with a port",
            DumpFilter {
                original: TupleMatch {
                    protocol: Some(1),
                    sport: Some(1),
                    ..any
                },
                ..v4
            },
        ),
        (
            "gre",
            DumpFilter {
                original: TupleMatch {
                    protocol: Some(47),
                    ..any
                },
                ..v4
            },
        ),
        (
            "ospf",
            DumpFilter {
                original: TupleMatch {
                    protocol: Some(89),
                    sport: Some(9),
                    ..any
                },
                ..v4
            },
        ),
        (
            "all at once",
            DumpFilter {
                mark: masked(0, u32::MAX),
                status: masked(4, 4),
                zone: Some(0),
                original: TupleMatch {
                    src: ip("10.0.0.1"),
                    ..udp53
                },
                ..v4
            },
        ),
    ]
}

#[test]
fn a_filtered_dump_loses_no_entry_that_passes_in_user_space() {
    private_netns(
        "a_filtered_dump_loses_no_entry_that_passes_in_user_space",
        || {
            let mut table = open();
            fill(&mut table, &every_kind());
            let all = timeless(dump(&mut table));
            for (name, filter) in filters() {
                let (narrowed, report) = dump_with(&mut table, &filter);
                let mut narrowed = timeless(narrowed);
                assert!(!report.filter_refused, "{name}: {report:?}");
                narrowed.retain(|flow| passes(&filter, flow));
                let wanted: Vec<_> = all.iter().filter(|flow| passes(&filter, flow)).collect();
                assert_eq!(narrowed.iter().collect::<Vec<_>>(), wanted, "{name}");
            }
        },
    );
}

/// Where kernels ignore a filter the test above says nothing; this one holds for Linux 6.8+.
#[test]
fn the_kernel_applies_zone_mark_status_and_tuple_filters_itself() {
    private_netns(
        "the_kernel_applies_zone_mark_status_and_tuple_filters_itself",
        || {
            let mut table = open();
            fill(&mut table, &every_kind());
            let all = dump(&mut table);
            let asked = [
                "zone 0",
                "zone 12",
                "original-only zone",
                "reply-only zone",
                "assured",
                "reply source",
            ];
            for (name, filter) in filters()
                .into_iter()
                .filter(|(name, _)| asked.contains(name))
            {
                let (narrowed, report) = dump_with(&mut table, &filter);
                let wanted = all.iter().filter(|flow| passes(&filter, flow)).count();
                assert!(wanted > 0 && report.kernel_filtered, "{name}");
                assert_eq!(narrowed.len(), wanted, "{name}");
            }
        },
    );
}

#[test]
fn a_delete_takes_the_named_entry_and_no_other() {
    private_netns("a_delete_takes_the_named_entry_and_no_other", || {
        let mut table = open();
        let flows = every_kind();
        fill(&mut table, &flows);
        let mut left = dump(&mut table);
        while let Some(victim) = left.pop() {
            let target = DeleteTarget::of(&victim).unwrap();
            assert_eq!(
                table.delete(&[target, target]),
                [Ok(()), Err(Errno::NOENT)],
                "{victim:?}"
            );
            let mut now = dump(&mut table);
            let by_id = |f: &Flow| (f.id, f.zone, f.original.src, f.original.protocol);
            now.sort_by_key(|f| format!("{:?}", by_id(f)));
            left.sort_by_key(|f| format!("{:?}", by_id(f)));
            assert_eq!(
                now.iter().map(by_id).collect::<Vec<_>>(),
                left.iter().map(by_id).collect::<Vec<_>>(),
                "after {victim:?}"
            );
        }
        assert_eq!(table.count().unwrap(), 0);
    });
}

#[test]
fn twins_in_other_zones_survive() {
    private_netns("twins_in_other_zones_survive", || {
        let mut table = open();
        let original = tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53));
        let twins: Vec<_> = [0, 12, 13]
            .map(|id| {
                let mut flow = plain(original, REPLIED);
                flow.zone.id = id;
                ("twin", flow)
            })
            .into();
        fill(&mut table, &twins);
        let found: HashMap<u16, Flow> = dump(&mut table)
            .into_iter()
            .map(|f| (f.zone.id, f))
            .collect();
        let at = |id, zone| DeleteTarget::new(found[&id].reply, found[&id].id.unwrap(), zone);
        let zone = |id, direction| Zone { id, direction };
        // The id of one zone's entry with another zone's number finds nothing.
        let wrong = [
            at(0, zone(12, None)),
            at(12, zone(13, None)),
            at(13, zone(0, None)),
        ];
        assert_eq!(table.delete(&wrong), [Err(Errno::NOENT); 3]);
        assert_eq!(table.delete(&[at(12, found[&12].zone)]), [Ok(())]);
        let mut zones: Vec<_> = dump(&mut table).iter().map(|f| f.zone.id).collect();
        zones.sort();
        assert_eq!(zones, [0, 13]);
    });
}

#[test]
fn an_entry_that_was_replaced_by_a_healthy_one_is_not_deleted() {
    private_netns(
        "an_entry_that_was_replaced_by_a_healthy_one_is_not_deleted",
        || {
            let mut table = open();
            let (_, dead) = every_kind()
                .into_iter()
                .find(|(name, _)| *name == "dnat")
                .unwrap();
            table.insert(&dead).unwrap();
            let seen = dump(&mut table);
            let target = DeleteTarget::of(&seen[0]).unwrap();
            assert_eq!(table.delete(&[target]), [Ok(())]);
            let mut healthy = dead.clone();
            healthy.reply.src = "10.244.1.8".parse().unwrap();
            table.insert(&healthy).unwrap();
            assert_eq!(table.delete(&[target]), [Err(Errno::NOENT)]);
            assert_eq!(table.count().unwrap(), 1);
        },
    );
}

#[test]
fn refused_inserts_are_told_one_by_one() {
    private_netns("refused_inserts_are_told_one_by_one", || {
        let mut table = open();
        let ok = |port| plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(port, 53)), REPLIED);
        let mut timeless = ok(2);
        timeless.timeout = None;
        let mut helped = ok(3);
        helped.rare_mut().helper = Some("no-such-helper".into());
        let mut long = ok(4);
        long.rare_mut().helper = Some("x".repeat(70_000).into());
        let mut tagless = plain(tuple(132, "10.0.0.1", "10.0.0.2", ports(1, 2)), REPLIED);
        tagless.state = Some(ProtocolState::Sctp {
            state: 4,
            vtag_original: Some(1),
            vtag_reply: None,
        });
        let mut impossible = plain(tuple(6, "10.0.0.1", "10.0.0.2", ports(1, 2)), REPLIED);
        impossible.state = Some(tcp_state(42));
        let flows = [
            timeless,
            ok(1),
            ok(1),
            helped,
            tagless,
            long,
            impossible,
            ok(5),
        ];
        let results = table.insert_all(&flows);
        let kernel = |errno| Err(InsertError::Kernel(errno));
        assert!(matches!(results[0], Err(InsertError::Incomplete(_))));
        assert_eq!(
            results[1..4],
            [Ok(()), kernel(Errno::EXIST), kernel(Errno::OPNOTSUPP)]
        );
        assert!(matches!(results[4], Err(InsertError::Incomplete(_))));
        assert!(matches!(results[5], Err(InsertError::Incomplete(_))));
        assert_eq!(results[6..], [kernel(Errno::RANGE), Ok(())]);
        assert_eq!(table.count().unwrap(), 2);
    });
}

#[test]
fn ten_thousand_entries_go_in_are_seen_once_and_come_out() {
    private_netns(
        "ten_thousand_entries_go_in_are_seen_once_and_come_out",
        || {
            let mut table = open();
            let flows = (0..10_000u32).map(|n| {
                let [_, _, a, b] = n.to_be_bytes();
                let mut flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
                flow.original.src = IpAddr::V4(Ipv4Addr::new(10, 1, a, b));
                flow.reply.dst = flow.original.src;
                flow
            });
            assert!(table.insert_all(flows).iter().all(Result::is_ok));
            let found = dump(&mut table);
            let mut targets: Vec<_> = found.iter().filter_map(DeleteTarget::of).collect();
            let drained = table.drain(&DumpFilter::default()).unwrap();
            assert_eq!((found.len(), drained.messages), (10_000, 10_000));
            // Every third is gone before: each ENOENT must be told for the right one.
            let gone: Vec<_> = targets.iter().copied().step_by(3).collect();
            assert!(table.delete(&gone).iter().all(Result::is_ok));
            for (at, result) in table.delete(&targets).into_iter().enumerate() {
                let wanted = if at % 3 == 0 {
                    Err(Errno::NOENT)
                } else {
                    Ok(())
                };
                assert_eq!(result, wanted, "{at}");
            }
            targets.clear();
            assert_eq!(table.delete(&targets), []);
            assert_eq!(table.count().unwrap(), 0);
        },
    );
}

#[test]
fn a_dump_that_was_left_does_not_spoil_what_comes_next() {
    private_netns(
        "a_dump_that_was_left_does_not_spoil_what_comes_next",
        || {
            let mut table = open();
            let flows: Vec<_> = (1..3000)
                .map(|port| plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(port, 53)), REPLIED))
                .collect();
            assert!(table.insert_all(&flows).iter().all(Result::is_ok));
            let leave = |table: &mut Table| {
                let mut seen = 0;
                let report = table
                    .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |_| {
                        seen += 1;
                        if seen == 5 {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    })
                    .unwrap();
                assert_eq!((seen, report.received, report.stopped), (5, 5, true));
            };
            leave(&mut table);
            assert_eq!(dump(&mut table).len(), flows.len());
            leave(&mut table);
            assert!(
                table
                    .get(&flows[0].reply, Direction::Reply, Zone::default())
                    .unwrap()
                    .is_some()
            );
            leave(&mut table);
            assert_eq!(
                table.insert(&flows[0]),
                Err(InsertError::Kernel(Errno::EXIST))
            );
            leave(&mut table);
            assert_eq!(table.count().unwrap() as usize, flows.len());
        },
    );
}

#[test]
fn an_absent_entry_is_none_and_the_other_direction_is_no_match() {
    private_netns(
        "an_absent_entry_is_none_and_the_other_direction_is_no_match",
        || {
            let mut table = open();
            let flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
            let mut get = |tuple, direction| table.get(tuple, direction, Zone::default()).unwrap();
            assert_eq!(get(&flow.original, Direction::Original), None);
            open().insert(&flow).unwrap();
            assert!(get(&flow.original, Direction::Original).is_some());
            assert_eq!(get(&flow.reply, Direction::Original), None);
        },
    );
}

#[test]
fn an_expectation_is_read_with_its_master() {
    private_netns("an_expectation_is_read_with_its_master", || {
        run(Command::new("ip").args(["link", "set", "lo", "up"]));
        nft(
            "table ip t { ct helper ftp { type \"ftp\" protocol tcp; }; \
            chain c { type filter hook output priority 0; tcp dport 21 ct helper set \"ftp\"; }; }",
        );
        let server = std::net::TcpListener::bind("127.0.0.1:21").unwrap();
        let mut client = std::net::TcpStream::connect("127.0.0.1:21").unwrap();
        let (mut served, _) = server.accept().unwrap();
        // The helper reads a command only where it saw the line before end.
        for line in [&b"USER x\r\n"[..], b"PORT 127,0,0,1,160,40\r\n"] {
            client.write_all(line).unwrap();
            // When the server has it, the helper has seen it.
            served.read_exact(&mut vec![0; line.len()]).unwrap();
        }

        let mut found = Vec::new();
        let report = open()
            .dump_expectations(None, &mut |expectation| {
                found.push(expectation);
                ControlFlow::Continue(())
            })
            .unwrap();
        let [expectation] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((report.received, report.unreadable), (1, 0));
        let port = client.local_addr().unwrap().port();
        let master = tuple(6, "127.0.0.1", "127.0.0.1", ports(port, 21));
        assert_eq!(expectation.master, master);
        let destination = expectation.tuple.destination().to_string();
        assert_eq!(
            (expectation.tuple.protocol, destination.as_str()),
            (6, "127.0.0.1:41000")
        );
        assert_eq!(expectation.mask.map(|mask| mask.l4), Some(ports(0, 65535)));
        assert_eq!(expectation.helper.as_deref(), Some("ftp"));
        assert!(expectation.timeout.is_some() && expectation.id.is_some());
        assert_eq!(
            open()
                .dump_expectations(Some(Family::Ipv6), &mut |_| ControlFlow::Break(()))
                .unwrap()
                .received,
            0
        );
    });
}

#[test]
fn the_tables_of_dying_and_unconfirmed_entries_can_be_asked_for() {
    private_netns(
        "the_tables_of_dying_and_unconfirmed_entries_can_be_asked_for",
        || {
            let mut table = open();
            let filter = DumpFilter {
                zone: Some(3),
                ..DumpFilter::default()
            };
            for kind in [TableKind::Dying, TableKind::Unconfirmed] {
                let report = table
                    .dump(kind, &filter, &mut |_| ControlFlow::Continue(()))
                    .unwrap();
                assert_eq!(report, DumpReport::default(), "{kind:?}");
            }
        },
    );
}

#[test]
fn without_the_capability_every_request_says_so() {
    private_netns("without_the_capability_every_request_says_so", || {
        let flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
        let mut inserted = open();
        inserted.insert(&flow).unwrap();
        // An old socket keeps what its opener was permitted; a new one has nothing.
        drop_capabilities();
        let mut table = open();
        let error = table
            .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |_| {
                ControlFlow::Continue(())
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotPermitted);
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        assert!(matches!(table.count(), Err(NetlinkError::NotPermitted(_))));
        let got = table.get(&flow.reply, Direction::Reply, flow.zone);
        assert!(matches!(got, Err(NetlinkError::NotPermitted(_))));
        let target = DeleteTarget::new(flow.reply, 1, flow.zone);
        assert_eq!(table.delete(&[target; 200]), vec![Err(Errno::PERM); 200]);
        assert_eq!(table.insert(&flow), Err(InsertError::Kernel(Errno::PERM)));
    });
}

fn drop_capabilities() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).unwrap();
}

#[test]
fn another_namespace_is_read_without_moving_the_caller() {
    private_netns(
        "another_namespace_is_read_without_moving_the_caller",
        || {
            run(Command::new("ip").args(["link", "set", "lo", "up"]));
            run(Command::new("ip").args(["address", "add", "192.0.2.1/32", "dev", "lo"]));
            run(Command::new("ip").args(["address", "add", "2001:db8::1/128", "dev", "lo"]));
            let flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
            open().insert(&flow).unwrap();
            let there = Netns::current();
            let thread = std::path::PathBuf::from("/proc/thread-self/ns/net");
            let path = std::fs::canonicalize("/proc/thread-self")
                .unwrap()
                .join("ns/net");
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let before = std::fs::read_link(&thread).unwrap();
            // The path names this very thread, which has moved: it is the new namespace now.
            let here = Netns::named(path.to_str().unwrap()).unwrap();
            for (netns, count, addresses) in [(&there, 1, 4), (&here, 0, 0)] {
                assert_eq!(
                    Table::open(netns).unwrap().count().unwrap(),
                    count,
                    "{netns:?}"
                );
                let found = netns.local_addresses().unwrap();
                assert_eq!(found.len(), addresses, "{found:?}");
                assert!(found.iter().all(|a| a.interface == "lo"));
                assert_eq!(netns.is_initial(), Some(false));
                let sysctls = ctk::sysctl::conntrack(netns).unwrap();
                assert_eq!(sysctls.count, Some(u64::from(count)));
                assert!(sysctls.max.is_some() && sysctls.events.is_some());
            }
            let addresses = there.local_addresses().unwrap();
            for wanted in [
                IpAddr::from([192, 0, 2, 1]),
                IpAddr::V6(Ipv6Addr::LOCALHOST),
            ] {
                assert!(
                    addresses.iter().any(|a| a.address == wanted),
                    "{addresses:?}"
                );
            }
            assert_eq!(std::fs::read_link(&thread).unwrap(), before);
        },
    );
}
