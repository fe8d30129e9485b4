//! A `ctk` that runs while the test does something to its table, with or without a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use nix::pty::openpty;

use testkit::ctk_binary::{ctk_command, ctk_hearing_hangups};
use testkit::tools::Outcome;

/// Without a terminal: stdout and stderr are pipes.
pub struct Started {
    pub child: Child,
    pub stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Started {
    pub fn new(args: &[&str]) -> Self {
        let mut command = ctk_hearing_hangups(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("ctk starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        Started {
            child,
            stdout,
            stderr,
            said: String::new(),
        }
    }

    /// Waits until it says this on stderr.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let read = self.stderr.read_line(&mut line).expect("it is text");
            assert!(read > 0, "it ended before it said {text:?}: {}", self.said);
            self.said.push_str(&line);
        }
    }

    /// Reads what is left to be read, and waits for the end.
    pub fn finish(mut self) -> Outcome {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).expect("text");
        self.stderr.read_to_string(&mut self.said).expect("text");
        let status = self.child.wait().expect("it ends");
        Outcome {
            status: status.code(),
            stdout,
            stderr: self.said,
        }
    }
}

/// With a terminal as stdin and stderr; stdout is a pipe.
pub struct Seated {
    child: Child,
    terminal: File,
    seen: String,
}

impl Seated {
    pub fn new(args: &[&str]) -> Self {
        let pty = openpty(None, None).expect("a terminal");
        let mut command = ctk_command(args);
        let slave = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        command
            .stdin(slave())
            .stderr(slave())
            .stdout(Stdio::piped());
        let child = command.spawn().expect("ctk starts");
        Seated {
            child,
            terminal: File::from(pty.master),
            seen: String::new(),
        }
    }

    /// Reads the terminal until this is on it, and gives everything that is.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let mut bytes = [0; 4096];
        while !self.seen.contains(text) {
            let read = self.terminal.read(&mut bytes).unwrap_or_default();
            assert!(read > 0, "it ended before it said {text:?}: {}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        self.seen.clone()
    }

    pub fn answer(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).expect("it reads");
    }

    /// Waits for the end. `stderr` is what was on the terminal, echoed answers included.
    pub fn finish(mut self) -> Outcome {
        let mut stdout = String::new();
        let out = self.child.stdout.as_mut().expect("it is piped");
        out.read_to_string(&mut stdout).expect("text");
        let status = self.child.wait().expect("it ends");
        rustix::io::ioctl_fionbio(&self.terminal, true).expect("a terminal can be polled");
        let mut bytes = [0; 4096];
        loop {
            match self.terminal.read(&mut bytes) {
                Ok(read) if read > 0 => {
                    self.seen.push_str(&String::from_utf8_lossy(&bytes[..read]))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // End of the output, or (EIO) the other end is closed.
                _ => break,
            }
        }
        Outcome {
            status: status.code(),
            stdout,
            stderr: self.seen,
        }
    }
}
