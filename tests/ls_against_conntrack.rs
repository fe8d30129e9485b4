//! `ctk ls` against the `conntrack` tool, on one table with entries of every kind.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use testkit::conntrack_tool;

use serde_json::{Value, json};
use testkit::ctk_binary::ctk_line;
use testkit::mixed::{ENTRIES, fill};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, by_key, run};

/// Names of the label bits that the table uses.
const CONNLABELS: &str = "1 one\n33 thirty-three\n63 low-end\n64 high-start\n127 last\n";
const LABEL_NAMES: [(&str, u32); 5] = [
    ("one", 1),
    ("thirty-three", 33),
    ("low-end", 63),
    ("high-start", 64),
    ("last", 127),
];

fn conntrack(args: &[&str]) -> String {
    run("conntrack", args).stdout
}

/// Output of the tool with a file of label names. The file is in /etc, which a mount namespace replaces for the tool alone.
fn conntrack_with_labels(output: &str) -> String {
    let etc = tempfile::tempdir().unwrap();
    std::fs::create_dir(etc.path().join("xtables")).unwrap();
    std::fs::write(etc.path().join("xtables/connlabel.conf"), CONNLABELS).unwrap();
    let script =
        format!("mount --bind \"$0\" /etc && exec \"$(command -v conntrack)\" -L -o {output}");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .arg(etc.path())
        .output()
        .unwrap();
    let outcome = Outcome::of(output).exits(0);
    outcome.stdout
}

fn ids(texts: impl Iterator<Item = Value>) -> BTreeMap<String, Value> {
    by_key(texts.collect())
}

/// Item in the form of the parsed tool output, without fields that the tool omits or prints wrongly.
fn like_the_tool(item: &Value) -> Value {
    let tuple = |direction: &str| {
        let mut tuple = item[direction].clone();
        tuple.as_object_mut().unwrap().remove("vtag");
        tuple
    };
    let status = item["status"].as_array().unwrap();
    let has = |word: &str| status.contains(&json!(word));
    let state = item["state"].as_str();
    json!({
        "family": item["family"], "protocol_number": item["protocol_number"],
        "zone": item["zone"], "zone_direction": item["zone_direction"], "id": item["id"],
        "original": tuple("original"), "reply": tuple("reply"),
        "unreplied": !has("seen-reply"),
        "fate": has("assured").then_some("[ASSURED]"),
        "state": state.map(|word| word.to_uppercase().replace('-', "_")),
        "mark": item["mark"], "helper": item["helper"], "secctx": item["secctx"],
    })
}

/// Fields that cannot be equal in two successive lists, or that the tool cannot know.
fn steady(tool: &Value) -> Value {
    let mut steady = tool.clone();
    let fields = steady.as_object_mut().unwrap();
    for name in ["timeout", "delta-time", "use", "protocol", "labels"] {
        fields.remove(name);
    }
    if tool["protocol"] == "dccp" {
        // The kernel tracks DCCP by addresses alone; the tool prints 0 for the missing ports.
        for direction in ["original", "reply"] {
            for port in ["sport", "dport"] {
                assert_eq!(tool[direction][port], 0);
                fields[direction][port] = Value::Null;
            }
        }
    }
    steady
}

#[test]
fn json_equals_the_text_of_conntrack_field_by_field() {
    private_netns(|| {
        fill();
        let tool = |text: String| ids(text.lines().map(conntrack_tool::text));
        let before = tool(conntrack(&["-L", "-o", "extended,id"]));
        let document = ctk_line("ls --cluster none -o json").exits(0).json();
        let after = tool(conntrack_with_labels("extended,id,labels"));
        assert!(before.len() >= ENTRIES, "{}", before.len());
        let summary = &document["summary"];
        for (field, expected) in [
            ("shown", json!(before.len())),
            ("scanned", json!(before.len())),
            ("consistent", json!(true)),
            ("unreadable", json!(0)),
        ] {
            assert_eq!(summary[field], expected, "{field}");
        }
        assert_eq!(summary["cluster"]["source"], "none");
        let items = by_key(document["items"].as_array().unwrap().clone());
        assert!(items.keys().eq(before.keys()), "other entries");
        for (key, item) in &items {
            let (before, after) = (&before[key], &after[key]);
            assert_eq!(like_the_tool(item), steady(before), "{item}\n{before}");
            between(item, before, after);
            own_fields(item, after);
        }
        assert_covers(&items);
    });
}

/// Timers and ages lie between those of the lists before and after: both are monotonic.
fn between(item: &Value, before: &Value, after: &Value) {
    let seconds = |value: &Value| value["timeout"].as_u64().unwrap();
    assert!(
        (seconds(after)..=seconds(before)).contains(&seconds(item)),
        "{before}\n{item}\n{after}"
    );
    match before["delta-time"].as_u64() {
        None => assert_eq!(item["start"], Value::Null, "{before}"),
        Some(age) => {
            let start = humantime::parse_rfc3339(item["start"].as_str().unwrap()).unwrap();
            let now = std::time::SystemTime::now();
            let since = now.duration_since(start).unwrap().as_secs();
            assert!(since >= age, "{before}\n{item}");
        }
    }
    // The tool reads in other portions, and the kernel holds an additional reference to the entry at which a portion
    // begins.
    let uses = |value: &Value| value["use"].as_u64().unwrap();
    assert!(uses(item).abs_diff(uses(before)) <= 1, "{before}\n{item}");
}

/// Fields that depend on several words: names of protocols and labels, translation, fields without a source.
fn own_fields(item: &Value, tool: &Value) {
    if tool["protocol"] != "unknown" {
        assert_eq!(item["protocol"], tool["protocol"], "{item}");
    }
    let names = tool["labels"].as_str().unwrap_or_default();
    let bits = names.split(',').filter(|name| !name.is_empty());
    let bits = bits.map(|name| LABEL_NAMES.iter().find(|(known, _)| *known == name));
    let labels = bits.fold(0u128, |bits, name| bits | 1 << name.unwrap().1);
    let expected = (labels != 0).then(|| format!("0x{labels:032x}"));
    assert_eq!(item["labels"], json!(expected), "{tool}");
    let differ = |a: &str, b: &str| {
        ["src", "sport"]
            .map(|field| &item[a][field])
            .iter()
            .zip(["dst", "dport"].map(|field| &item[b][field]))
            .any(|(source, destination)| **source != *destination)
    };
    let dnat = differ("reply", "original");
    // Compares the reply destination with the original source.
    let snat = differ("original", "reply");
    let nat: Vec<&str> = [(snat, "snat"), (dnat, "dnat")]
        .into_iter()
        .filter_map(|(yes, name)| yes.then_some(name))
        .collect();
    assert_eq!(item["nat"], json!(nat), "{item}");
    let hairpin = dnat && item["original"]["src"] == item["reply"]["src"];
    assert_eq!(item["hairpin"], json!(hairpin), "{item}");
    for field in [
        "client", "service", "endpoint", "verdict", "reason", "evidence",
    ] {
        assert_eq!(item[field], Value::Null, "{field} without a cluster");
    }
    assert_eq!(item["refreshing"], "unknown");
}

/// Asserts that the table has the kinds of entries that make the comparison meaningful.
fn assert_covers(items: &BTreeMap<String, Value>) {
    let with = |pointer: &str| -> BTreeSet<String> {
        let values = items.values().filter_map(|item| item.pointer(pointer));
        values.map(|value| value.to_string()).collect()
    };
    for (pointer, at_least) in [
        ("/family", 2),
        ("/protocol", 10),
        ("/state", 17),
        ("/zone", 6),
        ("/zone_direction", 3),
        ("/labels", 5),
        ("/mark", 100),
        ("/original/packets", 3),
        ("/reply/bytes", 4),
        ("/reply/vtag", 2),
        ("/original/srckey", 100),
        ("/original/type", 4),
        ("/nat", 4),
        ("/hairpin", 2),
        ("/start", 2),
        ("/tcp_flags", 2),
    ] {
        let found = with(pointer);
        assert!(found.len() >= at_least, "{pointer}: only {found:?}");
    }
}

#[test]
fn json_equals_the_xml_of_conntrack() {
    private_netns(|| {
        fill();
        let before = conntrack_with_labels("xml,id,labels");
        let items = ctk_line("ls --cluster none -o jsonl").exits(0).jsonl();
        let after = ids(conntrack_tool::xml(&conntrack_with_labels("xml,id,labels")).into_iter());
        let before = ids(conntrack_tool::xml(&before).into_iter());
        let items = by_key(items);
        assert!(items.keys().eq(before.keys()), "other entries");
        for (key, item) in &items {
            let (before, after) = (&before[key], &after[key]);
            let (mut ours, mut tool) = (like_the_tool(item), steady(before));
            // Known errors and gaps of the tool's XML.
            if [json!(1), json!(58)].contains(&item["protocol_number"]) {
                for direction in ["original", "reply"] {
                    for field in ["type", "code", "icmp_id"] {
                        ours[direction][field] = Value::Null;
                    }
                }
            }
            ours["helper"] = Value::Null;
            if item["protocol"] == "sctp" {
                ours["state"] = Value::Null;
                tool["state"] = Value::Null;
            }
            assert_eq!(ours, tool, "{item}\n{before}");
            between(item, before, after);
            own_fields(item, after);
        }
    });
}

#[test]
fn lines_equal_those_of_conntrack() {
    private_netns(|| {
        fill();
        let tool = || conntrack(&["-L", "-o", "extended,id"]);
        let before = tool();
        let ours = ctk_line("ls --cluster none -o conntrack").exits(0).stdout;
        let (before, ours, after) = (timers(&before), timers(&ours), timers(&tool()));
        assert!(before.len() >= ENTRIES);
        for (line, [timeout, age, uses]) in &ours {
            let Some([before_timeout, before_age, before_uses]) = before.get(line) else {
                panic!("conntrack has no line {line}")
            };
            let [after_timeout, after_age, _] = after[line];
            let runs_down = after_timeout..=*before_timeout;
            assert!(runs_down.contains(timeout), "{line}: {timeout}");
            assert!((*before_age..=after_age).contains(age), "{line}: {age}");
            assert!((uses - before_uses).abs() <= 1, "{line}: {uses}");
        }
        assert_eq!(ours.len(), before.len());
    });
}

/// Lines without timer, age and use count, and these numbers; -1 for a missing age.
fn timers(lines: &str) -> BTreeMap<String, [i64; 3]> {
    let read = |line: &str| {
        let mut numbers = [-1; 3];
        let mut words = 0;
        let mut kept = Vec::new();
        for word in line.split(' ') {
            words += usize::from(!word.is_empty());
            // The timer is the fifth word; the others carry a name.
            let (place, name, number) = match word.split_once('=') {
                Some(("delta-time", number)) => (1, "delta-time=", number),
                Some(("use", number)) => (2, "use=", number),
                _ if words == 5 && !word.is_empty() => (0, "TIMER", word),
                _ => {
                    kept.push(word);
                    continue;
                }
            };
            kept.push(name);
            numbers[place] = number.parse().unwrap();
        }
        (kept.join(" "), numbers)
    };
    let map: BTreeMap<_, _> = lines.lines().map(read).collect();
    assert_eq!(map.len(), lines.lines().count(), "a line came twice");
    map
}
