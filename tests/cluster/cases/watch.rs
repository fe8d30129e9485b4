//! `ctk watch` while its API server ends, hangs, forgets old versions, or refuses: no unknown state is called stale, and
//! changes during that time are recorded afterwards.
//!
//! kube-proxy is stopped, so that the entries stay in the table.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::flows::{ALIVE, Pinned, pin};
use crate::account::Account;
use crate::api::SERVICES;
use crate::lab::{COREDNS, Lab};
use crate::network::Place;
use testkit::watch_process::{Watch, WatchOutcome, start};

/// Time until changes are recorded after the API answers again. After an outage the next attempt may be 10 s later.
const BACK: Duration = Duration::from_secs(15);
/// The same after access is granted again.
const GRANTED: Duration = Duration::from_secs(6);

/// Watch of kube-dns with pinned flows, while kube-proxy is stopped.
struct Trial {
    watch: Watch,
    pinned: Pinned,
}

impl Trial {
    fn start(lab: &mut Lab, kubeconfig: &str) -> Self {
        let pinned = pin(lab);
        lab.proxy().freeze();
        let line = format!("--svc kube-dns --cluster api --kubeconfig {kubeconfig}");
        let args: Vec<&str> = line.split_whitespace().collect();
        let watch = Place::Node(1).run(|| start(&args));
        let trial = Trial { watch, pinned };
        let all = trial.pinned.to_dead.len() + trial.pinned.to_alive.len();
        trial
            .watch
            .wait("flows that are known to be well", |records| {
                let ok = |port: &u16| last_verdict(records, *port) == "ok";
                let ports = trial.pinned.to_dead.iter().chain(&trial.pinned.to_alive);
                ports.filter(|port| ok(port)).count() == all
            });
        trial
    }

    /// Removes the endpoint.
    fn kill(lab: &Lab) {
        lab.api().remove_pod("kube-system", COREDNS[0].1);
        lab.wait_for_endpoints("kube-system", &[ALIVE]);
    }

    fn is_stale(&self, records: &[Value]) -> bool {
        let stale = |port: &u16| last_verdict(records, *port) == "stale";
        self.pinned.to_dead.iter().all(stale)
    }

    /// Waits until the flows of the dead endpoint are recorded as stale, and checks all output.
    fn stale_within(self, limit: Duration) {
        let began = Instant::now();
        let until = |limit, done: &dyn Fn() -> bool| {
            while !done() && began.elapsed() < limit {
                std::thread::sleep(Duration::from_millis(50));
            }
            done().then(|| began.elapsed())
        };
        let told = until(limit, &|| self.is_stale(&self.watch.records()));
        let back = until(limit.max(BACK), &|| {
            out_of_date(&self.watch.stderr()).is_empty()
        });
        let Trial { watch, pinned } = self;
        let ended = watch.stop();
        let shown = story(&ended, &pinned);
        let Some((told, back)) = told.zip(back) else {
            panic!(
                "told to be stale: {told:?}, all up to date: {back:?} (limit {limit:?})\n{shown}"
            );
        };
        eprint!("told after {told:.1?}, all up to date after {back:.1?}, ");
        assert_eq!(ended.status, Some(0), "{shown}");
        for port in pinned.to_alive {
            never_stale(&ended.records, port);
        }
    }

    /// Asserts that the watch reports that it may be out of date, and has called nothing stale.
    #[track_caller]
    fn is_unsure(&self) {
        let (records, notes) = (self.watch.records(), self.watch.stderr());
        assert!(!out_of_date(&notes).is_empty(), "{notes}");
        for &port in self.pinned.to_dead.iter().chain(&self.pinned.to_alive) {
            never_stale(&records, port);
        }
    }
}

fn of_port(records: &[Value], port: u16) -> impl DoubleEndedIterator<Item = &Value> {
    let mine = move |record: &&Value| record["entry"]["original"]["sport"] == port;
    records.iter().filter(mine)
}

fn last_verdict(records: &[Value], port: u16) -> &str {
    let last = of_port(records, port).next_back();
    last.and_then(|record| record["entry"]["verdict"].as_str())
        .unwrap_or("none")
}

#[track_caller]
fn never_stale(records: &[Value], port: u16) {
    for record in of_port(records, port) {
        assert_ne!(record["entry"]["verdict"], "stale", "{record:#}");
    }
}

/// Output of a watch: records of the dead endpoint's flows, records of endpoints, and stderr.
fn story(ended: &WatchOutcome, pinned: &Pinned) -> String {
    let mut lines = Vec::new();
    for record in &ended.records {
        let port = record["entry"]["original"]["sport"]
            .as_u64()
            .unwrap_or_default();
        let entry = &record["entry"];
        let about = match record["type"].as_str() {
            Some("refresh") => continue,
            Some("endpoint") => format!("{} {}", record["endpoint"]["address"], record["change"]),
            _ if pinned.to_dead.iter().any(|&dead| u64::from(dead) == port) => {
                format!("{port} {} {}", entry["verdict"], entry["reason"])
            }
            _ if entry.is_null() => String::new(),
            _ => continue,
        };
        lines.push(format!("{} {} {about}", record["time"], record["type"]));
    }
    format!("{}\n{}", lines.join("\n"), ended.stderr)
}

/// Kinds of objects reported as out of date and not yet as current.
fn out_of_date(notes: &str) -> BTreeSet<&str> {
    let mut out = BTreeSet::new();
    for line in notes.lines() {
        let Some((_, outcome)) = line.split_once("the API: ") else {
            continue;
        };
        if let Some((kinds, _)) = outcome.split_once(" may be out of date") {
            out.extend(kinds.split(", "));
        } else if let Some((kinds, _)) = outcome.split_once(" up to date again") {
            let kinds = kinds.trim_end_matches(" are").trim_end_matches(" is");
            for kind in kinds.split(", ") {
                out.remove(kind);
            }
        }
    }
    out
}

pub fn restart(lab: &mut Lab) {
    let trial = Trial::start(lab, &lab.plane.admin());
    lab.plane.stop_server();
    std::thread::sleep(Duration::from_secs(8));
    trial.is_unsure();
    lab.plane.start_server(&[]);
    Trial::kill(lab);
    trial.stale_within(BACK);
}

pub fn hang(lab: &mut Lab) {
    let trial = Trial::start(lab, &lab.plane.admin());
    lab.plane.server().freeze();
    std::thread::sleep(Duration::from_secs(14));
    trial.is_unsure();
    lab.plane.server().thaw();
    Trial::kill(lab);
    trial.stale_within(BACK);
}

/// Compacts the version from which the watch would continue while the server is down.
pub fn compaction(lab: &mut Lab) {
    // Without its cache the server answers from etcd, with 410 Gone for a compacted version.
    const NO_CACHE: &[&str] = &["--watch-cache=false"];
    lab.plane.stop_server();
    lab.plane.start_server(NO_CACHE);
    let trial = Trial::start(lab, &lab.plane.admin());
    let version = lab.api().get(SERVICES)["metadata"]["resourceVersion"].take();
    lab.plane.stop_server();
    lab.plane.forget_versions();
    lab.plane.start_server(NO_CACHE);
    let version = version.as_str().expect("a version");
    let path = format!("{SERVICES}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    assert_eq!(lab.api().get(&path)["object"]["code"], 410);
    Trial::kill(lab);
    trial.stale_within(BACK);
}

pub fn revoked(lab: &mut Lab) {
    refused(lab, 403, Account::revoke, Account::grant);
}

pub fn account_replaced(lab: &mut Lab) {
    refused(lab, 401, Account::delete, Account::create);
}

/// Removes the endpoint while every request of the watch is answered with `status`.
fn refused(lab: &mut Lab, status: u16, refuse: impl Fn(&Account), grant: impl Fn(&Account)) {
    let account = Account::make(&lab.plane);
    let trial = Trial::start(lab, &account.kubeconfig);
    refuse(&account);
    // The server caches a token's validity for some seconds.
    account.wait_until_refused(status);
    // Open streams continue to their end.
    std::thread::sleep(Duration::from_secs(6));
    Trial::kill(lab);
    std::thread::sleep(Duration::from_secs(2));
    trial.is_unsure();
    grant(&account);
    trial.stale_within(GRANTED);
}
