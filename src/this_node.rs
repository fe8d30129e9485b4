//! Identity of this node, and whether the table belongs to it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ctk_cluster::index::{Index, Node};
use ctnetlink::rtnetlink::{LocalAddress, Routes};

/// Dummy interface on which kube-proxy in IPVS mode configures every Service address (`pkg/proxy/ipvs/proxier.go`,
/// `defaultDummyDevice`). It makes no address the node's.
const IPVS_INTERFACE: &str = "kube-ipvs0";

/// Owner of the network namespace whose table is judged. Services are translated in the node's namespace; in a Pod's own
/// namespace every healthy flow to a clusterIP looks untranslated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetnsOwner {
    Node,
    /// Another namespace, or one without proof that it is the node's.
    Foreign,
}

/// Node that the table belongs to, as far as it is known.
#[derive(Clone, Debug)]
pub struct ThisNode {
    /// Name of the Node object.
    pub name: Option<String>,
    /// All addresses configured in the namespace; `None` when they could not be read.
    pub local: Option<Vec<LocalAddress>>,
    /// Routes of the namespace; `None` when they could not be read.
    pub routes: Option<Routes>,
    pub namespace: NetnsOwner,
}

impl ThisNode {
    /// Finds the Node object by `named` (flag or `NODE_NAME`), else by an address that is both the Node's and on a local
    /// interface, else by `hostname`; and decides whether the namespace is the node's.
    ///
    /// The namespace is the node's when an address of this Node is on one of its interfaces or, where no Node objects are
    /// known, when it is the initial namespace (`initial`, `None` if unknown). [`ThisNode::sees_kube_proxy`] is the third
    /// proof.
    pub fn find(
        index: Option<&Index>,
        named: Option<&str>,
        hostname: Option<&str>,
        local: Option<Vec<LocalAddress>>,
        initial: Option<bool>,
    ) -> Self {
        let addresses = local.as_deref().unwrap_or_default();
        let node = index.and_then(|index| find_node(index, named, hostname, addresses));
        let namespace = match node {
            Some(node) => addresses
                .iter()
                .any(|local| distinguishes(local) && has(node, local.address())),
            // A machine that is none of the known Nodes is not judged, even where the list of Nodes may be incomplete.
            None => initial == Some(true) && !index.is_some_and(knows_nodes),
        };
        ThisNode {
            name: node.map(|node| node.name.to_string()),
            local,
            routes: None,
            namespace: if namespace {
                NetnsOwner::Node
            } else {
                NetnsOwner::Foreign
            },
        }
    }

    /// Adds the routes of the namespace.
    pub fn with_routes(self, routes: Option<Routes>) -> Self {
        ThisNode { routes, ..self }
    }

    /// Marks the namespace as the node's, because kube-proxy's rules are in it.
    pub fn sees_kube_proxy(&mut self) {
        self.namespace = NetnsOwner::Node;
    }

    /// Whether kube-proxy's dummy interface exists, so that IPVS balances Services.
    pub fn has_ipvs(&self) -> bool {
        let mut local = self.local.iter().flatten();
        local.any(|own| own.interface == IPVS_INTERFACE)
    }

    /// Node object of this node.
    pub fn object<'c>(&self, index: &'c Index) -> Option<&'c Node> {
        index.node_named(self.name.as_deref()?)
    }

    /// Whether node ports answer on this address; `None` when neither the Node object nor the interfaces are known.
    /// Addresses of the Node and of interfaces other than `kube-ipvs0` count.
    pub fn owns(&self, index: Option<&Index>, address: IpAddr) -> Option<bool> {
        let node = index.and_then(|index| self.object(index));
        if node.is_none() && self.local.is_none() {
            return None;
        }
        let of_node = node.is_some_and(|node| has(node, address));
        Some(of_node || self.interface_of(address).is_some())
    }

    /// Reports whether packets from `source` come in by one of these interfaces. `None` when that is not certain: the routes
    /// are not known or rules choose among tables, several interfaces lead to the address, or none does.
    pub fn enters_by(&self, names: &[String], source: IpAddr) -> Option<bool> {
        let interfaces = self.interfaces_to(source)?;
        let mut matched = interfaces.iter().map(|i| is_named(names, i));
        let first = matched.next()?;
        matched.all(|other| other == first).then_some(first)
    }

    /// Reports whether no route and no network of an interface leads to the address, as far as they are known.
    pub fn has_no_way_to(&self, address: IpAddr) -> bool {
        self.interfaces_to(address)
            .is_some_and(|all| all.is_empty())
    }

    /// Reports whether an interface with one of these names has an address.
    pub fn has_interface(&self, names: &[String]) -> bool {
        let mut local = self.local.iter().flatten();
        local.any(|own| is_named(names, &own.interface))
    }

    /// Interfaces that lead to an address by a route or by the network of an address. `None` when that is not known.
    pub fn interfaces_to(&self, address: IpAddr) -> Option<BTreeSet<&str>> {
        if address.is_loopback() {
            return None;
        }
        let mut found = self.routes.as_ref()?.interfaces_to(address)?;
        let connected = self.local.as_deref()?.iter();
        let connected = connected.filter(|own| own.network.contains(&address));
        found.extend(connected.map(|own| own.interface.as_str()));
        Some(found)
    }

    /// Name of the interface other than `kube-ipvs0` that has the address.
    pub fn interface_of(&self, address: IpAddr) -> Option<&str> {
        let mut local = self.local.iter().flatten();
        local
            .find(|own| own.address() == address && own.interface != IPVS_INTERFACE)
            .map(|own| own.interface.as_str())
    }
}

/// A final `*` in a name matches every rest.
fn is_named(names: &[String], interface: &str) -> bool {
    names.iter().any(|name| match name.strip_suffix('*') {
        Some(prefix) => interface.starts_with(prefix),
        None => name == interface,
    })
}

fn knows_nodes(index: &Index) -> bool {
    index.nodes().next().is_some()
}

/// Whether the address identifies a namespace: every namespace has the same loopback address, and every node in IPVS mode
/// the same Service addresses.
fn distinguishes(local: &LocalAddress) -> bool {
    local.interface != IPVS_INTERFACE && !local.address().is_loopback()
}

fn has(node: &Node, address: IpAddr) -> bool {
    node.internal.contains(&address) || node.external.contains(&address)
}

fn find_node<'c>(
    index: &'c Index,
    named: Option<&str>,
    hostname: Option<&str>,
    local: &[LocalAddress],
) -> Option<&'c Node> {
    if let Some(name) = named {
        return index.node_named(name);
    }
    let by_hostname = hostname.and_then(|hostname| {
        index.node_named(hostname).or_else(|| {
            let mut nodes = index
                .nodes()
                .filter(|node| node.hostname.as_deref() == Some(hostname));
            nodes.next().filter(|_| nodes.next().is_none())
        })
    });
    // An address on an interface proves more than a name, as the hostname of a Pod or a laptop can be arbitrary.
    let mut by_address = index.nodes().filter(|node| {
        local
            .iter()
            .any(|local| distinguishes(local) && has(node, local.address()))
    });
    match by_address.next() {
        Some(node) if by_address.next().is_none() => Some(node),
        _ => by_hostname,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctk_cluster::testing::world;

    fn local(addresses: &[&str]) -> Option<Vec<LocalAddress>> {
        let local = |address: &&str| LocalAddress {
            interface: "eth0".to_owned(),
            network: address.parse().unwrap(),
        };
        Some(addresses.iter().map(local).collect())
    }

    #[test]
    fn a_namespace_is_the_nodes_by_its_addresses_and_not_by_a_name() {
        use NetnsOwner::{Foreign, Node};
        let nodes = world(&["node n1 192.168.7.1 hostname=host1", "node n2 192.168.7.2"]);
        let none = world(&[]);
        let mut some = world(&["node n1 192.168.7.1 hostname=host1"]);
        some.doubt();
        assert!(!some.completeness().nodes);
        let (here, elsewhere) = (local(&["192.168.7.1/24"]), local(&["10.9.9.9/24"]));
        for (index, named, hostname, local, initial, name, namespace) in [
            (&nodes, None, None, &here, Some(false), Some("n1"), Node),
            (
                &nodes,
                Some("n1"),
                None,
                &here,
                Some(false),
                Some("n1"),
                Node,
            ),
            // A name alone proves nothing: the hostname of a Pod can be arbitrary.
            (
                &nodes,
                None,
                Some("n1"),
                &elsewhere,
                Some(false),
                Some("n1"),
                Foreign,
            ),
            (
                &nodes,
                None,
                Some("host1"),
                &elsewhere,
                Some(true),
                Some("n1"),
                Foreign,
            ),
            (
                &nodes,
                Some("n2"),
                None,
                &here,
                Some(true),
                Some("n2"),
                Foreign,
            ),
            // None of the cluster's Nodes: a bastion, or a node of another cluster.
            (
                &nodes,
                None,
                Some("bastion"),
                &elsewhere,
                Some(true),
                None,
                Foreign,
            ),
            (&nodes, Some("typo"), None, &here, Some(true), None, Foreign),
            // The same where the list of Nodes is incomplete, or can no longer be read.
            (
                &some,
                None,
                Some("bastion"),
                &elsewhere,
                Some(true),
                None,
                Foreign,
            ),
            (&some, None, None, &here, Some(true), Some("n1"), Node),
            // Without Nodes only the initial namespace is likely to be the node's.
            (&none, None, None, &elsewhere, Some(true), None, Node),
            (&none, None, None, &elsewhere, Some(false), None, Foreign),
            (&none, None, None, &elsewhere, None, None, Foreign),
        ] {
            let found = ThisNode::find(Some(index), named, hostname, local.clone(), initial);
            let what = format!("{named:?} {hostname:?} {local:?} {initial:?}");
            assert_eq!(
                (found.name.as_deref(), found.namespace),
                (name, namespace),
                "{what}"
            );
        }
    }

    #[test]
    fn loopback_and_ipvs_addresses_make_no_namespace_the_nodes() {
        let nodes = world(&["node n1 127.0.0.1 external=10.96.0.10"]);
        for (interface, address) in [("lo", "127.0.0.1/8"), ("kube-ipvs0", "10.96.0.10/32")] {
            let local = vec![LocalAddress {
                interface: interface.to_owned(),
                network: address.parse().unwrap(),
            }];
            let found = ThisNode::find(Some(&nodes), Some("n1"), None, Some(local), Some(false));
            assert_eq!(found.namespace, NetnsOwner::Foreign, "{interface}");
        }
    }
}
