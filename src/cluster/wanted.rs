//! How much of a living cluster is read: only what the question needs, where the answer cannot change by it.
//!
//! A cluster of 5,000 nodes has 245 MB of Pods and 60 MB of EndpointSlices; one Service's slices are some KiB.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use super::build::Addresses;
use super::index::{Index, Name, Pod, Service, ServicePort};
use super::source::Loaded;

/// More Services than this are not asked for by name: a URL has its limits, and then the whole list is no longer.
pub const MOST_SERVICES: usize = 50;

/// Pods with more addresses than this are not asked for one by one: all Pods are read.
pub const MOST_ADDRESSES: usize = 50;

/// Addresses that are asked for only to name whoever has them: each costs the API server a look through all Pods.
pub const MOST_NAMED: usize = 10;

/// Which Pods are worth reading: one node's, and those that have certain addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenPods {
    pub node: String,
    pub addresses: ChosenAddresses,
}

/// Addresses whose Pods are worth reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenAddresses {
    /// A verdict hangs on who has them.
    pub deciding: HashSet<IpAddr>,
    /// Only a name hangs on it, the most wanted first. Not all of them need be asked for.
    pub named: Vec<IpAddr>,
}

impl ChosenAddresses {
    /// Those to ask for one by one. `None` where those that decide cannot be: they are too many, or not of one family with
    /// the first address of every Pod of the node, the only one by which the API server selects. Addresses that a Pod shares
    /// with the node do not count.
    pub(super) fn one_by_one<'p>(
        mut self,
        pods_of_node: impl Iterator<Item = (&'p Pod, &'p Addresses)>,
    ) -> Option<HashSet<IpAddr>> {
        let own = pods_of_node.filter(|(pod, _)| !pod.host_network);
        let first: HashSet<bool> = own
            .filter_map(|(_, addresses)| Some(addresses.iter().next()?.is_ipv4()))
            .collect();
        let selects = |address: &IpAddr| first.len() == 1 && first.contains(&address.is_ipv4());
        if self.deciding.len() > MOST_ADDRESSES || !self.deciding.iter().all(selects) {
            return None;
        }
        self.named
            .retain(|address| selects(address) && !self.deciding.contains(address));
        let room = MOST_NAMED.min(MOST_ADDRESSES - self.deciding.len());
        self.named.truncate(room);
        self.deciding.extend(self.named);
        Some(self.deciding)
    }
}

/// Says which Pods are read, when all other kinds are; `None` for all of them.
pub type ChoosePods = Box<dyn FnOnce(&Index) -> Option<ChosenPods> + Send>;

/// What is read; by default all of it.
#[derive(Default)]
pub struct Wanted {
    pub slices: Option<Concerned>,
    pub pods: Option<ChoosePods>,
    /// For a second look.
    pub again: Option<Again>,
}

/// The Services whose EndpointSlices are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concerned {
    /// These (namespace, if given, and name), and every Service that shares a frontend with one of them.
    Named(Vec<(Option<Box<str>>, Box<str>)>),
    /// Every Service that one of these destinations may belong to.
    Destinations(Destinations),
}

/// Destinations of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    pub addresses: HashSet<IpAddr>,
    /// Protocol and port, any of which may be a node port.
    pub node_ports: HashSet<(u8, u16)>,
}

/// A reading that renews an earlier one.
pub struct Again {
    /// Nodes, Pods and ServiceCIDRs are taken from it.
    pub first: Box<Loaded>,
    /// Only these Services are read, by namespace and name. All of them are when one of the destinations has lost its owner.
    pub services: Option<BTreeSet<(Name, Name)>>,
}

impl Concerned {
    /// Names of the Services whose slices are read, `default/kubernetes` among them: it shows that the list is whole. `None`
    /// when they are too many to name.
    pub(super) fn names(&self, services: &[(Service, Vec<ServicePort>)]) -> Option<HashSet<Name>> {
        let shared: HashSet<Frontend> = match self {
            Concerned::Destinations(_) => HashSet::new(),
            Concerned::Named(named) => {
                let asked = services.iter().filter(|(one, _)| is_named(one, named));
                asked
                    .flat_map(|(one, ports)| frontends(one, ports))
                    .collect()
            }
        };
        let is_concerned = |service: &Service, ports: &[ServicePort]| match self {
            Concerned::Destinations(wanted) => wanted.may_match(service, ports),
            Concerned::Named(named) => {
                is_named(service, named)
                    || frontends(service, ports).any(|one| shared.contains(&one))
            }
        };
        let concerned = services
            .iter()
            .filter(|(one, ports)| is_concerned(one, ports));
        let mut names: HashSet<Name> = concerned.map(|(one, _)| one.name.clone()).collect();
        names.insert(Name::from("kubernetes"));
        (names.len() <= MOST_SERVICES).then_some(names)
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

    /// Every address belongs to one of these Services.
    pub(super) fn are_owned(&self, services: &[(Service, Vec<ServicePort>)]) -> bool {
        let owned: HashSet<IpAddr> = services
            .iter()
            .flat_map(|(service, _)| service.addresses.iter().map(|(address, _)| *address))
            .collect();
        self.addresses.is_subset(&owned)
    }
}

/// Address (`None`: a node port, on whatever address of a node), protocol and port.
type Frontend = (Option<IpAddr>, u8, u16);

fn frontends<'s>(
    service: &'s Service,
    ports: &'s [ServicePort],
) -> impl Iterator<Item = Frontend> + use<'s> {
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
    use super::super::{list, testing};
    use super::*;

    fn builder(lines: &[&str]) -> Builder {
        let mut builder = Builder::new(&[]);
        list::read(testing::list(lines).as_bytes(), &mut builder).unwrap();
        builder
    }

    fn names(lines: &[&str], concerned: &Concerned) -> Option<Vec<String>> {
        let names = builder(lines).slices_of(concerned)?;
        Some(names.iter().map(|name| name.to_string()).collect())
    }

    fn named(text: &str) -> Concerned {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace.into()), name),
            None => (None, text),
        };
        Concerned::Named(vec![(namespace, name.into())])
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
    fn a_service_comes_with_whoever_shares_a_frontend() {
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
    fn a_destination_comes_with_whoever_has_its_address_or_node_port() {
        let of = |addresses: &[&str], node_ports: &[(u8, u16)]| {
            Concerned::Destinations(Destinations {
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
    fn more_services_than_a_url_holds_are_read_with_all_others() {
        let service = |n: usize| format!("svc a/s{n} 10.96.1.{n} external=203.0.113.5 p:53/UDP");
        for (count, by_name) in [(MOST_SERVICES - 1, true), (MOST_SERVICES, false)] {
            let lines: Vec<String> = (1..=count).map(service).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(names(&lines, &named("s1")).is_some(), by_name, "{count}");
        }
    }

    #[test]
    fn what_was_not_read_is_not_known() {
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
