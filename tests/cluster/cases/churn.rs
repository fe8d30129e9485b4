//! Endpoints and clients come and go all the time while ctk purges in a loop: no entry of an endpoint that serves is deleted.
//!
//! kube-proxy is stopped most of the time, so that its rules lead new flows to removed endpoints. Addresses are reused
//! soon, because they are few: a stale entry may be healthy a moment later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::Api;
use crate::lab::{Lab, WEB};
use crate::network::{NODES, OUTSIDE, Place, pod_address};
use crate::process::Stop;
use crate::table::{Ends, Key, ctk_on_node};
use crate::traffic::Clients;
use testkit::dice::Dice;

const NAMESPACE: &str = "churn";
const VIP: &str = "10.96.77.77";
const NODE_PORT: u16 = 32_333;
const TIME: Duration = Duration::from_secs(20);
/// Number of serving endpoints, and the addresses that they use in turn.
const SERVING: usize = 3;
const ADDRESSES: u64 = 5;
/// Longest time by which this program sees a change late.
const SLACK: Duration = Duration::from_millis(100);

/// Serving endpoints as the API reported them, at each change.
type History = Vec<(Instant, BTreeSet<String>)>;

pub fn churn(lab: &mut Lab) {
    make(lab);
    let stop = AtomicBool::new(false);
    let history = Mutex::new(History::new());
    let (kubeconfig, by_api) = (lab.plane.admin(), lab.by_api());
    let mut deleted = Vec::new();
    let mut purges = 0;
    let ends = Ends::listen();
    let (clients, proxy) = lab.clients_and_proxy();
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| follow(&Api::new(&kubeconfig), &stop, &history));
        scope.spawn(|| turn(&Api::new(&kubeconfig), &stop));
        scope.spawn(|| come_and_go(clients, &stop));
        let began = Instant::now();
        let line = format!(
            "purge --stale --svc churn/ch --yes --settle 500ms --verify 0s -o jsonl {by_api}"
        );
        while began.elapsed() < TIME {
            proxy.freeze();
            for _ in 0..3 {
                let from = Instant::now();
                let outcome = ctk_on_node(&line);
                purges += 1;
                assert!(matches!(outcome.status, Some(0 | 3)), "{outcome:#?}");
                let until = Instant::now();
                let items = outcome.jsonl();
                let items = items.into_iter().filter(|item| item["result"] == "deleted");
                deleted.extend(items.map(|item| (from, until, item)));
            }
            proxy.thaw();
            std::thread::sleep(Duration::from_millis(700));
        }
    });
    let history = history.into_inner().unwrap();
    let ends = ends.all();
    let wrong = deleted.iter().filter_map(|one| live(one, &history, &ends));
    let wrong: Vec<String> = wrong.collect();
    eprint!(
        "{purges} purges, {} states, {} deleted, ",
        history.len(),
        deleted.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        deleted.len() > 20 && history.len() > 20,
        "not much happened"
    );
}

fn make(lab: &mut Lab) {
    let api = lab.api();
    api.namespace(NAMESPACE);
    let port = json!({"name": "u", "port": 53, "nodePort": NODE_PORT, "protocol": "UDP"});
    let spec =
        json!({"type": "NodePort", "clusterIP": VIP, "selector": {"app": "ch"}, "ports": [port]});
    api.service(NAMESPACE, "ch", &spec);
    for n in 0..SERVING {
        api.pod(
            NAMESPACE,
            &format!("ch-{n}"),
            "ch",
            &address(n as u64),
            true,
        );
    }
    lab.settle(NAMESPACE);
    lab.sync();
}

fn address(n: u64) -> String {
    pod_address(1 + (n % 2) as usize, 12 + n)
}

/// Records each change of the serving endpoints.
fn follow(api: &Api, stop: &AtomicBool, history: &Mutex<History>) {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    while !stop.load(Ordering::Relaxed) {
        let slices = api.list(&path);
        let now = Instant::now();
        let endpoints = slices
            .iter()
            .flat_map(|slice| slice["endpoints"].as_array())
            .flatten();
        let serving = endpoints.filter(|endpoint| endpoint["conditions"]["serving"] == true);
        let serving: BTreeSet<String> = serving
            .filter_map(|endpoint| endpoint["addresses"][0].as_str())
            .map(str::to_owned)
            .collect();
        let mut history = history.lock().unwrap();
        if history.last().is_none_or(|(_, last)| *last != serving) {
            history.push((now, serving));
        }
        drop(history);
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// Replaces an endpoint about every second. Its successor may reuse an address.
fn turn(api: &Api, stop: &AtomicBool) {
    let mut dice = Dice(5);
    let mut pods: Vec<(String, u64)> = (0..SERVING)
        .map(|n| (format!("ch-{n}"), n as u64))
        .collect();
    for n in SERVING.. {
        std::thread::sleep(Duration::from_millis(300 + dice.below(1000)));
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let free: Vec<u64> = (0..ADDRESSES)
            .filter(|at| pods.iter().all(|(_, a)| a != at))
            .collect();
        let (at, name) = (*dice.of(&free), format!("ch-{n}"));
        api.pod(NAMESPACE, &name, "ch", &address(at), true);
        pods.push((name, at));
        let (victim, _) = pods.swap_remove(dice.below(SERVING as u64) as usize);
        api.remove_pod(NAMESPACE, &victim);
    }
}

/// Adds a client ten times a second, up to sixty.
fn come_and_go(clients: &Clients, stop: &AtomicBool) {
    for port in 42_000_u16.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if port.is_multiple_of(3) {
            clients.add(
                Place::Outside,
                OUTSIDE,
                port,
                &format!("{}:{NODE_PORT}", NODES[0]),
            );
        } else {
            let web = pod_address(1, WEB.start + u64::from(port) % 10);
            clients.add(Place::Clients, &web, port, &format!("{VIP}:53"));
        }
        if clients.count() > 60
            && let Some(first) = clients.first()
        {
            clients.remove(first);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Reports a deleted entry whose endpoint served at that time.
fn live(
    (from, until, item): &(Instant, Instant, Value),
    history: &History,
    ends: &BTreeMap<Key, Vec<Instant>>,
) -> Option<String> {
    let key = Key::of(item);
    let times = ends.get(&key).into_iter().flatten();
    let when = *times
        .rev()
        .find(|&when| from <= when && when <= until)
        .unwrap_or(until);
    let serves = |at: Instant| {
        let state = history.iter().rev().find(|(since, _)| *since <= at);
        state.is_some_and(|(_, serving)| serving.contains(&key.reply.src))
    };
    // Served all the time around the deletion, so for both programs.
    let all = serves(when) && serves(when - SLACK) && serves(when + SLACK);
    all.then(|| {
        format!(
            "{key} was deleted: {} ({})",
            item["reason"], item["evidence"]
        )
    })
}
