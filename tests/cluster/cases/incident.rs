//! Incidents that purge repairs, end to end: kube-proxy's rules are current, and an entry keeps a client on a dead
//! endpoint.
//!
//! kube-proxy of these versions deletes such entries itself. The cases restore them, as a kube-proxy with the bug would
//! leave them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::flows::{ALIVE, DEAD, Saved, entries, pin};
use crate::lab::{COREDNS, Lab};
use crate::network::{OUTSIDE, Place, pod_address};
use crate::process::{Stop, wait};
use crate::table::{Key, ctk_on_node, listed, verdict};

const LIMIT: Duration = Duration::from_secs(10);

/// A DNS client that keeps its source port is pinned to a pod that is gone.
pub fn dns(lab: &mut Lab) {
    let pinned = pin(lab);
    lab.clients.pause();
    let saved = Saved::of(&pinned.to_dead);
    let others = entries(&pinned.to_alive);
    lab.backends.silence(DEAD);
    lab.api().remove_pod("kube-system", COREDNS[0].1);
    lab.wait_for_endpoints("kube-system", &[ALIVE]);
    lab.sync();
    saved.put_back();

    let dead = entries(&pinned.to_dead);
    let began = Instant::now();
    lab.clients.resume();
    std::thread::sleep(Duration::from_millis(2500));
    for &port in &pinned.to_dead {
        assert_eq!(
            lab.clients.answer(port, began),
            None,
            "the entry leads to the dead pod"
        );
    }
    for &port in &pinned.to_alive {
        assert!(lab.clients.answer(port, began).is_some(), "client {port}");
    }

    let file = lab.write_file();
    for source in [lab.by_api(), format!("--cluster {file}")] {
        let stale = listed(&format!("--stale --svc kube-dns {source}"));
        assert!(stale.keys().eq(&dead), "{source}: {stale:#?}");
        for item in stale.values() {
            assert_eq!(verdict(item), "stale/endpoint-gone");
        }
    }
    // The rules alone tell that new flows go elsewhere, not that the endpoint is dead.
    let by_rules = listed("--svc kube-dns --cluster rules");
    for (key, item) in &by_rules {
        let must = match dead.contains(key) {
            true => "suspect/not-in-node-rules",
            false => "ok/endpoint",
        };
        assert_eq!(verdict(item), must, "{key}");
    }
    purge_heals(lab, &pinned.to_dead, "--svc kube-dns", |answer| {
        answer.starts_with(ALIVE)
    });
    assert!(
        entries(&pinned.to_alive) == others,
        "flows of the living endpoint"
    );
}

/// Clients sent before the Service existed, so their flows are untranslated; they continue.
pub fn no_dnat(lab: &mut Lab) {
    const EXTERNAL: &str = "203.0.113.77";
    let ports: Vec<u16> = (40_500..40_503).collect();
    for &port in &ports {
        let to = format!("{EXTERNAL}:514");
        lab.clients.add(Place::Outside, OUTSIDE, port, &to);
    }
    std::thread::sleep(Duration::from_millis(300));
    lab.clients.pause();
    let saved = Saved::of(&ports);
    let api = lab.api();
    api.namespace("late");
    api.pod("late", "log", "log", &pod_address(2, 20), true);
    let port = json!({"name": "u", "port": 514, "targetPort": 53, "protocol": "UDP"});
    let spec = json!({"selector": {"app": "log"}, "externalIPs": [EXTERNAL], "ports": [port]});
    api.service("late", "log", &spec);
    lab.settle("late");
    lab.sync();
    saved.put_back();
    for source in [lab.by_api(), lab.by_both(), "--cluster rules".to_owned()] {
        let all = listed(&format!("--svc late/log {source}"));
        assert!(all.keys().eq(&entries(&ports)), "{source}: {all:#?}");
        for item in all.values() {
            assert_eq!(verdict(item), "stale/no-dnat", "{source}: {item:#}");
        }
    }
    lab.clients.resume();
    let endpoint = format!("{}:53", pod_address(2, 20));
    purge_heals(lab, &ports, "--svc late/log", |answer| answer == endpoint);
}

/// `purge --stale` names and deletes exactly the entries of these source ports, and their next packets are answered.
fn purge_heals(lab: &Lab, ports: &[u16], selector: &str, right: impl Fn(&str) -> bool) {
    let stale = entries(ports);
    let purge = |more: &str| {
        let outcome = ctk_on_node(&format!(
            "purge --stale {selector} {more} -o json {}",
            lab.by_api()
        ));
        outcome.exits(0).items()
    };
    for (more, result) in [("--dry-run", "would-delete"), ("--yes", "deleted")] {
        let items = purge(more);
        let keys: Vec<Key> = items.iter().map(Key::of).collect();
        assert!(
            stale.iter().all(|key| keys.contains(key)),
            "{more}: {items:#?}"
        );
        assert_eq!(keys.len(), stale.len(), "{more}: {items:#?}");
        let all = |item: &Value| item["result"] == result;
        assert!(items.iter().all(all), "{more}: {items:#?}");
    }
    let deleted = Instant::now();
    wait(LIMIT, "answers of the living endpoint", || {
        let answer = |&port: &u16| lab.clients.answer(port, deleted);
        ports
            .iter()
            .all(|port| answer(port).is_some_and(|answer| right(&answer)))
    });
    assert!(entries(ports).is_disjoint(&stale));
    let left = listed(&format!("--stale {}", lab.by_api()));
    assert!(left.is_empty(), "{left:#?}");
}

/// kube-proxy is stopped: its rules lead to the dead endpoint, so a deleted flow is recreated there. purge reports that,
/// although the client sends every two seconds only.
pub fn frozen_kube_proxy(lab: &mut Lab) {
    const PORT: u16 = 40_600;
    let api = lab.api();
    api.namespace("frozen");
    api.pod("frozen", "old", "log", &pod_address(1, 20), true);
    let port = json!({"name": "u", "port": 514, "targetPort": 53, "protocol": "UDP"});
    let spec = json!({"clusterIP": "10.96.77.77", "selector": {"app": "log"}, "ports": [port]});
    api.service("frozen", "log", &spec);
    lab.settle("frozen");
    lab.sync();
    let web = pod_address(1, 100);
    lab.clients
        .add(Place::Clients, &web, PORT, "10.96.77.77:514");
    std::thread::sleep(Duration::from_millis(2500));
    lab.clients.pause();
    lab.proxy().freeze();
    let api = lab.api();
    api.pod("frozen", "new", "log", &pod_address(2, 20), true);
    api.remove_pod("frozen", "old");
    lab.settle("frozen");
    std::thread::sleep(Duration::from_secs(1));

    let stale = entries(&[PORT]);
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                lab.clients.ask(PORT);
                std::thread::sleep(Duration::from_secs(2));
            }
        });
        let line = format!(
            "purge --stale --svc frozen/log --yes -o json {}",
            lab.by_api()
        );
        ctk_on_node(&line)
    });
    let summary = &outcome.json()["summary"];
    assert_eq!(summary["came_back"], stale.len(), "{outcome:#?}");
    let outcome = outcome.exits(3);
    assert!(outcome.stderr.contains("kube-proxy"), "{outcome:#?}");
    assert_eq!(entries(&[PORT]), stale, "to the dead endpoint again");
}

/// The API server ends between the two looks of a purge: nothing is deleted, whatever the rules are.
pub fn api_goes_away(lab: &mut Lab) {
    let pinned = pin(lab);
    lab.clients.pause();
    lab.proxy().freeze();
    lab.api().remove_pod("kube-system", COREDNS[0].1);
    lab.wait_for_endpoints("kube-system", &[ALIVE]);
    std::thread::sleep(Duration::from_secs(1));
    let before = entries(&pinned.to_dead);
    let line = format!("purge --stale --yes --settle 4s {}", lab.by_api());
    let outcome = std::thread::scope(|scope| {
        let purge = scope.spawn(|| ctk_on_node(&line));
        std::thread::sleep(Duration::from_secs(2));
        lab.plane.stop_server();
        purge.join().expect("ctk ends")
    });
    assert!(outcome.stderr.contains("looking again"), "{outcome:#?}");
    outcome.exits(3);
    assert_eq!(entries(&pinned.to_dead), before);
}
