//! Expected names of an entry, derived from the API's objects alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::{Api, PODS, SERVICES};
use crate::network::NODES;
use crate::table::Key;

/// `namespace/name` of the object at an address, and `namespace/name:port` of a frontend's Service.
#[derive(Default)]
pub struct Names {
    pods: BTreeMap<String, BTreeSet<String>>,
    frontends: BTreeMap<(String, String, u64), BTreeSet<String>>,
    node_ports: BTreeMap<(String, u64), BTreeSet<String>>,
}

impl Names {
    pub fn read(api: &Api) -> Self {
        let mut names = Names::default();
        for pod in api.list(PODS) {
            if let Some(address) = pod["status"]["podIP"].as_str() {
                let all = names.pods.entry(address.to_owned()).or_default();
                all.insert(full_name(&pod));
            }
        }
        for service in api.list(SERVICES) {
            names.add_service(&service);
        }
        names
    }

    fn add_service(&mut self, service: &Value) {
        for port in service["spec"]["ports"].as_array().into_iter().flatten() {
            let protocol = port["protocol"].as_str().unwrap().to_lowercase();
            let name = port["name"].as_str().unwrap_or_default();
            let name = format!("{}:{name}", full_name(service));
            for address in addresses(service, true) {
                let key = (protocol.clone(), address, port["port"].as_u64().unwrap());
                self.frontends.entry(key).or_default().insert(name.clone());
            }
            if let Some(node_port) = port["nodePort"].as_u64() {
                let all = self.node_ports.entry((protocol, node_port)).or_default();
                all.insert(name);
            }
        }
    }

    /// Differences between the names of this item and the expected ones.
    pub fn wrong(&self, item: &Value) -> Option<String> {
        let key = Key::of(item);
        let (source, target) = (&key.original.src, &key.original.dst);
        let frontend = (key.protocol.clone(), target.clone(), key.original.dport);
        // Every address of node1 takes node ports.
        let here = target == NODES[0] || target == "10.244.1.1" || target == "10.244.1.254";
        let node_port = here.then_some((key.protocol.clone(), key.original.dport));
        let services = self.frontends.get(&frontend);
        let services = services.or_else(|| self.node_ports.get(&node_port?));
        let service = &item["service"];
        let port = service["port"].as_str().unwrap_or_default();
        let named = (!service.is_null()).then(|| format!("{}:{port}", place(service)));
        let pod = |field: &str| {
            let found = &item[field];
            (found["kind"] == "pod").then(|| place(found))
        };
        let parts = [
            ("service", named, services),
            ("client", pod("client"), self.pods.get(source)),
            ("endpoint", pod("endpoint"), self.pods.get(&key.reply.src)),
        ];
        for (part, is, must) in parts {
            let right = match (&is, must) {
                (None, None) => true,
                (Some(name), Some(names)) => names.contains(name),
                _ => false,
            };
            if !right {
                return Some(format!("{key}: {part} is {is:?}, must be {must:?}"));
            }
        }
        None
    }
}

/// Addresses of a Service. kube-proxy does not translate those of a load balancer that proxies (`proxied`).
pub fn addresses(service: &Value, proxied: bool) -> Vec<String> {
    let spec = &service["spec"];
    let of = |values: &Value| values.as_array().cloned().unwrap_or_default();
    let mut all = vec![spec["clusterIP"].clone()];
    all.extend(of(&spec["externalIPs"]));
    for ingress in of(&service["status"]["loadBalancer"]["ingress"]) {
        if proxied || ingress["ipMode"] != "Proxy" {
            all.push(ingress["ip"].clone());
        }
    }
    let all = all.iter().filter_map(Value::as_str);
    all.filter(|&address| address != "None")
        .map(str::to_owned)
        .collect()
}

/// `namespace/name` of an object.
pub fn full_name(object: &Value) -> String {
    place(&object["metadata"])
}

fn place(named: &Value) -> String {
    let word = |name: &str| named[name].as_str().unwrap_or_default();
    format!("{}/{}", word("namespace"), word("name"))
}
