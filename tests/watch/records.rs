//! Kinds and formats of records, and the times of an entry that ended.

use std::process::{Child, Stdio};
use std::time::Duration;

use ctnetlink::flow::Flow;
use serde_json::Value;
use testkit::ctk_binary::{ctk_command, ctk_line};
use testkit::mixed::{insert, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, interrupt, sysctl};
use testkit::watch_process::{has, start};

#[test]
fn the_record_of_an_ended_entry_has_the_times_that_the_kernel_sends() {
    private_netns(|| {
        for (setting, has_times) in [("1", true), ("0", false)] {
            sysctl("timestamp", setting);
            let watch = start(&["--cluster", "none", "--interval", "0"]);
            insert(&[udp("10.0.0.1", 1)]);
            std::thread::sleep(Duration::from_millis(300));
            crate::delete(|_| true);
            watch.wait("the end", |records| has(records, "destroy"));
            let records = watch.stop().records;
            let ended = records.iter().find(|record| record["type"] == "destroy");
            let ended = ended.unwrap();
            let [start, stop] = [&ended["entry"]["start"], &ended["stop"]];
            let duration = ended["duration"].as_f64();
            assert_eq!(start.is_string(), has_times, "{ended}");
            assert_eq!(stop.is_string(), has_times, "{ended}");
            match has_times {
                true => assert!((0.3..30.0).contains(&duration.unwrap()), "{ended}"),
                false => assert!(ended["duration"].is_null(), "{ended}"),
            }
            // It was deleted before its timer ended it.
            assert!(ended["entry"]["timeout"].as_u64() > Some(0), "{ended}");
        }
    });
}

fn begin(mut command: std::process::Command) -> Child {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    child.expect("it starts")
}

fn end(child: Child) -> String {
    interrupt(&child);
    Outcome::of(child.wait_with_output().unwrap()).stdout
}

/// Line of `conntrack -E` without what it tells of the program that made the change.
fn without_program(line: &str) -> &str {
    line.split(" [USERSPACE]").next().unwrap_or(line)
}

#[test]
fn conntrack_lines_are_those_of_the_tool() {
    private_netns(|| {
        sysctl("timestamp", "1");
        let mut tool = std::process::Command::new("conntrack");
        tool.args(["-E", "-o", "extended,id"]);
        let tool = begin(tool);
        let ours = begin(ctk_command(
            "watch --cluster none --interval 0 -o conntrack".split(' '),
        ));
        std::thread::sleep(Duration::from_millis(700));
        insert(&[udp("10.0.0.1", 1), udp("10.0.0.1", 2)]);
        std::thread::sleep(Duration::from_millis(1200));
        crate::delete(|flow: &Flow| flow.original.sport() == Some(1));
        std::thread::sleep(Duration::from_millis(500));
        let (tool, ours) = (end(tool), end(ours));
        let tool: Vec<_> = tool.lines().map(without_program).collect();
        let ours: Vec<_> = ours.lines().collect();
        assert_eq!(tool.len(), 3, "{tool:#?}");
        assert_eq!(ours, tool);
    });
}

#[test]
fn only_the_selected_kinds_are_printed_and_counted() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let watch = start(&[
            "--cluster",
            "none",
            "--interval",
            "0",
            "--type",
            "new,destroy",
            "--count",
            "2",
        ]);
        sysctl("timestamp", "1");
        insert(&[udp("10.0.0.1", 2)]);
        crate::delete(|flow: &Flow| flow.original.sport() == Some(2));
        let ended = watch.wait_for_exit();
        let kinds: Vec<&Value> = ended.records.iter().map(|record| &record["type"]).collect();
        assert_eq!(kinds, ["synced", "new", "destroy"]);
    });
}

#[test]
fn the_table_begins_with_the_entries_that_are_there_and_names_the_stale_one() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let outcome = ctk_line("watch --cluster none --for 300ms").exits(0);
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        assert!(
            lines[0].contains("  snapshot  udp  10.0.0.1:1  "),
            "{lines:?}"
        );
        assert!(lines[1].ends_with("1 entry to begin with"), "{lines:?}");
    });
    let until = ctk_line("demo -- watch --until stale --type snapshot,verdict").exits(0);
    let names_it =
        |line: &str| line.contains("  stale  ") && line.contains("kube-system/kube-dns:dns");
    assert!(until.stdout.lines().any(names_it), "{until:#?}");
}

#[test]
fn every_format_and_kind_of_the_help_works() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let help = ctk_line("watch --help").exits(0).stdout;
        for refused in ["--sort", "--limit", "--columns", "--no-header"] {
            assert!(!help.contains(refused), "{refused}");
        }
        let values = |flag: &str| {
            let part = help.split(&format!("{flag} <")).nth(1).unwrap();
            let lines = part
                .lines()
                .skip(1)
                .take_while(|line| !line.trim_start().starts_with("--"));
            let words =
                lines.filter_map(|line| Some(line.trim().strip_prefix("- ")?.split_once(':')?.0));
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(values("--output"), ["table", "jsonl", "conntrack"]);
        for format in values("--output") {
            ctk_line(&format!("watch --cluster none --for 200ms -o {format}")).exits(0);
        }
        let kinds = values("--type");
        assert_eq!(kinds.len(), 8, "{kinds:?}");
        for kind in kinds {
            ctk_line(&format!("watch --cluster none --for 200ms --type {kind}")).exits(0);
        }
    });
}
