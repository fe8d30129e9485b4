//! `watch --live` on a terminal: tmux is the terminal.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::lab::{BACKENDS, be_the_node, cluster};
use crate::mixed::{insert, to_dns};
use crate::private_netns::private_netns;
use crate::tools::{CTK, Said};

/// Longer than a terminal needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A tmux server of this test alone, with one window; it ends with this.
struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    /// A shell that runs `command` and then says its status and how the terminal is set.
    fn run(command: &str) -> Self {
        let terminal = Terminal {
            folder: tempfile::tempdir().unwrap(),
        };
        let shell = format!(
            "stty -g > {0}/before; {command}; echo status=$?; stty -g > {0}/after; echo over; sleep 60",
            terminal.folder.path().display()
        );
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "120",
            "-y",
            "20",
            &shell,
        ]);
        terminal
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let socket = self.folder.path().join("socket");
        let output = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .args(args)
            .env_remove("TMUX")
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .output();
        Said::of(output.expect("tmux is installed")).ended(0).stdout
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    #[track_caller]
    fn wait(&self, what: &str, enough: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if enough(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what} did not come:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_alternate(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"])
            .trim()
            == "1"
    }

    fn settings(&self, when: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(when)).unwrap()
    }

    /// The watch has ended well, and everything is as it was before it.
    #[track_caller]
    fn is_as_before(&self) {
        let screen = self.wait("the end", |screen| screen.contains("over"));
        assert!(screen.contains("status=0"), "{screen}");
        assert!(!self.is_alternate(), "{screen}");
        let cursor = self.tmux(&["display-message", "-p", "#{cursor_flag}"]);
        assert_eq!(cursor.trim(), "1", "the cursor is hidden");
        assert_eq!(self.settings("before"), self.settings("after"));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let socket = self.folder.path().join("socket");
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .arg("kill-server")
            .output();
    }
}

fn has_tmux() -> bool {
    let found = Command::new("tmux").arg("-V").output().is_ok();
    assert!(
        found || std::env::var_os("CI").is_none(),
        "tmux must be there where CI=true"
    );
    if !found {
        eprintln!("skipped: there is no tmux");
    }
    found
}

#[test]
fn the_live_view_shows_the_stale_row_on_top_survives_a_resize_and_leaves_nothing_behind() {
    if !has_tmux() {
        return;
    }
    private_netns(|| {
        be_the_node();
        let file = cluster(&BACKENDS[1..]);
        let fine = (1..40).map(|port| to_dns(17, port, "10.244.2.33"));
        let mut flows: Vec<_> = fine.collect();
        flows.push(to_dns(17, 999, "10.244.1.7"));
        insert(&flows);
        let command = format!("{CTK} watch --live --interval 1s --cluster {}", file.path());
        let terminal = Terminal::run(&command);
        let on_top = |screen: &str| {
            let row = screen.lines().nth(2).unwrap_or_default();
            row.contains("shop/web-1:999 ") && row.contains("stale")
        };
        let screen = terminal.wait("the table", on_top);
        let lines: Vec<&str> = screen.lines().collect();
        assert!(
            lines[0].starts_with("40 entries, 1 stale, 0 of them refreshing"),
            "{screen}"
        );
        assert!(lines[1].starts_with("PROTO "), "{screen}");
        let rows = |screen: &str| {
            screen
                .lines()
                .filter(|line| line.starts_with("udp "))
                .count()
        };
        assert_eq!(rows(&screen), 17, "as many as there are lines:\n{screen}");
        assert!(terminal.is_alternate());

        // Narrower than the line of totals, and lower; then larger again.
        terminal.tmux(&["resize-window", "-x", "40", "-y", "8"]);
        let small = terminal.wait("the smaller table", |screen| {
            rows(screen) == 5
                && screen
                    .lines()
                    .next()
                    .is_some_and(|line| line.starts_with("40 ent"))
        });
        assert!(
            small.lines().nth(1).unwrap().starts_with("PROTO"),
            "{small}"
        );
        terminal.tmux(&["resize-window", "-x", "140", "-y", "30"]);
        terminal.wait("the larger table", |screen| {
            rows(screen) == 27 && on_top(screen)
        });
        // What ends disappears.
        crate::delete(|flow| flow.original.sport() == Some(999));
        terminal.wait("the end", |screen| {
            screen.starts_with("39 entries, 0 stale")
        });
        terminal.tmux(&["send-keys", "q"]);
        terminal.is_as_before();
    });
}

#[test]
fn ctrl_c_leaves_the_live_view_as_q_does() {
    if !has_tmux() {
        return;
    }
    private_netns(|| {
        let terminal = Terminal::run(&format!("{CTK} watch --live --cluster none"));
        terminal.wait("the table", |screen| screen.starts_with("0 entries"));
        terminal.tmux(&["send-keys", "C-c"]);
        terminal.is_as_before();
    });
}
