//! `ctk watch` as a child of the test, and its records so far.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ctk_binary::ctk_command;
use crate::tools::{Outcome, interrupt};

/// Time to wait for anything, enough on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Records, and the time of the last one.
type Received = Mutex<(Vec<Value>, Option<Instant>)>;

/// Child with piped output that is not read yet.
pub struct UnreadWatch {
    child: Child,
    stdout: ChildStdout,
    stderr: Stderr,
}

pub struct Watch {
    child: Child,
    received: Arc<Received>,
    stdout: JoinHandle<()>,
    stderr: Stderr,
}

/// Standard error of the child, read as it arrives.
struct Stderr {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Stderr {
    fn of(child: &mut Child) -> Self {
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let text = Arc::<Mutex<String>>::default();
        let reader = std::thread::spawn({
            let text = text.clone();
            move || {
                for line in lines {
                    *text.lock().unwrap() += &(line.unwrap() + "\n");
                }
            }
        });
        Stderr { text, reader }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    fn join(self) -> String {
        self.reader.join().unwrap();
        self.text.lock().unwrap().clone()
    }
}

/// Starts `ctk watch -o jsonl` with these arguments in the namespace of the calling thread. Its output is not read.
pub fn start_unread(args: &[&str]) -> UnreadWatch {
    start_in(&[], args)
}

/// Starts it with these environment variables. Its output is not read.
pub fn start_in(environment: &[(&str, &str)], args: &[&str]) -> UnreadWatch {
    let mut child = ctk_command(["watch", "-o", "jsonl"].iter().chain(args))
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ctk starts");
    UnreadWatch {
        stdout: child.stdout.take().unwrap(),
        stderr: Stderr::of(&mut child),
        child,
    }
}

/// Starts it and reads its output. Returns when the first look is over.
pub fn start(args: &[&str]) -> Watch {
    let watch = start_unread(args).read();
    watch.wait("the first synced", |records| has(records, "synced"));
    watch
}

impl UnreadWatch {
    pub fn read(self) -> Watch {
        let received = Arc::new(Received::default());
        let stdout = std::thread::spawn({
            let received = received.clone();
            move || {
                for line in BufReader::new(self.stdout).lines() {
                    let line = line.unwrap();
                    let record = serde_json::from_str(&line)
                        .unwrap_or_else(|error| panic!("{error}: {line:?}"));
                    let mut records = received.lock().unwrap();
                    records.0.push(record);
                    records.1 = Some(Instant::now());
                }
            }
        });
        Watch {
            child: self.child,
            received,
            stdout,
            stderr: self.stderr,
        }
    }

    pub fn interrupt(&self) {
        interrupt(&self.child);
    }

    /// Waits for the end without reading the output. Returns the exit status.
    pub fn wait_for_exit(mut self) -> Option<i32> {
        let status = wait(&mut self.child);
        drop(self.stdout);
        self.stderr.join();
        status
    }

    /// Closes the pipe of stdout and waits for the end.
    pub fn close(mut self) -> Outcome {
        drop(self.stdout);
        Outcome {
            status: wait(&mut self.child),
            stdout: String::new(),
            stderr: self.stderr.join(),
        }
    }
}

impl Watch {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn records(&self) -> Vec<Value> {
        self.received.lock().unwrap().0.clone()
    }

    /// Standard error until now.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until `enough` accepts the records.
    #[track_caller]
    pub fn wait(&self, what: &str, enough: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let received = self.received.lock().unwrap();
            if enough(&received.0) {
                return;
            }
            let last: Vec<&Value> = received.0.iter().rev().take(20).collect();
            assert!(Instant::now() < deadline, "{what} did not come: {last:#?}");
            drop(received);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until no record arrived for this long.
    pub fn wait_for_quiet(&self, time: Duration) {
        let began = Instant::now();
        loop {
            std::thread::sleep(time / 10);
            let last = self.received.lock().unwrap().1;
            if last
                .max(Some(began))
                .is_some_and(|last| last.elapsed() > time)
            {
                return;
            }
        }
    }

    /// Ends it with SIGINT and waits for the end.
    pub fn stop(self) -> WatchOutcome {
        interrupt(&self.child);
        self.wait_for_exit()
    }

    /// Waits until it ends by itself.
    pub fn wait_for_exit(mut self) -> WatchOutcome {
        let status = wait(&mut self.child);
        self.stdout.join().unwrap();
        let records = std::mem::take(&mut self.received.lock().unwrap().0);
        WatchOutcome {
            status,
            records,
            stderr: self.stderr.join(),
        }
    }
}

#[derive(Debug)]
pub struct WatchOutcome {
    pub status: Option<i32>,
    pub records: Vec<Value>,
    pub stderr: String,
}

fn wait(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + MAX_WAIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it does not end");
}

/// Reports whether a record has this type.
pub fn has(records: &[Value], name: &str) -> bool {
    records.iter().any(|record| record["type"] == name)
}

/// Types of the records about the flow of this client port, in order, and of all records without an entry.
pub fn record_types(records: &[Value], port: u16) -> Vec<String> {
    let about = |record: &&Value| {
        let entry = &record["entry"];
        entry.is_null() || entry["original"]["sport"] == port
    };
    let word = |record: &Value| record["type"].as_str().unwrap().to_owned();
    records.iter().filter(about).map(word).collect()
}

/// View that a script rebuilds from the records: existing entries by zone and original tuple.
pub fn rebuild_view(records: &[Value]) -> BTreeMap<String, Value> {
    let mut view = BTreeMap::new();
    for record in records {
        assert_eq!(record["schema"], "ctk/v1");
        let entry = &record["entry"];
        match record["type"].as_str().unwrap() {
            name @ ("snapshot" | "new" | "update") => {
                let before = view.insert(entry_key(entry), comparable_fields(entry));
                assert_eq!(before.is_some(), name == "update", "{record}");
            }
            "destroy" => {
                let before = view.remove(&entry_key(entry));
                assert!(before.is_some(), "ended without having begun: {record}");
            }
            _ => {}
        }
    }
    view
}

/// View of the entries of a listing.
pub fn view_of_listing(items: &[Value]) -> BTreeMap<String, Value> {
    items
        .iter()
        .map(|item| (entry_key(item), comparable_fields(item)))
        .collect()
}

fn entry_key(entry: &Value) -> String {
    let original = &entry["original"];
    let parts = ["src", "dst", "sport", "dport", "type", "code", "icmp_id"];
    let parts: Vec<String> = parts.iter().map(|key| original[*key].to_string()).collect();
    format!(
        "{} {} {}",
        entry["zone"],
        entry["protocol"],
        parts.join(" ")
    )
}

/// Fields that both events and dumps have. Events omit a mark of 0.
fn comparable_fields(entry: &Value) -> Value {
    let reply = ["src", "dst", "sport", "dport"].map(|key| entry["reply"][key].clone());
    let mark = entry["mark"].as_u64().unwrap_or(0);
    serde_json::json!([reply, entry["id"], entry["status"], mark, entry["state"]])
}
