use proptest::prelude::*;

use super::super::color::ColorChoice;
use super::super::fixture::{self, SampleEntry, ports};
use super::super::layout::SAMPLE_ROWS;
use super::*;
use crate::attribution::{FrontendKind, Party, PartyKind};
use crate::verdict::{Reason, Refreshing};
use ctnetlink::flow::{Flow, Status, Zone};

fn printed(kind: TableColumns, terminal: Option<usize>, samples: &[SampleEntry]) -> String {
    let results = samples.iter().any(|sample| sample.result.is_some());
    let mut table = EntryTable::new(kind, results, Palette::PLAIN, true, terminal);
    let mut out = Vec::new();
    for sample in samples {
        table.row(&sample.row(), &mut out);
    }
    table.release(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_default_table_is_printed_as_documented() {
    assert_eq!(
        printed(TableColumns::Default, None, &fixture::documented_table()),
        "\
PROTO  STATE        CLIENT              SERVICE                   ENDPOINT                  TTL    VERDICT
udp    assured      shop/web-1:40123    kube-system/kube-dns:dns  10.244.1.7:53 (gone)      1m58s  stale  endpoint-gone, refreshing
udp    assured      shop/web-2:40124    kube-system/kube-dns:dns  kube-system/coredns-b:53  1m12s  ok
udp    unreplied    198.51.100.7:50001  net/sflow:p               not translated            28s    stale  no-dnat
tcp    established  shop/web-1:51544    203.0.113.9:443           203.0.113.9:443           4d23h  -
"
    );
}

#[test]
fn a_narrow_terminal_shortens_names_and_keeps_their_ports() {
    let text = printed(
        TableColumns::Default,
        Some(120),
        &fixture::documented_table(),
    );
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert_eq!(longest, Some(120), "{text}");
    assert!(
        text.contains("…") && text.contains("shop/web-1:40123"),
        "{text}"
    );
    for line in text.lines().skip(1) {
        assert!(
            !line.contains("kube-dns…") || line.contains("ns:dns"),
            "{line}"
        );
    }
}

#[test]
fn the_zone_column_is_shown_only_if_an_entry_has_a_zone() {
    let plain = fixture::dns();
    let mut zoned = fixture::dns();
    zoned.flow.zone = Zone {
        id: 5,
        direction: None,
    };
    assert!(!printed(TableColumns::Default, None, std::slice::from_ref(&plain)).contains("ZONE"));
    let text = printed(TableColumns::Default, None, &[plain, zoned]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("PROTO  ZONE  STATE"), "{text}");
    assert!(lines[1].starts_with("udp    -     assured"), "{text}");
    assert!(lines[2].starts_with("udp    5     assured"), "{text}");
}

#[test]
fn rows_after_the_sample_are_printed_at_once_and_wider_cells_shift_the_rest() {
    let sample = fixture::dns();
    let mut wider = fixture::dns();
    wider.names.client = Some(fixture::pod("shop", "a-much-longer-name-than-all-before"));
    let mut table = EntryTable::new(TableColumns::Default, false, Palette::PLAIN, false, None);
    let mut out = Vec::new();
    for _ in 0..SAMPLE_ROWS - 1 {
        table.row(&sample.row(), &mut out);
    }
    assert!(out.is_empty(), "widths need the whole sample");
    table.row(&sample.row(), &mut out);
    let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
    assert_eq!(text.lines().count(), SAMPLE_ROWS);
    table.row(&wider.row(), &mut out);
    let line = String::from_utf8(out).unwrap();
    assert!(
        line.contains("than-all-before:40123  kube-system"),
        "{line}"
    );
    let aligned = text.lines().next().unwrap();
    assert_eq!(
        line.len(),
        aligned.len() + 1 + "a-much-longer-name-than-all-before".len() - "web-7d".len()
    );
}

#[test]
fn names_beyond_ascii_keep_later_rows_aligned() {
    let sample = fixture::dns();
    let mut accented = fixture::dns();
    // As many characters as the other name, in more bytes.
    accented.names.client = Some(fixture::pod("shop", "wéb-7d"));
    for terminal in [None, Some(60)] {
        let mut table = EntryTable::new(
            TableColumns::Default,
            false,
            Palette::PLAIN,
            false,
            terminal,
        );
        let mut out = Vec::new();
        for _ in 0..SAMPLE_ROWS {
            table.row(&sample.row(), &mut out);
        }
        let sampled = String::from_utf8(std::mem::take(&mut out)).unwrap();
        table.row(&accented.row(), &mut out);
        let line = String::from_utf8(out).unwrap();
        let sampled = sampled.lines().next().unwrap();
        assert_eq!(line.trim_end().replace('é', "e"), sampled, "{terminal:?}");
    }
}

#[test]
fn rows_after_the_sample_are_coloured_like_those_of_the_sample() {
    let mut sample = fixture::dns();
    sample.reason = Some(Reason::EndpointGone);
    let coloured = Palette::decide(ColorChoice::Always, |_| None, false);
    let mut table = EntryTable::new(TableColumns::Default, false, coloured, false, Some(60));
    let mut out = Vec::new();
    for _ in 0..=SAMPLE_ROWS {
        table.row(&sample.row(), &mut out);
    }
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], lines[SAMPLE_ROWS]);
    assert!(lines[0].contains("\u{1b}["), "{}", lines[0]);
}

fn cells(kind: TableColumns, sample: &SampleEntry) -> Vec<String> {
    let text = printed(kind, None, std::slice::from_ref(sample));
    let line = text.lines().nth(1).unwrap();
    line.split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .map(str::to_owned)
        .collect()
}

fn endpoint(sample: &SampleEntry) -> String {
    let mut out = Vec::new();
    cell::endpoint(&sample.row(), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_endpoint_cell_names_the_reply_source() {
    let named = fixture::dns();
    let mut unknown = fixture::dns();
    unknown.names.endpoint = None;
    let with = |reason, sample: &SampleEntry| SampleEntry {
        reason: Some(reason),
        ..sample.clone()
    };
    let mut node = fixture::dns();
    node.names.endpoint = Some(fixture::serving(Party {
        kind: PartyKind::Node,
        namespace: None,
        name: Some("cp1"),
        node: Some("cp1"),
    }));
    let mut manual = fixture::dns();
    let mut nameless = fixture::serving(Party {
        kind: PartyKind::External,
        namespace: None,
        name: None,
        node: None,
    });
    nameless.manual = true;
    manual.names.endpoint = Some(nameless);
    let mut untranslated = unknown.clone();
    untranslated.flow.reply = ports(17, ("10.96.0.10", 53), ("10.244.2.9", 40123));
    let mut own = untranslated.clone();
    own.names.endpoint = node.names.endpoint;
    for (sample, expected) in [
        (with(Reason::Endpoint, &named), "kube-system/coredns-b:53"),
        (
            with(Reason::Misdelivery, &named),
            "kube-system/coredns-b:53",
        ),
        (with(Reason::EndpointGone, &unknown), "10.244.1.7:53 (gone)"),
        (with(Reason::ServiceEmpty, &unknown), "10.244.1.7:53 (gone)"),
        (with(Reason::SourceIncomplete, &unknown), "10.244.1.7:53"),
        (with(Reason::Endpoint, &node), "cp1:53"),
        (with(Reason::Endpoint, &manual), "10.244.1.7:53 (manual)"),
        (with(Reason::NoDnat, &untranslated), "not translated"),
        (
            with(Reason::NoDnatNoEndpoint, &untranslated),
            "not translated",
        ),
        (with(Reason::ForeignNetns, &untranslated), "not translated"),
        (with(Reason::Endpoint, &own), "cp1:53"),
    ] {
        assert_eq!(endpoint(&sample), expected, "{:?}", sample.reason);
    }
}

#[test]
fn the_service_cell_has_the_name_else_the_destination() {
    let mut sample = fixture::dns();
    let shown = |sample: &SampleEntry| cells(TableColumns::Default, sample)[3].clone();
    sample.names.service = Some(fixture::cluster_ip("net", "syslog", None));
    assert_eq!(shown(&sample), "net/syslog:53");
    if let Some(service) = &mut sample.names.service {
        service.frontend = FrontendKind::Rule;
        (service.namespace, service.name) = (None, None);
    }
    assert_eq!(shown(&sample), "10.96.0.10:53");
}

#[test]
fn states_and_verdicts_are_printed_in_the_documented_words() {
    let mut flow = Flow::new(
        ports(6, ("10.0.0.1", 1), ("10.0.0.2", 2)),
        ports(6, ("10.0.0.2", 2), ("10.0.0.1", 1)),
    );
    let mut check = |status: Status, state, expected: &str| {
        flow.status = status;
        flow.state = state;
        assert_eq!(
            cells(TableColumns::Default, &SampleEntry::bare(flow.clone()))[1],
            expected
        );
    };
    check(fixture::ANSWERED, Some(fixture::tcp(7)), "time-wait");
    check(fixture::ANSWERED, None, "assured");
    check(Status::CONFIRMED, None, "unreplied");
    check(Status::SEEN_REPLY, None, "replied");
    check(fixture::ANSWERED.with(Status::OFFLOAD), None, "offload");
    let both = Status::OFFLOAD.with(Status::HW_OFFLOAD);
    check(both, Some(fixture::tcp(3)), "established,hw-offload");
    check(Status::SEEN_REPLY, Some(fixture::tcp(42)), "STATE(42)");

    let verdict = |reason, refreshing| {
        let mut sample = fixture::dns();
        (sample.reason, sample.refreshing) = (reason, refreshing);
        let mut out = Vec::new();
        cell::verdict(&sample.row(), &mut out);
        String::from_utf8(out).unwrap()
    };
    use Refreshing::{No, Unknown, Yes};
    for (reason, refreshing, expected) in [
        (Some(Reason::Endpoint), No, "ok"),
        (Some(Reason::Endpoint), Yes, "ok  refreshing"),
        (
            Some(Reason::EndpointTerminating),
            Unknown,
            "draining  endpoint-terminating",
        ),
        (
            Some(Reason::EndpointGone),
            Yes,
            "stale  endpoint-gone, refreshing",
        ),
        (Some(Reason::OtherPort), No, "unrelated  other-port"),
        (Some(Reason::NoFrontend), No, "-"),
        (None, Unknown, "-"),
        (None, Yes, "-  refreshing"),
    ] {
        assert_eq!(verdict(reason, refreshing), expected, "{reason:?}");
    }
}

#[test]
fn chosen_columns_and_results_are_shown() {
    let mut sample = fixture::dns();
    sample.result = Some(super::super::ItemResult {
        result: "failed",
        error: Some("Operation not permitted\u{7}".to_owned()),
    });
    let text = printed(TableColumns::Default, None, &[sample.clone()]);
    assert!(text.contains("RESULT\n"), "{text}");
    assert!(
        text.ends_with("  failed: Operation not permitted\\x07\n"),
        "{text}"
    );
    let columns = "original.src,timeout,client,start,result".parse().unwrap();
    assert_eq!(
        printed(TableColumns::Chosen(columns), None, &[sample]),
        "ORIGINAL.SRC  TIMEOUT  CLIENT             START  RESULT\n\
         10.244.2.9    1m58s    shop/web-7d:40123  -      failed\n"
    );
}

#[test]
fn the_wide_line_holds_every_column_once() {
    let mut out = Vec::new();
    wide_line(&fixture::dns().row(), &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "udp assured 10.244.2.9:40123 10.96.0.10:53 10.244.1.7:53 10.244.2.9:40123 - 1m58s - 15 900 5 700 0 - - - - \
         3912345678 shop/web-7d:40123 kube-system/kube-dns:dns kube-system/coredns-b:53 ok"
    );
}

proptest! {
    #[test]
    fn no_line_carries_control_characters(samples in prop::collection::vec(fixture::any_sample(), 1..8)) {
        for (kind, terminal) in [(TableColumns::Default, None), (TableColumns::Default, Some(100)), (TableColumns::Wide, None)] {
            let text = printed(kind, terminal, &samples);
            prop_assert_eq!(text.lines().count(), samples.len() + 1);
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        }
        for sample in &samples {
            let mut out = Vec::new();
            wide_line(&sample.row(), &mut out);
            let line = String::from_utf8(out).unwrap();
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
