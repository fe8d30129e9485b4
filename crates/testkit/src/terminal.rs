//! Terminal for commands that repaint it: a window of tmux.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::tools::Outcome;

/// Time to wait for the screen, enough on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// tmux server with one window. Ends when dropped.
pub struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    /// Starts a shell that runs `command`, then prints its status and stores the settings of the terminal.
    pub fn run(command: &str) -> Self {
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
    pub fn tmux(&self, args: &[&str]) -> String {
        let socket = self.folder.path().join("socket");
        let output = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .args(args)
            .env_remove("TMUX")
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .output();
        Outcome::of(output.expect("tmux is installed"))
            .exits(0)
            .stdout
    }

    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    #[track_caller]
    pub fn wait(&self, what: &str, enough: impl Fn(&str) -> bool) -> String {
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

    pub fn is_alternate(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"])
            .trim()
            == "1"
    }

    fn settings(&self, when: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(when)).unwrap()
    }

    /// Asserts that the command succeeded and restored the terminal.
    #[track_caller]
    pub fn assert_restored(&self) {
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

pub fn has_tmux() -> bool {
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

/// Runs a `script` to its end, with this answer to its first question. An answer from before the question would not count.
pub fn answered(mut script: Command, answer: &str) -> Outcome {
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().expect("script is installed");
    // Open until the end: script takes the end of its input for that of the terminal.
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (mut shown, mut bytes, mut is_answered) = (Vec::new(), [0; 4096], false);
    loop {
        let read = stdout.read(&mut bytes).unwrap();
        shown.extend_from_slice(&bytes[..read]);
        if !is_answered && shown.windows(5).any(|part| part == b"[y/N]") {
            is_answered = true;
            stdin.write_all(answer.as_bytes()).unwrap();
        }
        if read == 0 {
            break;
        }
    }
    let status = child.wait().unwrap();
    Outcome {
        status: status.code(),
        stdout: String::from_utf8(shown).unwrap(),
        stderr: String::new(),
    }
}
