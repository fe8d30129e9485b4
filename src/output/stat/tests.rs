use serde_json::{Value, json};

use super::*;
use crate::stat::CountersFrom;

const PLAIN: StatOptions = StatOptions {
    header: true,
    palette: Palette::PLAIN,
    per_cpu: true,
};

fn node() -> Stat {
    let cpu = |failed, invalid| {
        Counters::from_iter([
            ("insert_failed", failed),
            ("drop", failed),
            ("invalid", invalid),
        ])
    };
    let mut stat = Stat {
        count: Some(412),
        timeouts: [("udp_timeout".to_owned(), 30)].into(),
        counters: Some(CpuCounters {
            from: CountersFrom::Netlink,
            cpus: vec![(0, cpu(1041, 0)), (1, cpu(0, 110))],
        }),
        interfaces: Some(vec![
            ConntrackAllowance {
                interface: "eth0".to_owned(),
                exceeded: Some(5012),
                available: Some(0),
            },
            ConntrackAllowance {
                interface: "eth1\u{1b}[2J".to_owned(),
                ..ConntrackAllowance::default()
            },
        ]),
        ..Stat::default()
    };
    stat.settings.max = Some(1000);
    stat.settings.events = Some(2);
    stat
}

#[test]
fn a_table_has_dashes_for_unknown_values_and_no_interfaces_without_allowance() {
    let text = stat_table(&node(), PLAIN);
    for line in [
        "count             412  41.2 % of max",
        "max              1000",
        "buckets             -",
        "events              2  only of entries made while somebody listens",
        "insert_failed    1041",
        "chaintoolong        -  new entries refused",
        "invalid           110  packets of no connection, out of the TCP window, or with a bad checksum",
        "insert_failed 1041: another entry had a tuple of the new one first; the counter does not tell why: two packets",
        "udp_timeout       30  30s",
    ] {
        assert!(
            text.lines().any(|l| l.trim_start().starts_with(line)),
            "{line}:\n{text}"
        );
    }
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.lines().any(|line| words(line) == "eth0 5012 0"),
        "{text}"
    );
    assert!(!text.contains("eth1"), "{text}");
    let cpus: Vec<_> = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("CPU"))
        .collect();
    assert!(!cpus[0].contains("expect_"), "{text}");
    assert_eq!(
        cpus[2].split_whitespace().take(3).collect::<Vec<_>>(),
        ["1", "110", "0"]
    );
}

#[test]
fn unknown_values_are_null_in_json() {
    let document = stat_json(&node(), false);
    assert_eq!(document["used_percent"], 41.2);
    assert_eq!(document["buckets"], Value::Null);
    assert_eq!(document["counters"]["invalid"], 110);
    assert_eq!(document["counters"]["early_drop"], Value::Null);
    assert!(document.get("cpus").is_none());
    assert_eq!(document["interfaces"][0][ALLOWANCE_EXCEEDED], 5012);
    assert_eq!(document["interfaces"][0][ALLOWANCE_AVAILABLE], 0);
    assert_eq!(document["interfaces"][1][ALLOWANCE_EXCEEDED], Value::Null);
    let nothing = stat_json(&Stat::default(), true);
    for name in [
        "counters",
        "counters_from",
        "cpus",
        "interfaces",
        "count",
        "used_percent",
    ] {
        assert_eq!(nothing[name], Value::Null, "{name}");
    }
    assert_eq!(nothing["explanation"], json!([]));
}

#[test]
fn an_interval_shows_changed_counters_and_their_explanation() {
    let (before, mut now) = (node(), node());
    now.count = Some(400);
    for (_, counters) in &mut now.counters.as_mut().unwrap().cpus {
        let failed = counters.get("insert_failed").unwrap() + 27;
        counters.put("insert_failed", failed);
        counters.put("drop", failed);
    }
    now.interfaces.as_mut().unwrap()[0].exceeded = Some(5015);
    let delta = now.since(&before);
    let line = delta_line(&now, &delta, 10.0);
    assert!(
        line.starts_with(
            "10.0s  count 400 (-12)  insert_failed +54  drop +54  eth0 conntrack_allowance_exceeded +3  insert_failed 54: "
        ),
        "{line}"
    );
    let record = delta_json(&now, &delta, 10.0, false);
    assert_eq!(record["count_change"], -12);
    assert_eq!(record["counters"]["insert_failed"], 54);
    assert_eq!(record["counters"]["early_drop"], Value::Null);
    assert_eq!(record["interfaces"][0][ALLOWANCE_EXCEEDED], 3);
    assert_eq!(record["interfaces"][0][ALLOWANCE_AVAILABLE], 0);
    now.counters = None;
    let line = delta_line(&now, &now.since(&before), 1.0);
    assert!(line.ends_with("counters not available\n"), "{line}");
}
