use super::*;

fn exactly(count: usize) -> Distinct {
    Distinct {
        count,
        at_least: false,
    }
}

fn tcp(endpoints: &[u64], clients: usize, ports: usize) -> SpreadInput {
    SpreadInput {
        endpoints: endpoints.to_vec(),
        tcp: endpoints.iter().sum(),
        clients: exactly(clients),
        source_ports: exactly(ports),
        ..SpreadInput::default()
    }
}

fn udp(endpoints: &[u64], clients: usize, ports: usize) -> SpreadInput {
    SpreadInput {
        tcp: 0,
        udp: endpoints.iter().sum(),
        ..tcp(endpoints, clients, ports)
    }
}

#[test]
fn the_reason_follows_from_the_numbers() {
    let affine = SpreadInput {
        affinity: Some(true),
        ..tcp(&[30, 0, 0], 1, 30)
    };
    let even = SpreadInput {
        affinity: Some(true),
        ..tcp(&[10, 10, 10], 3, 30)
    };
    let hinted = |endpoints: &[u64]| SpreadInput {
        may_be_fewer: true,
        ..tcp(endpoints, 9, 90)
    };
    let old = |endpoints: &[u64], on_old| SpreadInput {
        on_old,
        ..tcp(endpoints, 9, 90)
    };
    assert_eq!(Spread::of(&hinted(&[45, 45, 0, 0, 0, 0])).chance, None);
    for (counted, reason) in [
        (even, SpreadReason::Even),
        (old(&[1, 2], 2), SpreadReason::OldEndpoints),
        (old(&[3], 3), SpreadReason::OldEndpoints),
        (old(&[40, 3, 0], 3), SpreadReason::Uneven),
        (hinted(&[45, 45, 0, 0, 0, 0]), SpreadReason::FewerEndpoints),
        (hinted(&[30, 30, 30]), SpreadReason::Even),
        (tcp(&[], 0, 0), SpreadReason::NoEndpoint),
        (tcp(&[0, 0], 0, 0), SpreadReason::NoFlow),
        (tcp(&[7], 1, 7), SpreadReason::OneEndpoint),
        (tcp(&[1, 0, 0], 1, 1), SpreadReason::OneFlow),
        (udp(&[1, 0, 0], 1, 1), SpreadReason::OneSource),
        // One socket with packets to two frontends.
        (udp(&[2, 0, 0], 1, 1), SpreadReason::OneSource),
        // TCP connections from one source port are several connections.
        (tcp(&[2, 0, 0], 1, 1), SpreadReason::FewFlows),
        (tcp(&[30, 0, 0], 1, 30), SpreadReason::OneClient),
        (tcp(&[40, 3, 0], 2, 43), SpreadReason::Uneven),
        (udp(&[40, 3, 0], 2, 43), SpreadReason::Uneven),
        (affine, SpreadReason::SessionAffinity),
        (tcp(&[10, 10, 10], 1, 30), SpreadReason::Even),
        (tcp(&[11, 10, 9], 3, 30), SpreadReason::Chance),
        (tcp(&[1, 1, 0], 2, 2), SpreadReason::FewFlows),
        (tcp(&[4, 1, 1], 2, 6), SpreadReason::Chance),
    ] {
        let spread = Spread::of(&counted);
        assert_eq!(spread.reason, reason, "{counted:?}: {spread:?}");
        assert!(!spread.sentence().contains("process"), "{spread:?}");
    }
}

#[test]
fn one_counted_client_at_the_limit_is_not_taken_for_one_client() {
    let mut counted = tcp(&[30, 0, 0], 1, 30);
    counted.clients.at_least = true;
    let spread = Spread::of(&counted);
    assert_eq!(spread.reason, SpreadReason::Uneven);
    assert!(spread.sentence().contains("at least 1 client address,"));
}

#[test]
fn maximum_mean_ratio_and_share_are_computed_from_the_flows() {
    let spread = Spread::of(&tcp(&[40, 3, 0], 2, 43));
    assert_eq!((spread.max, spread.flows, spread.idle), (40, 43, 1));
    assert!((spread.mean.unwrap() - 43.0 / 3.0).abs() < 1e-9);
    assert!((spread.ratio.unwrap() - 40.0 * 3.0 / 43.0).abs() < 1e-9);
    assert!((spread.share.unwrap() - 40.0 / 43.0).abs() < 1e-9);
    let none = Spread::of(&tcp(&[0, 0], 0, 0));
    assert_eq!((none.share, none.ratio, none.chance), (None, None, None));
    assert_eq!(none.mean, Some(0.0));
    assert_eq!(Spread::of(&tcp(&[], 0, 0)).mean, None);
}

#[test]
fn chance_is_the_binomial_tail() {
    // All 30 of 30 on one of 3: 3 * (1/3)^30.
    let all = chance(30, 3, 30);
    assert!((all / (3.0 * 3f64.powi(-30)) - 1.0).abs() < 1e-9, "{all}");
    // 9 or 10 heads or tails of 10: 2 * 11 / 1024.
    let coin = chance(10, 2, 9);
    assert!((coin - 22.0 / 1024.0).abs() < 1e-12, "{coin}");
    assert_eq!(chance(30, 3, 10), 1.0);
    // Numbers for which single terms are far below the smallest f64.
    assert_eq!(chance(1_000_000, 10, 900_000), 0.0);
    let big = chance(1_000_000, 2, 500_100);
    assert!((0.5..=1.0).contains(&big), "{big}");
}

#[test]
fn clients_beyond_the_limit_are_reported_as_a_lower_bound() {
    let mut sources = Sources::with_limit(2);
    for n in [1, 2, 1, 2] {
        sources.add([10, 0, 0, n].into(), Some(u16::from(n)));
    }
    assert_eq!(
        (sources.clients(), sources.ports()),
        (exactly(2), exactly(2))
    );
    sources.add([10, 0, 0, 3].into(), None);
    let least = Distinct {
        count: 2,
        at_least: true,
    };
    assert_eq!((sources.clients(), sources.ports()), (least, exactly(2)));
    assert_eq!(least.client_addresses(), "at least 2 client addresses");
}
