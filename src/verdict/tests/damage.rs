//! Damaged cluster objects: no damage turns `ok` into `stale` while the source counts as whole.

use serde_json::{Value, json};

use super::*;
use ctk_cluster::source::{self, Source, SourceKind};

const CLUSTER: &str = include_str!("../../commands/demo/cluster.json");

/// Entries that are `ok` by the undamaged cluster.
const HEALTHY: [&str; 6] = [
    "10.244.1.5:4000 10.96.0.10:53 10.244.2.33:53",
    "10.244.1.5:4001 10.96.0.10:53 10.244.1.34:53",
    "tcp 10.244.1.6:4002 10.96.8.8:80 10.244.2.21:8080",
    "10.244.1.6:4003 10.96.1.9:6343 10.244.2.40:6343",
    "198.51.100.7:4004 203.0.113.20:6343 10.244.2.40:6343",
    "[fd00:10:244:1::5]:4005 [fd00:96::a]:53 [fd00:10:244:2::33]:53",
];

/// Keys whose values are free text or change the meaning of an object when they change: names, labels, kinds.
const FREE: [&str; 9] = [
    "name",
    "namespace",
    "labels",
    "kind",
    "apiVersion",
    "nodeName",
    "targetRef",
    "hostname",
    "containers",
];

/// Values that cannot stand in the place of this one.
fn damages(value: &Value) -> Vec<Value> {
    let texts = [
        "",
        "\u{1b}[2Jx",
        "10.0.0.0/33",
        "10.244.2.33/32",
        "::g",
        "Nonsense",
    ];
    let mut all: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
    all.extend([
        json!(-1),
        json!(70_000),
        json!(1.5),
        json!([7]),
        json!({"a": 7}),
        json!([{}]),
    ]);
    // An object of unknown fields is an object without the known ones: another one, and not a damaged one.
    all.retain(|other| !(value.is_object() && other.is_object()));
    all
}

/// JSON pointers to all values below `value`, without those under [`FREE`] keys.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields
                .iter()
                .filter(|(key, _)| !FREE.contains(&key.as_str()))
            {
                let path = format!("{path}/{key}");
                places(field, &path, found);
                found.push(path);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let path = format!("{path}/{number}");
                places(item, &path, found);
                found.push(path);
            }
        }
        _ => {}
    }
}

/// Verdicts of [`HEALTHY`], and whether Services and slices are whole. `None`: the source is refused.
fn judged(cluster: &Value) -> Option<(Vec<String>, bool)> {
    let text = cluster.to_string();
    let source = Source {
        kind: SourceKind::Stdin,
        time: SystemTime::now(),
        path: None,
    };
    let loaded = source::load(text.as_bytes(), source, &[]).ok()?;
    let node = ThisNode {
        name: Some("node1".to_owned()),
        local: Some(vec![local("eth0", "192.0.2.11/24")]),
        routes: None,
        namespace: NetnsOwner::Node,
    };
    let setting = Setting {
        index: Some(&loaded.index),
        rules: None,
        node: &node,
        zones: &[],
        time: None,
    };
    let verdicts = HEALTHY.map(|entry| setting.judge(entry).unwrap().0);
    Some((verdicts.to_vec(), loaded.summary.complete))
}

#[test]
fn a_damaged_object_makes_no_healthy_entry_stale() {
    let whole: Value = serde_json::from_str(CLUSTER).unwrap();
    let (verdicts, complete) = judged(&whole).unwrap();
    assert!(
        complete && verdicts.iter().all(|verdict| verdict == "ok/endpoint"),
        "{verdicts:?}"
    );
    let mut all = Vec::new();
    places(&whole["items"], "/items", &mut all);
    let (mut tried, mut refused, mut wrong) = (0, 0, Vec::new());
    for place in &all {
        let value = whole.pointer(place).unwrap();
        for damage in damages(value) {
            let mut damaged = whole.clone();
            *damaged.pointer_mut(place).unwrap() = damage.clone();
            tried += 1;
            match judged(&damaged) {
                Some((verdicts, true)) => {
                    let stale = verdicts.iter().any(|verdict| verdict.starts_with("stale"));
                    wrong.extend(
                        stale.then(|| format!("{place}: {value} -> {damage}: {verdicts:?}")),
                    );
                }
                Some((verdicts, false)) => {
                    let stale = verdicts.iter().any(|verdict| verdict.starts_with("stale"));
                    assert!(
                        !stale,
                        "{place}: {damage}: judged by half a cluster: {verdicts:?}"
                    );
                    refused += 1;
                }
                None => refused += 1,
            }
        }
    }
    assert!(tried > 3000 && refused > 500, "{tried} {refused}");
    assert!(
        wrong.is_empty(),
        "{} of {tried}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
