use serde_json::{Value, json};

use super::*;
use crate::attribution::{PartyKind, ServiceName};
use crate::entry::Entry;
use crate::top::{Groups, Order};
use ctnetlink::flow::{Counters, Flow, L4, Tuple};

fn flow(src: [u8; 4], bytes: Option<u64>) -> Flow {
    let tuple = |src: [u8; 4], sport, dst: [u8; 4], dport| Tuple {
        src: src.into(),
        dst: dst.into(),
        protocol: 6,
        l4: L4::Ports {
            src: sport,
            dst: dport,
        },
    };
    let mut flow = Flow::new(
        tuple(src, 4000, [203, 0, 113, 10], 443),
        tuple([203, 0, 113, 10], 443, [192, 0, 2, 11], 1024),
    );
    flow.counters_reply = bytes.map(|bytes| Counters { packets: 2, bytes });
    flow
}

fn ranked(by: &[GroupKey]) -> Ranked<'static> {
    let mut groups = Groups::new(by, Default::default());
    for (src, bytes) in [
        ([10, 244, 1, 30], Some(700)),
        ([10, 244, 1, 30], None),
        ([10, 244, 1, 30], Some(5)),
        ([10, 244, 1, 31], None),
    ] {
        let mut entry = Entry::bare(flow(src, bytes));
        entry.names.service = bytes.map(|_| ServiceName {
            namespace: Some("web"),
            name: Some("a,\u{1b}[31m"),
            port: None,
            frontend: crate::attribution::FrontendKind::ClusterIp,
            port_number: 443,
        });
        groups.add(&entry);
    }
    groups.rank(&Order::default(), None)
}

fn address_owner(address: IpAddr) -> Option<Party<'static>> {
    (address == IpAddr::from([10, 244, 1, 30])).then_some(Party {
        kind: PartyKind::Pod,
        namespace: Some("edge"),
        name: Some("nginx-1"),
        node: None,
    })
}

const STYLE: GroupStyle<'static> = GroupStyle {
    palette: Palette::PLAIN,
    header: true,
    glyphs: Glyphs::Blocks,
    address_owner: &address_owner,
};

fn written(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_table_shows_names_numbers_and_bars() {
    let table = written(|out| group_table(&ranked(&[GroupKey::Src, GroupKey::Dport]), &STYLE, out));
    let expected = "\
SRC                         DPORT  COUNT  SHARE  PACKETS  BYTES
10.244.1.30 (edge/nginx-1)    443      3  75.0%        4    705  ███████████████
10.244.1.31                   443      1  25.0%        -      -  █████
";
    assert_eq!(table, expected);
    let ascii = GroupStyle {
        glyphs: Glyphs::Ascii,
        header: false,
        ..STYLE
    };
    let table = written(|out| group_table(&ranked(&[GroupKey::Src]), &ascii, out));
    assert!(table.is_ascii() && table.ends_with("  #####\n"), "{table}");
    assert_eq!(table.lines().count(), 2);
}

#[test]
fn absent_values_are_not_zero_and_untrusted_text_is_escaped() {
    let ranked = ranked(&[
        GroupKey::Svc,
        GroupKey::Dport,
        GroupKey::SnatDst,
        GroupKey::State,
    ]);
    let summary = Summary {
        shown: 2,
        ..Summary::default()
    };
    let text = written(|out| group_document(&ranked, &STYLE, &summary, out));
    let document: Value = serde_json::from_str(&text).unwrap();
    let key = |svc: Value| json!({"svc": svc, "dport": 443, "snat-dst": "192.0.2.11 -> 203.0.113.10:443/tcp", "state": "unreplied"});
    // Both have two entries; named groups come first.
    assert_eq!(
        document["items"],
        json!([
            {"key": key(json!("web/a,\u{1b}[31m:443")), "names": {}, "count": 2, "share": 0.5, "packets": 4, "bytes": 705,
             "error_at_most": 0},
            {"key": key(Value::Null), "names": {}, "count": 2, "share": 0.5, "packets": null, "bytes": null,
             "error_at_most": 0},
        ])
    );
    assert_eq!(document["summary"]["shown"], 2);
    assert!(!text.contains('\u{1b}'));
    let table = written(|out| group_table(&ranked, &STYLE, out));
    assert!(table.contains("web/a,\\x1b[31m:443"), "{table}");
    let csv = written(|out| group_csv(&ranked, &STYLE, None, out));
    let mut records = csv.split("\r\n");
    assert_eq!(
        records.next(),
        Some("svc,dport,snat-dst,state,count,share,packets,bytes,error_at_most")
    );
    assert_eq!(
        records.next(),
        Some(
            "\"web/a,\\x1b[31m:443\",443,192.0.2.11 -> 203.0.113.10:443/tcp,unreplied,2,0.5,4,705,0"
        )
    );
    assert_eq!(
        records.next(),
        Some(",443,192.0.2.11 -> 203.0.113.10:443/tcp,unreplied,2,0.5,,,0")
    );
}

#[test]
fn lines_and_records_with_a_time_begin_with_it() {
    let ranked = ranked(&[GroupKey::Src]);
    let lines = written(|out| group_lines(&ranked, &STYLE, Some(0), out));
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["time"], "1970-01-01T00:00:00.000000000Z");
    assert_eq!(lines[0]["schema"], "ctk/v1");
    assert_eq!(lines[0]["names"], json!({"src": "edge/nginx-1"}));
    assert_eq!(lines[1]["names"], json!({"src": null}));
    let plain = written(|out| group_lines(&ranked, &STYLE, None, out));
    assert!(plain.starts_with("{\"key\":"), "{plain}");
    let bare = GroupStyle {
        header: false,
        ..STYLE
    };
    let csv = written(|out| group_csv(&ranked, &bare, Some(0), out));
    assert!(
        csv.starts_with(
            "1970-01-01T00:00:00.000000000Z,10.244.1.30,edge/nginx-1,3,0.75,4,705,0\r\n"
        ),
        "{csv}"
    );
}

#[test]
fn shares_near_0_and_1_are_not_rounded_to_them() {
    for (share, expected) in [
        (0.0, "0.0%"),
        (0.00001, "<0.1%"),
        (0.42, "42.0%"),
        (0.99999, ">99.9%"),
        (1.0, "100.0%"),
    ] {
        assert_eq!(percent(share), expected);
    }
}
