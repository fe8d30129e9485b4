//! Part of a live cluster that a question needs. A narrow reading never changes the answer.
//!
//! A cluster of 5,000 nodes has 245 MB of Pods and 60 MB of EndpointSlices; the slices of one Service are some KiB.

use std::collections::HashSet;
use std::net::IpAddr;

use super::addresses::Addresses;
use super::index::{Name, Pod, Service, ServicePort};

/// Upper bound of the Services that are requested by name. A URL is limited in length, and beyond this the whole list is as fast.
pub const MAX_NAMED_SERVICES: usize = 50;

/// Upper bound of the addresses whose Pods are requested one by one. Beyond this all Pods are read.
pub const MAX_SELECTED_ADDRESSES: usize = 50;

/// Upper bound of the addresses that are requested for a name only: for each one the API server searches all Pods.
pub const MAX_NAME_LOOKUPS: usize = 10;

/// Pods to read: those of one node, and those that have certain addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenPods {
    pub node: String,
    pub addresses: ChosenAddresses,
}

/// Addresses whose Pods are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenAddresses {
    /// Addresses whose owner decides a verdict.
    pub deciding: HashSet<IpAddr>,
    /// Addresses whose owner supplies only a name, the most important first. Some of them may be skipped.
    pub named: Vec<IpAddr>,
}

impl ChosenAddresses {
    /// Addresses to request one by one. `None` where the deciding ones cannot be requested so: they are too many, or not of the
    /// family of the first address of the node's Pods, the only one by which the API server selects. Addresses that a Pod shares
    /// with the node are ignored.
    pub(super) fn one_by_one<'p>(
        mut self,
        pods_of_node: impl Iterator<Item = (&'p Pod, &'p Addresses)>,
    ) -> Option<HashSet<IpAddr>> {
        let own = pods_of_node.filter(|(pod, _)| !pod.host_network);
        let first: HashSet<bool> = own
            .filter_map(|(_, addresses)| Some(addresses.iter().next()?.is_ipv4()))
            .collect();
        let selects = |address: &IpAddr| first.len() == 1 && first.contains(&address.is_ipv4());
        if self.deciding.len() > MAX_SELECTED_ADDRESSES || !self.deciding.iter().all(selects) {
            return None;
        }
        self.named
            .retain(|address| selects(address) && !self.deciding.contains(address));
        let room = MAX_NAME_LOOKUPS.min(MAX_SELECTED_ADDRESSES - self.deciding.len());
        self.named.truncate(room);
        self.deciding.extend(self.named);
        Some(self.deciding)
    }
}

/// Services whose EndpointSlices are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceScope {
    /// These Services (namespace, if given, and name), and every Service that shares a frontend with one of them.
    Named(Vec<(Option<Box<str>>, Box<str>)>),
    /// Every Service to which one of these destinations may belong.
    Destinations(Destinations),
}

/// Destinations of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    pub addresses: HashSet<IpAddr>,
    /// Protocol and port, each of which may be a node port.
    pub node_ports: HashSet<(u8, u16)>,
}

impl ServiceScope {
    /// Names of the Services whose slices are read. `default/kubernetes` is among them, because it shows that the list is complete.
    /// `None` when they are too many to name.
    pub(super) fn names(&self, services: &[(Service, Vec<ServicePort>)]) -> Option<HashSet<Name>> {
        let shared: HashSet<FrontendKey> = match self {
            ServiceScope::Destinations(_) => HashSet::new(),
            ServiceScope::Named(named) => {
                let asked = services.iter().filter(|(one, _)| is_named(one, named));
                asked
                    .flat_map(|(one, ports)| frontends(one, ports))
                    .collect()
            }
        };
        let is_concerned = |service: &Service, ports: &[ServicePort]| match self {
            ServiceScope::Destinations(wanted) => wanted.may_match(service, ports),
            ServiceScope::Named(named) => {
                is_named(service, named)
                    || frontends(service, ports).any(|one| shared.contains(&one))
            }
        };
        let concerned = services
            .iter()
            .filter(|(one, ports)| is_concerned(one, ports));
        let mut names: HashSet<Name> = concerned.map(|(one, _)| one.name.clone()).collect();
        names.insert(Name::from("kubernetes"));
        (names.len() <= MAX_NAMED_SERVICES).then_some(names)
    }
}

impl Destinations {
    fn may_match(&self, service: &Service, ports: &[ServicePort]) -> bool {
        let mut addresses = service.addresses.iter();
        let node_port = |port: &ServicePort| {
            let number = port.node_port;
            number.is_some_and(|number| self.node_ports.contains(&(port.protocol, number)))
        };
        addresses.any(|(address, _)| self.addresses.contains(address))
            || ports.iter().any(node_port)
    }

    /// Reports whether every address belongs to one of these Services.
    pub(super) fn are_owned(&self, services: &[(Service, Vec<ServicePort>)]) -> bool {
        let owned: HashSet<IpAddr> = services
            .iter()
            .flat_map(|(service, _)| service.addresses.iter().map(|(address, _)| *address))
            .collect();
        self.addresses.is_subset(&owned)
    }
}

/// Address (`None` for a node port, on every address of a node), protocol and port.
type FrontendKey = (Option<IpAddr>, u8, u16);

fn frontends<'s>(
    service: &'s Service,
    ports: &'s [ServicePort],
) -> impl Iterator<Item = FrontendKey> + use<'s> {
    ports.iter().flat_map(move |port| {
        let by_address = service.addresses.iter();
        let by_address = by_address.map(|(address, _)| (Some(*address), port.protocol, port.port));
        let by_node = port.node_port.map(|number| (None, port.protocol, number));
        by_address.chain(by_node)
    })
}

fn is_named(service: &Service, named: &[(Option<Box<str>>, Box<str>)]) -> bool {
    named.iter().any(|(namespace, name)| {
        **name == *service.name && namespace.as_ref().is_none_or(|n| **n == *service.namespace)
    })
}

#[cfg(test)]
mod tests {
    use super::super::build::Builder;
    use super::super::{list_decoder, testing};
    use super::*;

    fn builder(lines: &[&str]) -> Builder {
        let mut builder = Builder::new(&[]);
        list_decoder::read(testing::list(lines).as_bytes(), &mut builder).unwrap();
        builder
    }

    fn names(lines: &[&str], concerned: &ServiceScope) -> Option<Vec<String>> {
        let names = builder(lines).slices_of(concerned)?;
        Some(names.iter().map(|name| name.to_string()).collect())
    }

    fn named(text: &str) -> ServiceScope {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace.into()), name),
            None => (None, text),
        };
        ServiceScope::Named(vec![(namespace, name.into())])
    }

    const LINES: [&str; 7] = [
        "svc default/kubernetes 10.96.0.1 https:443/TCP",
        "svc a/alone 10.96.1.1 p:53/UDP",
        "svc a/one 10.96.1.2 external=203.0.113.5 p:53/UDP",
        "svc b/two 10.96.1.3 ingress=203.0.113.5 p:53/UDP",
        "svc b/other-port 10.96.1.4 external=203.0.113.5 p:54/UDP",
        "svc c/node 10.96.1.5 p:53/UDP@30053",
        "svc d/same-node-port 10.96.1.6 p:99/UDP@30053",
    ];

    #[test]
    fn a_service_is_read_with_those_that_share_a_frontend() {
        for (asked, found) in [
            ("alone", &["alone", "kubernetes"][..]),
            ("a/alone", &["alone", "kubernetes"]),
            ("b/alone", &["kubernetes"]),
            ("one", &["kubernetes", "one", "two"]),
            ("two", &["kubernetes", "one", "two"]),
            ("other-port", &["kubernetes", "other-port"]),
            ("node", &["kubernetes", "node", "same-node-port"]),
        ] {
            assert_eq!(names(&LINES, &named(asked)).unwrap(), found, "{asked}");
        }
    }

    #[test]
    fn a_destination_selects_the_services_of_its_address_or_node_port() {
        let of = |addresses: &[&str], node_ports: &[(u8, u16)]| {
            ServiceScope::Destinations(Destinations {
                addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
                node_ports: node_ports.iter().copied().collect(),
            })
        };
        for (concerned, found) in [
            (of(&["10.96.1.1"], &[]), &["alone", "kubernetes"][..]),
            (
                of(&["203.0.113.5"], &[]),
                &["kubernetes", "one", "other-port", "two"],
            ),
            (
                of(&["192.0.2.11"], &[(17, 30_053)]),
                &["kubernetes", "node", "same-node-port"],
            ),
            (of(&["192.0.2.11"], &[(6, 30_053)]), &["kubernetes"]),
        ] {
            assert_eq!(names(&LINES, &concerned).unwrap(), found, "{concerned:?}");
        }
    }

    #[test]
    fn too_many_services_for_a_url_are_read_by_the_whole_list() {
        let service = |n: usize| format!("svc a/s{n} 10.96.1.{n} external=203.0.113.5 p:53/UDP");
        for (count, by_name) in [(MAX_NAMED_SERVICES - 1, true), (MAX_NAMED_SERVICES, false)] {
            let lines: Vec<String> = (1..=count).map(service).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(names(&lines, &named("s1")).is_some(), by_name, "{count}");
        }
    }

    #[test]
    fn services_that_were_not_read_are_unknown() {
        let mut builder = builder(&LINES);
        builder.slices_of(&named("one"));
        let index = builder.finish().unwrap().index;
        for (namespace, name, known) in [
            ("a", "one", true),
            ("b", "two", true),
            ("a", "alone", false),
        ] {
            let id = index.service_named(namespace, name).unwrap();
            assert_eq!(index.endpoints_known(id), known, "{name}");
        }
    }
}
