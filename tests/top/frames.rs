//! `top --interval`: piped, and on a terminal.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use serde_json::Value;

use testkit::ctk_binary::{ctk_command, ctk_path};
use testkit::lab::cluster::ClusterFile;
use testkit::lab::{self, add_node_address};
use testkit::mixed::{insert, to_dns, udp};
use testkit::private_netns::private_netns;
use testkit::terminal::{Terminal, has_tmux};

fn start(args: &[&str]) -> Child {
    let command = ["top", "--interval", "1s"].iter().chain(args).copied();
    let mut command = ctk_command(command);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ends the child with SIGINT. Returns its status and its stderr.
#[track_caller]
fn interrupt(mut child: Child) -> (Option<i32>, String) {
    testkit::tools::interrupt(&child);
    let mut outcome = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut outcome)
        .unwrap();
    (child.wait().unwrap().code(), outcome)
}

#[test]
fn each_piped_table_has_a_line_with_its_time() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let mut child = start(&["--cluster", "none"]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut frame = || {
            let mut frame: Vec<String> = Vec::new();
            while frame.len() < 3 {
                let line = lines.next().unwrap().unwrap();
                frame.extend((!line.is_empty()).then_some(line));
            }
            frame
        };
        let first = frame();
        assert!(
            first[0].starts_with("--- 20") && first[0].ends_with("Z  1 group, 1 entry"),
            "{first:?}"
        );
        assert!(first[1].starts_with("SRC "), "{first:?}");
        assert!(first[2].starts_with("10.0.0.1 "), "{first:?}");
        insert(&[udp("10.0.0.1", 2)]);
        // The new entry is in one of the next frames; the first of them may have begun before it.
        let second = (0..3)
            .map(|_| frame())
            .find(|frame| frame[0].ends_with("2 entries"));
        assert!(second.is_some_and(|frame| frame[1].starts_with("SRC ")));
        let (status, outcome) = interrupt(child);
        assert_eq!(status, Some(0), "{outcome}");
        // Printed once, and not with each frame.
        assert_eq!(outcome.matches("nf_conntrack_acct").count(), 1, "{outcome}");
    });
}

#[test]
fn each_frame_is_one_json_document_and_jsonl_has_its_time() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1), udp("10.0.0.2", 1)]);
        let mut child = start(&["--cluster", "none", "-o", "json"]);
        let documents = serde_json::Deserializer::from_reader(child.stdout.take().unwrap());
        let documents: Vec<Value> = documents.into_iter().take(2).map(Result::unwrap).collect();
        let time = |document: &Value| document["summary"]["time"].as_str().unwrap().to_owned();
        assert!(time(&documents[0]) < time(&documents[1]), "{documents:?}");
        assert_eq!(documents[1]["items"].as_array().unwrap().len(), 2);
        assert_eq!(interrupt(child).0, Some(0));

        let mut child = start(&["--cluster", "none", "-o", "jsonl"]);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(4);
        let lines: Vec<Value> = lines
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect();
        assert_eq!(lines[0]["time"], lines[1]["time"], "one frame");
        assert_ne!(lines[1]["time"], lines[2]["time"], "the next one");
        assert_eq!(lines[3]["schema"], "ctk/v1");
        // The pipe is closed: the command ends without an error, long before its last frame.
        let mut outcome = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut outcome)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{outcome}");
        assert!(!outcome.contains("error"), "{outcome}");
    });
}

#[test]
fn frames_with_undecided_entries_end_with_status_3() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 40_000, "10.244.9.9")]);
        let mut partial = lab::cluster_objects(&lab::BACKENDS);
        partial.retain(|object| object["kind"] != "EndpointSlice");
        let partial = ClusterFile::of(&partial);
        let mut child = start(&["--cluster", partial.path(), "--by", "verdict"]);
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("--- "), "{line}");
        let (status, outcome) = interrupt(child);
        assert_eq!(status, Some(3), "{outcome}");
        assert!(outcome.contains("frames left something out"), "{outcome}");
    });
}

#[test]
fn a_terminal_is_repainted_and_restored() {
    if !has_tmux() {
        return;
    }
    private_netns(|| {
        let flows: Vec<_> = (1..=40).map(|n| udp(&format!("10.0.0.{n}"), 1)).collect();
        insert(&flows);
        let terminal = Terminal::run(&format!("{} top --interval 1s --cluster none", ctk_path()));
        let screen = terminal.wait("the table", |screen| screen.contains("SRC "));
        let lines: Vec<&str> = screen.lines().collect();
        assert!(
            lines[0].ends_with("17 of 40 groups shown, 40 entries   q quits"),
            "{screen}"
        );
        assert!(lines[2].starts_with("10.0.0.1 "), "{screen}");
        assert!(terminal.is_alternate());
        insert(&[udp("10.0.0.40", 2)]);
        terminal.wait("the change", |screen| {
            let row = screen.lines().nth(2).unwrap_or_default();
            row.starts_with("10.0.0.40 ")
        });
        terminal.tmux(&["send-keys", "C-c"]);
        terminal.assert_restored();
    });
}
