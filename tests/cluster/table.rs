//! node1's table by the `conntrack` tool and by ctk, which share no code.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::Value;

use crate::network::Place;
use testkit::conntrack_tool;
use testkit::ctk_binary::ctk;
use testkit::tools::{Outcome, run};

/// Both tuples of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub protocol: String,
    pub original: Tuple,
    pub reply: Tuple,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tuple {
    pub src: String,
    pub sport: u64,
    pub dst: String,
    pub dport: u64,
}

impl Key {
    /// Tuples of an item of ctk, or of [`conntrack_tool::text`].
    pub fn of(item: &Value) -> Self {
        let tuple = |direction: &str| {
            let tuple = &item[direction];
            let word = |name: &str| tuple[name].as_str().unwrap_or_default().to_owned();
            let port = |name: &str| tuple[name].as_u64().unwrap_or_default();
            Tuple {
                src: word("src"),
                sport: port("sport"),
                dst: word("dst"),
                dport: port("dport"),
            }
        };
        Key {
            protocol: item["protocol"].as_str().unwrap_or_default().to_owned(),
            original: tuple("original"),
            reply: tuple("reply"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key {
            protocol,
            original: o,
            reply: r,
        } = self;
        write!(
            f,
            "{protocol} {}:{} > {}:{}",
            o.src, o.sport, o.dst, o.dport
        )?;
        write!(
            f,
            ", reply from {}:{} to {}:{}",
            r.src, r.sport, r.dst, r.dport
        )
    }
}

/// All UDP entries of node1, by the tool.
pub fn udp_entries() -> Vec<Key> {
    let args = ["-L", "-p", "udp", "-o", "extended,id"];
    let outcome = Place::Node(1).run(|| run("conntrack", &args));
    let lines = outcome.stdout.lines();
    lines
        .map(|line| Key::of(&conntrack_tool::text(line)))
        .collect()
}

/// Records the ends of UDP entries on node1 until it is dropped.
pub struct Ends {
    listener: Child,
    reader: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Ends {
    pub fn listen() -> Self {
        let args = ["-E", "-e", "DESTROY", "-p", "udp", "-o", "extended,id"];
        let mut listener = Place::Node(1).run(|| {
            let mut command = Command::new("conntrack");
            command
                .args(args)
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            command.spawn().expect("conntrack starts")
        });
        let output = BufReader::new(listener.stdout.take().expect("it is piped"));
        let lines = Arc::<Mutex<Vec<_>>>::default();
        let to = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                to.lock().unwrap().push((Instant::now(), line));
            }
        });
        Ends {
            listener,
            reader: Some(reader),
            lines,
        }
    }

    /// Times when entries ended, by entry. Ends the listener.
    pub fn all(mut self) -> BTreeMap<Key, Vec<Instant>> {
        self.stop();
        let mut all: BTreeMap<Key, Vec<Instant>> = BTreeMap::new();
        for (when, line) in self.lines.lock().unwrap().iter() {
            let entry = line.trim_start().trim_start_matches("[DESTROY] ");
            // The deleting program is named after the entry.
            let entry = entry.split(" portid=").next().unwrap_or(entry);
            let key = Key::of(&conntrack_tool::text(entry));
            all.entry(key).or_default().push(*when);
        }
        all
    }

    fn stop(&mut self) {
        let _ = self.listener.kill();
        let _ = self.listener.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Deletes every UDP entry of both nodes.
pub fn clear() {
    for node in [1, 2] {
        Place::Node(node).run(|| {
            // The tool fails where it finds no entry.
            let mut delete = Command::new("conntrack");
            let _ = delete.args(["-D", "-p", "udp"]).output();
        });
    }
}

/// Runs ctk on node1 with arguments written as one line.
pub fn ctk_on_node(line: &str) -> Outcome {
    Place::Node(1).run(|| ctk(line.split_whitespace()))
}

/// UDP items of `ctk ls` by key, with the arguments of one line.
#[track_caller]
pub fn listed(line: &str) -> BTreeMap<Key, Value> {
    let outcome = ctk_on_node(&format!("ls --udp -o json {line}")).exits(0);
    by_key(outcome.items())
}

#[track_caller]
pub fn by_key(items: Vec<Value>) -> BTreeMap<Key, Value> {
    let count = items.len();
    let map: BTreeMap<_, _> = items
        .into_iter()
        .map(|item| (Key::of(&item), item))
        .collect();
    assert_eq!(map.len(), count, "an entry came twice");
    map
}

/// `verdict/reason` of an item.
pub fn verdict(item: &Value) -> String {
    let word = |name: &str| item[name].as_str().unwrap_or("null");
    format!("{}/{}", word("verdict"), word("reason"))
}
