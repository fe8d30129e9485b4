//! Memory of `ctk top` depends on the groups, not on the table, and the number of groups is bounded.

use std::process::Stdio;

use ctk::top::MAX_GROUPS;
use ctnetlink::flow::Flow;
use serde_json::Value;

use testkit::ctk_binary::ctk_command;
use testkit::mixed::{ASSURED, insert_range, plain, ports, tuple};
use testkit::private_netns::private_netns;
use testkit::usage::{MIB, measure};

/// More entries than groups that are counted at once.
const ENTRIES: u32 = MAX_GROUPS as u32 + MAX_GROUPS as u32 / 5;
/// Entries of one client, enough to make it the largest group.
const HEAVY: u32 = 500;

/// Flow to one of 300 destinations. Every source differs, except for the heavy one, whose entries are scattered.
fn flow(n: u32) -> Flow {
    let source = if n.is_multiple_of(ENTRIES / HEAVY) {
        "10.9.9.9".to_owned()
    } else {
        format!("10.{}.{}.{}", 128 + (n >> 16), n >> 8 & 255, n & 255)
    };
    let destination = format!("10.64.{}.{}", n % 300 / 100, n % 100);
    let port = 1024 + (n / (ENTRIES / HEAVY)) as u16;
    let mut flow = plain(tuple(17, &source, &destination, ports(port, 53)), ASSURED);
    flow.timeout = Some(100_000);
    flow
}

#[test]
fn memory_is_bounded_by_groups_and_missing_groups_are_reported() {
    private_netns(|| {
        insert_range(0..ENTRIES, flow);
        let (document, stderr, status, peak) = top(&["--by", "dst"]);
        println!("300 groups: {:.1} MiB", peak as f64 / MIB as f64);
        assert_eq!(status, 0, "{stderr}");
        assert_eq!(document["summary"]["groups"], 300);
        assert_eq!(document["summary"]["error_at_most"], 0);
        assert_eq!(document["items"][0]["count"], ENTRIES / 300);
        assert!(peak < 32 * MIB, "{} MiB", peak / MIB);

        // The largest group is certain, whatever is dropped.
        let heavy = ENTRIES.div_ceil(ENTRIES / HEAVY);
        let (document, stderr, status, peak) = top(&["--by", "src", "--limit", "1"]);
        println!("too many groups: {:.1} MiB", peak as f64 / MIB as f64);
        assert_eq!(document["items"][0]["key"]["src"], "10.9.9.9");
        let item = &document["items"][0];
        let number = |value: &Value| value.as_u64().unwrap();
        let (count, missed) = (number(&item["count"]), number(&item["error_at_most"]));
        assert!((count..=count + missed).contains(&heavy.into()), "{item}");
        let error = number(&document["summary"]["error_at_most"]);
        // Every other source has one entry, so each dropped group adds one to the error.
        assert!((1..=3).contains(&error), "{document}");
        assert_eq!(document["summary"]["groups"], Value::Null);
        assert_eq!(document["summary"]["matched"], ENTRIES);
        assert!(
            stderr.contains("more groups than can be counted"),
            "{stderr}"
        );
        assert_eq!(status, if missed == 0 { 0 } else { 3 }, "{stderr}");
        assert!(peak < 64 * MIB, "{} MiB", peak / MIB);

        // Groups are missing, which makes the answer partial.
        let (document, stderr, status, peak) = top(&["--by", "src,dst"]);
        assert_eq!(status, 3, "{stderr}");
        let shown = document["items"].as_array().unwrap().len();
        assert!((MAX_GROUPS / 2..=MAX_GROUPS).contains(&shown), "{shown}");
        println!("all that are left: {:.1} MiB", peak as f64 / MIB as f64);
        assert!(peak < 64 * MIB, "{} MiB", peak / MIB);
    });
}

/// Document of `ctk top -o json`, stderr, exit status, and peak in bytes.
fn top(args: &[&str]) -> (Value, String, i32, u64) {
    let (out, err) = (
        tempfile::NamedTempFile::new().unwrap(),
        tempfile::NamedTempFile::new().unwrap(),
    );
    let file = |file: &tempfile::NamedTempFile| Stdio::from(file.reopen().unwrap());
    let all = ["top", "--cluster", "none", "-o", "json"];
    let mut command = ctk_command(all.iter().chain(args));
    let usage = measure(command.stdout(file(&out)).stderr(file(&err))).unwrap();
    let document = serde_json::from_reader(out.reopen().unwrap()).unwrap();
    let stderr = std::fs::read_to_string(err.path()).unwrap();
    let status = usage.status.code().expect("no signal ends it");
    (document, stderr, status, usage.peak)
}
