//! Output of a purge: JSON, counts, and the record of a purge that was interrupted.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufRead;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::started::Started;
use crate::{at_once, cluster, new_node};
use testkit::ctk_binary::{ctk, ctk_command};
use testkit::private_netns::private_netns;
use testkit::rows::{Rows, flow};
use testkit::tools::Outcome;

const DNS: &[&str] = &[
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP dns-tcp:53/TCP",
    "slice kube-system/kube-dns dns:53/UDP dns-tcp:53/TCP 10.244.2.30(ready)",
    "pod kube-system/coredns-b 10.244.2.30 @node2",
];
const ROWS: &[&str] = &[
    "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40001 dport=53 src=10.244.2.9 dst=10.244.1.5 sport=53 dport=40001 [ASSURED]",
    "udp 17 29 src=10.244.1.6 dst=10.96.0.10 sport=40002 dport=53 [UNREPLIED] src=10.244.2.9 dst=10.244.1.6 sport=53 dport=40002",
    "udp 17 29 src=10.244.1.7 dst=10.96.0.10 sport=40003 dport=53 src=10.244.2.30 dst=10.244.1.7 sport=53 dport=40003 [ASSURED]",
    "tcp 6 90 ESTABLISHED src=10.244.1.7 dst=10.96.0.10 sport=40004 dport=53 src=10.244.2.9 dst=10.244.1.7 sport=53 dport=40004 [ASSURED]",
    "udp 17 29 src=10.244.1.7 dst=10.96.0.10 sport=40005 dport=53 src=10.244.2.9 dst=10.244.1.7 sport=53 dport=40005 zone=5",
];
/// Keys of the summary that are counts.
const COUNTS: [&str; 8] = [
    "matched",
    "deleted",
    "already_gone",
    "replaced",
    "changed",
    "failed",
    "held_back",
    "came_back",
];

#[test]
fn the_document_counts_what_was_done_and_every_item_has_its_result() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let file = cluster(DNS);
        let before = ctk(["ls", "--cluster", file.path(), "--stale", "-o", "jsonl"]).exits(0);
        for (line, result, deleted, left) in [
            ("--dry-run", "would-delete", 0, &[1, 2, 3, 4, 5][..]),
            ("", "deleted", 2, &[3, 4, 5]),
        ] {
            let args = format!("--stale -o json {line}");
            let document = ctk(at_once(&file, &args)).exits(0).json();
            let summary = &document["summary"];
            let counts = COUNTS.map(|key| summary[key].as_u64().expect(key));
            assert_eq!(counts, [2, deleted, 0, 0, 0, 0, 2, 0], "{summary}");
            assert_eq!(
                summary["held_back_by"],
                json!({"protocol": 1, "foreign-zone": 1})
            );
            assert_eq!(summary["shown"], 2);
            assert_eq!(summary["scanned"], 5, "one scan of the table");
            assert_eq!(summary["consistent"], true);
            assert_eq!(summary["cluster"]["source"], "file");
            assert_eq!(summary["cluster"]["read_again"], true);
            let items = document["items"].as_array().unwrap();
            assert_eq!(items.len(), 2);
            for item in items {
                assert_eq!(item["result"], result);
                assert_eq!(item["error"], Value::Null);
                assert_eq!(item["verdict"], "stale");
            }
            // Besides the result and the timer an item is what `ls` shows.
            let plain = |item: &Value| {
                let mut item = item.clone();
                for key in ["result", "error", "timeout"] {
                    item.as_object_mut().unwrap().remove(key);
                }
                item.to_string()
            };
            let listed: BTreeSet<String> = before.jsonl().iter().map(plain).collect();
            let purged: BTreeSet<String> = items.iter().map(plain).collect();
            assert_eq!(purged, listed);
            assert_eq!(rows.left(), left);
        }
    });
}

#[test]
fn lines_are_items_and_nothing_else() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let file = cluster(DNS);
        let said = ctk(at_once(&file, "--stale -o jsonl")).exits(0);
        let results: Vec<Value> = said.jsonl().iter().map(|i| i["result"].clone()).collect();
        assert_eq!(results, ["deleted", "deleted"]);
        assert!(said.stderr.contains("2 of 2 entries deleted"), "{said:?}");
        assert_eq!(rows.left(), [3, 4, 5]);
    });
}

#[test]
fn nothing_to_delete_is_no_failure() {
    // `conntrack -D` exits 1 here.
    private_netns(|| {
        new_node();
        for line in ["--udp", "--stale", "--udp --unreplied", "--all"] {
            let file = cluster(DNS);
            let said = ctk(at_once(&file, &format!("{line} -o json"))).exits(0);
            let summary = &said.json()["summary"];
            assert_eq!(summary["deleted"], 0, "{line}");
            assert_eq!(summary["matched"], 0, "{line}");
            assert_eq!(said.items(), Vec::<Value>::new());
            assert!(
                said.stderr.contains("0 entries deleted"),
                "{line}: {said:?}"
            );
        }
        let file = cluster(DNS);
        let said = ctk(at_once(&file, "--stale -o jsonl")).exits(0);
        assert_eq!(said.stdout, "");
    });
}

#[test]
fn a_dry_run_beyond_the_limit_still_shows_the_set() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let args = ["purge", "--udp", "--dry-run", "--max", "2", "-o", "jsonl"];
        let said = ctk(args.into_iter().chain(["--cluster", "none"])).exits(0);
        assert_eq!(said.jsonl().len(), 4);
        assert!(said.stderr.contains("more than --max 2"), "{said:?}");
        rows.assert_untouched(said);
    });
}

/// Rows of some batches, more than one pipe holds the lines of.
fn many() -> Rows {
    let row = |port: u16| {
        flow(&format!(
            "udp 17 29 src=10.0.0.1 dst=203.0.113.9 sport={port} dport=53 [UNREPLIED] src=203.0.113.9 dst=10.0.0.1 sport=53 dport={port}"
        ))
    };
    Rows::of(&(1..=900).map(row).collect::<Vec<_>>())
}

const MANY: [&str; 9] = [
    "purge",
    "--udp",
    "--yes",
    "--verify",
    "0",
    "--cluster",
    "none",
    "-o",
    "jsonl",
];

#[test]
fn an_interrupt_stops_between_batches_and_everything_done_is_reported() {
    private_netns(|| {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            new_node();
            let rows = many();
            let mut purge = Started::new(&MANY);
            let mut first = String::new();
            // One line is out, so a batch is deleted; the rest of its lines do not fit into the pipe.
            purge.stdout.read_line(&mut first).unwrap();
            kill_process(Pid::from_child(&purge.child), signal).unwrap();
            let mut said = purge.finish();
            said.stdout.insert_str(0, &first);
            assert_eq!(said.status, Some(3), "{signal:?}: {}", said.stderr);
            let items = said.jsonl();
            assert!(items.iter().all(|item| item["result"] == "deleted"));
            let left = rows.left().len();
            assert_eq!(left + items.len(), 900, "every delete has its line");
            assert!(left > 0, "{signal:?}: it did not stop");
            let line = format!(
                "{} of 900 entries deleted; stopped before the rest",
                items.len()
            );
            assert!(said.stderr.contains(&line), "{}", said.stderr);
        }
    });
}

#[test]
fn an_interrupt_ends_the_wait_after_the_deletes() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let file = cluster(DNS);
        let mut args = vec!["purge", "--stale", "--yes", "--cluster", file.path()];
        args.extend(["--settle", "0", "--verify", "10m", "-o", "jsonl"]);
        let began = Instant::now();
        let mut purge = Started::new(&args);
        let mut first = String::new();
        purge.stdout.read_line(&mut first).unwrap();
        kill_process(Pid::from_child(&purge.child), Signal::INT).unwrap();
        let said = purge.finish().exits(0);
        assert!(said.stderr.contains("2 of 2 entries deleted"), "{said:?}");
        assert!(began.elapsed() < Duration::from_secs(500), "it waited");
        assert_eq!(rows.left(), [3, 4, 5]);
    });
}

#[test]
fn no_further_batch_is_sent_when_the_record_cannot_be_written() {
    private_netns(|| {
        new_node();
        let rows = many();
        // Full disk.
        let mut command = ctk_command(MANY);
        command.stdout(Stdio::from(
            File::options().write(true).open("/dev/full").unwrap(),
        ));
        let said = Outcome::of(command.output().unwrap()).exits(3);
        assert!(said.stderr.contains("No space left"), "{said:?}");
        let left = rows.left().len();
        assert!((1..900).contains(&left), "one batch was deleted: {left}");
        // A reader that goes away.
        let mut purge = Started::new(&MANY);
        let mut line = String::new();
        purge.stdout.read_line(&mut line).unwrap();
        let Started {
            mut child, stdout, ..
        } = purge;
        drop(stdout);
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert!((1..left).contains(&rows.left().len()));
    });
}

#[test]
fn a_log_that_cannot_be_written_neither_ends_a_purge_nor_cuts_its_record() {
    private_netns(|| {
        new_node();
        let rows = many();
        let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
        let mut command = ctk_command(MANY.iter().chain(&["-vv"]));
        let said = Outcome::of(command.stderr(full()).output().unwrap()).exits(0);
        assert!(rows.left().is_empty(), "{:?}", rows.left().len());
        assert_eq!(said.jsonl().len(), 900);
        let mut command = ctk_command(["-v", "ls", "--cluster", "none"]);
        Outcome::of(command.stderr(full()).output().unwrap()).exits(0);
    });
}
