//! Targets of kube-proxy's frontends on node1, derived from the API's objects alone, and those of its rules.

use std::collections::{BTreeMap, BTreeSet};

use ctk_cluster::rules::{self, NodeRules, RuleFrontend};
use serde_json::Value;

use crate::api::{Api, SERVICES, SLICES};
use crate::labels::{addresses, full_name};
use crate::network::Place;

/// `PROTOCOL ADDRESS PORT`, or `PROTOCOL node PORT`; the Service's port; the endpoints as `ADDRESS:PORT`.
pub type Frontends = BTreeMap<String, (String, BTreeSet<String>)>;

/// Endpoint of a Service port.
struct Endpoint {
    to: String,
    node: Option<String>,
    ready: bool,
    /// The endpoint serves, although it terminates.
    last_resort: bool,
}

/// Expected content of the rules.
pub fn expected(api: &Api) -> Frontends {
    let slices = api.list(SLICES);
    let mut all = Frontends::new();
    for service in api.list(SERVICES) {
        for port in service["spec"]["ports"].as_array().into_iter().flatten() {
            let endpoints = endpoints(&slices, &service, port);
            add(&mut all, &service, port, &endpoints);
        }
    }
    all
}

fn endpoints(slices: &[Value], service: &Value, port: &Value) -> Vec<Endpoint> {
    let name = &service["metadata"]["name"];
    let of_service = slices.iter().filter(|slice| {
        slice["metadata"]["labels"]["kubernetes.io/service-name"] == *name
            && slice["metadata"]["namespace"] == service["metadata"]["namespace"]
            && slice["addressType"] == "IPv4"
    });
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for slice in of_service {
        let ports = slice["ports"].as_array().into_iter().flatten();
        let same = |p: &&Value| {
            word(&p["name"]) == word(&port["name"]) && p["protocol"] == port["protocol"]
        };
        for number in ports.filter(same).filter_map(|port| port["port"].as_u64()) {
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                let is =
                    |name: &str, absent| endpoint["conditions"][name].as_bool().unwrap_or(absent);
                let ready = is("ready", true);
                all.push(Endpoint {
                    to: format!("{}:{number}", word(&endpoint["addresses"][0])),
                    node: endpoint["nodeName"].as_str().map(str::to_owned),
                    ready,
                    last_resort: is("serving", ready) && is("terminating", false),
                });
            }
        }
    }
    all
}

/// Ready endpoints, or without any those that serve while they terminate.
fn usable<'e>(endpoints: impl Iterator<Item = &'e Endpoint> + Clone) -> BTreeSet<String> {
    let ready = endpoints.clone().filter(|endpoint| endpoint.ready);
    let ready: BTreeSet<String> = ready.map(|endpoint| endpoint.to.clone()).collect();
    if !ready.is_empty() {
        return ready;
    }
    let last = endpoints.filter(|endpoint| endpoint.last_resort);
    last.map(|endpoint| endpoint.to.clone()).collect()
}

fn add(all: &mut Frontends, service: &Value, port: &Value, endpoints: &[Endpoint]) {
    let spec = &service["spec"];
    let local = endpoints
        .iter()
        .filter(|endpoint| endpoint.node.as_deref() == Some("node1"));
    let (everywhere, here) = (usable(endpoints.iter()), usable(local));
    let inside = match spec["internalTrafficPolicy"] == "Local" {
        true => here.clone(),
        false => everywhere.clone(),
    };
    // With policy Local, packets of this node and its pods may still reach every endpoint.
    let from_outside = match spec["externalTrafficPolicy"] == "Local" {
        true => &everywhere | &here,
        false => everywhere,
    };
    let name = format!(
        "{}:{}",
        full_name(service),
        port["name"].as_str().unwrap_or_default()
    );
    let protocol = port["protocol"].as_str().unwrap_or_default().to_lowercase();
    for address in addresses(service, false) {
        let targets = match spec["clusterIP"] == *address {
            true => inside.clone(),
            false => from_outside.clone(),
        };
        let key = format!("{protocol} {address} {}", port["port"]);
        let before = all
            .entry(key)
            .or_insert_with(|| (name.clone(), BTreeSet::new()));
        before.1.extend(targets);
    }
    if let Some(node_port) = port["nodePort"].as_u64() {
        all.insert(format!("{protocol} node {node_port}"), (name, from_outside));
    }
}

/// node1's rules as ctk reads them, and every frontend that it does not understand.
pub fn read() -> (Frontends, Vec<String>) {
    let read = Place::Node(1).run(|| rules::read::here(None));
    let read = read.unwrap_or_else(|error| panic!("node1's rules: {error}"));
    assert!(read.notes.is_empty(), "{:?}", read.notes);
    assert!(!read.rules.cut, "some rules were not read");
    let not_known = read.rules.not_understood();
    assert_eq!(not_known, 0, "frontends and rules that are not understood");
    of(&read.rules)
}

fn of(rules: &NodeRules) -> (Frontends, Vec<String>) {
    let mut all = Frontends::new();
    let mut odd = Vec::new();
    let direct = rules
        .frontends
        .iter()
        .map(|((address, protocol, port), frontend)| {
            (format!("{} {address} {port}", word(*protocol)), frontend)
        });
    let node_ports = rules
        .node_ports
        .iter()
        .map(|((_, protocol, port), frontend)| {
            (format!("{} node {port}", word(*protocol)), frontend)
        });
    for (key, frontend) in direct.chain(node_ports) {
        if !frontend.understood {
            odd.push(key.clone());
        }
        all.insert(key, seen(frontend));
    }
    (all, odd)
}

fn seen(frontend: &RuleFrontend) -> (String, BTreeSet<String>) {
    let targets = frontend.targets.iter().map(ToString::to_string);
    let name = frontend
        .service
        .as_ref()
        .map_or_else(String::new, |service| {
            let port = service.port.as_deref().unwrap_or_default();
            format!("{}/{}:{port}", service.namespace, service.name)
        });
    (name, targets.collect())
}

fn word(protocol: u8) -> &'static str {
    match protocol {
        6 => "tcp",
        17 => "udp",
        132 => "sctp",
        _ => "other",
    }
}
