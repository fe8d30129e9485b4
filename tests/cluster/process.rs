//! Background process with its output in a log file.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts the program in the network namespace of the calling thread.
    pub fn start(log: &Path, program: &Path, args: &[String]) -> Self {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let file = log.join(format!("{name}.log"));
        let file = OpenOptions::new().create(true).append(true).open(file);
        let file = file.expect("the folder of logs can be written");
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Process {
            name: name.into_owned(),
            child,
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Sends SIGSTOP: the process is stopped until [`Process::thaw`].
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Terminates the process and waits; kills it when it does not end.
    pub fn stop(mut self) {
        self.thaw();
        self.signal(Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(15);
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A process that has ended gets no signal: its PID may be reused.
    fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            kill_process(pid.expect("a PID is positive"), signal).expect("it is a child");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            if let Err(error) = self.child.wait() {
                eprintln!("{}: {error}", self.name);
            }
        }
    }
}

/// Waits until `done`, or fails after `limit`.
#[track_caller]
pub fn wait(limit: Duration, wanted: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {wanted}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends the threads of a case, also when the case fails: the scope would wait for them for ever.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
