//! The node's rules as the cluster source, loaded by the real tools into private namespaces and read through `ctk`. Several
//! tables are of reported incidents.

mod container_engine;
mod packets;
mod router;
mod tools;

use std::io::Write;

use container_engine::{DOCKER_IPTABLES, DOCKER_NFT};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use testkit::ctk_binary::{ctk, ctk_line};
use testkit::lab;
use testkit::lab::cluster::{ClusterFile, minimal, service, slice};
use testkit::lab::{BACKENDS, CLIENTS, Client, Lab, NODE, Proxy, add_node_address};
use testkit::private_netns::private_netns;
use testkit::tools::{assert_error, create_entry, nft, run, run_with, sysctl};

/// Creates a UDP entry: `SRC:PORT DST:PORT REPLY_SRC:PORT`, replied to when `status` says so.
fn entry(text: &str, status: &str) {
    create_entry(text, &format!("-p udp {status}"));
}

const UNREPLIED: &str = "";

const ASSURED: &str = " -u SEEN_REPLY,ASSURED";

fn address(device: &str, address: &str) {
    if device != "lo" {
        run("ip", &["link", "add", device, "type", "bridge"]);
    }
    run("ip", &["link", "set", device, "up"]);
    run("ip", &["addr", "add", address, "dev", device]);
}

/// Moves the calling thread into a new namespace with `lo` up.
fn fresh() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    run("ip", &["link", "set", "lo", "up"]);
}

/// Verdict and reason by source port.
fn verdicts(args: &str) -> Vec<(u64, String)> {
    let outcome = ctk_line(&format!("ls {args} -p udp -o json")).exits(0);
    let mut all: Vec<(u64, String)> = outcome.items().iter().map(verdict).collect();
    all.sort();
    all
}

fn verdict(item: &Value) -> (u64, String) {
    let word = |key: &str| item[key].as_str().unwrap_or("null").to_owned();
    let port = item["original"]["sport"].as_u64().unwrap();
    (port, word("verdict") + " " + &word("reason"))
}

fn expected(all: &[(u64, &str)]) -> Vec<(u64, String)> {
    all.iter().map(|(p, v)| (*p, (*v).to_owned())).collect()
}

fn rules_of(proxy: Proxy) -> &'static str {
    match proxy {
        Proxy::Iptables => "iptables",
        Proxy::Nftables => "nftables",
    }
}

#[test]
fn rules_and_the_matching_cluster_file_give_the_same_verdicts() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            fresh();
            let lab = Lab::new(proxy);
            let early = Client::bind(CLIENTS[1], 5353);
            assert_eq!(early.ask(), None, "no rule leads anywhere yet");
            lab.set_endpoints(&BACKENDS);
            let [first, second] = lab.client_of_each();
            lab.set_endpoints(&BACKENDS[1..]);
            let file = lab::cluster(&BACKENDS[1..]);
            let of = |source: &str| {
                let outcome = ctk([
                    "ls",
                    "--cluster",
                    source,
                    "--svc",
                    "kube-dns:dns",
                    "-o",
                    "json",
                ]);
                let all = outcome.exits(0).items();
                let mut named = Vec::new();
                for client in [&early, &first, &second] {
                    let port = u64::from(client.port());
                    let item = all.iter().find(|item| item["original"]["sport"] == port);
                    let item =
                        item.unwrap_or_else(|| panic!("{proxy:?} {source}: {port} in {all:?}"));
                    named.push((item["service"].clone(), verdict(item).1));
                }
                named
            };
            let (by_file, by_rules) = (of(file.path()), of("rules"));
            let words =
                |all: &[(Value, String)]| all.iter().map(|(_, v)| v.clone()).collect::<Vec<_>>();
            assert_eq!(
                words(&by_file),
                ["stale no-dnat", "stale endpoint-gone", "ok endpoint"]
            );
            assert_eq!(
                words(&by_rules),
                ["stale no-dnat", "suspect not-in-node-rules", "ok endpoint"]
            );
            for (file, rules) in by_file.iter().zip(&by_rules) {
                assert_eq!(file.0, rules.0, "{proxy:?}: the Service has the same name");
            }
            let outcome = ctk_line("ls --cluster auto -o json").exits(0);
            let kube_proxy = &outcome.json()["summary"]["cluster"]["rules"]["kube_proxy"];
            assert_eq!(*kube_proxy, serde_json::json!([rules_of(proxy)]));
            assert!(
                outcome
                    .stderr
                    .contains("cluster: this node's rules: kube-proxy's"),
                "{outcome:?}"
            );
        }
    });
}

#[test]
fn suspects_are_purged_only_by_name_and_with_evidence() {
    private_netns(|| {
        for counted in [false, true] {
            fresh();
            let mut lab = Lab::new(Proxy::Iptables);
            lab.set_endpoints(&BACKENDS);
            sysctl("acct", if counted { "1" } else { "0" });
            let [dying, living] = lab.client_of_each();
            lab.kill(BACKENDS[0]);
            lab.set_endpoints(&BACKENDS[1..]);
            assert_eq!(dying.ask(), None);
            let outcome =
                ctk_line("purge --cluster rules --stale --dport 53 --yes -o json").exits(0);
            assert_eq!(outcome.json()["summary"]["deleted"], 0);
            assert!(
                outcome
                    .stderr
                    .contains("held back: this node's rules do not list"),
                "{outcome:?}"
            );
            let (next, selectors) = (
                "ctk purge --cluster rules --stale --dport 53 --yes -o json --sample 6s --include suspect",
                format!("--dst 10.96.0.10 --reply-src {}", BACKENDS[0]),
            );
            assert_eq!(outcome.stderr.contains(next), counted, "{outcome:?}");
            assert_eq!(outcome.stderr.contains(&selectors), !counted, "{outcome:?}");
            if !counted {
                continue;
            }
            // The client keeps sending without an answer; the neighbour is answered.
            let ended = &std::sync::atomic::AtomicBool::new(false);
            let purge = std::thread::scope(|scope| {
                let asking = scope.spawn(move || {
                    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                        dying.send();
                        living.ask();
                        std::thread::sleep(std::time::Duration::from_millis(300));
                    }
                    (dying, living)
                });
                let outcome = ctk_line(
                    "purge --cluster rules --stale --dport 53 --yes --sample 6s --include suspect --settle 0 --verify 0 -o json",
                );
                ended.store(true, std::sync::atomic::Ordering::Relaxed);
                let (dying, _) = asking.join().unwrap();
                assert_eq!(dying.ask(), Some(BACKENDS[1]), "the flow is repaired");
                outcome
            });
            let document = purge.exits(0).json();
            let sources: Vec<&Value> = document["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| &item["reply"]["src"])
                .collect();
            assert!(!sources.is_empty(), "{document}");
            assert!(
                sources.iter().all(|s| **s == BACKENDS[0].to_string()),
                "{document}"
            );
        }
    });
}

#[test]
fn node_ports_on_a_further_local_address_are_known_by_the_rules() {
    private_netns(|| {
        fresh();
        for local in ["192.0.2.11/32", "203.0.113.77/32"] {
            address("lo", local);
        }
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            "*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-EXT-A - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES ! -d 127.0.0.0/8 -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p udp -m comment --comment \"log/syslog\" -m udp --dport 31514 -j KUBE-EXT-A
-A KUBE-EXT-A -j KUBE-SVC-A
-A KUBE-SVC-A -j KUBE-SEP-A
-A KUBE-SEP-A -p udp -m udp -j DNAT --to-destination 10.244.1.6:514
COMMIT
",
        );
        for n in 90..93 {
            entry(
                &format!("198.51.100.{n}:70{n} 203.0.113.77:31514 203.0.113.77:31514"),
                UNREPLIED,
            );
        }
        entry(
            "198.51.100.93:7093 203.0.113.77:31514 10.244.1.6:514",
            ASSURED,
        );
        let judged = expected(&[
            (7090, "stale no-dnat"),
            (7091, "stale no-dnat"),
            (7092, "stale no-dnat"),
            (7093, "ok endpoint"),
        ]);
        assert_eq!(verdicts("--cluster rules --svc log/syslog"), judged);
        let outcome = ctk_line("ls --cluster rules --svc syslog -o json --limit 1").exits(0);
        let name = serde_json::json!({"namespace": "log", "name": "syslog", "port": null, "frontend": "node-port"});
        assert_eq!(outcome.items()[0]["service"], name);
    });
}

#[test]
fn an_endless_file_of_rules_is_an_error() {
    private_netns(|| {
        let outcome = ctk_line("ls --cluster rules:/dev/zero").exits(1);
        assert!(
            outcome.stderr.contains("larger than 256 MiB"),
            "{outcome:#?}"
        );
    });
}

#[test]
fn names_are_looked_up_in_the_rules() {
    private_netns(|| {
        fresh();
        let lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&BACKENDS);
        let client = Client::bind(CLIENTS[0], 40_000);
        assert!(client.ask().is_some());
        for (args, rows) in [
            ("--svc kube-dns", 1),
            ("--svc kube-system/kube-dns:53", 1),
            ("--svc !kube-dns", 0),
            ("-n kube-system", 1),
        ] {
            let outcome = ctk_line(&format!("ls --cluster rules {args} -o jsonl")).exits(0);
            assert_eq!(outcome.jsonl().len(), rows, "{args}: {outcome:?}");
        }
        let outcome = ctk_line("ls --cluster rules --svc kube-dsn");
        assert_error(
            &outcome,
            2,
            &["there is no Service kube-dsn", "kube-system/kube-dns"],
        );
        let outcome = ctk_line("ls --cluster rules --svc kube-dns:99");
        assert_error(&outcome, 2, &["has no port 99", "dns (53)"]);
        let outcome = ctk_line("ls --cluster rules --pod web-1");
        assert_error(&outcome, 3, &["there is no pod web-1"]);
    });
}

#[test]
fn saved_rules_of_every_tool_are_read() {
    private_netns(|| {
        fresh();
        address("lo", "192.0.2.5/32");
        nft(DOCKER_NFT);
        let json = run("nft", &["-j", "list", "ruleset"]).stdout;
        entry(
            "198.51.100.60:40555 192.0.2.5:52897 172.17.0.9:51820",
            ASSURED,
        );
        nft("flush ruleset");
        for text in [
            json.clone(),
            DOCKER_IPTABLES.to_owned(),
            format!("{DOCKER_IPTABLES}{json}"),
        ] {
            let mut file = NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let source = format!("--cluster rules:{}", file.path().display());
            assert_eq!(verdicts(&source), expected(&[(40555, "ok endpoint")]));
        }
        let file = ClusterFile::of_text("hello");
        let outcome = ctk(["ls", "--cluster", &format!("rules:{}", file.path())]);
        assert_error(&outcome, 1, &["it holds no rules"]);
        let outcome = ctk_line("ls --cluster rules:/no/such/file");
        assert_error(&outcome, 1, &["cannot read /no/such/file"]);
    });
}

#[test]
fn the_namespace_that_holds_kube_proxys_rules_is_the_nodes() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            fresh();
            let lab = Lab::without_node_address(proxy);
            lab.set_endpoints(&BACKENDS);
            let client = Client::bind(CLIENTS[0], 40_000);
            assert!(client.ask().is_some());
            let file = lab::cluster(&BACKENDS);
            let args = format!("--cluster {} --svc kube-dns", file.path());
            assert_eq!(verdicts(&args), expected(&[(40_000, "ok endpoint")]));
            match proxy {
                Proxy::Iptables => {
                    run("iptables", &["-t", "nat", "-F"]);
                    run("iptables", &["-t", "nat", "-X"]);
                }
                Proxy::Nftables => nft("delete table ip kube-proxy"),
            }
            assert_eq!(
                verdicts(&args),
                expected(&[(40_000, "unknown foreign-netns")]),
                "{proxy:?}"
            );
        }
    });
}

#[test]
fn an_untranslated_entry_is_left_where_this_nodes_rules_lack_the_service() {
    private_netns(|| {
        for has_rule in [false, true] {
            fresh();
            add_node_address();
            let lab = Lab::without_node_address(Proxy::Nftables);
            if has_rule {
                lab.set_endpoints(&BACKENDS);
            }
            entry("10.244.1.5:5353 10.96.0.10:53 10.96.0.10:53", UNREPLIED);
            let mut objects = minimal(NODE);
            objects.push(service(
                "kube-system",
                "kube-dns",
                "10.96.0.10",
                &[("dns", 53, "UDP")],
            ));
            objects.push(slice(
                "kube-system",
                "kube-dns",
                &[("dns", 53, "UDP")],
                &[("10.244.1.7", "")],
            ));
            let file = ClusterFile::of(&objects);
            let outcome = ctk([
                "purge",
                "--cluster",
                file.path(),
                "--stale",
                "--yes",
                "--settle",
                "0",
                "--verify",
                "0",
                "-o",
                "json",
            ])
            .exits(0);
            let summary = &outcome.json()["summary"];
            let pending = &summary["held_back_by"]["pending"];
            let expected = match has_rule {
                true => (1, &Value::Null),
                false => (0, &json!(1)),
            };
            assert_eq!(
                (summary["deleted"].as_u64().unwrap(), pending),
                expected,
                "{outcome:?}"
            );
        }
    });
}
