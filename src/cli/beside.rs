//! What the node itself says beside the API: rules that lag behind it, and whoever translates in kube-proxy's place.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::cluster::compare::{Disagreement, Place};
use crate::cluster::datapath::{self, Datapath, Mark};
use crate::cluster::rules::read::{self, Read};
use crate::flow;
use crate::netns::Netns;

/// Lines on stderr; all of it is in JSON.
const MOST_LINES: usize = 5;
/// Items in JSON: a kube-proxy that hangs for days differs in thousands.
const MOST_ITEMS: usize = 100;

/// What was found beside the source.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    pub translator: Option<Translator>,
    /// `None` where not both sources were read.
    pub disagreements: Option<Vec<Disagreement>>,
}

/// A datapath of BPF programs on this node.
#[derive(Clone, Debug)]
pub struct Translator {
    mark: Mark,
    /// No rules of kube-proxy are seen beside it, or they cannot be read.
    alone: bool,
}

impl Translator {
    /// Looks for one. `rules` are those of the namespace, where they were read already; they are read here only where there
    /// is a mark of a datapath.
    pub fn find(rules: Option<&Read>, netns: &Netns) -> Option<Self> {
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

    /// One line that says what it means for the answer.
    pub fn describe(&self, tell: &dyn Fn(&str)) {
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

    /// For `summary.cluster` in JSON.
    pub fn summary(&self) -> Value {
        json!({
            "name": self.mark.datapath.word(),
            "seen": self.mark.what,
            "replaces_kube_proxy": self.alone,
        })
    }
}

/// A line for each Service and endpoint: several frontends of a Service share an endpoint.
pub fn describe(found: &[Disagreement], tell: &dyn Fn(&str)) {
    let mut seen = HashSet::new();
    let mut lines = found.iter().map(Disagreement::to_string);
    let distinct: Vec<String> = lines
        .by_ref()
        .filter(|line| seen.insert(line.clone()))
        .collect();
    for line in distinct.iter().take(MOST_LINES) {
        tell(&format!("kube-proxy on this node is behind: {line}"));
    }
    let more = distinct.len().saturating_sub(MOST_LINES);
    if more > 0 {
        tell(&format!(
            "kube-proxy on this node is behind: {more} more differences; -o json lists them"
        ));
    }
}

/// For `summary.cluster` in JSON.
pub fn summary(found: &[Disagreement]) -> Value {
    let items: Vec<Value> = found.iter().take(MOST_ITEMS).map(item).collect();
    json!({ "count": found.len(), "items": items })
}

fn item(one: &Disagreement) -> Value {
    let service = one.service.as_ref();
    let (address, port) = match one.frontend {
        Place::Address(place) => (Some(place.ip().to_string()), place.port()),
        Place::NodePort { port, .. } => (None, port),
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
