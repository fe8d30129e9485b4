//! Exit status and output streams.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::{cluster, doctor, findings_except_settings, lab, only_finding};
use testkit::ctk_binary::{ctk, ctk_command, ctk_line};
use testkit::private_netns::private_netns;
use testkit::rows::Rows;
use testkit::tools::assert_error;

const STALE: &str = "udp src=10.244.1.5 dst=10.96.0.10 sport=40123 dport=53 src=10.244.1.7 dst=10.244.1.5 sport=53 dport=40123 [ASSURED]";
const DNS: [&str; 3] = [
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.2.33(ready)@node2->coredns-b",
    "pod kube-system/coredns-b 10.244.2.33 @node2",
];

#[test]
fn a_finding_ends_with_5_none_with_0_and_a_partial_answer_with_3() {
    private_netns(|| {
        crate::new_node();
        let file = cluster(&DNS);
        let outcome = doctor(&file, "--sample 0").exits(0);
        assert!(
            findings_except_settings(&outcome).is_empty(),
            "{outcome:#?}"
        );
        let hidden = outcome.items().len();
        assert_eq!(
            outcome.json()["summary"]["findings"],
            serde_json::json!({"critical": 0, "warning": 0, "info": hidden})
        );
        Rows::insert(&[STALE]);
        let file = cluster(&DNS);
        let outcome = doctor(&file, "--sample 0").exits(5);
        assert_eq!(outcome.json()["summary"]["findings"]["warning"], 1);
        assert_eq!(
            (
                &outcome.json()["summary"]["shown"],
                &outcome.json()["summary"]["scanned"]
            ),
            (&outcome.items().len().into(), &1.into())
        );
        assert_eq!(outcome.stderr, "");
        // The same findings as lines and as text.
        let lines = ctk([
            "doctor",
            "--sample",
            "0",
            "-o",
            "jsonl",
            "--cluster",
            file.path(),
        ])
        .exits(5)
        .jsonl();
        // Ages are left out: a second may have passed.
        let of = |items: &[serde_json::Value]| -> Vec<_> {
            let keys = ["check", "severity", "message", "help"];
            items
                .iter()
                .map(|item| keys.map(|key| item[key].clone()))
                .collect()
        };
        assert_eq!(of(&lines), of(&outcome.items()));
        let text = ctk(["doctor", "--sample", "0", "--cluster", file.path()])
            .exits(5)
            .stdout;
        let told = "warning: stale UDP entries (stale-udp)\n  kube-system/kube-dns:dns (10.96.0.10:53/udp): 1 of 1 entry stale";
        assert!(text.starts_with(told), "{text}");
        let row = "10.244.1.5:40123  10.96.0.10:53  10.244.1.7:53";
        assert!(text.contains(row), "{text}");
        let help = "\n  help: ctk purge --stale --svc kube-system/kube-dns:dns\n";
        assert!(text.contains(help), "{text}");
        assert!(!text.contains("entries 1,"), "{text}");
        let checks = &outcome.json()["summary"]["checks"];
        let number = |name: &str| checks[name].as_u64().unwrap();
        let undecided = checks["undecided"].as_array().unwrap();
        let last = text.lines().last().unwrap();
        let expected = format!(
            "{} checks fine, {} without data, looked once at 1 entry",
            number("fine"),
            undecided.len()
        );
        assert!(
            last.starts_with("1 warning, ") && last.ends_with(&expected),
            "{last}"
        );
        let listed = ctk(["doctor", "--list"]).exits(0).stdout;
        let all = number("found") + number("fine") + undecided.len() as u64;
        assert_eq!(listed.lines().count() as u64, all + 1, "{listed}");
        // Without slices no entry is judged, whatever else is found.
        let half = lab::cluster::ClusterFile::of_text(&crate::shorthand::list(&[
            "svc default/kubernetes 10.96.0.1 https:443/TCP",
        ]));
        let rows: Vec<String> = (1..=2)
            .map(|n| format!("tcp CLOSE_WAIT src=10.244.1.5 dst=203.0.113.9 sport={n} dport=80 src=203.0.113.9 dst=10.244.1.5 sport=80 dport={n} [ASSURED]"))
            .collect();
        for flow in rows.iter().map(|row| testkit::rows::flow(row)) {
            testkit::rows::table().insert(&flow).unwrap();
        }
        let outcome = doctor(&half, "--sample 0 --half-closed 2").exits(3);
        only_finding(&outcome, "half-closed");
        assert!(outcome.stderr.contains("incomplete"), "{outcome:#?}");
        // Without any cluster source all other checks run.
        let outcome = ctk_line("doctor --sample 0 --cluster none -o json --half-closed 2").exits(5);
        only_finding(&outcome, "half-closed");
        assert_eq!(outcome.json()["summary"]["cluster"]["source"], "none");
    });
}

#[test]
fn a_table_that_is_not_the_nodes_is_reported() {
    private_netns(|| {
        // No Node has an address of this namespace.
        Rows::insert(&[STALE]);
        let outcome = doctor(&cluster(&DNS), "--sample 0").exits(5);
        let found = only_finding(&outcome, "wrong-namespace");
        assert_eq!(
            (
                &found["severity"],
                &found["evidence"]["foreign"],
                &found["evidence"]["entries"]
            ),
            (&"warning".into(), &1.into(), &1.into())
        );
        assert!(found["help"].as_str().unwrap().contains("--netns 1"));
        assert_eq!(findings_except_settings(&outcome).len(), 1, "{outcome:#?}");
    });
}

#[test]
fn impossible_flags_are_refused_before_anything_is_read() {
    for (line, says) in [
        ("doctor --sample 3s", "at least 6s"),
        ("doctor --silent-share 101", "--silent-share"),
        ("doctor --stale-entries 0", "--stale-entries"),
        ("doctor --skew-ratio 0.5", "--skew-ratio"),
        ("doctor --skew-ratio NaN", "--skew-ratio"),
        ("doctor --skew-chance 2", "--skew-chance"),
        ("doctor --watch -o json", "--watch"),
        ("doctor --list -o json", "--list"),
    ] {
        assert_error(&ctk_line(line), 2, &[says]);
    }
}

#[test]
fn a_watch_repeats_and_ends_cleanly() {
    private_netns(|| {
        crate::new_node();
        Rows::insert(&[STALE]);
        let file = cluster(&DNS);
        let mut child = ctk_command([
            "doctor",
            "--watch",
            "1s",
            "--sample",
            "0",
            "-o",
            "jsonl",
            "--cluster",
            file.path(),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ctk starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let items: Vec<serde_json::Value> = lines
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .filter(|item: &serde_json::Value| item["check"] == "stale-udp")
            .take(2)
            .collect();
        assert_ne!(items[0]["time"], items[1]["time"]);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn the_faults_of_the_demo_are_found() {
    let outcome = ctk_line("demo -- doctor --sample 0 -o json");
    if outcome.stderr.contains("no private namespace") {
        eprintln!("skipped: the demo needs a namespace");
        return;
    }
    let outcome = outcome.exits(5);
    assert_eq!(
        only_finding(&outcome, "stale-udp")["evidence"]["destination"],
        "10.96.0.10:53"
    );
    assert_eq!(
        only_finding(&outcome, "never-translated")["evidence"]["never_translated"],
        1
    );
    assert_eq!(only_finding(&outcome, "hairpin")["severity"], "info");
}
