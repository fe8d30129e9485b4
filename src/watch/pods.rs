//! Pods that were seen at reply sources, by their last names: one that is gone has no name in the cluster any more.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::entry::Entry;
use crate::verdict::Reason;

use super::record::{Followed, PodName};

/// Pods that are remembered.
const REMEMBERED: usize = 4096;

/// The memory of one watch.
#[derive(Debug, Default)]
pub(super) struct Pods(HashMap<IpAddr, Arc<PodName>>);

impl Pods {
    /// Notes the pod that has the reply source of an entry.
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
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let pod = PodName {
            namespace: namespace.into(),
            name: name.into(),
        };
        self.0.insert(address, Arc::new(pod));
    }

    /// The entry with the earlier owner of its reply source, where it has none now.
    pub fn followed<'c>(&self, entry: Entry<'c>) -> Followed<'c> {
        let endpoint_was = match entry.names.endpoint {
            None => self.0.get(&entry.flow.reply.src).cloned(),
            Some(_) => None,
        };
        Followed {
            entry,
            endpoint_was,
        }
    }

    /// `ns/pod` or the address, with what is wrong with it.
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
        let place = entry.flow.reply.source();
        let name = self.0.get(&place.address).map(|pod| pod.to_string());
        let name = name.unwrap_or_else(|| place.to_string());
        match reason {
            Some(Reason::EndpointGone | Reason::ServiceEmpty) => format!("{name} (gone)"),
            _ => name,
        }
    }
}
