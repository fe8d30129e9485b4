//! An event from its bytes to the printed record.

use super::*;
use crate::output::{ColorChoice, Palette, RecordFormat, RecordPrinter};
use ctnetlink::decode;

/// Netlink attribute with its header and padding.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (value.len() + 4) as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The reply tuple is not the mirror of the original, and NEW has no counters.
#[test]
fn the_new_event_of_a_masqueraded_connection_has_both_tuples_and_no_counters() {
    let tuple = |kind, src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16| {
        let ip = [attribute(1, &src), attribute(2, &dst)].concat();
        let ports = [(2, sport), (3, dport)].map(|(kind, n)| attribute(kind, &n.to_be_bytes()));
        let protocol = [attribute(1, &[6]), ports.concat()].concat();
        let parts = [attribute(1, &ip), attribute(2, &protocol)].concat();
        attribute(kind, &parts)
    };
    let number = |kind, value: u32| attribute(kind, &value.to_be_bytes());
    let (client, server, masquerade) = ([10, 0, 0, 9], [203, 0, 113, 70], [198, 51, 100, 5]);
    // nfgenmsg: AF_INET, version 0, resource 0.
    let message = [
        vec![2, 0, 0, 0],
        tuple(1, client, 34367, server, 80),
        tuple(2, server, 80, masquerade, 34367),
        // CTA_ID, CTA_STATUS (CONFIRMED, SRC_NAT, SRC_NAT_DONE, DST_NAT_DONE), CTA_TIMEOUT, CTA_PROTOINFO (SYN_SENT).
        number(12, 500_000_009),
        number(3, 0x198),
        number(7, 120),
        attribute(4, &attribute(1, &attribute(1, &[1]))),
    ]
    .concat();

    let mut view = View::default();
    view.end_dump(true, &mut FixtureResolver::all(), &mut |_| ());
    let flow = decode(&message).unwrap();
    let text = printed(RecordFormat::Jsonl, |emit| {
        view.apply_new(flow, &mut FixtureResolver::all(), emit);
    });
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["schema"], "ctk/v1");
    assert_eq!(record["type"], "new");
    let entry = &record["entry"];
    let tuple = |way: &str| {
        let t = &entry[way];
        (
            t["src"].as_str(),
            t["sport"].as_u64(),
            t["dst"].as_str(),
            t["dport"].as_u64(),
        )
    };
    assert_eq!(
        tuple("original"),
        (
            Some("10.0.0.9"),
            Some(34367),
            Some("203.0.113.70"),
            Some(80)
        )
    );
    assert_eq!(
        tuple("reply"),
        (
            Some("203.0.113.70"),
            Some(80),
            Some("198.51.100.5"),
            Some(34367)
        )
    );
    assert_eq!(entry["nat"], serde_json::json!(["snat"]));
    assert_eq!(entry["hairpin"], false);
    assert_eq!(entry["id"], 500_000_009);
    assert_eq!(entry["state"], "syn-sent");
    assert_eq!(entry["timeout"], 120);
    let status = entry["status"].as_array().unwrap();
    assert!(!status.contains(&"seen-reply".into()), "{entry}");
    for way in ["original", "reply"] {
        assert!(entry[way]["packets"].is_null() && entry[way]["bytes"].is_null());
    }
    assert!(entry["start"].is_null() && entry["mark"].is_null());
}

/// Output of a printer of this format for the records that `act` emits.
fn printed(format: RecordFormat, act: impl FnOnce(&mut dyn FnMut(Record<'_>))) -> String {
    let mut text = Vec::new();
    let palette = Palette::decide(ColorChoice::Never, |_| None, false);
    let mut printer = RecordPrinter::new(format, palette, Box::new(&mut text));
    act(&mut |record| printer.record(&record, 1_500_000_000).unwrap());
    printer.flush().unwrap();
    drop(printer);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_end_of_a_stale_entry_is_printed_with_its_former_pod() {
    let (both, one) = (kube_dns(&[7, 8]), kube_dns(&[8]));
    let ended = |format| {
        let mut fixture = with_a_stale_flow(&both, &one);
        printed(format, |emit| {
            let ViewFixture { view, resolver, .. } = &mut fixture;
            view.apply_new(flow(8, Status::CONFIRMED), resolver, emit);
        })
    };
    let lines = ended(RecordFormat::Lines);
    let expected = "destroy   udp  shop/web-1:40123  kube-system/kube-dns:dns  \
                    10.244.1.7:53 (gone), was kube-system/coredns-7  assured  -  stale  endpoint-gone";
    assert!(lines.contains(expected), "{lines}");
    let moved = "kube-system/coredns-7 (gone) -> kube-system/coredns-8:53\n";
    assert!(lines.contains(moved), "{lines}");
    let text = ended(RecordFormat::Jsonl);
    let records: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 2, "{text}");
    let was = serde_json::json!({"namespace": "kube-system", "name": "coredns-7"});
    assert_eq!(records[0]["endpoint_was"], was);
    assert!(records[0]["entry"]["endpoint"].is_null());
    assert_eq!(records[0]["entry"]["reason"], "endpoint-gone");
    assert!(records[1]["endpoint_was"].is_null());
    assert_eq!(records[1]["entry"]["endpoint"]["name"], "coredns-8");
}
