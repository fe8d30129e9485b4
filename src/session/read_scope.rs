//! Part of a living cluster that a command reads. Less is read only where the answer stays the same.

use std::collections::BTreeSet;

use crate::purge::plan::PurgePlan;
use crate::select::Selectors;
use ctk_cluster::index::{AddressKind, Index, Name};
use ctk_cluster::read_scope::{ReadScope, Reread};
use ctk_cluster::service_scope::{Destinations, MAX_NAMED_SERVICES, ServiceScope};
use ctk_cluster::source::{Loaded, SourceKind};

use crate::query::{EntryQuery, SourceQuery};
use crate::session::pod_choice::{self, names_pods};

/// Scope of the first reading. Entries of a Service that is selected by name are judged by its endpoints, and by those of every Service
/// that shares a frontend with it.
pub fn first(source: &SourceQuery, entries: &EntryQuery) -> ReadScope {
    let selectors = &entries.selectors;
    let asked = selectors.services.plain();
    let by_service = !asked.is_empty() && !names_pods(selectors);
    let named = || {
        let services = asked.iter().map(|typed| &typed.service);
        services
            .map(|one| (one.namespace.clone(), one.name.clone()))
            .collect()
    };
    ReadScope {
        slices: by_service.then(|| ServiceScope::Named(named())),
        pods: pod_choice::choice(source, entries),
        again: None,
    }
}

/// Scope of the second reading, before a purge deletes: the Services and slices that the destinations of the plan belong to.
/// Everything else stays as the first reading found it. `None`, and `first` untouched, when everything must be read again.
pub fn again(
    first: &mut Option<Loaded>,
    plan: &PurgePlan,
    selectors: &Selectors,
) -> Option<ReadScope> {
    let is_live = |loaded: &mut Loaded| loaded.source.kind == SourceKind::Api;
    if names_pods(selectors) {
        return None;
    }
    let loaded = first.take_if(is_live)?;
    let destinations = destinations(plan);
    let services = services(&destinations, &loaded.index, selectors);
    Some(ReadScope {
        slices: Some(ServiceScope::Destinations(destinations)),
        pods: None,
        again: Some(Reread {
            first: Box::new(loaded),
            services,
        }),
    })
}

fn destinations(plan: &PurgePlan) -> Destinations {
    let mut destinations = Destinations::default();
    for planned in plan.entries() {
        let flow = &planned.flow;
        let address = flow.original.dst;
        destinations.addresses.insert(address);
        // The address of a node can also be an address of a Service.
        if let Some(port) = flow.original.dport() {
            destinations.node_ports.insert((flow.protocol(), port));
        }
    }
    destinations
}

/// Services to read by name, including those that the selectors name. `None` where all must be read: a new Service may share
/// a destination, unless it is a clusterIP, which belongs to one Service alone.
fn services(
    destinations: &Destinations,
    index: &Index,
    selectors: &Selectors,
) -> Option<BTreeSet<(Name, Name)>> {
    let mut found = BTreeSet::from([(Name::from("default"), Name::from("kubernetes"))]);
    let key = |id| {
        let service = index.service(id);
        (service.namespace.clone(), service.name.clone())
    };
    let mut ports = destinations.node_ports.iter();
    if ports.any(|(protocol, port)| !index.node_ports(*protocol, *port).is_empty()) {
        return None;
    }
    for address in &destinations.addresses {
        let owners = index.owners(*address);
        let exclusive = owners
            .iter()
            .all(|(_, kind)| *kind == AddressKind::ClusterIp);
        if owners.is_empty() || !exclusive {
            return None;
        }
        found.extend(owners.iter().map(|(id, _)| key(*id)));
    }
    let services = &selectors.services;
    for typed in services.plain().iter().chain(services.negated()) {
        found.extend(index.services_named(&typed.service.name).map(key));
    }
    (found.len() <= MAX_NAMED_SERVICES).then_some(found)
}
