//! `ctk restore` against the real kernel, each test in a network namespace of its own.

mod consent;
mod entries;
mod packets;
mod refused;

use std::path::{Path, PathBuf};
use std::time::Instant;

use ctnetlink::DeleteTarget;
use ctnetlink::flow::{Flow, ProtocolState, Status, Tuple};
use entries::every_kind;
use serde_json::{Value, json};
use testkit::ctk_binary::{ctk_command, ctk_line, ctk_with_input};
use testkit::mixed;
use testkit::mixed::{ASSURED, REPLIED, insert, plain, ports, tuple};
use testkit::private_netns::private_netns;
use testkit::rows;
use testkit::tools::{Outcome, nft, run, sysctl};

const BOTH: Status = Status::SRC_NAT.with(Status::DST_NAT);

/// Assured flow with these bits of translation.
fn translated(original: Tuple, reply: Tuple, nat: Status) -> Flow {
    mixed::translated(original, reply, ASSURED.with(nat))
}

fn udp(port: u16) -> Flow {
    plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(port, 53)), REPLIED)
}

/// All entries, sorted by tuple and zone.
fn dump() -> Vec<Flow> {
    let mut flows = rows::dump();
    flows.sort_by_key(|flow| (flow.original, flow.zone));
    flows
}

fn delete_all() {
    let targets: Vec<_> = dump()
        .iter()
        .map(|flow| DeleteTarget::of(flow).unwrap())
        .collect();
    assert!(rows::table().delete(&targets).iter().all(Result::is_ok));
    assert_eq!(dump(), []);
}

/// Asserts that the entries equal those of before, as far as they can. Timers have run for at most the time that passed.
#[track_caller]
fn assert_same(before: &Purged, after: &[Flow]) {
    assert_eq!(before.flows.len(), after.len());
    let passed = u32::try_from(before.since.elapsed().as_secs()).unwrap();
    for (old, new) in before.flows.iter().zip(after) {
        let (saved, left) = (old.timeout.unwrap(), new.timeout.unwrap());
        let least = saved.saturating_sub(passed + 2);
        assert!((least..=saved).contains(&left), "{saved} {left}: {new:?}");
        assert_eq!(lasting(old), lasting(new));
    }
}

fn lasting(flow: &Flow) -> Flow {
    let mut flow = flow.clone();
    flow.timeout = None;
    flow.id = None;
    flow.use_count = None;
    flow.start = None;
    flow.counters_original = None;
    flow.counters_reply = None;
    if let Some(ProtocolState::Tcp {
        original, reply, ..
    }) = &mut flow.state
    {
        original.window_scale = None;
        reply.window_scale = None;
    }
    flow
}

fn ip(arguments: &str) {
    run("ip", &arguments.split(' ').collect::<Vec<_>>());
}

/// Checks of a run of `restore`.
trait RestoreOutcome {
    /// Asserts a refusal: this status, these words on stderr, nothing on stdout.
    fn refused(&self, status: i32, words: &[&str]);
    /// Field `result` of each line of jsonl.
    fn results(&self) -> Vec<String>;
}

impl RestoreOutcome for Outcome {
    #[track_caller]
    fn refused(&self, status: i32, words: &[&str]) {
        assert_eq!(
            (self.status, self.stdout.as_str()),
            (Some(status), ""),
            "{self:#?}"
        );
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is not in {}",
                self.stderr
            );
        }
    }

    fn results(&self) -> Vec<String> {
        let items = self.jsonl().into_iter();
        items
            .map(|item| item["result"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn restore(arguments: &[&str], file: &Path) -> Outcome {
    let mut command = ctk_command(["restore"]);
    Outcome::of(command.args(arguments).arg(file).output().unwrap())
}

fn restore_stdin(arguments: &[&str], text: &str) -> Outcome {
    ctk_with_input(["restore"].iter().chain(arguments), text)
}

/// Table in the form of `purge -o jsonl`.
fn saved() -> String {
    let text = ctk_line("ls --cluster none -o jsonl").exits(0).stdout;
    text.lines()
        .map(|line| {
            let item = line.strip_suffix('}').unwrap();
            format!("{item},\"result\":\"deleted\",\"error\":null}}\n")
        })
        .collect()
}

/// Deleted entries and their lines.
struct Purged {
    flows: Vec<Flow>,
    lines: String,
    since: Instant,
}

impl Purged {
    /// Saves and deletes all entries.
    fn all() -> Self {
        let since = Instant::now();
        let (flows, lines) = (dump(), saved());
        assert_eq!(lines.lines().count(), flows.len());
        delete_all();
        Purged {
            flows,
            lines,
            since,
        }
    }

    fn filled_with(flows: &[Flow]) -> Self {
        insert(flows);
        Self::all()
    }
}

fn purged(flows: &[Flow]) -> String {
    Purged::filled_with(flows).lines
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.path().join("gone.jsonl");
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Lines with one field of one of them changed.
fn changed(lines: &str, index: usize, change: impl FnOnce(&mut Value)) -> String {
    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    let mut item: Value = serde_json::from_str(&lines[index]).unwrap();
    change(&mut item);
    lines[index] = item.to_string();
    lines.join("\n") + "\n"
}

#[test]
fn every_kind_of_entry_is_restored_exactly() {
    private_netns(|| {
        sysctl("acct", "1");
        sysctl("timestamp", "1");
        // Labels are kept only where a rule uses them.
        nft("table inet t { chain c { type filter hook input priority 0; ct label set 1; }; }");
        let flows = every_kind();
        let before = Purged::filled_with(&flows);
        let lines = &before.lines;
        assert_eq!(before.flows.len(), flows.len());
        let folder = Folder::new();
        let file = folder.file(lines);

        let ran = restore(&["--yes", "-o", "jsonl"], &file);
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        assert_eq!(ran.results(), vec!["restored"; flows.len()]);
        let after = dump();
        assert_same(&before, &after);

        // Second restore: nothing new, and nothing lost.
        let ran = restore(&["--yes", "-o", "jsonl"], &file);
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        assert_eq!(ran.results(), vec!["exists"; flows.len()]);
        assert!(ran.stderr.contains("0 restored"), "{}", ran.stderr);
        let identities = |flows: &[Flow]| flows.iter().map(|f| (f.id, f.start)).collect::<Vec<_>>();
        assert_eq!(identities(&dump()), identities(&after));

        // Another round with the restored entries, as one document on standard input.
        let again = Purged::all();
        let lines = again.lines.lines();
        let items: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let document = json!({"schema": "ctk/v1", "items": items, "summary": {}});
        let ran = restore_stdin(&["--yes", "-o", "jsonl", "-"], &document.to_string());
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        assert_eq!(ran.results(), vec!["restored"; flows.len()]);
        assert_same(&again, &dump());
    });
}

#[test]
fn entries_of_many_batches_are_restored_and_reported_in_order() {
    private_netns(|| {
        let flows: Vec<Flow> = (1..=1000).map(udp).collect();
        let before = Purged::filled_with(&flows);
        let lines = &before.lines;
        let folder = Folder::new();
        let ran = restore(
            &[
                "--yes",
                "-o",
                "csv",
                "--columns",
                "id,result",
                "--no-header",
            ],
            &folder.file(lines),
        );
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let expected: String = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|item| format!("{},restored\r\n", item["id"]))
            .collect();
        assert_eq!(
            ran.stdout.replace("\r\n", "\n"),
            expected.replace("\r\n", "\n")
        );
        assert_same(&before, &dump());
    });
}

#[test]
fn a_closed_pipe_stops_the_restore_between_batches() {
    private_netns(|| {
        let flows: Vec<Flow> = (1..=300).map(udp).collect();
        let lines = purged(&flows);
        let folder = Folder::new();
        let file = folder.file(&lines);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ctk_command(["restore", "--yes", "-o", "jsonl"])
            .arg(&file)
            .stdout(writer)
            .output()
            .unwrap();
        let ran = Outcome::of(output);
        assert_eq!(ran.status, Some(3), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("172 entries were not tried"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains("128 restored"), "{}", ran.stderr);
        assert_eq!(dump().len(), 128);
    });
}

#[test]
fn restore_into_another_namespace_leaves_the_own_one_unchanged() {
    private_netns(|| {
        let before = Purged::filled_with(&[udp(1), udp(2)]);
        let lines = &before.lines;
        let there = std::fs::canonicalize("/proc/thread-self")
            .unwrap()
            .join("ns/net");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                let ran = restore_stdin(&["--yes", "--netns", there.to_str().unwrap(), "-"], lines);
                assert_eq!(ran.status, Some(0), "{}", ran.stderr);
                assert_eq!(dump(), []);
            });
        });
        assert_same(&before, &dump());
    });
}
