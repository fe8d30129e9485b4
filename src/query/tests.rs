//! Selectors as a user types them, down to what passes.

mod pushdown;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::usage_error::UsageError;
use super::*;
use crate::args::select::SelectArgs;
use crate::filter::protocol::OptionalPorts;
use crate::filter::{Filter, Outcome};
use ctnetlink::flow::{Counters, Flow, L4, ProtocolState, TcpDirection, Tuple};

#[derive(Parser)]
struct Probe {
    #[command(flatten)]
    select: SelectArgs,
    rest: Vec<String>,
}

pub(super) fn parse(words: &[&str]) -> Result<SelectArgs, clap::Error> {
    Probe::try_parse_from(["ctk"].iter().chain(words)).map(|probe| probe.select)
}

fn select(words: &[&str]) -> SelectArgs {
    parse(words).unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

fn query(words: &[&str]) -> Result<EntryQuery, UsageError> {
    EntryQuery::new(&select(words))
}

pub(super) fn filter(words: &[&str]) -> Filter {
    query(words)
        .map(|query| query.filter)
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
        let error = query(words).expect_err("two families");
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
        assert!(!query(words).unwrap().needs_cluster(), "{words:?}");
        assert!(!filter(words).is_empty(), "{words:?} selects everything");
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
        assert_eq!(query(words).unwrap().needs_cluster(), cluster, "{words:?}");
        assert!(filter(words).is_empty(), "{words:?} is no filter");
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
        assert_eq!(
            query(words).unwrap().selectors.names_a_protocol,
            named,
            "{words:?}"
        );
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
