//! Selectors as a user types them, down to what passes.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use proptest::prelude::*;

use super::*;
use crate::filter::Outcome;
use crate::flow::{Counters, Flow, L4, ProtocolState, Status, TcpDirection, Tuple, Zone};
use crate::netlink::{DumpFilter, Masked, TupleMatch};

#[derive(Parser)]
struct Probe {
    #[command(flatten)]
    select: SelectArgs,
    rest: Vec<String>,
}

fn parse(words: &[&str]) -> Result<SelectArgs, clap::Error> {
    Probe::try_parse_from(["ctk"].iter().chain(words)).map(|probe| probe.select)
}

fn select(words: &[&str]) -> SelectArgs {
    parse(words).unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

fn filter(words: &[&str]) -> Filter {
    select(words)
        .to_filter()
        .unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

fn tuple(protocol: u8, src: &str, sport: u16, dst: &str, dport: u16) -> Tuple {
    Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        l4: L4::Ports {
            src: sport,
            dst: dport,
        },
    }
}

/// `SRC SPORT DST DPORT` of the original and of the reply.
type Row = [(&'static str, u16, &'static str, u16); 2];

fn flow(protocol: u8, [original, reply]: Row) -> Flow {
    let of = |(src, sport, dst, dport)| tuple(protocol, src, sport, dst, dport);
    Flow::new(of(original), of(reply))
}

fn passing(words: &[&str], flows: &[Flow]) -> Vec<usize> {
    let filter = filter(words);
    let pass = |flow: &Flow| filter.test(flow, 0) == Outcome::Pass;
    (1..)
        .zip(flows)
        .filter(|(_, f)| pass(f))
        .map(|(n, _)| n)
        .collect()
}

#[test]
fn the_command_is_well_formed() {
    Probe::command().debug_assert();
}

#[test]
fn every_impossible_value_names_its_flag() {
    for (flag, values) in [
        (
            "--tcp",
            &["", "99999", "60-50", "!", "53,,54", "no-such-port"][..],
        ),
        ("--udp", &["", "99999", "60-50", "!", "53,", "\u{7f}"]),
        ("--sctp", &["", "65536", "2-1", "!!5"]),
        ("--proto", &["", "256", "udpp", "!", "tcp,"]),
        (
            "--src",
            &["", "10.0.0.0/33", "10.0.0.1/8", "!", "x", "10.0.0.1,"],
        ),
        ("--dst", &["", "fd00::/129", "fd00::1/64", "10.0.0"]),
        ("--reply-src", &["", "10.0.0.0/", "10.0.0.1:53"]),
        ("--reply-dst", &["", "300.1.1.1", "::ffff:10.0.0.1"]),
        ("--ip", &["", "10.0.0.0/8/8", "!!10.0.0.1"]),
        ("--sport", &["", "99999", "60-50", "53-"]),
        ("--dport", &["", "1-99999", "0x35"]),
        ("--reply-sport", &["", "70000"]),
        ("--reply-dport", &["", "9-8"]),
        ("--port", &["", "65536", ",", "!,53"]),
        ("--status", &["", "asured", "assured,"]),
        ("--state", &["", "listen", "!"]),
        ("--ttl", &["", "30s", "<30", "<0s", "<", "<1parsec"]),
        ("--age", &["", "1h", ">600years"]),
        ("--packets", &["", "5", "<0", ">1.5M", ">99999999999G"]),
        ("--bytes", &["", "1M", ">1MB", "=18446744073709551616"]),
        ("--mark", &["", "4294967296", "0/0", "1/", "0x12/0x0f", "x"]),
        ("--zone", &["", "65536", "a"]),
        ("--label", &["", "128", "no-such-label", "0x", "!"]),
        ("--helper", &["", "1234567890123456"]),
        ("--id", &["", "4294967296", "x"]),
        ("--match", &["", "(", "!"]),
        ("--svc", &["", "a:", "a:99999", "A", "/a", "10.96.0.10"]),
        ("--pod", &["", "a/b/c", "10.0.0.1"]),
        ("--client", &["", "10.0.0.1:99999", "10.0.0.1/8"]),
        ("--endpoint", &["", "[fd00::1]:x", "10.0.0"]),
        ("--namespace", &["", "a/b", "!"]),
        ("--verdict", &["", "stail", "stale,"]),
        ("--reason", &["", "endpoint-gon"]),
    ] {
        for value in values {
            let word = format!("{flag}={value}");
            let error = parse(&[&word]).expect_err(&word);
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{word}: {error}");
            match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(named)) => {
                    assert!(named.starts_with(flag), "{word} is told of {named}")
                }
                other => panic!("{word}: no flag named, but {other:?}"),
            }
        }
    }
}

#[test]
fn flags_that_exclude_each_other_are_refused() {
    let error = parse(&["-4", "-6"]).expect_err("-4 -6");
    assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
    for (words, flags) in [
        (&["-4", "--dst", "fd00::1"][..], ["-4", "--dst"]),
        (&["-6", "--ip", "10.0.0.0/8"], ["-6", "--ip"]),
        (
            &["--src", "10.0.0.1", "--reply-src", "fd00::1"],
            ["--src", "--reply-src"],
        ),
    ] {
        let error = select(words).to_filter().expect_err("two families");
        for flag in flags {
            assert!(error.message.contains(flag), "{words:?}: {error}");
        }
    }
    // One of the values can be met, or none is asked for.
    filter(&["-4", "--dst", "10.96.0.10,fd00:96::a"]);
    filter(&["-4", "--dst", "!fd00::1"]);
}

#[test]
fn an_optional_port_leaves_other_flags_and_words_alone() {
    for words in [
        &["--udp", "--assured"][..],
        &["--udp", "-4"],
        &["--udp", "-n", "shop"],
    ] {
        let select = select(words);
        assert!(
            matches!(select.udp.as_slice(), [OptionalPorts::Any]),
            "{words:?}"
        );
    }
    assert!(matches!(
        select(&["--udp", "53"]).udp.as_slice(),
        [OptionalPorts::Ports(_)]
    ));
    assert_eq!(select(&["--udp", "--udp", "53"]).udp.len(), 2);
    let probe = Probe::try_parse_from(["ctk", "name", "--udp"]).expect("a name first");
    assert_eq!(probe.rest, ["name"]);
}

#[test]
fn every_selector_counts_as_one() {
    assert!(SelectArgs::default().is_empty());
    for words in [
        &["--tcp"][..],
        &["--udp"],
        &["--sctp"],
        &["--icmp"],
        &["-p", "gre"],
        &["-4"],
        &["-6"],
        &["--src", "::1"],
        &["--dst", "::1"],
        &["--sport", "1"],
        &["--dport", "1"],
        &["--reply-src", "::1"],
        &["--reply-dst", "::1"],
        &["--reply-sport", "1"],
        &["--reply-dport", "1"],
        &["--ip", "::1"],
        &["--port", "1"],
        &["--status", "assured"],
        &["--assured"],
        &["--unreplied"],
        &["--state", "close"],
        &["--nat"],
        &["--snat"],
        &["--dnat"],
        &["--hairpin"],
        &["--ttl", "<1s"],
        &["--age", "<1s"],
        &["--packets", "=1"],
        &["--bytes", "=1"],
        &["--mark", "1"],
        &["--zone", "1"],
        &["--label", "1"],
        &["--helper", "ftp"],
        &["--id", "1"],
        &["--match", "a"],
    ] {
        let select = select(words);
        assert!(!select.is_empty(), "{words:?}");
        assert!(!select.wants_cluster(), "{words:?}");
        assert!(
            !select.to_filter().unwrap().is_empty(),
            "{words:?} selects everything"
        );
    }
    for (words, cluster) in [
        (&["--svc", "a"][..], true),
        (&["--pod", "a"], true),
        (&["--client", "a"], true),
        (&["--client", "10.0.0.1"], false),
        (&["--endpoint", "!a"], true),
        (&["--endpoint", "10.0.0.1:53"], false),
        (&["-n", "a"], true),
        (&["--verdict", "ok"], true),
        (&["--reason", "no-dnat"], true),
        (&["--stale"], true),
        (&["--refreshing"], false),
    ] {
        let select = select(words);
        assert!(!select.is_empty(), "{words:?}");
        assert_eq!(select.wants_cluster(), cluster, "{words:?}");
        assert!(
            select.to_filter().unwrap().is_empty(),
            "{words:?} is no filter"
        );
    }
}

#[test]
fn only_named_service_protocols_release_what_stale_holds_back() {
    for (words, named) in [
        (&["--stale"][..], false),
        (&["--udp"], false),
        (&["--tcp"], true),
        (&["--udp", "--tcp", "80"], true),
        (&["--sctp"], true),
        (&["-p", "tcp"], true),
        (&["-p", "6"], true),
        (&["-p", "udp,sctp"], true),
        (&["-p", "132"], true),
        (&["-p", "udp"], false),
        (&["-p", "!tcp"], false),
        (&["-p", "gre"], false),
        (&["--icmp"], false),
    ] {
        assert_eq!(select(words).names_a_protocol(), named, "{words:?}");
    }
}

#[test]
fn a_port_alone_hits_every_service_and_an_address_with_it_only_one() {
    let rows = [
        flow(
            17,
            [
                ("198.51.100.3", 4000, "192.0.2.11", 30123),
                ("10.244.1.9", 9000, "192.0.2.11", 61001),
            ],
        ),
        flow(
            17,
            [
                ("10.244.1.50", 4001, "10.96.7.7", 30123),
                ("10.244.1.60", 30123, "10.244.1.50", 4001),
            ],
        ),
        flow(
            17,
            [
                ("10.244.1.51", 4002, "203.0.113.200", 30123),
                ("203.0.113.200", 30123, "192.0.2.11", 4002),
            ],
        ),
    ];
    for (words, expected) in [
        (&["--udp", "30123"][..], &[1, 2, 3][..]),
        (&["--udp", "30123", "--dst", "192.0.2.11"], &[1]),
        (
            &["--udp", "30123", "--dst", "!10.96.0.0/12", "--dnat"],
            &[1],
        ),
        (&["--tcp", "30123"], &[]),
        (&["--reply-sport", "30123"], &[2, 3]),
        (&["--port", "!30123"], &[]),
        (&["--dport", "!30123,9000"], &[]),
        (&["--sport", "4000-4001", "--sport", "!4000"], &[2]),
    ] {
        assert_eq!(passing(words, &rows), expected, "{words:?}");
    }
}

#[test]
fn all_spellings_of_an_address_select_the_same_row_without_a_family_flag() {
    let rows = [
        flow(
            17,
            [
                ("2001:db8:244:1::7", 41001, "2001:db8:96::a", 53),
                ("2001:db8:244:2::9", 53, "2001:db8:244:1::7", 41001),
            ],
        ),
        flow(
            17,
            [
                ("10.244.1.7", 41001, "10.96.0.10", 53),
                ("10.244.2.9", 53, "10.244.1.7", 41001),
            ],
        ),
    ];
    for address in [
        "2001:db8:96::a",
        "2001:DB8:96:0:0::A",
        "2001:0db8:0096:0000:0000:0000:0000:000a",
        "2001:db8:96::/64",
    ] {
        assert_eq!(passing(&["--dst", address], &rows), [1], "{address}");
    }
    assert_eq!(passing(&["--udp", "domain"], &rows), [1, 2]);
    assert_eq!(passing(&["-6"], &rows), [1]);
    assert_eq!(passing(&["-4"], &rows), [2]);
}

#[test]
fn a_translated_source_is_found_in_the_reply_only() {
    let rows = [
        flow(
            6,
            [
                ("10.244.1.77", 40100, "198.51.100.93", 8093),
                ("198.51.100.93", 8093, "192.0.2.11", 61234),
            ],
        ),
        flow(
            6,
            [
                ("10.244.1.78", 61234, "198.51.100.93", 8093),
                ("198.51.100.93", 8093, "192.0.2.11", 40100),
            ],
        ),
    ];
    let words = ["--reply-dst", "192.0.2.11", "--reply-dport", "61234"];
    assert_eq!(passing(&words, &rows), [1]);
}

#[test]
fn an_address_in_any_place_finds_both_roles_and_no_longer_text() {
    let rows = [
        flow(
            6,
            [
                ("10.13.1.2", 1000, "203.0.113.1", 443),
                ("203.0.113.1", 443, "192.0.2.5", 1000),
            ],
        ),
        flow(
            6,
            [
                ("198.51.100.1", 2000, "192.0.2.5", 2222),
                ("10.13.1.2", 22, "198.51.100.1", 2000),
            ],
        ),
        flow(
            6,
            [
                ("10.13.1.20", 1001, "203.0.113.1", 443),
                ("203.0.113.1", 443, "192.0.2.5", 1001),
            ],
        ),
    ];
    for (words, expected) in [
        (["--ip", "10.13.1.2"], &[1, 2][..]),
        (["--ip", "!10.13.1.2"], &[3]),
        (["--src", "10.13.1.2"], &[1]),
        (["--dst", "192.0.2.5"], &[2]),
        (["--reply-src", "10.13.1.2"], &[2]),
        (["--reply-dst", "192.0.2.5"], &[1, 3]),
    ] {
        assert_eq!(passing(&words, &rows), expected, "{words:?}");
    }
}

#[test]
fn what_every_passing_entry_has_is_pushed_and_nothing_else() {
    let nothing = TupleMatch::default();
    let v4 = |original, reply| {
        vec![DumpFilter {
            family: Some(Family::Ipv4),
            original,
            reply,
            ..DumpFilter::default()
        }]
    };
    let both = |original: TupleMatch, reply: TupleMatch| {
        [Family::Ipv4, Family::Ipv6]
            .map(|family| DumpFilter {
                family: Some(family),
                original,
                reply,
                ..DumpFilter::default()
            })
            .to_vec()
    };
    let status = |value, mask| DumpFilter {
        status: Some(Masked { value, mask }),
        ..DumpFilter::default()
    };
    let ipv4 = DumpFilter {
        family: Some(Family::Ipv4),
        ..DumpFilter::default()
    };
    let ipv6 = DumpFilter {
        family: Some(Family::Ipv6),
        ..DumpFilter::default()
    };
    let udp = TupleMatch {
        protocol: Some(17),
        ..nothing
    };
    let dns = TupleMatch {
        dport: Some(53),
        ..udp
    };
    let vip = TupleMatch {
        dst: "10.96.0.10".parse().ok(),
        ..nothing
    };
    let seen = Status::SEEN_REPLY.0;
    let assured = Status::ASSURED.0;
    for (words, expected) in [
        (&["-4"][..], vec![ipv4]),
        (&["--udp", "53"], both(dns, nothing)),
        (&["--udp", "53", "-4"], v4(dns, nothing)),
        (&["-p", "udp"], both(udp, nothing)),
        (&["--udp", "53,54"], both(udp, nothing)),
        (&["--udp", "!53"], both(udp, nothing)),
        (&["--udp", "53", "--udp"], both(udp, nothing)),
        (&["--udp", "53", "--tcp", "53"], vec![DumpFilter::default()]),
        (&["-p", "!udp"], vec![DumpFilter::default()]),
        (&["--dst", "10.96.0.10"], v4(vip, nothing)),
        (
            &["--dst", "10.96.0.10/32", "--udp"],
            v4(
                TupleMatch {
                    protocol: Some(17),
                    ..vip
                },
                nothing,
            ),
        ),
        (&["--dst", "10.96.0.0/16"], vec![ipv4]),
        (&["--dst", "10.96.0.10,10.96.0.11"], vec![ipv4]),
        (
            &["--dst", "10.96.0.10,fd00::1"],
            vec![DumpFilter::default()],
        ),
        (&["--dst", "!10.96.0.10"], vec![DumpFilter::default()]),
        (&["--ip", "10.96.0.10"], vec![ipv4]),
        // The kernel's comparison of IPv6 addresses is upside down.
        (&["--dst", "fd00::1"], vec![ipv6]),
        (&["--dport", "53"], vec![DumpFilter::default()]),
        (
            &["--dport", "53", "-p", "icmp", "-4"],
            v4(
                TupleMatch {
                    protocol: Some(1),
                    ..nothing
                },
                nothing,
            ),
        ),
        (&["--port", "53", "--udp"], both(udp, nothing)),
        (
            &["--reply-sport", "53", "--udp", "-4"],
            v4(
                udp,
                TupleMatch {
                    protocol: Some(17),
                    sport: Some(53),
                    ..nothing
                },
            ),
        ),
        (&["--unreplied"], vec![status(0, seen)]),
        (
            &["--assured", "--status", "seen-reply"],
            vec![status(assured | seen, assured | seen)],
        ),
        (
            &["--status", "assured,unreplied"],
            vec![DumpFilter::default()],
        ),
        (&["--status", "!assured"], vec![DumpFilter::default()]),
        (
            &["--mark", "0x4000/0x4000"],
            vec![DumpFilter {
                mark: Some(Masked {
                    value: 0x4000,
                    mask: 0x4000,
                }),
                ..DumpFilter::default()
            }],
        ),
        (&["--mark", "1,2"], vec![DumpFilter::default()]),
        (
            &["--zone", "5"],
            vec![DumpFilter {
                zone: Some(5),
                ..DumpFilter::default()
            }],
        ),
        (&["--zone", "0"], vec![DumpFilter::default()]),
        (
            &[
                "--state",
                "established",
                "--nat",
                "--ttl",
                "<9s",
                "--id",
                "7",
            ],
            vec![DumpFilter::default()],
        ),
    ] {
        assert_eq!(filter(words).dumps(), expected, "{words:?}");
    }
}

#[test]
fn explain_tells_for_each_selector_where_it_ran() {
    let words = [
        "-4",
        "--udp",
        "53",
        "--dst",
        "10.96.0.10",
        "--src",
        "10.0.0.0/8",
        "--state",
        "established",
        "--match",
        "a,b",
    ];
    assert_eq!(
        filter(&words).explain(),
        [
            "kernel dump: family ipv4, original dst 10.96.0.10 protocol 17 dport 53",
            "-4: kernel, and again in user space",
            "--udp 53: kernel, and again in user space",
            "--src 10.0.0.0/8: kernel in part, user space decides",
            "--dst 10.96.0.10: kernel, and again in user space",
            "--state established: user space",
            "--match a,b: user space, on the printed line",
        ]
    );
    assert_eq!(Filter::default().explain(), ["kernel dump: everything"]);
}

/// What the kernel compares (`ctnetlink_filter_match`), IPv6 addresses upside down as it does.
fn kernel_sends(dump: &DumpFilter, flow: &Flow) -> bool {
    let masked =
        |wanted: Option<Masked>, value: u32| wanted.is_none_or(|m| value & m.mask == m.value);
    let address = |wanted: Option<std::net::IpAddr>, is: std::net::IpAddr| {
        wanted.is_none_or(|w| if w.is_ipv4() { w == is } else { w != is })
    };
    let ports = |l4| match l4 {
        L4::Ports { src, dst } => Some((src, dst)),
        _ => None,
    };
    let tuple = |wanted: &TupleMatch, is: &Tuple| {
        let compared = matches!(is.protocol, 6 | 17);
        address(wanted.src, is.src)
            && address(wanted.dst, is.dst)
            && wanted.protocol.is_none_or(|p| p == is.protocol)
            && ports(is.l4).filter(|_| compared).is_none_or(|(src, dst)| {
                wanted.sport.is_none_or(|p| p == src) && wanted.dport.is_none_or(|p| p == dst)
            })
    };
    dump.family.is_none_or(|family| family == flow.family())
        && masked(dump.mark, flow.mark.unwrap_or(0))
        && masked(dump.status, flow.status.0)
        && dump.zone.is_none_or(|zone| zone == flow.zone.id)
        && tuple(&dump.original, &flow.original)
        && tuple(&dump.reply, &flow.reply)
}

fn any_selector() -> impl Strategy<Value = Vec<String>> {
    let address = prop::sample::select(vec![
        "10.0.0.1",
        "10.0.0.2",
        "!10.0.0.1",
        "10.0.0.1,10.0.0.2",
        "10.0.0.0/31",
        "fd00::1",
        "fd00::/16",
        "!fd00::2",
        "10.0.0.1,fd00::1",
    ]);
    let port = prop::sample::select(vec!["53", "80", "!53", "53,80", "50-60", "53,!53"]);
    let small = prop::sample::select(vec!["0", "1", "!1", "0,1", "!0"]);
    let with = |flags: &'static [&'static str], values: BoxedStrategy<&'static str>| {
        (prop::sample::select(flags), values)
            .prop_map(|(flag, value)| vec![flag.to_owned(), value.to_owned()])
    };
    prop_oneof![
        with(
            &["--src", "--dst", "--reply-src", "--reply-dst", "--ip"],
            address.boxed()
        ),
        with(
            &[
                "--sport",
                "--dport",
                "--reply-sport",
                "--reply-dport",
                "--port",
                "--udp",
                "--tcp",
                "--sctp"
            ],
            port.boxed()
        ),
        with(&["--mark", "--zone"], small.boxed()),
        with(&["--mark"], Just("1/1").boxed()),
        with(
            &["-p"],
            prop::sample::select(vec!["udp", "icmp", "!udp", "tcp,udp", "sctp"]).boxed()
        ),
        with(
            &["--status"],
            prop::sample::select(vec![
                "assured",
                "unreplied",
                "seen-reply",
                "!assured",
                "assured,unreplied"
            ])
            .boxed()
        ),
        prop::sample::select(vec![
            "-4",
            "--unreplied",
            "--assured",
            "--udp",
            "--icmp",
            "--nat",
            "--dnat"
        ])
        .prop_map(|flag| vec![flag.to_owned()]),
    ]
}

fn any_flow() -> impl Strategy<Value = Flow> {
    let v6 = any::<bool>();
    let l4 = (
        prop::sample::select(vec![1u8, 6, 17, 47, 132, 200]),
        any::<[u8; 4]>(),
        any::<[bool; 4]>(),
    );
    let rest = (
        any::<[bool; 2]>(),
        prop::option::of(0u32..4),
        0u16..2,
        prop::option::of(0u32..60),
    );
    (v6, l4, rest).prop_map(
        |(v6, (protocol, hosts, ports), (bits, mark, zone, timeout))| {
            let host = |n: u8| {
                let text = if v6 {
                    format!("fd00::{}", n % 3 + 1)
                } else {
                    format!("10.0.0.{}", n % 3 + 1)
                };
                text.parse().unwrap()
            };
            let port = |b: bool| if b { 53 } else { 80 };
            let l4 = |src, dst| match protocol {
                1 => L4::Icmp {
                    kind: 8,
                    code: 0,
                    id: 1,
                },
                47 => L4::Gre { src, dst },
                200 => L4::None,
                _ => L4::Ports { src, dst },
            };
            let tuple = |at: usize| Tuple {
                src: host(hosts[at]),
                dst: host(hosts[at + 1]),
                protocol,
                l4: l4(port(ports[at]), port(ports[at + 1])),
            };
            let mut flow = Flow::new(tuple(0), tuple(2));
            for (set, bit) in bits.into_iter().zip([Status::SEEN_REPLY, Status::ASSURED]) {
                if set {
                    flow.status = flow.status.with(bit);
                }
            }
            flow.mark = mark;
            flow.zone = Zone {
                id: zone,
                direction: None,
            };
            flow.timeout = timeout;
            flow
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The same entries with and without push-down, each in one dump only, and the same count of undecidable ones.
    #[test]
    fn no_dump_lacks_an_entry_that_passes(
        selectors in prop::collection::vec(any_selector(), 0..4),
        flows in prop::collection::vec(any_flow(), 30),
    ) {
        let words: Vec<String> = selectors.concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // Flags that may stand once, and families that exclude each other, are refused elsewhere.
        let Ok(select) = parse(&words) else { return Ok(()) };
        let Ok(filter) = select.to_filter() else { return Ok(()) };
        let dumps = filter.dumps();
        for flow in &flows {
            let sent = dumps.iter().filter(|dump| kernel_sends(dump, flow)).count();
            prop_assert!(sent <= 1, "{words:?} sends {flow:?} {sent} times");
            if sent == 0 {
                let outcome = filter.test(flow, 0);
                prop_assert!(outcome != Outcome::Pass, "{words:?} loses {flow:?}");
                prop_assert!(
                    outcome == Outcome::Fail || flow.mark.is_none(),
                    "{words:?} does not count {flow:?}"
                );
            }
        }
    }
}

#[test]
fn counters_state_and_times_reach_the_filter() {
    let mut row = flow(
        6,
        [
            ("10.0.0.1", 1, "10.0.0.2", 2),
            ("10.0.0.2", 2, "10.0.0.1", 1),
        ],
    );
    row.timeout = Some(20);
    row.start = Some(1);
    row.state = Some(ProtocolState::Tcp {
        state: 3,
        original: TcpDirection::default(),
        reply: TcpDirection::default(),
    });
    row.counters_original = Some(Counters {
        packets: 2_000_000,
        bytes: 9,
    });
    let hour = 3_600_000_000_001;
    for (words, expected) in [
        (&["--ttl", "<30s"][..], Outcome::Pass),
        (&["--ttl", ">=10s", "--ttl", "!>30s"], Outcome::Pass),
        (&["--ttl", ">=10s", "--ttl", "!>15s"], Outcome::Fail),
        (&["--age", ">=1h"], Outcome::Pass),
        (&["--packets", ">=1M"], Outcome::Pass),
        (&["--bytes", ">1Ki"], Outcome::Fail),
        (&["--state", "established,time_wait"], Outcome::Pass),
        (&["--state", "!established"], Outcome::Fail),
        (&["--label", "7"], Outcome::Undecidable),
        (&["--label", "7", "--ttl", ">1h"], Outcome::Fail),
    ] {
        assert_eq!(filter(words).test(&row, hour), expected, "{words:?}");
    }
    assert!(filter(&["--match", "established", "--match", "!web"]).test_text("tcp established"));
    assert!(
        !filter(&["--match", "established", "--match", "!web"]).test_text("tcp established web-1")
    );
}
