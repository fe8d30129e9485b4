//! Tests of complete filters, and flows for the tests of single predicates.

use super::list::tests::picks;
use super::*;
use ctnetlink::flow::{Counters, L4, ProtocolState, TcpDirection, Tuple};

fn tuple(src: &str, dst: &str, protocol: u8, l4: L4) -> Tuple {
    Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        l4,
    }
}

fn with_ports(protocol: u8, addresses: [&str; 4], ports: [u16; 4]) -> Flow {
    let l4 = |src, dst| L4::Ports { src, dst };
    Flow::new(
        tuple(addresses[0], addresses[1], protocol, l4(ports[0], ports[1])),
        tuple(addresses[2], addresses[3], protocol, l4(ports[2], ports[3])),
    )
}

/// A UDP flow. Order of addresses and ports: original source, original destination, reply source, reply destination.
pub fn udp(addresses: [&str; 4], ports: [u16; 4]) -> Flow {
    with_ports(17, addresses, ports)
}

pub fn tcp_state(addresses: [&str; 4], ports: [u16; 4], state: u8) -> Flow {
    let mut flow = with_ports(6, addresses, ports);
    flow.state = Some(ProtocolState::Tcp {
        state,
        original: TcpDirection::default(),
        reply: TcpDirection::default(),
    });
    flow
}

pub fn icmp(src: &str, dst: &str) -> Flow {
    let echo = |kind| L4::Icmp {
        kind,
        code: 0,
        id: 7,
    };
    Flow::new(tuple(src, dst, 1, echo(8)), tuple(dst, src, 1, echo(0)))
}

fn filter(checks: Vec<EntryTest>) -> Filter {
    let mut filter = Filter::default();
    for check in checks {
        filter.push("", check);
    }
    filter
}

#[test]
fn the_lasting_filter_has_no_property_that_can_change() {
    let mut all = filter(vec![
        EntryTest::Nat(nat::Nat::Destination),
        EntryTest::Status(picks(&["assured"])),
        EntryTest::Ttl(picks(&["<30s"])),
        EntryTest::Mark(picks(&["7"])),
        EntryTest::Zone(picks(&["0"])),
    ]);
    all.match_text("--match", &["assured".parse::<text::Pattern>().unwrap()]);
    let lasting = all.lasting();
    assert!(!lasting.wants_text());
    let young = udp(
        ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1"],
        [1, 2, 2, 1],
    );
    assert_eq!(all.test(&young, 0), Outcome::Fail);
    assert_eq!(lasting.test(&young, 0), Outcome::Pass);
    assert_eq!(
        lasting.test(&icmp("10.0.0.1", "10.0.0.2"), 0),
        Outcome::Fail
    );
    let mut elsewhere = young;
    elsewhere.zone.id = 5;
    assert_eq!(lasting.test(&elsewhere, 0), Outcome::Fail);
}

#[test]
fn an_empty_filter_passes_everything_and_pushes_nothing() {
    let filter = Filter::default();
    assert!(filter.is_empty() && !filter.wants_text());
    assert_eq!(filter.test(&icmp("10.0.0.1", "10.0.0.2"), 0), Outcome::Pass);
    assert!(filter.test_text("anything"));
    assert_eq!(filter.dumps(), [DumpFilter::default()]);
}

#[test]
fn a_failed_selector_wins_over_an_undecidable_one_in_either_order() {
    let ping = icmp("10.0.0.1", "10.0.0.2");
    let port = || EntryTest::Port(Field::Dst, picks(&["53"]));
    let here = || EntryTest::Address(Field::Src, picks(&["10.0.0.1"]));
    let elsewhere = || EntryTest::Address(Field::Src, picks(&["10.9.9.9"]));
    for (checks, expected) in [
        (vec![port(), elsewhere()], Outcome::Fail),
        (vec![elsewhere(), port()], Outcome::Fail),
        (vec![port(), here()], Outcome::Undecidable),
        (vec![here(), port()], Outcome::Undecidable),
        (vec![here()], Outcome::Pass),
    ] {
        assert_eq!(filter(checks).test(&ping, 0), expected);
    }
}

#[test]
fn absent_times_and_counters_are_undecidable() {
    let mut flow = udp(
        ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
        [1, 2, 2, 1],
    );
    let checks = || {
        [
            EntryTest::Ttl(picks(&["<=30s"])),
            EntryTest::Age(picks(&["=60s"])),
            EntryTest::Packets(picks(&["=5"])),
            EntryTest::Bytes(picks(&[">=1k"])),
        ]
    };
    let now = 1_000_000_000_000;
    for check in checks() {
        assert_eq!(filter(vec![check]).test(&flow, now), Outcome::Undecidable);
    }
    flow.timeout = Some(30);
    flow.start = Some(now - 60_500_000_000);
    flow.counters_original = Some(Counters {
        packets: 3,
        bytes: 600,
    });
    flow.counters_reply = Some(Counters {
        packets: 2,
        bytes: 400,
    });
    for check in checks() {
        let name = format!("{check:?}");
        assert_eq!(
            filter(vec![check]).test(&flow, now),
            Outcome::Pass,
            "{name}"
        );
    }
    for check in [
        EntryTest::Ttl(picks(&["!<=30s"])),
        EntryTest::Age(picks(&[">60s"])),
        EntryTest::Packets(picks(&["=3"])),
        EntryTest::Bytes(picks(&["<1k"])),
    ] {
        let name = format!("{check:?}");
        assert_eq!(
            filter(vec![check]).test(&flow, now),
            Outcome::Fail,
            "{name}"
        );
    }
}

#[test]
fn an_entry_that_starts_in_the_future_has_age_zero() {
    let mut flow = udp(
        ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
        [1, 2, 2, 1],
    );
    flow.start = Some(2_000);
    assert_eq!(
        filter(vec![EntryTest::Age(picks(&["<1s"]))]).test(&flow, 1_000),
        Outcome::Pass
    );
}

#[test]
fn a_family_excludes_the_other_one() {
    let v6 = udp(["fd00::1", "fd00::2", "fd00::2", "fd00::1"], [1, 2, 2, 1]);
    for (family, expected) in [(Family::Ipv4, Outcome::Fail), (Family::Ipv6, Outcome::Pass)] {
        assert_eq!(
            filter(vec![EntryTest::Family(family)]).test(&v6, 0),
            expected
        );
    }
}
