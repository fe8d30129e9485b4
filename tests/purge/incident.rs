//! The incident that purge is for, with real packets: a client that keeps its source port is pinned to a pod that is gone.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ctnetlink::DeleteTarget;
use ctnetlink::flow::{Flow, Status};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

use crate::started::Seated;
use testkit::ctk_binary::ctk;
use testkit::lab::cluster::ClusterFile;
use testkit::lab::{BACKENDS, CLIENTS, Client, Lab, Proxy, cluster};
use testkit::private_netns::private_netns;
use testkit::rows::{dump, identity, table};
use testkit::tools::{Outcome, nft, sysctl};

const PROXIES: [Proxy; 2] = [Proxy::Iptables, Proxy::Nftables];

/// A node on which one of two backends died, with a client of each of the two.
struct Incident {
    lab: Lab,
    pinned: Client,
    neighbour: Client,
}

const DEAD: Ipv4Addr = BACKENDS[0];
const ALIVE: Ipv4Addr = BACKENDS[1];

impl Incident {
    /// `rules`: where the node's rules lead after the death.
    fn new(proxy: Proxy, rules: Ipv4Addr) -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("one could be made a moment ago");
        for name in ["timestamp", "acct"] {
            sysctl(name, "1");
        }
        let mut lab = Lab::new(proxy);
        lab.set_endpoints(&BACKENDS);
        let [pinned, neighbour] = lab.client_of_each();
        // Others that asked until both backends were chosen.
        let ports = [&pinned, &neighbour].map(|client| Some(client.port()));
        let others = dump()
            .into_iter()
            .filter(|flow| !ports.contains(&flow.original.sport()));
        let others: Vec<_> = others.filter_map(|flow| DeleteTarget::of(&flow)).collect();
        assert!(table().delete(&others).iter().all(Result::is_ok));
        lab.kill(DEAD);
        lab.set_endpoints(&[rules]);
        Incident {
            lab,
            pinned,
            neighbour,
        }
    }

    /// Purges while the pinned client goes on asking.
    fn purge_while_asking(&self, more: &str) -> Outcome {
        while_asking(&self.pinned, &args(&cluster(&[ALIVE]), more))
    }

    fn entry(&self) -> Flow {
        let mut flows = dump();
        flows.retain(|flow| flow.original.sport() == Some(self.pinned.port()));
        flows.pop().expect("the pinned client has an entry")
    }
}

/// Runs ctk while a client goes on asking.
fn while_asking(client: &Client, args: &[&str]) -> Outcome {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                client.send();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let said = ctk(args);
        done.store(true, Ordering::Relaxed);
        said
    })
}

fn args<'a>(file: &'a ClusterFile, more: &'a str) -> Vec<&'a str> {
    let mut args = vec!["purge", "--stale", "--yes", "--cluster", file.path()];
    args.extend(more.split_whitespace());
    args
}

/// Status words are not compared, because packets flow.
fn entries() -> Vec<String> {
    let key = |flow: &Flow| {
        let mut flow = flow.clone();
        flow.status = Status::default();
        identity(&flow)
    };
    let mut all: Vec<String> = dump().iter().map(key).collect();
    all.sort();
    all
}

#[test]
fn a_pinned_client_is_served_again_after_one_delete() {
    private_netns(|| {
        for proxy in PROXIES {
            let incident = Incident::new(proxy, ALIVE);
            let Incident {
                pinned, neighbour, ..
            } = &incident;
            let before = incident.entry();
            assert_eq!(
                pinned.ask(),
                None,
                "{proxy:?}: the entry leads to the dead pod"
            );
            assert_eq!(neighbour.ask(), Some(ALIVE));
            let now = incident.entry();
            assert!(now.packets() > before.packets(), "it is being refreshed");
            assert_eq!(now.start, before.start, "it is the same entry");
            let table = entries();

            let file = cluster(&[ALIVE]);
            let said = ctk(args(&file, "--settle 100ms --verify 100ms -o json")).exits(0);
            let document = said.json();
            assert_eq!(document["summary"]["deleted"], 1, "{document}");
            assert_eq!(document["summary"]["matched"], 1, "{document}");
            assert_eq!(document["summary"]["came_back"], 0, "{document}");
            let [item] = &said.items()[..] else {
                panic!("{document}")
            };
            assert_eq!(item["original"]["sport"], pinned.port());
            assert_eq!(item["reason"], "endpoint-gone");

            let left = entries();
            assert_eq!(left.len(), table.len() - 1, "{proxy:?}");
            assert!(left.iter().all(|entry| table.contains(entry)), "{left:#?}");
            assert_eq!(
                pinned.ask(),
                Some(ALIVE),
                "{proxy:?}: the same socket is served"
            );
            assert_eq!(neighbour.ask(), Some(ALIVE));
            assert!(left.iter().all(|entry| entries().contains(entry)));
            drop(incident.lab);
        }
    });
}

#[test]
fn a_flow_that_comes_back_to_the_dead_endpoint_is_partial() {
    private_netns(|| {
        // With a start the new entry is younger than the cluster file.
        for proxy in PROXIES {
            let incident = Incident::new(proxy, DEAD);
            let said = incident.purge_while_asking("--settle 0 --verify 500ms -o json");
            let said = said.exits(3);
            let document = said.json();
            assert_eq!(document["summary"]["deleted"], 1, "{document}");
            assert_eq!(document["summary"]["came_back"], 1, "{document}");
            assert!(
                said.stderr.contains("this node's rules still lead there"),
                "{said:?}"
            );
            assert!(said.stderr.contains("the same dead endpoint"), "{said:?}");
            let report = "its rules still lead to 10.244.1.7:53; 1 entry leads there and may come";
            let place = |words| said.stderr.find(words);
            assert!(place(report).is_some(), "{said:?}");
            assert!(place(report) < place("deleting 1 entry"), "{said:?}");
            assert_eq!(incident.entry().reply.src, DEAD);
        }
    });
}

#[test]
fn old_rules_are_reported_before_the_question() {
    private_netns(|| {
        let _incident = Incident::new(Proxy::Iptables, DEAD);
        let file = cluster(&[ALIVE]);
        let mut purge = Seated::new(&["purge", "--stale", "--cluster", file.path()]);
        let shown = purge.wait_for("Delete this entry? [y/N] ");
        let report = "its rules still lead to 10.244.1.7:53; 1 entry leads there";
        assert!(shown.contains(report), "{shown}");
        purge.answer("n\n");
        purge.finish().exits(1);
    });
}

#[test]
fn a_client_that_asks_every_two_seconds_is_seen_where_the_rules_are_old() {
    private_netns(|| {
        let incident = Incident::new(Proxy::Nftables, DEAD);
        let file = cluster(&[ALIVE]);
        let (pinned, done) = (&incident.pinned, AtomicBool::new(false));
        let said = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    pinned.send();
                    std::thread::sleep(Duration::from_secs(2));
                }
            });
            // It just asked, and is not heard of for most of two seconds.
            std::thread::sleep(Duration::from_millis(100));
            let said = ctk(args(&file, "--settle 0 -o json"));
            done.store(true, Ordering::Relaxed);
            said
        });
        assert_eq!(said.exits(3).json()["summary"]["came_back"], 1);
    });
}

#[test]
fn a_flow_that_comes_back_to_a_live_endpoint_is_named_with_it() {
    private_netns(|| {
        for proxy in PROXIES {
            let incident = Incident::new(proxy, ALIVE);
            let said = incident.purge_while_asking("--settle 0 --verify 500ms -o json");
            let said = said.exits(0);
            let document = said.json();
            assert_eq!(document["summary"]["deleted"], 1, "{document}");
            assert_eq!(document["summary"]["came_back"], 0, "{document}");
            let line = said
                .stderr
                .lines()
                .find(|line| line.contains("came back"))
                .unwrap_or_else(|| panic!("{said:?}"));
            for word in ["kube-system/coredns-b", "10.244.2.33:53", "a live endpoint"] {
                assert!(line.contains(word), "{line}");
            }
        }
    });
}

#[test]
fn a_healthy_entry_that_may_be_younger_than_the_file_is_left() {
    private_netns(|| {
        for proxy in PROXIES {
            unshare(CloneFlags::CLONE_NEWNET).expect("one could be made a moment ago");
            sysctl("timestamp", "0");
            let lab = Lab::new(proxy);
            // Written before the first of the two backends was there.
            let file = cluster(&[ALIVE]);
            lab.set_endpoints(&BACKENDS);
            let [early, _] = lab.client_of_each();
            let purge = || {
                let more = "-o jsonl --settle 0 --verify 0";
                let said = ctk(args(&file, more)).exits(0);
                let vetoed = said.stderr.contains("left: this node's rules lead to");
                let items = said.jsonl();
                let mut of_client = items
                    .iter()
                    .filter(|item| item["original"]["sport"] == early.port());
                (of_client.next().unwrap()["result"].clone(), vetoed)
            };
            assert_eq!(purge(), ("changed".into(), true), "{proxy:?}");
            assert_eq!(early.ask(), Some(DEAD));
            // The same entry, and no rule leads there any more.
            lab.set_endpoints(&[ALIVE]);
            assert_eq!(purge(), ("deleted".into(), false), "{proxy:?}");
        }
    });
}

#[test]
fn an_entry_older_than_the_rules_goes_and_its_client_is_served() {
    private_netns(|| {
        for proxy in PROXIES {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let lab = Lab::new(proxy);
            let early = Client::bind(CLIENTS[1], 5353);
            early.send();
            lab.set_endpoints(&BACKENDS);
            assert_eq!(early.ask(), None, "{proxy:?}");
            let file = cluster(&BACKENDS);
            let said = ctk(args(&file, "--settle 0 --verify 0 -o json")).exits(0);
            let items = said.items();
            assert_eq!(items.len(), 1, "{items:?}");
            assert_eq!(items[0]["reason"], "no-dnat");
            assert!(early.ask().is_some(), "{proxy:?}");
        }
    });
}

#[test]
fn a_flow_that_no_rule_would_translate_is_left() {
    private_netns(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        // kube-proxy is behind: the API has endpoints, and no rule leads to them.
        let lab = Lab::new(Proxy::Iptables);
        let early = Client::bind(CLIENTS[1], 5353);
        early.send();
        let file = cluster(&BACKENDS);
        // The file alone says that a new packet would be translated.
        let said = while_asking(&early, &args(&file, "--settle 0 --verify 500ms -o json"));
        let said = said.exits(0);
        assert_eq!(
            said.json()["summary"]["held_back_by"]["pending"],
            1,
            "{said:?}"
        );
        assert_eq!(said.items(), Vec::<Value>::new());
        drop(lab);
    });
}

#[test]
fn nothing_goes_from_a_namespace_in_which_nothing_is_translated() {
    private_netns(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        // As in a pod: the packets of a healthy flow look untranslated, and connection tracking is on.
        let lab = Lab::without_node_address(Proxy::Nftables);
        let client = Client::bind(CLIENTS[0], 40_000);
        client.send();
        // kube-proxy's rules would make the namespace the node's.
        nft("flush ruleset");
        let before = entries();
        assert_eq!(before.len(), 1, "{before:?}");
        for endpoints in [&BACKENDS[..], &[]] {
            let file = cluster(endpoints);
            for more in [
                "",
                "--include pending,draining,suspect,detached",
                "--tcp --udp",
            ] {
                let more = format!("{more} --settle 0 --verify 0 -o json");
                let said = ctk(args(&file, &more)).exits(3);
                assert_eq!(said.items(), Vec::<Value>::new(), "{said:?}");
                let held = "1 entry is not judged and left: this network namespace";
                assert!(said.stderr.contains(held), "{said:?}");
            }
            let verdict = ["--verdict", "!ok", "--yes", "--cluster", file.path()];
            let said = ctk([&["purge", "--settle", "0"], &verdict[..]].concat());
            assert!(said.exits(3).stderr.contains("nothing matched"));
        }
        assert_eq!(entries(), before);
        drop(lab);
    });
}
