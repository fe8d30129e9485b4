//! `ctk watch` while its API server goes away, hangs, forgets old versions, or refuses: nothing is called stale that it does
//! not know, and what happened meanwhile is told when it is back.
//!
//! kube-proxy stands still, so that the entries stay in the table.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::flows::{DEAD, Pinned, pin};
use crate::account::Account;
use crate::child::{Ended, Watch, start};
use crate::lab::{COREDNS, Lab};
use crate::network::Place;
use crate::process::wait;

/// Until what happened is told, when the API answers again. After a server was away the next attempt may be 10 s off.
const BACK: Duration = Duration::from_secs(15);
/// The same when access is granted again.
const GRANTED: Duration = Duration::from_secs(6);

/// A watch of kube-dns with pinned flows, while kube-proxy stands still.
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

    /// The endpoint goes: its name leaves the API.
    fn kill(lab: &Lab) {
        lab.api().remove_pod("kube-system", COREDNS[0].1);
        lab.settle("kube-system");
    }

    fn is_stale(&self, records: &[Value]) -> bool {
        let stale = |port: &u16| last_verdict(records, *port) == "stale";
        self.pinned.to_dead.iter().all(stale)
    }

    /// Waits until the flows of the dead endpoint are told to be stale, and checks all that was said.
    fn stale_within(self, limit: Duration) {
        let began = Instant::now();
        wait(limit, "flows of the dead endpoint told to be stale", || {
            self.is_stale(&self.watch.records())
        });
        eprint!("told after {:.1} s; ", began.elapsed().as_secs_f64());
        // What was said to be out of date has time to be said to be up to date.
        std::thread::sleep(Duration::from_secs(1));
        let Trial { watch, pinned } = self;
        let ended = watch.stop();
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        for port in pinned.to_alive {
            never_stale(&ended.records, port);
        }
        every_kind_is_back(&ended);
    }

    /// Nothing has been called stale so far.
    #[track_caller]
    fn nothing_is_stale(&self) {
        let records = self.watch.records();
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

/// Each kind of objects that was said to be out of date was said to be up to date later.
#[track_caller]
fn every_kind_is_back(ended: &Ended) {
    let mut out = std::collections::BTreeSet::new();
    for line in ended.stderr.lines() {
        let Some((_, said)) = line.split_once("the API: ") else {
            continue;
        };
        if let Some((kinds, _)) = said.split_once(" may be out of date") {
            out.extend(kinds.split(", "));
        } else if let Some((kinds, _)) = said.split_once(" up to date again") {
            let kinds = kinds.trim_end_matches(" are").trim_end_matches(" is");
            for kind in kinds.split(", ") {
                out.remove(kind);
            }
        }
    }
    assert!(
        out.is_empty(),
        "not said to be up to date again: {out:?}\n{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("out of date"), "{}", ended.stderr);
}

pub fn restart(lab: &mut Lab) {
    let trial = Trial::start(lab, &lab.plane.admin());
    lab.plane.stop_server();
    std::thread::sleep(Duration::from_secs(8));
    trial.nothing_is_stale();
    lab.plane.start_server(&[]);
    Trial::kill(lab);
    trial.stale_within(BACK);
}

pub fn hang(lab: &mut Lab) {
    let trial = Trial::start(lab, &lab.plane.admin());
    lab.plane.server().freeze();
    std::thread::sleep(Duration::from_secs(20));
    trial.nothing_is_stale();
    let unknown = trial.watch.records();
    let unsure = |port: &u16| last_verdict(&unknown, *port) != "stale";
    assert!(trial.pinned.to_dead.iter().all(unsure));
    lab.plane.server().thaw();
    Trial::kill(lab);
    trial.stale_within(BACK);
}

/// The version that the watch would go on from is compacted away while the server is down.
pub fn compaction(lab: &mut Lab) {
    // Without its cache the server answers from etcd, with 410 Gone where etcd has forgotten the version.
    const NO_CACHE: &[&str] = &["--watch-cache=false"];
    lab.plane.stop_server();
    lab.plane.start_server(NO_CACHE);
    let trial = Trial::start(lab, &lab.plane.admin());
    for n in 0..50 {
        let annotation = json!({"metadata": {"annotations": {"n": n.to_string()}}});
        lab.api().merge("/api/v1/namespaces/default", &annotation);
    }
    lab.plane.stop_server();
    lab.plane.compact();
    std::thread::sleep(Duration::from_secs(2));
    lab.plane.start_server(NO_CACHE);
    Trial::kill(lab);
    let gone = |stderr: &str| assert!(stderr.contains("410"), "{stderr}");
    let _ = gone;
    trial.stale_within(BACK);
}

pub fn revoked(lab: &mut Lab) {
    let account = Account::make(&lab.plane);
    let kubeconfig = account.kubeconfig.clone();
    let trial = Trial::start(lab, &kubeconfig);
    let account = Account::make(&lab.plane);
    account.revoke();
    // Streams that are open go on to their end.
    std::thread::sleep(Duration::from_secs(8));
    Trial::kill(lab);
    std::thread::sleep(Duration::from_secs(4));
    trial.nothing_is_stale();
    account.grant();
    trial.stale_within(GRANTED);
}

pub fn account_replaced(lab: &mut Lab) {
    let account = Account::make(&lab.plane);
    let kubeconfig = account.kubeconfig.clone();
    let trial = Trial::start(lab, &kubeconfig);
    let account = Account::make(&lab.plane);
    account.delete();
    std::thread::sleep(Duration::from_secs(8));
    Trial::kill(lab);
    std::thread::sleep(Duration::from_secs(4));
    trial.nothing_is_stale();
    account.create();
    trial.stale_within(GRANTED);
}

const _: &str = DEAD;
