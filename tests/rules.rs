//! The node's rules as the cluster source: loaded by the real tools into namespaces of their own and read back through `ctk`.
//! Real incidents among them.

mod lab;
mod private_netns;
mod tools;

use std::io::Write;
use std::net::UdpSocket;

use serde_json::Value;
use tempfile::NamedTempFile;

use lab::cluster::{ClusterFile, minimal, service, slice};
use lab::{BACKENDS, CLIENTS, Client, Lab, NODE, Proxy, be_the_node};
use private_netns::private_netns;
use tools::{NotedTools, assert_error, ctk, ctk_line, nft, run, run_with, sysctl};

/// Makes an entry: `SRC:PORT DST:PORT REPLY_SRC:PORT`, UDP, replied when `status` says so.
fn entry(text: &str, status: &str) {
    let places: Vec<(&str, &str)> = text
        .split_whitespace()
        .map(|place| place.rsplit_once(':').unwrap())
        .collect();
    let [(src, sport), (dst, dport), (from, from_port)] = places[..] else {
        panic!("{text}")
    };
    let line = format!(
        "-I -p udp -t 100 -s {src} --sport {sport} -d {dst} --dport {dport} -r {from} --reply-port-src {from_port} \
         -q {src} --reply-port-dst {sport}{status}"
    );
    run("conntrack", &line.split_whitespace().collect::<Vec<_>>());
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

/// A namespace for each of several trials.
fn fresh() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    run("ip", &["link", "set", "lo", "up"]);
}

/// Verdict and reason by source port.
fn verdicts(args: &str) -> Vec<(u64, String)> {
    let said = ctk_line(&format!("ls {args} -p udp -o json")).ended(0);
    let mut all: Vec<(u64, String)> = said.items().iter().map(verdict).collect();
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

const DOCKER_IPTABLES: &str = "*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p udp -m udp --dport 52897 -j DNAT --to-destination 172.17.0.9:51820
COMMIT
";

const DOCKER_NFT: &str = "table ip docker-bridges {
    chain DOCKER {
        iifname != \"docker0\" udp dport 52897 counter dnat to 172.17.0.9:51820
    }
    chain prerouting {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local counter jump DOCKER
    }
    chain output {
        type nat hook output priority -100; policy accept;
        ip daddr != 127.0.0.0/8 fib daddr type local counter jump DOCKER
    }
}
";

#[test]
fn published_container_ports_are_judged_by_the_engines_rules() {
    private_netns(|| {
        for (flavour, load) in [
            ("iptables-nft-restore", DOCKER_IPTABLES),
            ("iptables-legacy-restore", DOCKER_IPTABLES),
            ("nft", DOCKER_NFT),
        ] {
            fresh();
            address("lo", "192.0.2.5/32");
            address("docker0", "172.17.0.1/16");
            match flavour {
                "nft" => nft(load),
                tool => run_with(tool, &["--noflush"], load),
            }
            entry(
                "198.51.100.60:40555 192.0.2.5:52897 192.0.2.5:52897",
                UNREPLIED,
            );
            entry(
                "198.51.100.61:40556 192.0.2.5:52897 172.17.0.9:51820",
                ASSURED,
            );
            entry(
                "198.51.100.62:40557 192.0.2.5:51820 192.0.2.5:51820",
                UNREPLIED,
            );
            entry(
                "198.51.100.63:40558 192.0.2.5:52897 172.17.0.8:51820",
                ASSURED,
            );
            // A container that uses its own host's published port is answered by the proxy process.
            entry("172.17.0.7:40559 192.0.2.5:52897 192.0.2.5:52897", ASSURED);
            let expected = expected(&[
                (40555, "stale no-dnat"),
                (40556, "ok endpoint"),
                (40557, "unrelated no-frontend"),
                (40558, "stale endpoint-gone"),
                (40559, "unknown not-kube-proxy"),
            ]);
            for source in ["--cluster rules", "--cluster auto"] {
                assert_eq!(verdicts(source), expected, "{flavour} {source}");
            }
            let said = ctk_line("ls --cluster rules --sport 40555 -o json").ended(0);
            let document = said.json();
            assert_eq!(document["summary"]["cluster"]["source"], "rules");
            let item = &document["items"][0];
            assert_eq!(item["service"]["frontend"], "rule", "{item}");
            for key in ["namespace", "name", "port"] {
                assert_eq!(item["service"][key], Value::Null);
            }
            let evidence = item["evidence"].as_str().unwrap();
            assert!(
                evidence.contains("52897") && evidence.contains("172.17.0.9:51820"),
                "{evidence}"
            );
            let purged =
                ctk_line("purge --cluster rules --stale --yes --settle 0 --verify 0 -o json");
            let deleted: Vec<u64> = purged
                .ended(0)
                .items()
                .iter()
                .map(|item| item["original"]["sport"].as_u64().unwrap())
                .collect();
            assert_eq!(deleted.len(), 2, "{flavour} {deleted:?}");
            assert!(deleted.contains(&40555) && deleted.contains(&40558));
        }
    });
}

#[test]
fn a_host_port_leads_to_the_plugins_pod_only() {
    private_netns(|| {
        fresh();
        address("lo", "192.0.2.11/32");
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            "*nat
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-SETMARK -m comment --comment \"CNI portfwd masquerade mark\" -j MARK --set-xmark 0x2000/0x2000
-A CNI-HOSTPORT-DNAT -p udp -m comment --comment \"dnat name: \\\"cbr0\\\" id: \\\"x\\\"\" -m multiport --dports 8125,9125 -j CNI-DN-0123456789abcdef01234
-A CNI-DN-0123456789abcdef01234 -s 10.244.1.0/24 -p udp -m udp --dport 8125 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-0123456789abcdef01234 -p udp -m udp --dport 8125 -j DNAT --to-destination 10.244.1.56:8125
COMMIT
",
        );
        entry(
            "10.244.1.20:34371 192.0.2.11:8125 10.244.1.55:8125",
            UNREPLIED,
        );
        entry(
            "10.244.1.21:34372 192.0.2.11:8125 10.244.1.56:8125",
            ASSURED,
        );
        entry("10.244.1.22:34373 192.0.2.11:9125 192.0.2.11:9125", ASSURED);
        assert_eq!(
            verdicts("--cluster rules"),
            expected(&[
                (34371, "stale endpoint-gone"),
                (34372, "ok endpoint"),
                (34373, "unrelated no-frontend"),
            ])
        );
    });
}

#[test]
fn a_forward_that_came_after_its_peers_is_the_evidence() {
    private_netns(|| {
        fresh();
        address("lo", "192.0.2.5/32");
        nft(
            "table ip nat { chain prerouting { type nat hook prerouting priority dstnat; \
             ip daddr 192.0.2.5 udp dport 49737 dnat to 10.0.3.10:49737\n }\n }",
        );
        entry(
            "198.51.100.80:49737 192.0.2.5:49737 192.0.2.5:49737",
            UNREPLIED,
        );
        // The container behind the forward answers, and its own port is taken.
        let line = "-I -p udp -t 100 -s 10.0.3.10 --sport 49737 -d 198.51.100.80 --dport 49737 -r 198.51.100.80 \
                    --reply-port-src 49737 -q 192.0.2.5 --reply-port-dst 1024";
        run("conntrack", &line.split_whitespace().collect::<Vec<_>>());
        let all = ctk_line("ls --cluster rules -o jsonl").ended(0).jsonl();
        let answer = all
            .iter()
            .find(|item| item["original"]["src"] == "10.0.3.10");
        let evidence = answer.unwrap()["evidence"].as_str().unwrap();
        for words in [
            "source port changed 49737 -> 1024",
            "198.51.100.80:49737 -> 192.0.2.5:49737",
            "dnat to 10.0.3.10:49737",
        ] {
            assert!(evidence.contains(words), "{evidence}");
        }
        let said = ctk_line("ls --cluster rules --stale -o jsonl").ended(0);
        let items = said.jsonl();
        let [item] = &items[..] else {
            panic!("{said:?}")
        };
        assert_eq!(item["reason"], "no-dnat");
        let evidence = item["evidence"].as_str().unwrap();
        assert!(
            evidence.contains("ip daddr 192.0.2.5 udp dport 49737 dnat to 10.0.3.10:49737"),
            "{evidence}"
        );
        ctk_line("purge --cluster rules --stale --yes --settle 0 --verify 0").ended(0);
        let left = ctk_line("ls --cluster none -o jsonl").jsonl();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0]["original"]["src"], "10.0.3.10");
    });
}

fn rules_of(proxy: Proxy) -> &'static str {
    match proxy {
        Proxy::Iptables => "iptables",
        Proxy::Nftables => "nftables",
    }
}

#[test]
fn rules_and_the_matching_cluster_file_agree_but_for_what_rules_cannot_know() {
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
                let said = ctk([
                    "ls",
                    "--cluster",
                    source,
                    "--svc",
                    "kube-dns:dns",
                    "-o",
                    "json",
                ]);
                let all = said.ended(0).items();
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
            let said = ctk_line("ls --cluster auto -o json").ended(0);
            let kube_proxy = &said.json()["summary"]["cluster"]["rules"]["kube_proxy"];
            assert_eq!(*kube_proxy, serde_json::json!([rules_of(proxy)]));
            assert!(
                said.stderr
                    .contains("cluster: this node's rules: kube-proxy's"),
                "{said:?}"
            );
        }
    });
}

#[test]
fn suspects_are_purged_by_name_and_with_evidence_only() {
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
            let said = ctk_line("purge --cluster rules --stale --dport 53 --yes -o json").ended(0);
            assert_eq!(said.json()["summary"]["deleted"], 0);
            assert!(
                said.stderr.contains("1 suspect entry held back"),
                "{said:?}"
            );
            let (next, selectors) = (
                "ctk purge --cluster rules --stale --dport 53 --yes -o json --sample 6s --include suspect",
                format!("--dst 10.96.0.10 --reply-src {}", BACKENDS[0]),
            );
            assert_eq!(said.stderr.contains(next), counted, "{said:?}");
            assert_eq!(said.stderr.contains(&selectors), !counted, "{said:?}");
            if !counted {
                continue;
            }
            // The client keeps asking and nobody answers; the neighbour is answered.
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
                let said = ctk_line(
                    "purge --cluster rules --stale --dport 53 --yes --sample 6s --include suspect --settle 0 --verify 0 -o json",
                );
                ended.store(true, std::sync::atomic::Ordering::Relaxed);
                let (dying, _) = asking.join().unwrap();
                assert_eq!(dying.ask(), Some(BACKENDS[1]), "the flow is repaired");
                said
            });
            let document = purge.ended(0).json();
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
        let said = ctk_line("ls --cluster rules --svc syslog -o json --limit 1").ended(0);
        let name = serde_json::json!({"namespace": "log", "name": "syslog", "port": null, "frontend": "node-port"});
        assert_eq!(said.items()[0]["service"], name);
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
            let said = ctk_line(&format!("ls --cluster rules {args} -o jsonl")).ended(0);
            assert_eq!(said.jsonl().len(), rows, "{args}: {said:?}");
        }
        let said = ctk_line("ls --cluster rules --svc kube-dsn");
        assert_error(
            &said,
            2,
            &["there is no Service kube-dsn", "kube-system/kube-dns"],
        );
        let said = ctk_line("ls --cluster rules --svc kube-dns:99");
        assert_error(&said, 2, &["has no port 99", "dns (53)"]);
        let said = ctk_line("ls --cluster rules --pod web-1");
        assert_error(&said, 3, &["there is no pod web-1"]);
    });
}

#[test]
fn a_saved_rule_set_is_read_whoever_printed_it() {
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
        let said = ctk(["ls", "--cluster", &format!("rules:{}", file.path())]);
        assert_error(&said, 1, &["it holds no rules"]);
        let said = ctk_line("ls --cluster rules:/no/such/file");
        assert_error(&said, 1, &["cannot read /no/such/file"]);
    });
}

#[test]
fn the_namespace_that_holds_kube_proxys_rules_is_the_nodes() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            fresh();
            let lab = Lab::elsewhere(proxy);
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
            be_the_node();
            let lab = Lab::elsewhere(Proxy::Nftables);
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
            let said = ctk([
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
            .ended(0);
            let result = if has_rule { "deleted" } else { "changed" };
            assert_eq!(said.items()[0]["result"], result, "{said:?}");
        }
    });
}

#[test]
fn without_tools_or_privilege_the_error_says_which() {
    private_netns(|| {
        fresh();
        let (_folder, binary) = tools::readable_binary();
        let mut nobody = tools::as_nobody(&binary, &["ls", "--cluster", "rules"]);
        let said = tools::Said::of(nobody.output().unwrap());
        // Root of a user namespace cannot become another user.
        if std::env::var_os("CTK_TEST_INSIDE_UNSHARE").is_none() {
            assert_error(&said, 4, &["refused", "CAP_NET_ADMIN"]);
        }
        let said = ctk_line("ls --cluster rules").ended(0);
        assert!(
            said.stderr.contains("none that translates a destination"),
            "{said:?}"
        );
    });
}

/// kube-dns with one endpoint, as kube-proxy writes it.
fn kube_dns(endpoint: &str) -> String {
    format!(
        "*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/kube-dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-A
-A KUBE-SVC-A -j KUBE-SEP-A
-A KUBE-SEP-A -p udp -m udp -j DNAT --to-destination {endpoint}
COMMIT
"
    )
}

#[test]
fn kube_proxys_rules_in_both_flavours_of_iptables_are_told() {
    private_netns(|| {
        fresh();
        address("lo", "192.0.2.11/32");
        entry("10.244.1.5:40000 10.96.0.10:53 10.244.1.7:53", ASSURED);
        entry("10.244.1.5:40001 10.96.0.10:53 10.244.1.8:53", ASSURED);
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            &kube_dns("10.244.1.7:53"),
        );
        let told = "both flavours of iptables hold kube-proxy's rules (nft and legacy)";
        let said = ctk_line("ls --cluster rules -o json").ended(0);
        assert!(!said.stderr.contains(told), "{said:?}");
        if !tools::succeeds("iptables-legacy-save", &["-t", "nat"]) {
            eprintln!("skipped: this kernel has no iptables-legacy");
            return;
        }
        // An empty table of the other flavour is no second one.
        let said = ctk_line("ls --cluster rules -o json").ended(0);
        assert!(!said.stderr.contains(told), "{said:?}");
        run_with(
            "iptables-legacy-restore",
            &["--noflush"],
            &kube_dns("10.244.1.8:53"),
        );
        let said = ctk_line("ls --cluster rules -o json").ended(0);
        assert!(said.stderr.contains(told), "{said:?}");
        // Both are in force, so what either leads to may be new.
        assert_eq!(
            verdicts("--cluster rules"),
            expected(&[(40_000, "ok endpoint"), (40_001, "ok endpoint")])
        );
        // The one that is left holds them.
        run("iptables-nft", &["-t", "nat", "-F"]);
        run("iptables-nft", &["-t", "nat", "-X"]);
        let said = ctk_line("ls --cluster rules -o json").ended(0);
        assert!(!said.stderr.contains(told), "{said:?}");
        assert_eq!(
            verdicts("--cluster rules"),
            expected(&[
                (40_000, "suspect not-in-node-rules"),
                (40_001, "ok endpoint")
            ])
        );
    });
}

#[test]
fn where_ipvs_balances_the_answer_says_that_an_entry_is_not_the_whole_flow() {
    private_netns(|| {
        fresh();
        be_the_node();
        entry(
            "192.0.2.19:45117 10.96.127.9:514 10.244.129.16:514",
            UNREPLIED,
        );
        let mut objects = minimal(NODE);
        objects.push(service("log", "syslog", "10.96.127.9", &[("", 514, "UDP")]));
        objects.push(slice(
            "log",
            "syslog",
            &[("", 514, "UDP")],
            &[("10.244.128.3", "")],
        ));
        let file = ClusterFile::of(&objects);
        let note = "IPVS mode: the IPVS connection entry may re-create these";
        for ipvs in [false, true] {
            if ipvs {
                address("kube-ipvs0", "10.96.127.9/32");
            }
            let list = ["ls", "--cluster", file.path(), "-o", "json"];
            let purge = [
                "purge",
                "--cluster",
                file.path(),
                "--stale",
                "--dry-run",
                "-o",
                "json",
            ];
            for args in [&list[..], &purge[..]] {
                let said = ctk(args).ended(0);
                assert_eq!(verdict(&said.items()[0]).1, "stale endpoint-gone");
                assert_eq!(said.stderr.contains(note), ipvs, "{args:?} {said:?}");
                assert_eq!(said.json()["summary"]["cluster"]["ipvs"], ipvs);
            }
        }
    });
}

#[test]
fn no_tool_is_run_where_the_namespace_holds_no_rules() {
    private_netns(|| {
        fresh();
        let tools = NotedTools::new();
        let ls = || {
            let mut command = tools::ctk_command(["ls"]);
            tools::Said::of(command.env("PATH", tools.path()).output().unwrap()).ended(0)
        };
        ls();
        // A table of another family translates nothing.
        nft("table bridge b { }");
        ls();
        assert_eq!(tools.runs(), [""; 0]);
        nft("table inet b { }");
        ls();
        assert!(!tools.runs().is_empty());
    });
}

#[test]
fn nft_is_run_only_for_tables_that_iptables_did_not_write() {
    private_netns(|| {
        fresh();
        let tools = NotedTools::new();
        let of_nft = || {
            let runs = tools.runs().into_iter();
            runs.filter(|run| run.starts_with("nft "))
                .collect::<Vec<_>>()
        };
        let frontends = || {
            let mut command = tools::ctk_command(["ls", "--cluster", "rules", "-o", "json"]);
            let said = tools::Said::of(command.env("PATH", tools.path()).output().unwrap());
            said.ended(0).json()["summary"]["cluster"]["rules"]["frontends"].clone()
        };
        run_with("iptables-nft-restore", &[], &kube_dns("10.244.1.7:53"));
        assert_eq!(frontends(), 1);
        assert_eq!(of_nft(), [""; 0]);
        nft("table netdev n { }\ntable ip6 other { }\ntable inet other { }");
        assert_eq!(frontends(), 1);
        let mut runs = of_nft();
        runs.sort();
        assert_eq!(
            runs,
            [
                "nft -j list table inet other",
                "nft -j list table ip6 other"
            ]
        );
    });
}

/// Packets are tracked where a rule asks for it.
const TRACK: &str =
    "table inet t { chain c { type filter hook output priority 0; ct state new accept; }; }";

/// A server that answers every datagram until the test ends.
fn serve(address: &str) {
    let socket = UdpSocket::bind(address).unwrap();
    std::thread::spawn(move || {
        let mut question = [0; 64];
        while let Ok((_, client)) = socket.recv_from(&mut question) {
            let _ = socket.send_to(b"answer", client);
        }
    });
}

/// A client that keeps its source port and sends to one place.
struct Sender {
    socket: UdpSocket,
    to: &'static str,
}

impl Sender {
    fn new(from: &str, to: &'static str) -> Self {
        let socket = UdpSocket::bind(from).unwrap();
        let patience = std::time::Duration::from_millis(500);
        socket.set_read_timeout(Some(patience)).unwrap();
        Sender { socket, to }
    }

    /// Nobody may listen there: then a former datagram's refusal ends the call.
    fn send(&self) {
        let _ = self.socket.send_to(b"question", self.to);
    }

    fn is_answered(&self) -> bool {
        self.send();
        self.socket.recv_from(&mut [0; 64]).is_ok()
    }
}

#[test]
fn a_peer_that_sent_before_the_port_was_published_is_served_after_a_purge() {
    private_netns(|| {
        for (flavour, load) in [
            ("iptables-nft-restore", DOCKER_IPTABLES),
            ("nft", DOCKER_NFT),
        ] {
            fresh();
            nft(TRACK);
            for local in [
                "192.0.2.5/32",
                "198.51.100.60/32",
                "198.51.100.61/32",
                "198.51.100.62/32",
            ] {
                address("lo", local);
            }
            address("docker0", "172.17.0.1/16");
            // The container, without a namespace of its own.
            run("ip", &["addr", "add", "172.17.0.9/32", "dev", "lo"]);
            serve("172.17.0.9:51820");
            let early = Sender::new("198.51.100.60:40555", "192.0.2.5:52897");
            let other = Sender::new("198.51.100.62:40557", "192.0.2.5:51820");
            early.send();
            other.send();
            match flavour {
                "nft" => nft(load),
                tool => run_with(tool, &["--noflush"], load),
            }
            let late = Sender::new("198.51.100.61:40556", "192.0.2.5:52897");
            assert!(late.is_answered(), "{flavour}");
            assert!(!early.is_answered(), "{flavour}: it is stuck");
            let all = expected(&[
                (40555, "stale no-dnat"),
                (40556, "ok endpoint"),
                (40557, "unrelated no-frontend"),
            ]);
            assert_eq!(verdicts("--cluster rules"), all, "{flavour}");
            let purge = "purge --cluster rules --stale --yes --settle 0 --verify 0 -o json";
            let items = ctk_line(purge).ended(0).items();
            let deleted: Vec<&Value> = items
                .iter()
                .map(|item| &item["original"]["sport"])
                .collect();
            assert_eq!(deleted, [40555], "{flavour}");
            assert!(early.is_answered() && late.is_answered(), "{flavour}");
            let all = expected(&[
                (40555, "ok endpoint"),
                (40556, "ok endpoint"),
                (40557, "unrelated no-frontend"),
            ]);
            assert_eq!(verdicts("--cluster rules"), all, "{flavour}");
        }
    });
}

fn syslog_rules(endpoint: &str) -> String {
    format!(
        "*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-EXT-A - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A KUBE-SERVICES ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p udp -m comment --comment \"log/syslog\" -m udp --dport 31514 -j KUBE-EXT-A
-A KUBE-EXT-A -j KUBE-SVC-A
-A KUBE-SVC-A -j KUBE-SEP-A
-A KUBE-SEP-A -p udp -m udp -j DNAT --to-destination {endpoint}
COMMIT
"
    )
}

#[test]
fn senders_to_an_address_that_was_away_are_served_after_a_purge() {
    private_netns(|| {
        fresh();
        sysctl("acct", "1");
        for local in [
            "192.0.2.11/32",
            "203.0.113.77/32",
            "10.244.1.6/32",
            "10.244.1.7/32",
        ] {
            address("lo", local);
        }
        for n in 90..95 {
            address("lo", &format!("198.51.100.{n}/32"));
        }
        let base = "*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n";
        run_with("iptables-nft-restore", &["--noflush"], base);
        nft(TRACK);
        let sender = |n: u16| Sender::new(&format!("198.51.100.{n}:70{n}"), "203.0.113.77:31514");
        let early = [sender(90), sender(91), sender(92)];
        early.iter().for_each(Sender::send);
        // Its endpoint answers for a while, and is gone then.
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            &syslog_rules("10.244.1.7:514"),
        );
        let dying = UdpSocket::bind("10.244.1.7:514").unwrap();
        let left_over = sender(93);
        left_over.send();
        let (_, client) = dying.recv_from(&mut [0; 64]).unwrap();
        dying.send_to(b"answer", client).unwrap();
        drop(dying);
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            &syslog_rules("10.244.1.6:514"),
        );
        serve("10.244.1.6:514");
        let healthy = sender(94);
        assert!(healthy.is_answered());
        let all = expected(&[
            (7090, "stale no-dnat"),
            (7091, "stale no-dnat"),
            (7092, "stale no-dnat"),
            (7093, "suspect not-in-node-rules"),
            (7094, "ok endpoint"),
        ]);
        assert_eq!(verdicts("--cluster rules"), all);
        let ended = std::sync::atomic::AtomicBool::new(false);
        let said = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    early
                        .iter()
                        .chain([&left_over, &healthy])
                        .for_each(Sender::send);
                    std::thread::sleep(std::time::Duration::from_millis(300));
                }
            });
            let said = ctk_line(
                "purge --cluster rules --stale --yes --sample 6s --include suspect --settle 0 --verify 0 -o json",
            );
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            said
        });
        let mut deleted: Vec<u64> = said
            .ended(0)
            .items()
            .iter()
            .map(|item| item["original"]["sport"].as_u64().unwrap())
            .collect();
        deleted.sort_unstable();
        assert_eq!(deleted, [7090, 7091, 7092, 7093]);
        for sender in early.iter().chain([&left_over, &healthy]) {
            assert!(sender.is_answered());
        }
    });
}
