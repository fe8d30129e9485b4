//! Consent before a restore: options, terminal, dry run, capability.

use std::process::Command;

use ctnetlink::flow::Flow;
use testkit::ctk_binary::ctk_path;
use testkit::private_netns::private_netns;
use testkit::terminal::answered;
use testkit::tools::Outcome;

use crate::entries::every_kind;
use crate::{
    Folder, Purged, RestoreOutcome as _, assert_same, dump, purged, restore, restore_stdin, udp,
};

#[test]
fn without_consent_nothing_is_restored() {
    private_netns(|| {
        let lines = purged(&[udp(1), udp(2)]);
        let folder = Folder::new();
        let file = folder.file(&lines);
        restore(&[], &file).refused(2, &["no terminal", "hint:", "--yes"]);
        restore_stdin(&["-"], &lines).refused(2, &["standard input", "--yes"]);
        assert_eq!(dump(), []);
    });
}

#[test]
fn a_dry_run_changes_nothing_and_needs_no_consent() {
    private_netns(|| {
        let lines = purged(&every_kind());
        let folder = Folder::new();
        let ran = restore(&["--dry-run", "-o", "jsonl"], &folder.file(&lines));
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        assert_eq!(ran.results(), vec!["would-restore"; lines.lines().count()]);
        let on_stdin = restore_stdin(&["--dry-run", "-o", "jsonl", "-"], &lines);
        assert_eq!(on_stdin.stdout, ran.stdout);
        assert_eq!(dump(), []);
    });
}

#[test]
fn a_missing_capability_is_named() {
    private_netns(|| {
        let flows: Vec<Flow> = (1..=200).map(udp).collect();
        let lines = purged(&flows);
        let folder = Folder::new();
        let output = Command::new("setpriv")
            .args([
                "--inh-caps=-all",
                "--bounding-set=-all",
                ctk_path(),
                "restore",
                "--yes",
                "-o",
                "jsonl",
            ])
            .arg(folder.file(&lines))
            .output()
            .unwrap();
        let ran = Outcome::of(output);
        assert_eq!(ran.status, Some(4), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("CAP_NET_ADMIN") && ran.stderr.contains("hint:"),
            "{}",
            ran.stderr
        );
        assert_eq!(ran.results(), vec!["failed"; 200]);
        assert_eq!(dump(), []);
    });
}

/// Runs a command on a terminal with these answers as input. Returns exit status and content of the terminal.
fn on_a_terminal(command: &str, typed: &str) -> (i32, String) {
    let mut script = Command::new("script");
    script.args(["-qec", command, "/dev/null"]);
    script.env("TERM", "dumb");
    let outcome = answered(script, typed);
    (outcome.status.unwrap(), outcome.stdout)
}

#[test]
fn the_prompt_shows_the_entries_and_obeys_the_answer() {
    private_netns(|| {
        let before = Purged::filled_with(&[udp(4711), udp(4712)]);
        let lines = &before.lines;
        let folder = Folder::new();
        let file = folder.file(lines);
        let command = format!("{} restore {}", ctk_path(), file.display());
        for no in ["n\n", "\n", "x\n"] {
            let (code, shown) = on_a_terminal(&command, no);
            assert_eq!(code, 1, "{shown}");
            for part in [
                "10.0.0.1:4711",
                "10.0.0.1:4712",
                "Put 2 entries back into",
                "[y/N]",
                "nothing was changed",
            ] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
            assert_eq!(dump(), []);
        }
        // Data on standard input leaves no input for a prompt.
        let (code, shown) = on_a_terminal(&format!("{} restore -", ctk_path()), "y\n");
        assert_eq!(code, 2, "{shown}");
        // Without entries to restore, and in a dry run, no prompt is shown.
        let (code, shown) = on_a_terminal(&format!("{command} --dry-run"), "");
        assert_eq!((code, shown.contains("[y/N]")), (0, false), "{shown}");
        assert_eq!(dump(), []);

        let (code, shown) = on_a_terminal(&command, "y\n");
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains("2 restored"), "{shown}");
        assert_same(&before, &dump());
    });
}
