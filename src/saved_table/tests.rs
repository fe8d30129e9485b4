use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::entry::Entry;
use crate::error::chain;
use crate::output::{Format, ItemResult, Options, Printer, Summary, fixture, json_item};
use ctnetlink::flow::{L4, ProtocolState, Status, Tuple};

fn all(text: &str) -> Result<Vec<SavedEntry>, SavedTableError> {
    let mut saved = Vec::new();
    read(&mut text.as_bytes(), &mut |item| {
        saved.push(item);
        ControlFlow::Continue(())
    })?;
    Ok(saved)
}

fn printed(flow: &Flow) -> String {
    let mut line = String::new();
    json_item(&Entry::bare(flow.clone()), &mut line);
    line
}

/// The documented item, for tests that change a field.
fn item() -> Value {
    serde_json::from_str(&printed(&fixture::dns().flow)).unwrap()
}

/// The entry without the fields that JSON does not hold.
fn carried(flow: &Flow) -> Flow {
    let mut flow = flow.clone();
    flow.status = Status(flow.status.0 & 0xffff);
    match &mut flow.state {
        Some(ProtocolState::Tcp {
            original, reply, ..
        }) => {
            original.window_scale = None;
            reply.window_scale = None;
        }
        Some(ProtocolState::Dccp { role, .. }) => *role = None,
        _ => {}
    }
    flow
}

proptest! {
    #[test]
    fn printed_entries_are_read_back_unchanged(sample in fixture::any_sample()) {
        let saved = all(&printed(&sample.flow)).unwrap();
        prop_assert_eq!(saved.len(), 1);
        prop_assert_eq!(&saved[0].flow, &carried(&sample.flow));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}", at in 0usize..1200) {
        let _ = all(&text);
        let mut spoiled = printed(&fixture::dns().flow);
        let at = at.min(spoiled.len());
        spoiled.insert_str(at, &text);
        let _ = all(&spoiled);
    }
}

#[test]
fn every_protocol_of_both_families_is_read_back() {
    for protocol in 0..=u8::MAX {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "::ffff:10.0.0.2")] {
            let l4 = match protocol {
                1 | 58 => L4::Icmp {
                    kind: 8,
                    code: 0,
                    id: 77,
                },
                47 => L4::Gre {
                    src: 0x11,
                    dst: 0x22,
                },
                6 | 17 | 33 | 132 | 136 => L4::Ports { src: 1, dst: 2 },
                _ => L4::None,
            };
            let tuple = Tuple {
                src: src.parse().unwrap(),
                dst: dst.parse().unwrap(),
                protocol,
                l4,
            };
            let flow = Flow::new(tuple, tuple);
            let saved = all(&printed(&flow)).unwrap();
            assert_eq!(saved[0].flow, flow, "protocol {protocol}");
        }
    }
    // A kernel without a tracker for SCTP sends no ports.
    let mut flow = fixture::dns().flow;
    for tuple in [&mut flow.original, &mut flow.reply] {
        (tuple.protocol, tuple.l4) = (132, L4::None);
    }
    assert_eq!(all(&printed(&flow)).unwrap()[0].flow, flow);
}

#[test]
fn every_state_word_is_read_back() {
    for number in 0..=12 {
        for protocol in [6, 33, 132] {
            let mut flow = fixture::dns().flow;
            flow.original.protocol = protocol;
            flow.reply.protocol = protocol;
            flow.state = Some(match protocol {
                6 => fixture::tcp(number),
                33 => ProtocolState::Dccp {
                    state: number,
                    role: None,
                },
                _ => ProtocolState::Sctp {
                    state: number,
                    vtag_original: Some(0),
                    vtag_reply: Some(u32::MAX),
                },
            });
            let saved = all(&printed(&flow)).unwrap();
            assert_eq!(saved[0].flow, carried(&flow), "{protocol} {number}");
        }
    }
}

#[test]
fn optional_keys_may_be_left_out() {
    let text = r#"{"family":"ipv4","protocol":"udp","protocol_number":17,"zone":0,"zone_direction":null,"id":3912345678,
 "original":{"src":"10.244.2.9","dst":"10.96.0.10","sport":40123,"dport":53,"packets":15,"bytes":900},
 "reply":{"src":"10.244.1.7","dst":"10.244.2.9","sport":53,"dport":40123,"packets":5,"bytes":700},
 "status":["seen-reply","assured","confirmed"],"state":null,"timeout":118,"mark":0,"labels":null,"helper":null,"secctx":null,"use":1,
 "start":null,"nat":["dnat"],"hairpin":false,
 "client":{"kind":"pod","namespace":"shop","name":"web-7d","node":"node1"},
 "service":{"namespace":"kube-system","name":"kube-dns","port":"dns","frontend":"cluster-ip"},
 "verdict":"ok","reason":"endpoint","evidence":"...","refreshing":"unknown","replies":"unknown","result":"deleted"}"#;
    let saved = all(text).unwrap();
    assert_eq!(saved.len(), 1);
    assert_eq!(saved[0].flow, fixture::dns().flow);
    assert_eq!(saved[0].result.as_deref(), Some("deleted"));
}

/// Four entries in a format, each with a result.
fn purged(format: Format) -> String {
    let mut out = Vec::new();
    let options = Options {
        format,
        results: true,
        netns: false,
        ..Options::default()
    };
    let mut printer = Printer::new(options, Box::new(&mut out));
    for (sample, result) in fixture::documented_table()
        .into_iter()
        .zip(["deleted", "replaced", "deleted", "failed"])
    {
        let result = ItemResult {
            result,
            error: None,
        };
        printer
            .entry(&Entry::bare(sample.flow), Some(&result))
            .unwrap();
    }
    printer.finish(&Summary::default()).unwrap();
    drop(printer);
    String::from_utf8(out).unwrap()
}

#[test]
fn lines_and_documents_are_read_alike_with_any_indentation() {
    let lines = purged(Format::Jsonl);
    let document = purged(Format::Json);
    let value: Value = serde_json::from_str(&document).unwrap();
    // Maps of serde_json are sorted by key, like the output of `jq -S`: the schema comes after the items.
    let sorted = serde_json::to_string(&value).unwrap();
    assert!(sorted.starts_with(r#"{"items""#));
    let indented = serde_json::to_string_pretty(&value).unwrap();
    let spread: String = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|item| serde_json::to_string_pretty(&item).unwrap())
        .collect();
    let glued = lines.replace('\n', "");
    let expected: Vec<(Flow, Option<String>)> = all(&lines)
        .unwrap()
        .into_iter()
        .map(|saved| (saved.flow, saved.result))
        .collect();
    assert_eq!(expected.len(), 4);
    assert_eq!(expected[1].1.as_deref(), Some("replaced"));
    let twice = format!("{document}\n{document}");
    for (name, text, times) in [
        ("document", &document, 1),
        ("sorted", &sorted, 1),
        ("indented", &indented, 1),
        ("spread lines", &spread, 1),
        ("glued lines", &glued, 1),
        ("two documents", &twice, 2),
    ] {
        let read: Vec<_> = all(text)
            .unwrap()
            .into_iter()
            .map(|saved| (saved.flow, saved.result))
            .collect();
        assert_eq!(read, vec![expected.clone(); times].concat(), "{name}");
    }
    assert_eq!(all("").unwrap(), []);
    assert_eq!(all("\n \n").unwrap(), []);
}

#[test]
fn items_have_their_line_and_number() {
    let positions = |text: &str| -> Vec<(u64, u64)> {
        let saved = all(text).unwrap();
        saved
            .iter()
            .map(|s| (s.position.line, s.position.item))
            .collect()
    };
    let lines = purged(Format::Jsonl);
    assert_eq!(positions(&lines), [(1, 1), (2, 2), (3, 3), (4, 4)]);
    assert_eq!(
        positions(&lines.replace('\n', "\n\n")),
        [(1, 1), (3, 2), (5, 3), (7, 4)]
    );
    let document = purged(Format::Json);
    assert_eq!(positions(&document), [(2, 1), (3, 2), (4, 3), (5, 4)]);
    assert_eq!(
        all(&document).unwrap()[2].position.to_string(),
        "line 4 (item 3)"
    );
}

#[test]
fn a_wrong_field_is_named_with_its_line() {
    let null = Value::Null;
    let cases: &[(&str, Value, &str, &str)] = &[
        (
            "/protocol_number",
            null.clone(),
            "protocol_number",
            "missing",
        ),
        ("/protocol_number", json!(256), "protocol_number", "256"),
        ("/protocol", json!("tcp"), "protocol", "17"),
        ("/family", json!("ipv6"), "family", "ipv4"),
        ("/zone", null.clone(), "zone", "missing"),
        ("/zone", json!(65_536), "zone", "65536"),
        ("/zone_direction", json!("both"), "zone_direction", "both"),
        ("/id", json!(-1), "id", "-1"),
        ("/original", null.clone(), "original", "missing"),
        ("/reply", null.clone(), "reply", "missing"),
        ("/reply", json!("10.0.0.1"), "reply", "10.0.0.1"),
        (
            "/original/src",
            json!("10.0.0.256"),
            "original.src",
            "address",
        ),
        (
            "/original/src",
            json!("010.0.0.1"),
            "original.src",
            "address",
        ),
        ("/original/src", null.clone(), "original.src", "missing"),
        ("/reply/dst", json!("fd00::1"), "reply.dst", "family"),
        ("/original/sport", json!(99_999), "original.sport", "99999"),
        ("/original/sport", json!("53"), "original.sport", "53"),
        ("/original/sport", json!(53.5), "original.sport", "53.5"),
        ("/reply/dport", null.clone(), "reply.dport", "missing"),
        ("/reply/srckey", json!(7), "reply.dstkey", "missing"),
        ("/reply/type", json!(8), "reply.code", "missing"),
        ("/original/bytes", null.clone(), "original.bytes", "missing"),
        ("/original/vtag", json!(7), "vtag", "SCTP"),
        ("/status", null.clone(), "status", "missing"),
        (
            "/status",
            json!(["assured", "blessed"]),
            "status",
            "blessed",
        ),
        ("/status", json!("assured"), "status", "assured"),
        ("/state", json!("established"), "state", "17"),
        ("/tcp_flags", json!({"original": 8}), "tcp_flags", "TCP"),
        ("/timeout", json!("118"), "timeout", "118"),
        ("/timeout", json!(1.5), "timeout", "1.5"),
        ("/mark", json!(4_294_967_296u64), "mark", "4294967296"),
        ("/labels", json!("0x1"), "labels", "0x1"),
        (
            "/labels",
            json!("0x+0000000000000000000000000000001"),
            "labels",
            "hex",
        ),
        ("/helper", json!(21), "helper", "21"),
        ("/start", json!("yesterday"), "start", "yesterday"),
        ("/start", json!("1969-12-31T23:59:59Z"), "start", "1969"),
        ("/result", json!(true), "result", "true"),
    ];
    let good = item().to_string();
    for (pointer, value, field, message) in cases {
        let mut bad = item();
        match bad.pointer_mut(pointer) {
            Some(place) => *place = value.clone(),
            None => bad[&pointer[1..]] = value.clone(),
        }
        let error = all(&format!("{good}\n{bad}\n{good}\n")).unwrap_err();
        let SavedTableError::Item {
            position,
            source: field_error,
        } = &error
        else {
            panic!("{pointer} {value}: {error:?}")
        };
        assert_eq!((position.line, position.item), (2, 2), "{pointer} {value}");
        assert_eq!(
            field_error.field, *field,
            "{pointer} {value}: {field_error}"
        );
        assert!(
            field_error.message.contains(message),
            "{pointer} {value}: {field_error}"
        );
        assert!(
            chain(&error).starts_with(&format!("line 2: {field}: ")),
            "{error}"
        );
    }
}

#[test]
fn missing_or_unexpected_fields_of_a_protocol_are_refused() {
    for (protocol, l4, field) in [
        (6, L4::None, "original.sport"),
        (1, L4::None, "original.type"),
        (1, L4::Ports { src: 1, dst: 2 }, "original.sport"),
        (47, L4::Ports { src: 1, dst: 2 }, "original.sport"),
        (17, L4::Gre { src: 1, dst: 2 }, "original.srckey"),
        (
            17,
            L4::Icmp {
                kind: 8,
                code: 0,
                id: 1,
            },
            "original.type",
        ),
    ] {
        let mut flow = fixture::dns().flow;
        (flow.original.protocol, flow.original.l4) = (protocol, l4);
        match all(&printed(&flow)) {
            Err(SavedTableError::Item {
                source: field_error,
                ..
            }) => assert_eq!(field_error.field, field, "{l4:?}"),
            other => panic!("{protocol} {l4:?}: {other:?}"),
        }
    }
    let tcp = |word: &str| {
        let mut flow = fixture::dns().flow;
        flow.original.protocol = 6;
        flow.reply.protocol = 6;
        flow.state = Some(fixture::tcp(3));
        all(&printed(&flow).replace("\"established\"", word))
    };
    assert!(tcp("\"established\"").is_ok());
    // A word of SCTP, the kernel's spelling, a number out of range: none is taken for a similar word.
    for word in [
        "\"shutdown-sent\"",
        "\"ESTABLISHED\"",
        "\"STATE(256)\"",
        "\"STATE()\"",
        "null",
    ] {
        assert!(
            matches!(tcp(word), Err(SavedTableError::Item { .. })),
            "{word}"
        );
    }
}

#[test]
fn unknown_formats_are_distinguished_from_damaged_text() {
    let good = item().to_string();
    for text in [
        "udp      17 29 src=10.0.0.1 dst=10.0.0.2",
        "[]",
        "17",
        "null",
        "{oops}",
        &format!("[{good}]"),
        &format!(r#"{{"schema":"ctk/v2","items":[{good}]}}"#),
        &format!(r#"{{"items":[{good}],"schema":7}}"#),
        &format!(r#"{{"items":[{good}],"summary":{{}}}}"#),
        r#"{"schema":"ctk/v1","time":"2026-01-01T00:00:00Z","type":"new","entry":{}}"#,
    ] {
        let error = all(text).unwrap_err();
        assert!(
            matches!(error, SavedTableError::UnknownFormat { line: 1, .. }),
            "{text}: {error:?}"
        );
    }
    for (text, line) in [
        (format!("{good}\n{}", &good[..500]), 2),
        (good[..20].to_owned(), 1),
        (format!("{{\"schema\":\"ctk/v1\",\"items\":[\n{good},\n"), 3),
        (format!("{{\"schema\":\"ctk/v1\",\"items\":[\n{good}"), 2),
    ] {
        let error = all(&text).unwrap_err();
        assert!(
            matches!(error, SavedTableError::Truncated { line: at } if at == line),
            "{error:?}"
        );
    }
    for text in [
        format!("{good}\noops\n{good}"),
        format!("{good}\n{}", good.replacen("\"zone\":0,", "\"zone\":0 ", 1)),
        format!(
            "{good}\n{}",
            good.replacen("\"zone\":0,", "\"zone\":0,\"zone\":1,", 1)
        ),
        format!("{good}\n7"),
    ] {
        let error = all(&text).unwrap_err();
        assert!(
            matches!(error, SavedTableError::Syntax { line: 2, .. }),
            "{error:?}"
        );
    }
    let error = all("{}").unwrap_err();
    assert_eq!(chain(&error), "line 1: protocol_number: is missing");
}

#[test]
fn reading_stops_when_the_callback_breaks() {
    let good = item().to_string();
    let mut seen = 0;
    read(&mut format!("{good}\n{good}\noops").as_bytes(), &mut |_| {
        seen += 1;
        if seen == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
    .unwrap();
    assert_eq!(seen, 2);
}

#[test]
fn an_io_error_is_not_reported_as_an_error_of_the_text() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(5))
        }
    }
    let good = item().to_string();
    for begun in ["", &good[..40], &format!("{good}\n")] {
        let reader = begun.as_bytes().chain(Broken);
        let error = read(&mut { reader }, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, SavedTableError::Io(_)), "{error:?}");
    }
}
