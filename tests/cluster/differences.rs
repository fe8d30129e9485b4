//! Permitted differences between ctk and kube-proxy on a UDP entry, each with its reason. ctk-verdicts(7) has the same
//! table.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::{Api, SERVICES, SLICES};
use crate::labels::full_name;
use crate::network::NODES;
use crate::table::{Key, verdict};

/// State of one Service in the API.
#[derive(Default)]
struct Facts {
    publishes_not_ready: bool,
    /// Names of ports with a serving endpoint.
    served: BTreeSet<String>,
    /// `ADDRESS:PORT` of endpoints that do not serve.
    not_serving: BTreeSet<String>,
    /// Those of them that do not terminate.
    not_ready: BTreeSet<String>,
}

/// Cluster that both judge.
pub struct Differences {
    /// Minor version of kube-proxy.
    minor: u32,
    services: BTreeMap<String, Facts>,
    /// External addresses and ports of more than one Service.
    shared: BTreeSet<(String, u64)>,
}

impl Differences {
    pub fn read(api: &Api, minor: u32) -> Self {
        let mut all = Differences {
            minor,
            services: BTreeMap::new(),
            shared: BTreeSet::new(),
        };
        let mut seen = BTreeSet::new();
        for service in api.list(SERVICES) {
            let facts = all.services.entry(full_name(&service)).or_default();
            let spec = &service["spec"];
            facts.publishes_not_ready = spec["publishNotReadyAddresses"] == true;
            for address in array(&spec["externalIPs"]) {
                for port in array(&spec["ports"]) {
                    let key = (word(address), port["port"].as_u64().unwrap());
                    if !seen.insert(key.clone()) {
                        all.shared.insert(key);
                    }
                }
            }
        }
        for slice in api.list(SLICES) {
            all.add_slice(&slice);
        }
        all
    }

    fn add_slice(&mut self, slice: &Value) {
        let metadata = &slice["metadata"];
        let name = word(&metadata["labels"]["kubernetes.io/service-name"]);
        let service = format!("{}/{name}", word(&metadata["namespace"]));
        let facts = self.services.entry(service).or_default();
        for port in array(&slice["ports"]) {
            for endpoint in array(&slice["endpoints"]) {
                if endpoint["conditions"]["serving"] == false {
                    let address = word(&endpoint["addresses"][0]);
                    let place = format!("{address}:{}", port["port"]);
                    if endpoint["conditions"]["terminating"] != true {
                        facts.not_ready.insert(place.clone());
                    }
                    facts.not_serving.insert(place);
                } else {
                    facts.served.insert(word(&port["name"]));
                }
            }
        }
    }

    /// Reports whether a purge by verdict leaves `item`: its endpoint is momentarily not ready, and the Service port has no
    /// other serving endpoint.
    pub fn is_held_back(&self, item: &Value) -> bool {
        let service = &item["service"];
        let name = format!("{}/{}", word(&service["namespace"]), word(&service["name"]));
        let source = &Key::of(item).reply;
        let place = format!("{}:{}", source.src, source.sport);
        let alone = |facts: &Facts| {
            facts.not_ready.contains(&place) && !facts.served.contains(&word(&service["port"]))
        };
        verdict(item) == "stale/endpoint-not-serving" && self.services.get(&name).is_some_and(alone)
    }

    /// Reason why ctk may judge `item` otherwise than kube-proxy. `None`: it may not.
    pub fn reason(&self, item: &Value, deleted: bool) -> Option<&'static str> {
        let service = &item["service"];
        let name = format!("{}/{}", word(&service["namespace"]), word(&service["name"]));
        let facts = self.services.get(&name);
        let served = facts.is_some_and(|facts| facts.served.contains(&word(&service["port"])));
        let key = Key::of(item);
        let target = &key.original;
        // Since 1.37 kube-proxy cleans up for Services without serving endpoints, but not for their node ports.
        let kept = self.minor < 37 || service["frontend"] == "node-port";
        match (verdict(item).as_str(), deleted) {
            ("stale/service-empty", false) if kept => {
                Some("kept by kube-proxy: it passes over Services without endpoints")
            }
            ("stale/misdelivery" | "stale/endpoint-not-serving", false) if kept && !served => {
                Some("kept by kube-proxy: no other endpoint serves")
            }
            ("stale/no-dnat", false) if kept && !served => {
                Some("kept by kube-proxy: published, but no endpoint serves")
            }
            ("stale/service-gone" | "stale/port-gone", false) => {
                Some("kept by kube-proxy: it does not know the Service any more")
            }
            ("unrelated/remote-node-port", true) => {
                Some("deleted by kube-proxy: it takes any destination with a node port's number")
            }
            ("unrelated/no-frontend", true) if target.dst == NODES[1] => {
                Some("deleted by kube-proxy: a node port that another node had")
            }
            ("ok/endpoint", true) if self.shared.contains(&(target.dst.clone(), target.dport)) => {
                Some("deleted by kube-proxy: of two Services on one address and port it sees one")
            }
            ("ok/endpoint" | "draining/endpoint-terminating", true) => {
                let facts = facts.filter(|facts| facts.publishes_not_ready)?;
                let endpoint = format!("{}:{}", key.reply.src, key.reply.sport);
                let published = facts.not_serving.contains(&endpoint);
                published.then_some("deleted by kube-proxy: published, but not serving")
            }
            // ctk judges while kube-proxy stands still, by the rules of that moment.
            ("pending/no-dnat-no-rule", true) => {
                Some("deleted by kube-proxy: the rule for it came with the same sync")
            }
            ("pending/no-dnat-no-endpoint", true) if self.minor >= 37 => {
                Some("deleted by kube-proxy: not translated, and no endpoint serves")
            }
            _ => None,
        }
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
