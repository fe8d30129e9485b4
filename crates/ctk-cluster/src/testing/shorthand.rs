//! Clusters for tests, in a shorthand that resembles the test vectors. The tests in `tests/` use it as well.
//!
//! Each line becomes one object of the JSON that kubectl prints, so that a test takes the same path as a real file:
//!
//! ```text
//! svc   kube-system/kube-dns 10.96.0.10 dns:53/UDP@32053     clusterIPs, ports (name:port/PROTOCOL, @ node port)
//! svc   net/ipfix 10.96.1.9 f:6343/UDP external=203.0.113.5 ingress=203.0.113.20 ingress=203.0.113.21(Proxy)
//!       externalTrafficPolicy=Local internalTrafficPolicy=Local type=ExternalName label=KEY=VALUE
//! svc   db/headless None 5432/TCP                            headless; a port without a name
//! slice kube-system/kube-dns dns:53/UDP 10.244.0.11 10.244.0.12(!ready,serving,terminating)@node2->coredns-b
//! slice net/syslog s:514/UDP 192.0.2.202+192.0.2.203         second address of one endpoint; name=NAME type=IPv6 too
//! pod   shop/web-1 10.244.1.45 @node1                        phase=Succeeded hostNetwork port=8125/UDP hostPort=8125/UDP
//! node  node1 192.168.7.1 external=203.0.113.9 podCIDR=10.244.0.0/24 hostname=n1
//! cidr  10.96.0.0/16
//! {...}                                                      an object as it is
//! ```
//!
//! Conditions: none given = absent; `ready`, `!ready`, `serving`, `!serving`, `terminating`, `!terminating`. `->NAME` names
//! a pod of the slice's namespace, `->NS/NAME` one of another. A slice belongs to the Service of its name.

use serde_json::{Map, Value, json};

/// The Service that every cluster has, and its slice: without them a source is not complete.
pub const API: [&str; 2] = [
    "svc default/kubernetes 10.96.0.1 https:443/TCP",
    "slice default/kubernetes https:6443/TCP 192.168.7.254(ready)",
];

/// Text that kubectl would print.
pub fn list(lines: &[&str]) -> String {
    let items: Vec<Value> = lines.iter().map(|line| object(line)).collect();
    json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
        .to_string()
}

/// Object of one line.
pub fn object(line: &str) -> Value {
    if line.starts_with('{') {
        return serde_json::from_str(line).expect("a line in braces is JSON");
    }
    let mut words = line.split_whitespace();
    let kind = words.next().expect("a kind");
    let rest: Vec<&str> = words.collect();
    match kind {
        "svc" => service(&rest),
        "slice" => slice(&rest),
        "pod" => pod(&rest),
        "node" => node(&rest),
        "cidr" => json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes"}, "spec": {"cidrs": rest}}),
        _ => panic!("no such kind of line: {line}"),
    }
}

fn service(words: &[&str]) -> Value {
    let (namespace, name) = full_name(words);
    let mut spec = Map::new();
    let (mut cluster_ips, mut external, mut ingress) = (vec![], vec![], vec![]);
    let (mut ports, mut labels) = (vec![], Map::new());
    for word in &words[1..] {
        match word.split_once('=') {
            Some(("external", ip)) => external.push(ip),
            Some(("ingress", ip)) => ingress.push(match ip.split_once('(') {
                Some((ip, mode)) => json!({"ip": ip, "ipMode": mode.trim_end_matches(')')}),
                None => json!({"ip": ip}),
            }),
            Some(("label", label)) => add_label(&mut labels, label),
            Some((field, value)) => {
                spec.insert(field.to_owned(), value.into());
            }
            None if word.contains('/') => ports.push(port_spec(word)),
            None => cluster_ips.push(*word),
        }
    }
    if let Some(first) = cluster_ips.first() {
        spec.insert("clusterIP".into(), json!(first));
        spec.insert("clusterIPs".into(), json!(cluster_ips));
    }
    spec.insert("externalIPs".into(), json!(external));
    spec.insert("ports".into(), json!(ports));
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}})
}

fn slice(words: &[&str]) -> Value {
    let (namespace, service) = full_name(words);
    let mut labels = Map::from_iter([("kubernetes.io/service-name".to_owned(), json!(service))]);
    // Two lines for one Service are two slices.
    let mut name = format!("{service}-{:x}", hash(&words.join(" ")));
    let (mut family, mut ports, mut endpoints) = (None, vec![], vec![]);
    for word in &words[1..] {
        match word.split_once('=') {
            Some(("label", label)) => add_label(&mut labels, label),
            Some(("name", given)) => name = given.to_owned(),
            Some(("type", given)) => family = Some(given.to_owned()),
            Some(_) => panic!("no such word in a slice: {word}"),
            None if word.contains('/') && !word.contains("->") => ports.push(port_spec(word)),
            None => {
                let first = word.split(['(', '@', '+', '-']).next().unwrap_or(word);
                let of_first = if first.contains(':') { "IPv6" } else { "IPv4" };
                family.get_or_insert_with(|| of_first.to_owned());
                endpoints.push(endpoint(word, namespace));
            }
        }
    }
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "addressType": family.unwrap_or_else(|| "IPv4".into()), "ports": ports, "endpoints": endpoints})
}

fn endpoint(word: &str, namespace: &str) -> Value {
    let (word, target) = match word.split_once("->") {
        Some((word, target)) => (word, Some(target)),
        None => (word, None),
    };
    let (word, node) = match word.split_once('@') {
        Some((word, node)) => (word, Some(node)),
        None => (word, None),
    };
    let (addresses, conditions) = match word.split_once('(') {
        Some((addresses, rest)) => (addresses, rest.trim_end_matches(')')),
        None => (word, ""),
    };
    let addresses: Vec<&str> = addresses.split('+').collect();
    let mut endpoint = json!({ "addresses": addresses });
    let mut given = Map::new();
    for condition in conditions.split(',').filter(|c| !c.is_empty()) {
        let name = condition.trim_start_matches('!');
        assert!(
            ["ready", "serving", "terminating"].contains(&name),
            "{word}"
        );
        given.insert(name.to_owned(), json!(name == condition));
    }
    if !given.is_empty() {
        endpoint["conditions"] = given.into();
    }
    if let Some(node) = node {
        endpoint["nodeName"] = node.into();
    }
    if let Some(target) = target {
        let (namespace, name) = target.split_once('/').unwrap_or((namespace, target));
        endpoint["targetRef"] = json!({"kind": "Pod", "namespace": namespace, "name": name});
    }
    endpoint
}

fn pod(words: &[&str]) -> Value {
    let (namespace, name) = full_name(words);
    let (mut phase, mut node, mut host_network) = ("Running", None, false);
    let (mut addresses, mut ports) = (vec![], vec![]);
    for word in &words[1..] {
        match word.split_once('=') {
            Some(("phase", given)) => phase = given,
            Some(("port", given)) => ports.push(container_port(given, "containerPort")),
            Some(("hostPort", given)) => ports.push(container_port(given, "hostPort")),
            Some(_) => panic!("no such word in a pod: {word}"),
            None if *word == "hostNetwork" => host_network = true,
            None => match word.strip_prefix('@') {
                Some(name) => node = Some(name),
                None => addresses.push(*word),
            },
        }
    }
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": phase, "podIP": addresses.first(), "podIPs": ips}});
    if host_network {
        pod["spec"]["hostNetwork"] = true.into();
        pod["status"]["hostIP"] = json!(addresses.first());
    }
    pod
}

fn node(words: &[&str]) -> Value {
    let name = words.first().expect("a node has a name");
    let (mut addresses, mut ranges, mut labels) = (vec![], vec![], Map::new());
    for word in &words[1..] {
        match word.split_once('=') {
            Some(("external", ip)) => {
                addresses.push(json!({"type": "ExternalIP", "address": ip}));
            }
            Some(("hostname", host)) => {
                addresses.push(json!({"type": "Hostname", "address": host}));
            }
            Some(("podCIDR", range)) => ranges.push(range),
            Some(("label", label)) => add_label(&mut labels, label),
            Some(_) => panic!("no such word in a node: {word}"),
            None => addresses.push(json!({"type": "InternalIP", "address": word})),
        }
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDRs": ranges}, "status": {"addresses": addresses}})
}

fn full_name<'a>(words: &[&'a str]) -> (&'a str, &'a str) {
    let name = words.first().expect("a name");
    name.split_once('/').expect("namespace/name")
}

fn add_label(labels: &mut Map<String, Value>, label: &str) {
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    labels.insert(key.to_owned(), value.into());
}

/// `[name:]port/PROTOCOL[@nodePort]`; `-` for a port without a number, no `/PROTOCOL` word (`53/`) for an absent one.
fn port_spec(word: &str) -> Value {
    let (word, node_port) = match word.split_once('@') {
        Some((word, node_port)) => (word, Some(number(node_port))),
        None => (word, None),
    };
    let (word, protocol) = word.split_once('/').expect("port/PROTOCOL");
    let (name, number_text) = word.split_once(':').unwrap_or(("", word));
    let mut port = json!({ "name": name });
    if number_text != "-" {
        port["port"] = number(number_text).into();
    }
    if !protocol.is_empty() {
        port["protocol"] = protocol.into();
    }
    if let Some(node_port) = node_port {
        port["nodePort"] = node_port.into();
    }
    port
}

fn container_port(word: &str, field: &str) -> Value {
    let (port, protocol) = word.split_once('/').expect("port/PROTOCOL");
    json!({field: number(port), "protocol": protocol})
}

fn number(text: &str) -> u16 {
    text.parse().expect("a port number")
}

/// A number that is the same for the same text.
fn hash(text: &str) -> u32 {
    text.bytes().fold(17, |sum: u32, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    })
}
