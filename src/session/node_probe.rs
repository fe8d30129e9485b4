//! Facts of the node beside the cluster source: rules that lag behind it, and another translator in kube-proxy's place.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::plural::count;
use crate::this_node::{NetnsOwner, ThisNode};
use ctk_cluster::compare::{Difference, Disagreement, FrontendAddress, compare};
use ctk_cluster::datapath::{self, Datapath, DatapathMark};
use ctk_cluster::index::Index;
use ctk_cluster::rules::read::{self, Read};
use ctk_cluster::source::Loaded;
use ctnetlink::flow;
use ctnetlink::netns::Netns;

/// Differences that are told on stderr. JSON has them all.
const MAX_LINES: usize = 5;
/// Differences in JSON: those of a kube-proxy that hangs for days are thousands.
const MAX_ITEMS: usize = 100;

/// Facts that were found beside the cluster source.
#[derive(Clone, Debug, Default)]
pub struct NodeProbe {
    pub translator: Option<Translator>,
    /// `None` where not both sources were read.
    pub disagreements: Option<Vec<Disagreement>>,
}

impl NodeProbe {
    /// Cross-checks two sources, and looks for another translator in kube-proxy's place, in the node's own namespace.
    pub fn look(
        loaded: Option<&Loaded>,
        rules: Option<&Read>,
        node: &ThisNode,
        netns: &Netns,
        tell: &dyn Fn(&str),
    ) -> Self {
        let disagreements = loaded.zip(rules).map(|(loaded, read)| {
            let found = cross_check(&loaded.index, read, netns);
            describe(&found, tell);
            found
        });
        let here = node.namespace == NetnsOwner::Node;
        let translator = here.then(|| Translator::find(rules, netns)).flatten();
        translator.iter().for_each(|found| found.describe(tell));
        NodeProbe {
            translator,
            disagreements,
        }
    }

    /// Adds the facts to `summary.cluster` in JSON.
    pub fn summarize(&self, cluster: &mut Map<String, Value>) {
        let datapath = self.translator.as_ref().map(Translator::summary);
        cluster.insert("datapath".to_owned(), datapath.unwrap_or_default());
        if let Some(found) = &self.disagreements {
            cluster.insert("disagreements".to_owned(), summary(found));
        }
    }
}

/// A datapath of BPF programs on this node.
#[derive(Clone, Debug)]
pub struct Translator {
    mark: DatapathMark,
    /// No rules of kube-proxy are seen beside it, or they cannot be read.
    alone: bool,
}

impl Translator {
    /// Looks for marks of a datapath. `rules`: those of the namespace, where they were read already. They are read here only
    /// where a mark is found.
    fn find(rules: Option<&Read>, netns: &Netns) -> Option<Self> {
        let mark = netns.run(|| datapath::find(Path::new("/"))).ok()??;
        let here = rules.filter(|read| read.path.is_none());
        let kube_proxy = match here {
            Some(read) => !read.rules.proxies.is_empty(),
            None => match netns.run(|| read::here(None)) {
                Ok(Ok(read)) => !read.rules.proxies.is_empty(),
                Ok(Err(_)) | Err(_) => false,
            },
        };
        Some(Translator {
            mark,
            alone: !kube_proxy,
        })
    }

    /// The datapath, where it replaces kube-proxy.
    pub fn replaces(&self) -> Option<Datapath> {
        self.alone.then_some(self.mark.datapath)
    }

    /// Reports the datapath and its effect on the answer.
    fn describe(&self, tell: &dyn Fn(&str)) {
        let (name, what) = (self.mark.datapath.name(), &self.mark.what);
        if !self.alone {
            return tell(&format!(
                "{name} ({what}) is on this node beside kube-proxy: what it translates itself is not seen as a Service's entry"
            ));
        }
        let command = match self.mark.datapath {
            Datapath::Cilium => "cilium-dbg bpf ct list global",
            Datapath::CalicoEbpf => "calico-node -bpf conntrack dump",
        };
        tell(&format!(
            "{name} ({what}) translates Services on this node, and no rules of kube-proxy are seen: \
             no entry is called stale; its own table: {command}"
        ));
    }

    fn summary(&self) -> Value {
        json!({
            "name": self.mark.datapath.word(),
            "seen": self.mark.what,
            "replaces_kube_proxy": self.alone,
        })
    }
}

/// Differences between the rules and the API. The rules were read first, so they are read again where they differ: an endpoint
/// that came or went between the two readings does not mean that kube-proxy is behind.
fn cross_check(index: &Index, read: &Read, netns: &Netns) -> Vec<Disagreement> {
    let mut found = compare(index, &read.rules);
    if found.is_empty() || read.path.is_some() {
        return found;
    }
    if let Ok(Ok(later)) = netns.run(|| read::here(None)) {
        let key = |one: &Disagreement| (one.frontend, one.protocol, one.difference);
        let later = compare(index, &later.rules);
        let lasting: BTreeSet<(FrontendAddress, u8, Difference)> = later.iter().map(key).collect();
        found.retain(|one| lasting.contains(&key(one)));
    }
    found
}

/// Reports one line for each Service and endpoint, since several frontends of a Service share an endpoint.
fn describe(found: &[Disagreement], tell: &dyn Fn(&str)) {
    let mut seen = HashSet::new();
    let mut lines = found.iter().map(Disagreement::to_string);
    let distinct: Vec<String> = lines
        .by_ref()
        .filter(|line| seen.insert(line.clone()))
        .collect();
    for line in distinct.iter().take(MAX_LINES) {
        tell(&format!("kube-proxy on this node is behind: {line}"));
    }
    let more = distinct.len().saturating_sub(MAX_LINES);
    if more > 0 {
        tell(&format!(
            "kube-proxy on this node is behind: {}; -o json lists them",
            count(more as u64, "more difference", "more differences")
        ));
    }
}

fn summary(found: &[Disagreement]) -> Value {
    let items: Vec<Value> = found.iter().take(MAX_ITEMS).map(item).collect();
    json!({ "count": found.len(), "items": items })
}

fn item(one: &Disagreement) -> Value {
    let service = one.service.as_ref();
    let (address, port) = match one.frontend {
        FrontendAddress::Address(place) => (Some(place.ip().to_string()), place.port()),
        FrontendAddress::NodePort { port, .. } => (None, port),
    };
    json!({
        "difference": one.difference.word(),
        "service": service.map(|service| json!({
            "namespace": &*service.namespace, "name": &*service.name, "port": service.port.as_deref(),
        })),
        "frontend": {
            "address": address,
            "port": port,
            "protocol": flow::protocol_name(one.protocol),
            "protocol_number": one.protocol,
        },
        "endpoint": one.difference.endpoint().map(|endpoint| endpoint.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn an_endpoint_of_several_frontends_is_one_line_and_many_are_counted() {
        let lingers = |n: u8, frontend| Disagreement {
            service: None,
            frontend,
            protocol: 17,
            difference: Difference::LingeringEndpoint(([10, 244, 0, n], 53).into()),
        };
        let address = FrontendAddress::Address(([10, 96, 0, 10], 53).into());
        let node_port = FrontendAddress::NodePort {
            ipv6: false,
            port: 32053,
        };
        let mut found = Vec::new();
        for n in 0..=MAX_ITEMS as u8 {
            found.extend([lingers(n, address), lingers(n, node_port)]);
        }
        let lines = RefCell::new(Vec::new());
        describe(&found, &|line| lines.borrow_mut().push(line.to_owned()));
        let lines = lines.into_inner();
        assert_eq!(lines.len(), MAX_LINES + 1, "{lines:?}");
        assert!(lines[0].ends_with("rules still list 10.244.0.0 for a Service"));
        assert!(
            lines[MAX_LINES].contains("96 more differences"),
            "{lines:?}"
        );
        let json = summary(&found);
        assert_eq!(json["count"], 202);
        assert_eq!(json["items"].as_array().unwrap().len(), MAX_ITEMS);
        let frontend = &json["items"][1]["frontend"];
        assert_eq!(
            (&frontend["address"], &frontend["port"]),
            (&Value::Null, &json!(32053))
        );
    }
}
