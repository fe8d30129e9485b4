//! `ctk top` in real namespaces: numbers compared with the conntrack tool and `ls`, names, frames, and bounds.

mod frames;

use std::collections::BTreeMap;
use testkit::{lab, mixed};

use ctnetlink::flow::{Flow, Status};
use serde_json::{Value, json};
use testkit::ctk_binary::{ctk, ctk_command, ctk_line};
use testkit::lab::add_node_address;
use testkit::lab::cluster::{ClusterFile, minimal, pod, service, slice};
use testkit::mixed::{ASSURED, insert, plain, ports, to_dns, translated, tuple, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error, run, sysctl};

/// Counts by key, as text; several keys joined by a blank.
fn counts(outcome: &Outcome) -> BTreeMap<String, u64> {
    let of = |item: &Value| {
        let keys = item["key"].as_object().unwrap().values();
        let words: Vec<_> = keys
            .map(|key| key.as_str().map_or_else(|| key.to_string(), str::to_owned))
            .collect();
        (words.join(" "), item["count"].as_u64().unwrap())
    };
    let items = outcome.items();
    let map: BTreeMap<_, _> = items.iter().map(of).collect();
    assert_eq!(map.len(), items.len(), "a group came twice");
    map
}

/// Counts of `conntrack -L | awk`: lines for each value of the awk expression.
fn by_awk(expression: &str) -> BTreeMap<String, u64> {
    let script = format!(
        "(conntrack -L -f ipv4; conntrack -L -f ipv6) 2>/dev/null | awk '{{ n[{expression}]++ }} END {{ for (k in n) print n[k], k }}'"
    );
    let outcome = run("sh", &["-c", &script]);
    let lines = outcome.stdout.lines().map(|line| {
        let (count, key) = line.trim().split_once(' ').unwrap();
        (key.to_owned(), count.parse().unwrap())
    });
    lines.collect()
}

#[test]
fn counts_are_those_of_conntrack_and_awk() {
    private_netns(|| {
        mixed::fill();
        for (by, expression) in [
            // The first src= of a line is the original source.
            (
                "src",
                r#"(match($0, / src=[^ ]*/) ? substr($0, RSTART + 5, RLENGTH - 5) : "?")"#,
            ),
            (
                "dst",
                r#"(match($0, / dst=[^ ]*/) ? substr($0, RSTART + 5, RLENGTH - 5) : "?")"#,
            ),
            (
                "dport",
                // DCCP, where the kernel has no tracker for it: the tool prints 0 for absent ports.
                r#"($1 != "dccp" && match($0, / dport=[^ ]*/) ? substr($0, RSTART + 7, RLENGTH - 7) : "null")"#,
            ),
            (
                "mark",
                r#"(match($0, / mark=[^ ]*/) ? substr($0, RSTART + 6, RLENGTH - 6) : "null")"#,
            ),
        ] {
            let outcome = ctk_line(&format!("top --cluster none --by {by} -o json")).exits(0);
            let (ours, theirs) = (counts(&outcome), by_awk(expression));
            assert!(theirs.len() > 3, "{by}: {theirs:?}");
            assert_eq!(ours, theirs, "{by}");
            assert_eq!(outcome.json()["summary"]["error_at_most"], 0);
            assert_eq!(outcome.json()["summary"]["groups"], theirs.len());
        }
        let tcp = ctk_line("top --cluster none --by state --tcp -o json").exits(0);
        let words = counts(&tcp).into_iter();
        let words = words.map(|(word, count)| (word.to_uppercase().replace('-', "_"), count));
        let mut theirs = by_awk(r#"($1 == "tcp" ? $4 : "other")"#);
        theirs.remove("other");
        assert_eq!(words.collect::<BTreeMap<_, _>>(), theirs);
    });
}

/// Counts of the values that `ls` prints at this place of each entry.
fn listed_at(place: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for entry in ctk_line("ls --cluster none -o jsonl").exits(0).jsonl() {
        let value = entry.pointer(place).unwrap_or(&Value::Null);
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        *counts.entry(text).or_default() += 1;
    }
    counts
}

#[test]
fn counts_of_both_tuples_are_those_of_the_entries_that_ls_lists() {
    private_netns(|| {
        mixed::fill();
        for (by, place) in [
            ("sport", "/original/sport"),
            ("reply-src", "/reply/src"),
            ("reply-dst", "/reply/dst"),
            ("reply-sport", "/reply/sport"),
            ("reply-dport", "/reply/dport"),
            ("helper", "/helper"),
        ] {
            let outcome = ctk_line(&format!("top --cluster none --by {by} -o json")).exits(0);
            assert_eq!(counts(&outcome), listed_at(place), "{by}");
        }
        // A port is sorted as a number, and aligned right as one.
        let ports = ctk_line("top --cluster none --by sport --sort sport -o json").exits(0);
        let ports = ports.items();
        let ports: Vec<_> = ports
            .iter()
            .filter_map(|i| i["key"]["sport"].as_u64())
            .collect();
        assert!(ports.is_sorted(), "{ports:?}");
    });
}

#[test]
fn sums_and_shares_are_those_of_the_entries_that_ls_lists() {
    private_netns(|| {
        mixed::fill();
        // Half of the table was created before accounting was on.
        let entries = ctk_line("ls --cluster none -o jsonl --udp")
            .exits(0)
            .jsonl();
        let mut expected: BTreeMap<u64, (u64, Option<u64>, Option<u64>)> = BTreeMap::new();
        let number = |entry: &Value, of: &str| {
            let each = ["original", "reply"].map(|direction| entry[direction][of].as_u64());
            each.iter()
                .any(Option::is_some)
                .then(|| each.iter().flatten().sum::<u64>())
        };
        for entry in &entries {
            let port = entry["original"]["dport"].as_u64().unwrap();
            let (count, packets, bytes) = expected.entry(port).or_default();
            *count += 1;
            for (sum, of) in [(packets, "packets"), (bytes, "bytes")] {
                if let Some(some) = number(entry, of) {
                    *sum = Some(sum.unwrap_or(0) + some);
                }
            }
        }
        let outcome = ctk_line("top --cluster none --by dport --udp --sort bytes -o json").exits(0);
        let items = outcome.items();
        assert_eq!(items.len(), expected.len());
        for item in &items {
            let (count, packets, bytes) = expected[&item["key"]["dport"].as_u64().unwrap()];
            let share = item["share"].as_f64().unwrap();
            assert_eq!(
                (&item["count"], &item["packets"], &item["bytes"]),
                (&json!(count), &json!(packets), &json!(bytes)),
                "{item}"
            );
            assert!((share - count as f64 / entries.len() as f64).abs() < 1e-6);
        }
        let bytes: Vec<_> = items.iter().map(|item| item["bytes"].as_u64()).collect();
        assert!(bytes.is_sorted_by(|a, b| a >= b), "{bytes:?}");
        let shares: f64 = items
            .iter()
            .map(|item| item["share"].as_f64().unwrap())
            .sum();
        assert!((shares - 1.0).abs() < 1e-3, "{shares}");
        let uncounted = entries
            .iter()
            .filter(|entry| number(entry, "bytes").is_none());
        let uncounted = uncounted.count();
        assert!(uncounted > 0);
        assert_eq!(outcome.json()["summary"]["uncounted"], uncounted);
        let note = format!("{uncounted} of {} entries have no packet", entries.len());
        assert!(outcome.stderr.contains(&note), "{}", outcome.stderr);
    });
}

#[test]
fn without_accounting_bytes_are_absent_with_a_note() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let outcome = ctk_line("top --cluster none -o json").exits(0);
        assert_eq!(
            outcome.items(),
            [
                json!({"key": {"src": "10.0.0.1"}, "names": {"src": null}, "count": 1, "share": 1, "packets": null,
                "bytes": null, "error_at_most": 0})
            ]
        );
        assert!(
            outcome
                .stderr
                .contains("net.netfilter.nf_conntrack_acct is 0"),
            "{outcome:#?}"
        );
        sysctl("acct", "1");
        let outcome = ctk_line("top --cluster none").exits(0);
        assert!(
            outcome
                .stderr
                .contains("before net.netfilter.nf_conntrack_acct was 1"),
            "{outcome:#?}"
        );
        let row = outcome.stdout.lines().nth(1).unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(
            words,
            ["10.0.0.1", "1", "100.0%", "-", "-", "████████████████████"]
        );
    });
}

/// Half-closed connections that one workload leaves to a Service: five instead of thousands.
fn close_wait() -> (Vec<Flow>, ClusterFile) {
    let to_api = |sport, state| {
        let mut flow = translated(
            tuple(6, "10.244.1.30", "10.96.4.4", ports(sport, 80)),
            tuple(6, "10.244.2.40", "10.244.1.30", ports(8080, sport)),
            ASSURED.with(Status::DST_NAT),
        );
        flow.state = Some(mixed::tcp(state));
        flow
    };
    let mut flows: Vec<_> = (40_001..=40_005).map(|sport| to_api(sport, 5)).collect();
    flows.push(to_api(40_010, 3));
    let mut objects = minimal(lab::NODE);
    let http = &[("http", 80, "TCP")];
    objects.push(service("web", "api", "10.96.4.4", http));
    let backend = &[("http", 8080, "TCP")];
    objects.push(slice("web", "api", backend, &[("10.244.2.40", "api-1")]));
    objects.push(pod("web", "api-1", "10.244.2.40", "node2"));
    objects.push(pod("edge", "nginx-1", "10.244.1.30", "node1"));
    (flows, ClusterFile::of(&objects))
}

#[test]
fn the_workload_that_leaves_half_closed_connections_is_named() {
    private_netns(|| {
        add_node_address();
        let (flows, file) = close_wait();
        insert(&flows);
        sysctl("tcp_timeout_close_wait", "3600");
        let top = |args: &str| {
            let all = ["top", "--cluster", file.path()].into_iter();
            ctk(all.chain(args.split_whitespace()))
        };
        let one = |outcome: &Outcome, item: Value| {
            let items = outcome.items();
            for (key, value) in item.as_object().unwrap() {
                assert_eq!(items[0][key], *value, "{outcome:#?}");
            }
        };
        let states = top("--by state -o json").exits(0);
        assert_eq!(
            counts(&states),
            BTreeMap::from([("close-wait".to_owned(), 5), ("established".to_owned(), 1)])
        );
        for outcome in ["not a socket's", "stays for 3600 s (net.netfilter."] {
            assert!(states.stderr.contains(outcome), "{states:#?}");
        }
        let established = top("--by state --state ESTABLISHED -o json").exits(0);
        assert!(
            !established.stderr.contains("CLOSE_WAIT"),
            "{established:#?}"
        );
        let src = top("--by src --state CLOSE_WAIT -o json").exits(0);
        one(
            &src,
            json!({"key": {"src": "10.244.1.30"}, "names": {"src": "edge/nginx-1"}, "count": 5}),
        );
        assert!(
            top("--by src")
                .exits(0)
                .stdout
                .contains("10.244.1.30 (edge/nginx-1)"),
            "the name stands beside the address"
        );
        // With a cluster, groups are clients by default.
        one(
            &top("-o json").exits(0),
            json!({"key": {"client": "edge/nginx-1"}, "count": 6, "names": {}}),
        );
        one(
            &top("--by pod,namespace,reason,reply-src -o json").exits(0),
            json!({
                "key": {"pod": "edge/nginx-1", "namespace": "edge", "reason": "endpoint", "reply-src": "10.244.2.40"},
                "names": {"reply-src": "web/api-1"}, "count": 6,
            }),
        );
        let csv = top("--by reply-src -o csv").exits(0).stdout;
        assert!(csv.starts_with("reply-src,reply-src_name,count"), "{csv}");
        assert!(csv.contains("\n10.244.2.40,web/api-1,6,"), "{csv}");
        one(
            &top("--by svc,endpoint,verdict,proto,zone,status,dport -o json").exits(0),
            json!({
                "key": {"svc": "web/api:http", "endpoint": "web/api-1:8080", "verdict": "ok", "proto": "tcp", "zone": 0,
                    "status": "seen-reply,assured,confirmed,dst-nat,src-nat-done,dst-nat-done", "dport": 80},
                "count": 6, "share": 1,
            }),
        );
    });
}

#[test]
fn stale_entries_of_a_service_are_a_group() {
    private_netns(|| {
        add_node_address();
        let gone = (1..=3).map(|n| to_dns(17, 40_000 + n, "10.244.9.9"));
        insert(
            &gone
                .chain([to_dns(17, 40_009, "10.244.1.7")])
                .collect::<Vec<_>>(),
        );
        let file = lab::cluster(&lab::BACKENDS);
        let args = ["top", "--cluster", file.path(), "--by", "svc,verdict", "-o"];
        let outcome = ctk(args.iter().copied().chain(["json"])).exits(0);
        assert_eq!(
            counts(&outcome),
            BTreeMap::from([
                ("kube-system/kube-dns:dns stale".to_owned(), 3),
                ("kube-system/kube-dns:dns ok".to_owned(), 1),
            ])
        );
        let csv = ctk(args.iter().copied().chain(["csv"])).exits(0).stdout;
        assert_eq!(
            csv,
            "svc,verdict,count,share,packets,bytes,error_at_most\r\n\
             kube-system/kube-dns:dns,stale,3,0.75,,,0\r\n\
             kube-system/kube-dns:dns,ok,1,0.25,,,0\r\n"
        );
        // Without slices no entry is judged: the answer is partial.
        let mut partial = lab::cluster_objects(&lab::BACKENDS);
        partial.retain(|object| object["kind"] != "EndpointSlice");
        let partial = ClusterFile::of(&partial);
        let outcome = ctk(["top", "--cluster", partial.path(), "--by", "verdict"]).exits(3);
        assert!(outcome.stderr.contains("endpointslices"), "{outcome:#?}");
        assert!(outcome.stdout.contains("unknown"), "{outcome:#?}");
    });
}

#[test]
fn one_masquerade_address_that_uses_up_its_ports_is_one_group() {
    private_netns(|| {
        let masqueraded = |n: u16, address: &str| {
            let client = format!("10.244.{}.{}", 1 + n / 200, 1 + n % 200);
            translated(
                tuple(6, &client, "203.0.113.10", ports(30_000 + n, 443)),
                tuple(6, "203.0.113.10", address, ports(443, 1024 + n)),
                ASSURED.with(Status::SRC_NAT),
            )
        };
        let mut flows: Vec<_> = (0..2000).map(|n| masqueraded(n, "192.0.2.11")).collect();
        flows.extend((2000..2300).map(|n| masqueraded(n, "192.0.2.12")));
        flows.push(udp("10.0.0.1", 1));
        insert(&flows);
        let outcome = ctk_line("top --cluster none --by snat-dst -o json").exits(0);
        assert_eq!(
            counts(&outcome),
            BTreeMap::from([
                ("192.0.2.11 -> 203.0.113.10:443/tcp".to_owned(), 2000),
                ("192.0.2.12 -> 203.0.113.10:443/tcp".to_owned(), 300),
                ("null".to_owned(), 1),
            ])
        );
    });
}

#[test]
fn groups_are_sorted_and_limited_and_the_summary_counts_all() {
    private_netns(|| {
        let mut flows = Vec::new();
        for (host, entries) in [(9u16, 1u16), (10, 3), (2, 2)] {
            flows.extend((0..entries).map(|n| udp(&format!("10.0.0.{host}"), 4000 + n)));
        }
        flows.push(plain(
            tuple(89, "10.0.0.9", "10.64.0.1", ctnetlink::flow::L4::None),
            ASSURED,
        ));
        insert(&flows);
        for (args, expected) in [
            ("", &["10.0.0.10", "10.0.0.2", "10.0.0.9"][..]),
            ("--limit 1", &["10.0.0.10"]),
            (
                "--sort src --by src",
                &["10.0.0.2", "10.0.0.9", "10.0.0.10"],
            ),
            ("--sort -src --by src --limit 2", &["10.0.0.10", "10.0.0.9"]),
            ("--sort -count", &["10.0.0.10", "10.0.0.2", "10.0.0.9"]),
            (
                "--udp --sort bytes,-src --by src",
                &["10.0.0.10", "10.0.0.9", "10.0.0.2"],
            ),
        ] {
            let outcome = ctk_line(&format!("top --cluster none -o json {args}")).exits(0);
            let items = outcome.items();
            let found: Vec<_> = items
                .iter()
                .map(|i| i["key"]["src"].as_str().unwrap())
                .collect();
            assert_eq!(found, expected, "{args}");
            let summary = outcome.json()["summary"].take();
            assert_eq!(summary["groups"], 3, "{args}");
            assert_eq!(summary["shown"], expected.len(), "{args}");
            assert_eq!(
                summary["scanned"],
                if args.contains("--udp") { 6 } else { 7 }
            );
        }
        // Entries without a port are a group of their own, last in the order of ports.
        let ports = ctk_line("top --cluster none --by dport --sort -dport -o jsonl")
            .exits(0)
            .jsonl();
        assert_eq!(ports.last().unwrap()["key"]["dport"], Value::Null);
        let lines = ctk_line("top --cluster none --no-header --ascii").exits(0);
        assert_eq!(lines.stdout.lines().count(), 3);
        assert!(lines.stdout.is_ascii());
    });
}

#[test]
fn contradictory_flags_are_refused_before_anything_is_read() {
    for (args, says) in [
        ("-o wide", "'--output <FORMAT>'"),
        ("-o conntrack", "'--output <FORMAT>'"),
        ("--by", "'--by <KEYS>'"),
        ("--by client,port", "'--by <KEYS>'"),
        ("--sort svc", "--sort svc"),
        ("--by src --sort name", "'--sort <KEY[,-KEY]>'"),
        ("--interval 500ms", "'--interval <DURATION>'"),
        ("--interval 5s --refreshing", "--refreshing"),
        ("--udp 99999", "--udp"),
        ("--columns src", "--columns"),
    ] {
        let outcome = ctk_line(&format!("top {args}"));
        assert_eq!(
            (outcome.status, &*outcome.stdout),
            (Some(2), ""),
            "{outcome:#?}"
        );
        assert!(outcome.stderr.contains(says), "{args}: {}", outcome.stderr);
    }
    private_netns(|| {
        // Services and verdicts need a cluster; clients and endpoints are addresses without one.
        for key in ["svc", "verdict", "client,svc"] {
            let outcome = ctk_line(&format!("top --cluster none --by {key}"));
            assert_error(&outcome, 2, &["--cluster none"]);
        }
        insert(&[to_dns(17, 40_000, "10.244.1.7")]);
        let outcome = ctk_line("top --cluster none --by client,endpoint -o json").exits(0);
        assert_eq!(
            outcome.items()[0]["key"],
            json!({"client": lab::CLIENTS[0].to_string(), "endpoint": "10.244.1.7:53"})
        );
    });
}

#[test]
fn an_empty_table_has_no_groups_and_a_closed_pipe_is_no_error() {
    private_netns(|| {
        let outcome = ctk_line("top --cluster none -o json").exits(0);
        assert_eq!(outcome.items(), Vec::<Value>::new());
        assert_eq!(outcome.json()["summary"]["groups"], 0);
        assert!(outcome.stderr.contains("has no entries"), "{outcome:#?}");
        let header = ctk_line("top --cluster none").exits(0).stdout;
        assert_eq!(
            header.split_whitespace().collect::<Vec<_>>(),
            ["SRC", "COUNT", "SHARE", "PACKETS", "BYTES"]
        );
        insert(&[udp("10.0.0.1", 1)]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ctk_command(["top", "--cluster", "none"])
            .stdout(writer)
            .output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("error"));
    });
}

#[test]
fn top_works_in_the_demo() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: the demo is tested by its own tests for ordinary users");
        return;
    }
    let outcome = ctk_line("demo -- top --by svc").exits(0);
    let first = outcome.stdout.lines().nth(1).unwrap();
    assert!(first.starts_with("shop/api:http "), "{outcome:#?}");
}

#[test]
fn a_zone_of_one_direction_is_a_group_of_its_own() {
    private_netns(|| {
        let of_zone = |port: u16, zone: &str| {
            testkit::tools::create_entry(
                &format!("10.0.0.1:{port} 10.0.0.2:53 10.0.0.2:53"),
                &format!("-p udp {zone}"),
            );
        };
        of_zone(1, "--zone 6");
        of_zone(2, "--orig-zone 6");
        let document = ctk(["top", "--by", "zone", "-o", "json", "--cluster", "none"]);
        let document = document.exits(0).json();
        let items = document["items"].as_array().unwrap();
        let keys: Vec<_> = items.iter().map(|item| &item["key"]["zone"]).collect();
        assert_eq!(keys, [&json!(6), &json!("6/original")], "{document}");
    });
}
