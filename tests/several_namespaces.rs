//! Commands that read several network namespaces in one look.

use std::collections::BTreeMap;

use ctnetlink::netns::Netns;
use serde_json::json;
use testkit::ctk_binary::ctk;
use testkit::other_netns::OtherNetns;
use testkit::private_netns::private_netns;
use testkit::tools::Outcome;

/// Counts of groups by their only key.
fn counts(outcome: &Outcome) -> BTreeMap<String, u64> {
    let of = |item: &serde_json::Value| {
        let key = item["key"].as_object().unwrap().values().next().unwrap();
        let count = item["count"].as_u64().unwrap();
        (key.as_str().unwrap().to_owned(), count)
    };
    outcome.items().iter().map(of).collect()
}

/// Runs `ctk` with `--netns`.
fn several(list: &str, line: &str) -> Outcome {
    let mut args: Vec<&str> = line.split(' ').collect();
    args.splice(1..1, ["--netns", list]);
    ctk(args)
}

#[test]
fn the_namespace_that_fills_the_table_is_named() {
    private_netns(|| {
        let (full, small) = (OtherNetns::start(), OtherNetns::start());
        full.fill(30);
        small.fill(4);
        let (one, other) = (full.pid(), small.pid());
        let list = format!("{one},{other}");
        let outcome = ctk(["top", "--netns", &list, "-o", "json"]).exits(0);
        let expected = BTreeMap::from([(one.clone(), 30), (other.clone(), 4)]);
        assert_eq!(counts(&outcome), expected, "{outcome:#?}");
        let summary = &outcome.json()["summary"];
        assert_eq!(summary["netns"], json!([one, other]));
        assert_eq!(
            (&summary["scanned"], &summary["matched"]),
            (&json!(34), &json!(34))
        );
        // Other keys hold for all namespaces together.
        let by_src = ctk(["top", "--netns", &list, "--by", "src", "-o", "json"]).exits(0);
        assert_eq!(
            counts(&by_src),
            BTreeMap::from([("10.0.0.1".to_owned(), 34)])
        );
        let by_both = ctk(["top", "--netns", &list, "--by", "netns,src", "-o", "csv"]).exits(0);
        let rows: Vec<_> = by_both.stdout.lines().skip(1).collect();
        assert!(
            rows[0].starts_with(&format!("{one},10.0.0.1,,30,")),
            "{rows:?}"
        );
        // Every namespace, among them these two.
        let all = counts(&ctk(["top", "--netns", "all", "-o", "json"]));
        assert_eq!((all[&one], all[&other]), (30, 4), "{all:?}");
    });
}

#[test]
fn a_namespace_that_cannot_be_opened_is_named_with_status_3() {
    private_netns(|| {
        let place = OtherNetns::start();
        place.fill(2);
        let list = format!("{},ctk-nowhere", place.pid());
        let outcome = ctk(["top", "--netns", &list, "-o", "json"]).exits(3);
        assert!(outcome.stderr.contains("ctk-nowhere"), "{outcome:#?}");
        assert_eq!(counts(&outcome), BTreeMap::from([(place.pid(), 2)]));
        let nothing = ctk(["top", "--netns", "ctk-nowhere,ctk-nowhere-2"]).exits(1);
        assert!(nothing.stderr.contains("ctk-nowhere-2"), "{nothing:#?}");
        let svc = several("all", "svc web").exits(2);
        assert!(svc.stderr.contains("ctk top --netns all"), "{svc:#?}");
        for refused in [
            "--by verdict",
            "--stale",
            "--interval 2s",
            "--cluster rules",
        ] {
            let args = ["top", "--netns", list.as_str()].into_iter();
            let outcome = ctk(args.chain(refused.split(' '))).exits(2);
            assert!(outcome.stderr.contains("several"), "{outcome:#?}");
        }
    });
}

#[test]
fn entries_of_all_namespaces_are_listed_with_the_name_of_theirs() {
    private_netns(|| {
        let (first, second) = (OtherNetns::start(), OtherNetns::start());
        first.fill(3);
        second.fill(2);
        let (one, other) = (first.pid(), second.pid());
        let list = format!("{one},{other}");
        let listed = several(&list, "ls -o json").exits(0);
        let names: Vec<_> = listed
            .items()
            .iter()
            .map(|item| item["netns"].clone())
            .collect();
        let expected = [&one, &one, &one, &other, &other].map(|name| json!(name));
        assert_eq!(names, expected);
        assert_eq!(listed.json()["summary"]["netns"], json!([one, other]));
        assert_eq!(listed.json()["summary"]["scanned"], 5);

        let table = several(&list, "ls --dport 53").exits(0);
        let lines: Vec<_> = table.stdout.lines().collect();
        assert!(lines[0].starts_with("NETNS"), "{table:#?}");
        assert_eq!(
            lines.iter().filter(|line| line.starts_with(&other)).count(),
            2
        );
        let sorted = several(&list, "ls --sort -original.sport --limit 2 -o csv").exits(0);
        let rows: Vec<_> = sorted.stdout.lines().collect();
        assert!(rows[0].ends_with(",netns"), "{rows:?}");
        assert!(
            rows[1].contains(",4002,") && rows[1].ends_with(&one),
            "{rows:?}"
        );
        // A line of a single namespace has no such column.
        let single = several(&one, "ls").exits(0);
        assert!(!single.stdout.contains("NETNS"), "{single:#?}");
        let missing = several(&format!("{one},ctk-nowhere"), "ls -o jsonl").exits(3);
        assert_eq!(missing.stdout.lines().count(), 3);
        assert!(missing.stderr.contains("ctk-nowhere"), "{missing:#?}");
        for refused in [
            "ls -o conntrack",
            "ls --stale",
            "ls --sample 6s",
            "ls --table expect",
        ] {
            let outcome = several(&list, refused).exits(2);
            assert!(outcome.stderr.contains("namespace"), "{outcome:#?}");
        }
    });
}

#[test]
fn the_fullest_table_is_the_first_line_of_stat() {
    private_netns(|| {
        let (small, full) = (OtherNetns::start(), OtherNetns::start());
        small.fill(2);
        full.fill(9);
        let list = format!("{},{}", small.pid(), full.pid());
        let table = several(&list, "stat").exits(0);
        let rows: Vec<Vec<&str>> = table
            .stdout
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0][..2], ["NETNS", "COUNT"]);
        assert_eq!(rows[1][..2], [full.pid().as_str(), "9"]);
        assert_eq!(rows[2][..2], [small.pid().as_str(), "2"]);
        let document = several(&list, "stat -o json").exits(0).json();
        assert_eq!(document["summary"]["count"], 11);
        assert_eq!(document["items"][0]["netns"], json!(full.pid()));
        assert_eq!(document["items"][0]["count"], 9);
        let lines = several(&list, "stat -o jsonl").exits(0);
        assert_eq!(lines.stdout.lines().count(), 2);
        several(&format!("{list},ctk-nowhere"), "stat").exits(3);
        several(&list, "stat --interval 1s").exits(2);
    });
}

#[test]
fn doctor_tells_equal_findings_of_namespaces_once() {
    private_netns(|| {
        let (one, other) = (OtherNetns::start(), OtherNetns::start());
        let netns = Netns::named(&other.pid()).unwrap();
        netns
            .run(|| std::fs::write("/proc/sys/net/netfilter/nf_conntrack_timestamp", "1").unwrap())
            .unwrap();
        let (one, other) = (one.pid(), other.pid());
        let list = format!("{one},{other}");
        let report = several(&list, "doctor --sample 0 -o json").exits(0).json();
        let of = |setting: &str| {
            let items = report["items"].as_array().unwrap();
            let name = format!("net.netfilter.nf_conntrack_{setting}");
            let found: Vec<_> = items
                .iter()
                .filter(|item| item["evidence"]["setting"] == name.as_str())
                .collect();
            assert_eq!(found.len(), 1, "{report:#}");
            found[0]["netns"].clone()
        };
        let mut both = [one.clone(), other.clone()];
        both.sort();
        assert_eq!(of("acct"), json!(both));
        assert_eq!(of("timestamp"), json!([one]));
        assert_eq!(report["summary"]["netns"], json!(both));
        let text = several(&list, "doctor --sample 0").exits(0);
        assert!(
            text.stdout
                .contains(&format!("in netns {}", both.join(", "))),
            "{text:#?}"
        );
        let missing = several(&format!("{one},ctk-nowhere"), "doctor --sample 0").exits(3);
        assert!(missing.stderr.contains("ctk-nowhere"), "{missing:#?}");
        several(&list, "doctor --watch").exits(2);
        several(&list, "doctor --cluster rules").exits(2);
    });
}
