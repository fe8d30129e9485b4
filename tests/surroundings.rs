//! Ends of commands in odd surroundings: a full disk, a limit on files, a hung-up terminal, a terminal that cannot be repainted.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::ctk_binary::{ctk_command, ctk_hearing_hangups, ctk_line, ctk_path};
use testkit::lab;
use testkit::lab::cluster::{ClusterFile, minimal};
use testkit::mixed::{insert, udp};
use testkit::private_netns::private_netns;
use testkit::terminal::Terminal;
use testkit::tools::Outcome;

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for args in [&["--help"][..], &["--version"], &["ls", "--help"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = ctk_command(args).stdout(full).output().unwrap();
        let outcome = Outcome::of(output).exits(1);
        assert!(outcome.stderr.contains("writing the output"), "{outcome:?}");
    }
}

#[test]
fn a_limit_on_the_size_of_files_ends_no_command_and_leaves_no_unfinished_file() {
    private_netns(|| {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("ulimit -f 0; {} demo -- ls", ctk_path());
        let output = Command::new("sh")
            .args(["-c", &script])
            .env("XDG_CACHE_HOME", folder.path())
            .output()
            .unwrap();
        let outcome = Outcome::of(output).exits(0);
        assert_eq!(outcome.stdout.lines().count(), 20, "{outcome:?}");
        let cache = folder.path().join("ctk");
        let left = std::fs::read_dir(cache).into_iter().flatten().count();
        assert_eq!(left, 0, "an unfinished file is left");
    });
}

fn hang_up(child: &Child) {
    kill_process(Pid::from_child(child), Signal::HUP).unwrap();
}

#[test]
fn a_hangup_ends_a_watch_cleanly_unless_it_is_ignored() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let watch = "watch --cluster none -o jsonl --for 3s".split(' ');
        let start = |mut command: Command| {
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = child.spawn().unwrap();
            std::thread::sleep(Duration::from_millis(700));
            hang_up(&child);
            let began = Instant::now();
            let outcome = Outcome::of(child.wait_with_output().unwrap()).exits(0);
            assert_eq!(outcome.jsonl().len(), 2, "{outcome:?}");
            began.elapsed()
        };
        let ended = start(ctk_hearing_hangups(watch.clone()));
        let mut nohup = Command::new("nohup");
        nohup.arg(ctk_path()).args(watch).stdin(Stdio::null());
        let ignored = start(nohup);
        assert!(ended < ignored, "{ended:?} {ignored:?}");
    });
}

#[test]
fn a_hangup_restores_the_terminal_of_a_live_view() {
    private_netns(|| {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        for command in ["watch --live", "top --interval 1s"] {
            let terminal = Terminal::run(&format!(
                "sh -c 'echo $$ > {}; exec env --default-signal=HUP {} {command} --cluster none'",
                pid.display(),
                ctk_path()
            ));
            terminal.wait("the screen", |_| terminal.is_alternate());
            let number = std::fs::read_to_string(&pid).unwrap();
            let number = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
            kill_process(number, Signal::HUP).unwrap();
            terminal.assert_restored();
        }
    });
}

#[test]
fn a_terminal_that_cannot_be_repainted_gets_lines() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let run = |command: &str| {
            let mut child = Command::new("script");
            child.args(["-qec", &format!("{} {command}", ctk_path()), "/dev/null"]);
            child.env("TERM", "dumb").stdin(Stdio::null());
            // A group of its own: what is typed here does not reach it.
            Outcome::of(child.process_group(0).output().unwrap())
        };
        let live = run("watch --live --cluster none").exits(2);
        assert!(live.stdout.contains("can be repainted"), "{live:?}");
        let top = run("top --cluster none --by src --interval 1s & sleep 2.5; kill $!");
        assert!(top.stdout.contains("10.0.0.1"), "{top:?}");
        assert!(!top.stdout.contains('\u{1b}'), "{top:?}");
    });
}

#[test]
fn foreign_names_of_the_summary_cannot_control_the_terminal() {
    private_netns(|| {
        let mut objects = minimal("192.0.2.11".parse().unwrap());
        let node = "n\u{9b}31m\u{202e}\u{2066}";
        objects.push(lab::cluster::node(node, "192.0.2.12"));
        let file = ClusterFile::of(&objects);
        let output = ctk_command(["ls", "-o", "json", "--cluster", file.path(), "--node", node])
            .output()
            .unwrap();
        let outcome = Outcome::of(output);
        assert!(
            !outcome.stdout.contains(['\u{9b}', '\u{202e}', '\u{2066}']),
            "{outcome:?}"
        );
        assert_eq!(
            outcome.json()["summary"]["cluster"]["node"],
            Value::from(node)
        );
        // Nor does a note.
        let help = ctk_line("ls --cluster none --svc a\u{9b}b");
        assert!(!help.stderr.contains('\u{9b}'), "{help:?}");
    });
}
