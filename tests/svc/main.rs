//! `ctk svc` on a node with real connections: three backends behind one ClusterIP, by rules in kube-proxy's shape.

mod affinity;
mod node;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};

use node::{BACKENDS, CLIENTS, PODS, connection, load, node};
use serde_json::{Value, json};
use testkit::ctk_binary::{ctk, ctk_line};
use testkit::lab::cluster::{ClusterFile, minimal, pod, service, slice};
use testkit::lab::{NODE, Proxy, add_node_address};
use testkit::private_netns::private_netns;
use testkit::tools::{assert_error, create_entry, run, sysctl};

/// Cluster in which shop/web has these endpoints.
fn cluster(endpoints: &[Ipv4Addr]) -> ClusterFile {
    let mut objects = minimal(NODE);
    let named = |address: &Ipv4Addr| PODS[usize::from(address.octets()[3]) - 1];
    let backing: Vec<(String, &str)> = endpoints
        .iter()
        .map(|address| (address.to_string(), named(address)))
        .collect();
    let backing: Vec<(&str, &str)> = backing.iter().map(|(a, n)| (a.as_str(), *n)).collect();
    objects.push(service("shop", "web", "10.96.8.8", &[("http", 80, "TCP")]));
    objects.push(slice("shop", "web", &[("http", 8080, "TCP")], &backing));
    for (address, name) in CLIENTS.iter().zip(["client-1", "client-2"]) {
        objects.push(pod("shop", name, &address.to_string(), "node1"));
    }
    ClusterFile::of(&objects)
}

/// Document for shop/web.
fn svc(file: &ClusterFile, more: &str) -> Value {
    let mut args = vec!["svc", "web", "--cluster", file.path(), "-o", "json"];
    args.extend(more.split_whitespace());
    ctk(args).exits(0).json()
}

/// Creates a TCP entry: `SRC:PORT DST:PORT REPLY_SRC:PORT`.
fn entry(text: &str) {
    create_entry(text, "-p tcp --state ESTABLISHED -u SEEN_REPLY,ASSURED");
}

/// Number in each item, by the item's address.
fn by_address(items: &Value, field: &str) -> BTreeMap<String, u64> {
    let items = items.as_array().expect("a list").iter();
    let number = |item: &Value| {
        item[field]
            .as_u64()
            .unwrap_or_else(|| panic!("{field}: {item}"))
    };
    items
        .map(|item| (item["address"].as_str().unwrap().to_owned(), number(item)))
        .collect()
}

fn values(map: &BTreeMap<String, u64>) -> Vec<u64> {
    map.values().copied().collect()
}

#[test]
fn thirty_requests_over_one_connection_stay_on_one_pod_and_thirty_connections_spread() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            let backends = node();
            load(proxy, &BACKENDS);
            sysctl("acct", "1");
            sysctl("timestamp", "1");
            let file = cluster(&BACKENDS);

            let kept = connection(CLIENTS[0], 30);
            let one = svc(&file, "");
            let mut open = values(&by_address(&one["endpoints"], "open"));
            open.sort_unstable();
            assert_eq!(open, [0, 0, 1], "{proxy:?} {one}");
            let skew = &one["skew"];
            assert_eq!(skew["reason"], "one-flow", "{proxy:?} {skew}");
            assert_eq!((&skew["share"], &skew["clients"]), (&json!(1.0), &json!(1)));
            for endpoint in one["endpoints"].as_array().unwrap() {
                let busy = endpoint["open"] == 1;
                // 30 requests, 30 answers, and TCP's own packets; endpoints without a flow count nothing.
                let packets = endpoint["packets"].as_u64();
                assert_eq!(packets.is_some_and(|n| n >= 60), busy, "{endpoint}");
                assert_eq!(endpoint["packets"].is_null(), !busy, "{endpoint}");
                assert_eq!(endpoint["oldest"].is_u64(), busy, "{endpoint}");
                assert_eq!(endpoint["ready"], true);
            }

            let mut connections: Vec<TcpStream> = vec![kept];
            connections.extend((0..30).map(|_| connection(CLIENTS[0], 1)));
            let spread = svc(&file, "");
            let open = by_address(&spread["endpoints"], "open");
            assert_eq!(values(&open).iter().sum::<u64>(), 31, "{spread}");
            // All 31 on one of three happens once in 10^14 runs.
            assert!(values(&open).iter().all(|n| *n < 31), "{spread}");
            let ways = &spread["new_packets"];
            assert_eq!(by_address(ways, "packets"), open, "{proxy:?} {spread}");
            for way in ways.as_array().unwrap() {
                let share = way["share"].as_f64().unwrap();
                assert!((share - 1.0 / 3.0).abs() < 1e-6, "{proxy:?} {way}");
                assert_eq!(way["frontends"], json!(["cluster-ip"]));
            }
            assert_eq!(spread["summary"]["scope"], "this-node");
            assert_eq!(spread["summary"]["stale"], 0);
            drop((connections, backends));
        }
    });
}

#[test]
fn connections_from_before_a_scale_up_stay_on_the_old_pod() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            let backends = node();
            load(proxy, &BACKENDS[..1]);
            let connections: Vec<TcpStream> = (0..30).map(|_| connection(CLIENTS[0], 1)).collect();
            load(proxy, &BACKENDS);
            let file = cluster(&BACKENDS);
            let document = svc(&file, "");
            let open = by_address(&document["endpoints"], "open");
            assert_eq!(values(&open), [30, 0, 0], "{proxy:?} {document}");
            let skew = &document["skew"];
            assert_eq!(skew["reason"], "one-client", "{skew}");
            assert_eq!(
                (&skew["max"], &skew["mean"], &skew["idle_endpoints"]),
                (&json!(30), &json!(10.0), &json!(2))
            );
            assert_eq!(
                (&skew["clients"], &skew["source_ports"]),
                (&json!(1), &json!(30))
            );
            let text = skew["text"].as_str().unwrap();
            assert!(
                text.starts_with("30 open connections of 1 client address"),
                "{text}"
            );
            // The rules are new, so their counters are 0.
            let packets = by_address(&document["new_packets"], "packets");
            assert_eq!(values(&packets), [0, 0, 0], "{document}");
            let others = svc(&file, "--client 10.244.2.6");
            assert_eq!(others["skew"]["reason"], "no-flow");
            drop((connections, backends));
        }
    });
}

#[test]
fn flows_to_a_former_endpoint_are_listed_separately() {
    private_netns(|| {
        let backends = node();
        load(Proxy::Nftables, &BACKENDS[..1]);
        let connections = [connection(CLIENTS[0], 1), connection(CLIENTS[1], 1)];
        load(Proxy::Nftables, &BACKENDS[1..]);
        let document = svc(&cluster(&BACKENDS[1..]), "");
        let gone = &document["gone"][0];
        assert_eq!(gone["address"], "10.244.1.1", "{document}");
        assert_eq!((&gone["open"], &gone["stale"]), (&json!(2), &json!(2)));
        assert_eq!(gone["reasons"], json!({"endpoint-gone": 2}));
        assert_eq!(document["gone"].as_array().unwrap().len(), 1);
        let open = by_address(&document["endpoints"], "open");
        assert_eq!(values(&open), [0, 0], "{document}");
        assert_eq!(document["skew"]["reason"], "no-flow");
        assert_eq!(document["summary"]["stale"], 2);

        // A port is selected by name or number; a flag with an optional value does not consume it.
        let file = cluster(&BACKENDS[1..]);
        for name in ["web:http", "shop/web:80", "web --tcp", "web -4"] {
            let line = format!("svc {name} --cluster {} -o json", file.path());
            let document = ctk_line(&line).exits(0).json();
            assert_eq!(document["gone"][0]["open"], 2, "{name}");
        }
        drop((connections, backends));
    });
}

#[test]
fn frontends_endpoints_and_probabilities_come_from_the_nodes_rules_without_the_api() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            let backends = node();
            load(proxy, &BACKENDS);
            let connections: Vec<TcpStream> = (0..6).map(|_| connection(CLIENTS[1], 1)).collect();
            let document = ctk_line("svc shop/web --cluster rules -o json")
                .exits(0)
                .json();
            let open = by_address(&document["endpoints"], "open");
            assert_eq!(open.len(), 3, "{document}");
            assert_eq!(values(&open).iter().sum::<u64>(), 6);
            assert_eq!(by_address(&document["new_packets"], "packets"), open);
            for endpoint in document["endpoints"].as_array().unwrap() {
                for field in [
                    "ready",
                    "serving",
                    "terminating",
                    "pod",
                    "node",
                    "packets",
                    "oldest",
                ] {
                    assert_eq!(endpoint[field], Value::Null, "{field}: {endpoint}");
                }
            }
            let service = &document["service"];
            assert_eq!(service["frontends"][0]["kind"], "cluster-ip");
            assert_eq!(service["internal_traffic_policy"], Value::Null);
            assert_eq!(service["session_affinity"], "none");
            drop((connections, backends));
        }
    });
}

#[test]
fn rules_of_another_node_give_no_counts_of_new_flows() {
    private_netns(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        run("ip", &["link", "set", "lo", "up"]);
        let document = svc(&cluster(&BACKENDS), "");
        assert_eq!(document["new_packets"], Value::Null);
        let why = document["summary"]["new_packets_unknown"].as_str().unwrap();
        assert!(why.contains("not known to be the node's"), "{why}");
        assert_eq!(document["endpoints"].as_array().unwrap().len(), 3);

        // An undecided flow is not counted as ok.
        entry("198.51.100.7:4000 10.96.8.8:80 10.244.1.9:8080");
        let document = svc(&cluster(&BACKENDS), "");
        let there = &document["elsewhere"][0];
        assert_eq!((&there["open"], &there["stale"]), (&json!(1), &Value::Null));
        assert_eq!(there["reasons"], json!({"foreign-netns": 1}));
        assert_eq!(document["gone"], json!([]));
        assert_eq!(document["summary"]["stale"], Value::Null);
    });
}

#[test]
fn external_connections_under_policy_local_are_not_reported_as_uneven() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        add_node_address();
        let mut objects = minimal(NODE);
        let mut balanced = service("shop", "web", "10.96.8.8", &[("http", 80, "TCP")]);
        balanced["spec"]["type"] = json!("LoadBalancer");
        balanced["spec"]["externalTrafficPolicy"] = json!("Local");
        balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}});
        let backing = BACKENDS.map(|address| address.to_string());
        let backing: Vec<_> = backing.iter().map(String::as_str).zip(PODS).collect();
        let mut slice = slice("shop", "web", &[("http", 8080, "TCP")], &backing);
        slice["endpoints"][0]["nodeName"] = json!("node1");
        objects.extend([balanced, slice]);
        for (at, (address, name)) in backing.iter().enumerate() {
            let node = if at == 0 { "node1" } else { "node2" };
            objects.push(pod("shop", name, address, node));
        }
        objects.push(pod("shop", "client-1", "10.244.2.5", "node1"));
        let file = ClusterFile::of(&objects);
        for port in 40_000..40_060 {
            entry(&format!(
                "198.51.100.7:{port} 203.0.113.9:80 10.244.1.1:8080"
            ));
        }
        let skews = || {
            let line = format!("doctor --sample 0 --cluster {} -o json", file.path());
            let document = ctk_line(&line).json();
            let findings = document["items"].as_array().expect("findings").clone();
            let skew = |finding: &&Value| finding.to_string().contains("keep-alive-skew");
            findings.iter().filter(skew).count()
        };
        let one = svc(&file, "");
        let skew = &one["skew"];
        assert_eq!(
            (&skew["reach"], &skew["reason"], &skew["open"]),
            (&json!("local"), &json!("one-endpoint"), &json!(60)),
            "{one}"
        );
        assert_eq!(skew["beyond_chance"], false);
        assert_eq!(skews(), 0);

        // Flows of a pod of this node reach every endpoint by the same address: these are on one, out of three.
        for port in 41_000..41_030 {
            entry(&format!("10.244.2.5:{port} 203.0.113.9:80 10.244.1.1:8080"));
        }
        let both = svc(&file, "");
        let apart = &both["skew"]["apart"][0];
        assert_eq!(
            (&apart["reach"], &apart["reason"], &apart["endpoints"]),
            (&json!("cluster"), &json!("one-client"), &json!(3)),
            "{both}"
        );
        assert_eq!(skews(), 1);
    });
}

#[test]
fn an_ambiguous_or_unknown_service_is_refused() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        add_node_address();
        let mut objects = minimal(NODE);
        for namespace in ["shop", "test"] {
            objects.push(service(
                namespace,
                "web",
                "10.96.8.8",
                &[("http", 80, "TCP")],
            ));
        }
        let file = ClusterFile::of(&objects);
        for (line, says) in [
            ("svc", "[NS/]NAME"),
            ("svc web", "several namespaces have a Service web"),
            ("svc wbe", "there is no Service wbe"),
            ("svc nothing-like-it", "there is no Service nothing-like-it"),
            ("svc shop/web:https", "has no port https"),
            ("svc web,api", "NAMESPACE/NAME"),
            ("svc !web", "NAMESPACE/NAME"),
            ("svc 10.96.8.8", "is an address"),
            ("svc --svc web web", "first argument"),
            ("svc shop/web --refreshing", "--refreshing"),
            ("svc shop/web -o csv", "possible values: table, json"),
            ("svc --udp shop/web", "--udp"),
        ] {
            let mut args: Vec<&str> = line.split_whitespace().collect();
            args.extend(["--cluster", file.path()]);
            assert_error(&ctk(args), 2, &[says]);
        }
        assert_error(&ctk_line("svc web --cluster none"), 2, &["--cluster none"]);
        // A name that an incomplete cluster lacks may exist.
        let part = ClusterFile::of(&objects[..1]);
        let args = ["svc", "web", "--cluster", part.path()];
        assert_error(&ctk(args), 3, &["may exist all the same"]);
    });
}

#[test]
fn the_demo_shows_the_stale_flow_of_the_dns_service() {
    let outcome = ctk_line("demo -- svc kube-dns --ascii");
    if outcome.stderr.contains("no private namespace") {
        assert!(std::env::var_os("CI").is_none(), "{outcome:#?}");
        eprintln!("skipped: the demo: user namespaces are forbidden");
        return;
    }
    let outcome = outcome.exits(0);
    let line = |begin: &str| {
        let mut lines = outcome.stdout.lines();
        let found = lines.find(|line| line.starts_with(begin));
        found
            .unwrap_or_else(|| panic!("{begin}: {outcome:#?}"))
            .to_owned()
    };
    assert!(line("10.244.1.7:53/udp").ends_with("endpoint-gone"));
    assert!(line("10.244.2.33:53/udp").contains("####"));
    assert!(
        outcome
            .stdout
            .contains("NEW FLOWS (this node only)\nnot known:")
    );
    let outcome = ctk_line("demo -- svc api -o json").exits(0);
    let skew = &outcome.json()["skew"];
    // Nine long-lived connections and a hairpin one, in a fixed world.
    assert!(skew["share"].as_f64().unwrap() > 0.8, "{skew}");
    assert_eq!(skew["reason"], "uneven", "{skew}");
}
