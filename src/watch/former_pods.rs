//! Pods that were seen at reply sources, by address: the cluster has no name for an address whose pod is gone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::entry::Entry;
use crate::verdict::Reason;

use super::record::{FormerPod, WatchedEntry};

/// Most pods that are remembered; all are forgotten when one more comes.
const MAX_FORMER_PODS: usize = 4096;

/// Pods that one watch has seen, by the last address of each.
#[derive(Debug, Default)]
pub(super) struct FormerPods(HashMap<IpAddr, Arc<FormerPod>>);

impl FormerPods {
    /// Records the pod that has the reply source of an entry.
    pub fn remember(&mut self, entry: &Entry<'_>) {
        let party = entry.names.endpoint.map(|endpoint| endpoint.party);
        let named = party.and_then(|party| party.namespace.zip(party.name));
        let Some((namespace, name)) = named else {
            return;
        };
        let address = entry.flow.reply.src;
        let known = self.0.get(&address);
        if known.is_some_and(|pod| (&*pod.namespace, &*pod.name) == (namespace, name)) {
            return;
        }
        if self.0.len() >= MAX_FORMER_PODS {
            self.0.clear();
        }
        let pod = FormerPod {
            namespace: namespace.into(),
            name: name.into(),
        };
        self.0.insert(address, Arc::new(pod));
    }

    /// Adds the former owner of the reply source to an entry whose reply source has no owner now.
    pub fn annotate<'c>(&self, entry: Entry<'c>) -> WatchedEntry<'c> {
        let endpoint_was = match entry.names.endpoint {
            None => self.0.get(&entry.flow.reply.src).cloned(),
            Some(_) => None,
        };
        WatchedEntry {
            entry,
            endpoint_was,
        }
    }

    /// Text for the endpoint of an entry: `namespace/pod`, else the address, with `(gone)` when it is no endpoint any more.
    pub fn endpoint_text(&self, entry: &Entry<'_>) -> String {
        let reason = entry.judgement.map(|judgement| judgement.reason);
        let untranslated = [
            Reason::NoDnat,
            Reason::NoDnatNoEndpoint,
            Reason::NoDnatNoRule,
        ];
        if reason.is_some_and(|reason| untranslated.contains(&reason)) {
            return "not translated".to_owned();
        }
        let source = entry.flow.reply.source();
        let name = self.0.get(&source.address).map(|pod| pod.to_string());
        let name = name.unwrap_or_else(|| source.to_string());
        match reason {
            Some(Reason::EndpointGone | Reason::ServiceEmpty) => format!("{name} (gone)"),
            _ => name,
        }
    }
}
