//! What the kernel is asked to leave out, and that it never leaves out what passes.

use proptest::prelude::*;

use super::{filter, parse};
use crate::filter::{Filter, Outcome};
use crate::query::EntryQuery;
use ctnetlink::flow::{Family, Flow, L4, Status, Tuple, Zone};
use ctnetlink::{DumpFilter, Masked, TupleMatch};

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
        let Ok(EntryQuery { filter, .. }) = EntryQuery::new(&select) else { return Ok(()) };
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
