//! Services of every shape, with kube-proxy in sync: the API, a file and the node's rules give the same names and verdicts,
//! and every frontend of the rules is understood and has the targets of the API's objects.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::frontends::{self, Frontends};
use crate::lab::{Lab, WEB};
use crate::labels::Names;
use crate::network::{NODES, OUTSIDE, Place, pod_address};
use crate::table::{Key, listed, verdict};

const NAMESPACE: &str = "shapes";
/// Pods with the label `app: s`.
const PODS: [(&str, usize, u64); 4] = [("p1", 1, 20), ("p2", 1, 21), ("p3", 2, 20), ("p4", 2, 21)];
/// Load-balancer addresses for packets from outside.
const BALANCERS: [&str; 5] = [
    "203.0.113.40",
    "203.0.113.41",
    "203.0.113.42",
    "203.0.113.43",
    "203.0.113.44",
];

/// UDP port 53, or the given ports instead.
fn service(more: &Value) -> Value {
    let mut spec =
        json!({"selector": {"app": "s"}, "ports": [{"name": "u", "port": 53, "protocol": "UDP"}]});
    for (name, value) in more.as_object().expect("an object") {
        spec[name] = value.clone();
    }
    spec
}

/// Name, what differs from [`service`], and the load-balancer address.
fn shapes() -> Vec<(String, Value, Option<Value>)> {
    let balancer = |place: usize| Some(json!({"ip": BALANCERS[place]}));
    let ports = |count: usize| {
        let port = |i: usize| {
            json!({"name": format!("p{i}"), "port": 100 + i, "protocol": "UDP",
                "targetPort": crate::network::POD_PORTS[i % 4]})
        };
        (0..count).map(port).collect::<Vec<_>>()
    };
    let minute = json!({"clientIP": {"timeoutSeconds": 60}});
    let lb = "LoadBalancer";
    let long = "a".repeat(63);
    let plain = |name: &str, more: Value| (name.to_owned(), more, None);
    vec![
        plain("plain", json!({})),
        plain(
            "unnamed",
            json!({"ports": [{"port": 53, "protocol": "UDP"}]}),
        ),
        plain(
            "affinity",
            json!({"type": "NodePort", "sessionAffinity": "ClientIP", "sessionAffinityConfig": minute}),
        ),
        plain("node-port", json!({"type": "NodePort"})),
        plain(
            "node-port-local",
            json!({"type": "NodePort", "externalTrafficPolicy": "Local"}),
        ),
        plain("inside-local", json!({"internalTrafficPolicy": "Local"})),
        plain(
            "inside-local-none",
            json!({"internalTrafficPolicy": "Local", "selector": {"app": "only2"}}),
        ),
        plain("close", json!({"trafficDistribution": "PreferClose"})),
        plain("two-ports", json!({"ports": ports(2)})),
        plain("eight-ports", json!({"ports": ports(8)})),
        plain("one-endpoint", json!({"selector": {"app": "only2"}})),
        plain("external", json!({"externalIPs": ["203.0.113.46"]})),
        plain(
            "empty",
            json!({"selector": {"app": "nobody"}, "externalIPs": ["203.0.113.45"], "type": "NodePort"}),
        ),
        plain("not-ready", json!({"selector": {"app": "not-ready"}})),
        plain(
            "not-ready-published",
            json!({"selector": {"app": "not-ready"}, "publishNotReadyAddresses": true}),
        ),
        plain("terminating", json!({"selector": {"app": "terminating"}})),
        plain("headless", json!({"clusterIP": "None"})),
        plain(
            "sctp",
            json!({"ports": [{"name": "s", "port": 53, "protocol": "SCTP"}]}),
        ),
        (
            long,
            json!({"ports": [{"name": "long-port-name", "port": 53, "protocol": "UDP"}]}),
            None,
        ),
        (
            "ranges".into(),
            json!({"type": lb, "loadBalancerSourceRanges": ["192.0.2.0/24"]}),
            balancer(0),
        ),
        (
            "other-ranges".into(),
            json!({"type": lb, "loadBalancerSourceRanges": ["198.51.100.0/24"]}),
            balancer(1),
        ),
        (
            "local".into(),
            json!({"type": lb, "externalTrafficPolicy": "Local"}),
            balancer(2),
        ),
        (
            "local-none".into(),
            json!({"type": lb, "externalTrafficPolicy": "Local", "selector": {"app": "only2"}}),
            balancer(3),
        ),
        (
            "proxied".into(),
            json!({"type": lb}),
            Some(json!({"ip": BALANCERS[4], "ipMode": "Proxy"})),
        ),
    ]
}

fn make(lab: &mut Lab) {
    let api = lab.api();
    api.namespace(NAMESPACE);
    for (name, node, last) in PODS {
        api.pod(NAMESPACE, name, "s", &pod_address(node, last), true);
    }
    for (name, node, last, ready) in [
        ("only2", 2, 22, true),
        ("terminating", 1, 22, true),
        ("not-ready", 1, 23, false),
    ] {
        api.pod(NAMESPACE, name, name, &pod_address(node, last), ready);
    }
    for (name, more, balancer) in shapes() {
        api.service(NAMESPACE, &name, &service(&more));
        if let Some(ingress) = balancer {
            api.load_balancer(NAMESPACE, &name, &ingress);
        }
    }
    many_endpoints(lab);
    lab.settle(NAMESPACE);
    lab.api().terminate_pod(NAMESPACE, "terminating");
    lab.settle(NAMESPACE);
    lab.sync();
}

/// Service without a selector, with manual endpoints.
fn many_endpoints(lab: &Lab) {
    let ports = json!([{"name": "u", "port": 53, "protocol": "UDP"}]);
    let spec = json!({"ports": ports});
    lab.api().service(NAMESPACE, "many", &spec);
    for part in 0..2 {
        let endpoints: Vec<Value> = (1..=100)
            .map(|i| json!({"addresses": [format!("198.51.{}.{i}", 100 + part)], "conditions": {"ready": true}}))
            .collect();
        let slice = json!({
            "metadata": {"name": format!("many-{part}"), "labels": {"kubernetes.io/service-name": "many"}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports
        });
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
        lab.api().create(&slices, &slice);
    }
}

/// Starts clients of every frontend: pods, the node itself, and an external machine. Returns their number.
fn ask_everywhere(lab: &Lab) -> usize {
    let mut port = 43_000;
    let mut ask = |place, address: &str, to: String| {
        port += 1;
        lab.clients.add(place, address, port, &to);
    };
    let services = lab
        .api()
        .list(&format!("/api/v1/namespaces/{NAMESPACE}/services"));
    for service in &services {
        let spec = &service["spec"];
        let Some(address) = spec["clusterIP"].as_str().filter(|&a| a != "None") else {
            continue;
        };
        let ports = spec["ports"].as_array().unwrap();
        for (last, port) in WEB.zip(ports.iter().cycle().take(3)) {
            ask(
                Place::Clients,
                &pod_address(1, last),
                format!("{address}:{}", port["port"]),
            );
        }
        ask(
            Place::Node(1),
            NODES[0],
            format!("{address}:{}", ports[0]["port"]),
        );
        if let Some(node_port) = ports[0]["nodePort"].as_u64() {
            let to = format!("{}:{node_port}", NODES[0]);
            ask(Place::Outside, OUTSIDE, to.clone());
            ask(Place::Clients, &pod_address(1, 105), to);
        }
    }
    for address in BALANCERS.iter().chain(&["203.0.113.45", "203.0.113.46"]) {
        ask(Place::Outside, OUTSIDE, format!("{address}:53"));
        ask(
            Place::Clients,
            &pod_address(1, 106),
            format!("{address}:53"),
        );
    }
    // Directly to a pod, to a port that the Service lacks, and to another node's node port.
    ask(
        Place::Clients,
        &pod_address(1, 107),
        format!("{}:53", pod_address(2, 20)),
    );
    ask(
        Place::Clients,
        &pod_address(1, 107),
        "10.96.0.10:9999".to_owned(),
    );
    ask(
        Place::Clients,
        &pod_address(1, 107),
        format!("{}:32767", NODES[1]),
    );
    lab.clients.count()
}

pub fn sources_agree(lab: &mut Lab) {
    make(lab);
    let expected = frontends::expected(lab.api());
    let (seen, odd) = frontends::read();
    let mut differ: Vec<String> = odd
        .iter()
        .map(|key| format!("{key}: not understood"))
        .collect();
    compare(&expected, &seen, &mut differ);

    let count = ask_everywhere(lab);
    std::thread::sleep(Duration::from_secs(3));
    lab.clients.pause();
    let by_api = listed(&lab.by_api());
    assert!(
        by_api.len() >= count * 2 / 3,
        "{} entries of {count} clients",
        by_api.len()
    );
    let names = Names::read(lab.api());
    differ.extend(by_api.values().filter_map(|item| names.wrong(item)));

    let all = |item: &Value| {
        // The read of this node's pods does not tell which addresses are no pods.
        let client = Some(&item["client"]).filter(|client| client["kind"] == "pod");
        json!([item["service"], client, item["endpoint"], verdict(item)])
    };
    let file = lab.write_file();
    same(
        "a file",
        &by_api,
        &listed(&format!("--cluster {file}")),
        all,
        &mut differ,
    );
    let both = lab.by_both();
    same(
        "the API and the rules",
        &by_api,
        &listed(&both),
        all,
        &mut differ,
    );
    let rules = listed("--cluster rules");
    same("the rules", &by_api, &rules, by_rules, &mut differ);
    assert!(differ.is_empty(), "{differ:#?}");
}

/// Service and verdict by the node's rules.
fn by_rules(item: &Value) -> Value {
    let mut service = item["service"].clone();
    // nftables rules do not distinguish these two.
    if service["frontend"] == "load-balancer-ip" {
        service["frontend"] = json!("external-ip");
    }
    match verdict(item).as_str() {
        // A terminating endpoint is in the rules like any other where no other is left.
        "draining/endpoint-terminating" => json!([service, "ok/endpoint"]),
        // kube-proxy has no rules for what a load balancer proxies.
        "unknown/not-kube-proxy" => json!([null, "unrelated/no-frontend"]),
        verdict => json!([service, verdict]),
    }
}

fn compare(expected: &Frontends, seen: &Frontends, differ: &mut Vec<String>) {
    for (key, must) in expected {
        match seen.get(key) {
            Some(is) if is == must => {}
            other => differ.push(format!("{key}: must be {must:?}, is {other:?}")),
        }
    }
    for (key, is) in seen {
        if !expected.contains_key(key) {
            differ.push(format!("{key}: is {is:?}, must not be"));
        }
    }
}

/// Asserts the same entries, with equal results of `part`.
fn same(
    other: &str,
    by_api: &BTreeMap<Key, Value>,
    by_other: &BTreeMap<Key, Value>,
    part: impl Fn(&Value) -> Value,
    differ: &mut Vec<String>,
) {
    for (key, item) in by_api {
        let (is, must) = (by_other.get(key).map(&part), part(item));
        if is.as_ref() != Some(&must) {
            let is = is.map_or_else(|| "missing".to_owned(), |is| is.to_string());
            differ.push(format!("{key}: by the API {must}, by {other} {is}"));
        }
    }
}
