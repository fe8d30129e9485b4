//! Resolution of typed names to objects that exist.

use std::collections::BTreeSet;

use super::name::{ObjectName, PartyName, PortRef, ServiceRef};
use super::{
    Directory, ResolvedParty, ResolvedPod, SERVICE_FLAG, SelectError, SelectErrorKind, Selection,
    Selectors, ServicePick,
};
use crate::filter::Picks;
use crate::filter::suggest::near;
use ctk_cluster::index::{Index, Name, PortId, ServiceId};
use ctk_cluster::rules::{NodeRules, RuleService};
use ctnetlink::flow::AddressPort;

/// Most names in a hint.
const MAX_OFFERED: usize = 5;

/// Namespace and name of an object that a hint may offer.
type NamePair<'c> = (&'c str, &'c str);

pub(super) fn resolve(
    selectors: &Selectors,
    known: Directory<'_>,
) -> Result<Selection, SelectError> {
    let index = match known {
        Directory::Index(index) => index,
        Directory::Rules(rules) => return by_rules(selectors, rules),
    };
    Ok(Selection {
        services: each(&selectors.services, |typed| service(typed, index))?,
        pods: each(&selectors.pods, |typed| pod("--pod", &typed.0, index))?,
        clients: each(&selectors.clients, |typed| party("--client", typed, index))?,
        endpoints: each(&selectors.endpoints, |typed| {
            party("--endpoint", typed, index)
        })?,
        namespaces: each(&selectors.namespaces, |typed| {
            let all: BTreeSet<&str> = index.namespaces().collect();
            namespace(&typed.0, &all)
        })?,
        ..without_directory(selectors)?
    })
}

/// Resolves the selectors that need no directory.
fn without_directory(selectors: &Selectors) -> Result<Selection, SelectError> {
    Ok(Selection {
        verdicts: each(&selectors.verdicts, |word| Ok(word.0))?,
        reasons: each(&selectors.reasons, |word| Ok(word.0))?,
        stale: selectors.stale,
        refreshing: selectors.refreshing,
        names_a_protocol: selectors.names_a_protocol,
        ..Selection::default()
    })
}

fn by_rules(selectors: &Selectors, rules: &NodeRules) -> Result<Selection, SelectError> {
    // Rules name no pods, so that every name of a pod may exist.
    let no_pods = Index::default();
    let not_told = |mut error: SelectError| {
        error.kind = SelectErrorKind::NotTold;
        error.hint = Some("this node's rules name Services, and no pods".to_owned());
        error
    };
    let namespaces: BTreeSet<&str> = rules
        .services()
        .map(|(service, _)| &*service.namespace)
        .collect();
    Ok(Selection {
        services: each(&selectors.services, |typed| service_by_rules(typed, rules))?,
        pods: each(&selectors.pods, |typed| {
            pod("--pod", &typed.0, &no_pods).map_err(not_told)
        })?,
        clients: each(&selectors.clients, |typed| {
            party("--client", typed, &no_pods).map_err(not_told)
        })?,
        endpoints: each(&selectors.endpoints, |typed| {
            party("--endpoint", typed, &no_pods).map_err(not_told)
        })?,
        namespaces: each(&selectors.namespaces, |typed| {
            namespace(&typed.0, &namespaces)
        })?,
        ..without_directory(selectors)?
    })
}

pub(super) fn service_by_rules(
    typed: &ServiceRef,
    rules: &NodeRules,
) -> Result<ServicePick, SelectError> {
    let wanted = &typed.service;
    let all: BTreeSet<NamePair<'_>> = rules
        .services()
        .map(|(service, _)| (&*service.namespace, &*service.name))
        .collect();
    let mut found = all
        .iter()
        .filter(|(namespace, name)| *name == &*wanted.name && in_namespace(wanted, namespace));
    let (namespace, name) = match (found.next(), found.next()) {
        (Some(one), None) => *one,
        (None, _) => {
            return Err(unknown(
                SERVICE_FLAG,
                "Service",
                wanted,
                all.iter().copied(),
            ));
        }
        (Some(_), Some(_)) => {
            let same = all.iter().filter(|(_, name)| *name == &*wanted.name);
            let owners = same.map(|(namespace, _)| *namespace);
            return Err(ambiguous(SERVICE_FLAG, "Service", &wanted.name, owners));
        }
    };
    let of_service = || {
        let all = rules.services();
        all.filter(|(service, _)| &*service.namespace == namespace && &*service.name == name)
    };
    let is_meant = |service: &RuleService, number: u16| match &typed.port {
        None => true,
        Some(PortRef::Name(name)) => service.port.as_deref() == Some(name),
        Some(PortRef::Number(wanted)) => number == *wanted,
    };
    // Ports are kept by name, so that a number selects every frontend of its port.
    let ports: BTreeSet<Option<Name>> = of_service()
        .filter(|(service, number)| is_meant(service, *number))
        .map(|(service, _)| service.port.clone())
        .collect();
    if let (true, Some(port)) = (ports.is_empty(), &typed.port) {
        let all: BTreeSet<String> = of_service()
            .map(|(service, number)| match &service.port {
                Some(name) => format!("{name} ({number})"),
                None => number.to_string(),
            })
            .collect();
        return Err(no_port(namespace, name, port, all.into_iter().collect()));
    }
    Ok(ServicePick::Named {
        namespace: namespace.into(),
        name: name.into(),
        ports: ports.into_iter().collect(),
    })
}

fn each<T, U>(
    typed: &Picks<T>,
    resolve: impl Fn(&T) -> Result<U, SelectError>,
) -> Result<Picks<U>, SelectError> {
    let mut picks = Picks::default();
    for (negated, values) in [(false, typed.plain()), (true, typed.negated())] {
        for value in values {
            picks.push(negated, resolve(value)?);
        }
    }
    Ok(picks)
}

pub(super) fn service(typed: &ServiceRef, index: &Index) -> Result<ServicePick, SelectError> {
    let wanted = &typed.service;
    let ids: Vec<ServiceId> = index
        .services_named(&wanted.name)
        .filter(|id| in_namespace(wanted, &index.service(*id).namespace))
        .collect();
    let id = match ids.as_slice() {
        [id] => *id,
        [] => {
            let known = index.services().map(|(_, s)| (&*s.namespace, &*s.name));
            return Err(unknown(SERVICE_FLAG, "Service", wanted, known));
        }
        several => {
            let owners = several.iter().map(|id| &*index.service(*id).namespace);
            return Err(ambiguous(SERVICE_FLAG, "Service", &wanted.name, owners));
        }
    };
    let ports = match &typed.port {
        Some(port) => ports(id, port, index)?,
        None => index.ports_of(id).map(|(id, _)| id).collect(),
    };
    Ok(ServicePick::Ports(ports))
}

/// Returns the ports of the Service that `wanted` names. A number is a Service port, or a node port as tables show it. One
/// number with two protocols is two ports.
fn ports(id: ServiceId, wanted: &PortRef, index: &Index) -> Result<Vec<PortId>, SelectError> {
    let mut found = Vec::new();
    let mut all = Vec::new();
    for (port_id, port) in index.ports_of(id) {
        let is_meant = match wanted {
            PortRef::Name(name) => port.name.as_deref() == Some(name),
            PortRef::Number(number) => port.port == *number || port.node_port == Some(*number),
        };
        if is_meant {
            found.push(port_id);
        }
        all.push(match &port.name {
            Some(name) => format!("{name} ({})", port.port),
            None => port.port.to_string(),
        });
    }
    if found.is_empty() {
        let service = index.service(id);
        return Err(no_port(&service.namespace, &service.name, wanted, all));
    }
    Ok(found)
}

fn no_port(namespace: &str, name: &str, wanted: &PortRef, all: Vec<String>) -> SelectError {
    SelectError {
        kind: SelectErrorKind::Unknown,
        flag: SERVICE_FLAG,
        message: format!("Service {namespace}/{name} has no port {wanted}"),
        hint: (!all.is_empty()).then(|| format!("its ports are {}", all.join(", "))),
    }
}

/// Returns every pod with a name: those that were read, and those that only a slice names.
fn pods(index: &Index) -> impl Iterator<Item = NamePair<'_>> {
    let listed = index.pods().map(|pod| (&*pod.namespace, &*pod.name));
    let targets = index
        .services()
        .flat_map(|(id, _)| index.ports_of(id))
        .flat_map(|(_, port)| &port.endpoints)
        .filter_map(|endpoint| endpoint.pod.as_ref())
        .map(|(namespace, name)| (&**namespace, &**name));
    listed.chain(targets)
}

fn pod(flag: &'static str, wanted: &ObjectName, index: &Index) -> Result<ResolvedPod, SelectError> {
    let found: BTreeSet<NamePair> = pods(index)
        .filter(|(namespace, name)| *name == &*wanted.name && in_namespace(wanted, namespace))
        .collect();
    let mut owners = found.iter().map(|(namespace, _)| *namespace);
    match (owners.next(), owners.next()) {
        (Some(namespace), None) => Ok(ResolvedPod {
            namespace: namespace.into(),
            name: wanted.name.clone(),
            host_network: index
                .pod_named(namespace, &wanted.name)
                .is_some_and(|pod| pod.host_network),
        }),
        (None, _) => Err(unknown(flag, "pod", wanted, pods(index))),
        (Some(_), Some(_)) => {
            let owners = found.iter().map(|(namespace, _)| *namespace);
            Err(ambiguous(flag, "pod", &wanted.name, owners))
        }
    }
}

fn party(
    flag: &'static str,
    typed: &PartyName,
    index: &Index,
) -> Result<ResolvedParty, SelectError> {
    Ok(match typed {
        PartyName::Pod(name) => ResolvedParty::Pod(pod(flag, name, index)?),
        PartyName::Net(net) => ResolvedParty::Net(*net),
        PartyName::Socket(socket) => ResolvedParty::Socket(AddressPort {
            address: socket.ip(),
            port: Some(socket.port()),
        }),
    })
}

fn namespace(wanted: &str, all: &BTreeSet<&str>) -> Result<Box<str>, SelectError> {
    if all.contains(wanted) {
        return Ok(wanted.into());
    }
    Err(SelectError {
        kind: SelectErrorKind::Unknown,
        flag: "--namespace",
        message: format!("there is no namespace {wanted}"),
        hint: offer(near(wanted, all.iter().copied(), MAX_OFFERED)),
    })
}

fn in_namespace(wanted: &ObjectName, namespace: &str) -> bool {
    wanted.namespace.as_deref().is_none_or(|n| n == namespace)
}

fn unknown<'c>(
    flag: &'static str,
    kind: &str,
    wanted: &ObjectName,
    known: impl Iterator<Item = NamePair<'c>>,
) -> SelectError {
    let known: BTreeSet<NamePair> = known.collect();
    let names: BTreeSet<&str> = known.iter().map(|(_, name)| *name).collect();
    // With the namespaces, because the right name in the wrong namespace is a likely slip.
    let mut close = Vec::new();
    for name in near(&wanted.name, names, MAX_OFFERED) {
        let owners = known.iter().filter(|(_, n)| *n == name);
        close.extend(owners.map(|(namespace, name)| format!("{namespace}/{name}")));
    }
    close.truncate(MAX_OFFERED);
    SelectError {
        kind: SelectErrorKind::Unknown,
        flag,
        message: format!("there is no {kind} {wanted}"),
        hint: offer(close),
    }
}

fn offer<S: AsRef<str>>(close: Vec<S>) -> Option<String> {
    let close: Vec<&str> = close.iter().map(AsRef::as_ref).collect();
    (!close.is_empty()).then(|| format!("did you mean {}?", close.join(", ")))
}

fn ambiguous<'c>(
    flag: &'static str,
    kind: &str,
    name: &str,
    namespaces: impl Iterator<Item = &'c str>,
) -> SelectError {
    let all: Vec<String> = namespaces.map(|n| format!("{n}/{name}")).collect();
    SelectError {
        kind: SelectErrorKind::Ambiguous,
        flag,
        message: format!("several namespaces have a {kind} {name}"),
        hint: Some(format!("name one of {}", all.join(", "))),
    }
}
