//! Look-up tables by address: (address, protocol, port) to Service port; address to pod, node, owner.
//!
//! [`super::build::Builder`] makes an [`Index`], which is immutable afterwards.
//!
//! Peak memory of a reading (the index and the temporary data of its construction): 1,070 bytes for a Service with two ports
//! and a slice, 280 for a pod, 490 for a pod that is also an endpoint of two ports. A process with 1,000 Services and 50,000
//! such pods peaks at 27 MiB, at 53 MiB where only the end of a list names the kind of its items. Measured as the growth
//! of VmHWM between two sizes of cluster, IPv4, release build on x86-64 with glibc:
//! `cargo test --release --test cluster_memory -- --ignored --nocapture`.

mod endpoints;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;

pub(crate) use endpoints::merge;
pub use endpoints::{EndpointCounts, EndpointList};

/// A name. Shared, because many objects hold the same names of namespaces, nodes and pods.
pub type Name = Arc<str>;

/// Position of a [`Service`] in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u32);

/// Position of a [`ServicePort`] in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u32);

/// Relation of an address to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressKind {
    ClusterIp,
    ExternalIp,
    /// `status.loadBalancer.ingress[].ip`, ipMode absent or `VIP`.
    Ingress,
    /// The same with ipMode `Proxy`: the load balancer's own address, to which packets are not translated here.
    ProxyIngress,
}

/// Rule by which a client address stays on one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    None,
    /// Time-out in seconds since the last new flow of the client, where the source has it.
    ClientIp(Option<u32>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub namespace: Name,
    pub name: Name,
    /// False for Services that kube-proxy ignores: headless, ExternalName, or labelled
    /// `service.kubernetes.io/service-proxy-name` or `service.kubernetes.io/headless`, or all of whose slices are so labelled.
    pub kube_proxy: bool,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`.
    pub external_local: bool,
    /// `None` where the source does not have it.
    pub affinity: Option<Affinity>,
    /// Every address with its relation to the Service. Each address is listed once, with the first kind that applies in the order of
    /// [`AddressKind`] (kube-proxy translates an externalIP even where the ingress of the same address is `Proxy`).
    /// A headless Service has none of kind clusterIP.
    pub addresses: Box<[(IpAddr, AddressKind)]>,
    pub ports: Range<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    pub service: ServiceId,
    /// `None` for an unnamed port.
    pub name: Option<Name>,
    /// IANA protocol number.
    pub protocol: u8,
    pub port: u16,
    pub node_port: Option<u16>,
    pub endpoints: EndpointList,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `addresses[0]`, the only one that kube-proxy uses.
    pub address: IpAddr,
    pub port: u16,
    pub ready: bool,
    /// The `serving` condition; see [`Endpoint::serves`].
    pub serving: bool,
    pub terminating: bool,
    /// Intended for certain zones or nodes: kube-proxy omits it on others.
    pub hinted: bool,
    pub node: Option<Name>,
    /// Namespace and name of the pod in `targetRef`.
    pub pod: Option<(Name, Name)>,
    /// `addresses[1..]`.
    pub secondary: Box<[IpAddr]>,
}

impl Endpoint {
    /// Reports whether kube-proxy may send new packets there: `ready` or `serving`.
    pub fn serves(&self) -> bool {
        self.ready || self.serving
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub namespace: Name,
    pub name: Name,
    pub node: Option<Name>,
    /// The pod lives in the network namespace of the node and has no address of its own.
    pub host_network: bool,
    /// Phase is neither `Succeeded` nor `Failed`. A finished pod keeps only its name: its address may be reused.
    pub live: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Name,
    /// InternalIP addresses.
    pub internal: Box<[IpAddr]>,
    /// ExternalIP addresses that are not InternalIPs as well.
    pub external: Box<[IpAddr]>,
    /// `metadata.labels["kubernetes.io/hostname"]` or the Hostname address, where given.
    pub hostname: Option<Name>,
    /// kube-proxy version that kubelet reports, such as `v1.31.2`, else the version of kubelet, which nearly always equals it.
    pub version: Option<Name>,
}

/// A matched frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frontend {
    pub port: PortId,
    pub kind: AddressKind,
}

/// Kinds that were read completely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    pub services: bool,
    pub slices: bool,
    pub pods: bool,
    pub nodes: bool,
    /// ServiceCIDR objects, or a range by flag.
    pub service_cidrs: bool,
}

/// A pod that matches a `--pod` selector.
#[derive(Clone, Debug)]
pub struct PodCandidate<'c> {
    pub pod: &'c Pod,
    /// Its own addresses; those of its node for a host-network pod; none once it has finished.
    pub addresses: Vec<IpAddr>,
    /// Ports that a host-network pod declares, as (protocol, port): only these distinguish it from others on the node's address.
    /// Empty for every other pod.
    pub ports: Vec<(u8, u16)>,
}

/// A port declared by a live host-network pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostPort {
    pub address: IpAddr,
    pub protocol: u8,
    pub port: u16,
    pub pod: u32,
}

/// The cluster, as far as the source has it.
///
/// Ids are valid for the index that returned them only.
#[derive(Debug, Default)]
pub struct Index {
    pub(super) completeness: Completeness,
    pub(super) uid: Option<Name>,
    /// Sorted by namespace and name.
    pub(super) services: Vec<Service>,
    pub(super) ports: Vec<ServicePort>,
    pub(super) frontends: HashMap<(IpAddr, u8, u16), Vec<Frontend>>,
    pub(super) node_ports: HashMap<(u8, u16), Vec<PortId>>,
    pub(super) owners: HashMap<IpAddr, Vec<(ServiceId, AddressKind)>>,
    /// Sorted by namespace and name.
    pub(super) pods: Vec<Pod>,
    /// Live pods by their own addresses, sorted. A sorted list takes half the memory of a map.
    pub(super) pod_addresses: Vec<(IpAddr, u32)>,
    /// Live host-network pods by their node's addresses, sorted by pod.
    pub(super) host_addresses: Vec<(u32, IpAddr)>,
    /// Sorted.
    pub(super) host_ports: Vec<HostPort>,
    /// Sorted by name.
    pub(super) nodes: Vec<Node>,
    pub(super) node_addresses: HashMap<IpAddr, u32>,
    pub(super) service_ranges: Vec<IpNet>,
    pub(super) pod_ranges: Vec<IpNet>,
    pub(super) namespaces: BTreeSet<Name>,
    /// Set where not every Pod was read: the addresses whose Pods were requested.
    pub(super) pods_asked: Option<HashSet<IpAddr>>,
    /// Set where not every EndpointSlice was read: the Services whose slices were requested by name, in all namespaces.
    pub(super) slices_asked: Option<HashSet<Name>>,
    /// Set where not every Service was read: the addresses whose owners are known.
    pub(super) destinations_asked: Option<HashSet<IpAddr>>,
    /// See [`Index::listed_pod`].
    pub(super) listed_pods: OnceLock<Vec<ListedPod>>,
}

/// A pod as named by an EndpointSlice: its address, and the position of the endpoint.
pub(super) type ListedPod = (IpAddr, PortId, u32);

impl Index {
    pub fn completeness(&self) -> &Completeness {
        &self.completeness
    }

    /// Uid of the Service `default/kubernetes`, where the source has it: it is unique for each cluster.
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Marks the index as outdated where no better one is available: names stay, and no verdict is based on it.
    pub fn doubt(&mut self) {
        self.completeness = Completeness::default();
    }

    pub fn service(&self, id: ServiceId) -> &Service {
        &self.services[id.0 as usize]
    }

    pub fn port(&self, id: PortId) -> &ServicePort {
        &self.ports[id.0 as usize]
    }

    /// Sorted by namespace and name.
    pub fn services(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        (0..).map(ServiceId).zip(&self.services)
    }

    /// In the order of the Service's spec.
    pub fn ports_of(&self, id: ServiceId) -> impl Iterator<Item = (PortId, &ServicePort)> {
        let range = self.service(id).ports.clone();
        range.map(|port| (PortId(port), self.port(PortId(port))))
    }

    pub fn service_named(&self, namespace: &str, name: &str) -> Option<ServiceId> {
        let key = (namespace, name);
        let found = self
            .services
            .binary_search_by(|s| (&*s.namespace, &*s.name).cmp(&key));
        found.ok().map(|at| ServiceId(at as u32))
    }

    /// All Services with this name, in any namespace.
    pub fn services_named(&self, name: &str) -> impl Iterator<Item = ServiceId> {
        let all = self.services().filter(move |(_, s)| &*s.name == name);
        all.map(|(id, _)| id)
    }

    /// Service ports that packets to this address, protocol and port belong to, without node ports. Several where Services
    /// share an external address. Services of other proxies and ingress addresses of mode `Proxy` match as well.
    pub fn frontends(&self, address: IpAddr, protocol: u8, port: u16) -> &[Frontend] {
        let found = self.frontends.get(&(address, protocol, port));
        found.map_or(&[], Vec::as_slice)
    }

    /// Service ports with this node port, those of Services of other proxies included.
    pub fn node_ports(&self, protocol: u8, port: u16) -> &[PortId] {
        let found = self.node_ports.get(&(protocol, port));
        found.map_or(&[], Vec::as_slice)
    }

    /// Every Service of any kind that has this address.
    pub fn owners(&self, address: IpAddr) -> &[(ServiceId, AddressKind)] {
        self.owners.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Live pods with this address of their own. Two for a moment, when an address is reused.
    pub fn pods_at(&self, address: IpAddr) -> impl Iterator<Item = &Pod> {
        let first = self.pod_addresses.partition_point(|(a, _)| *a < address);
        let from = self.pod_addresses.get(first..).unwrap_or_default();
        let here = from.iter().take_while(move |(a, _)| *a == address);
        here.filter_map(|(_, pod)| self.pods.get(*pod as usize))
    }

    /// Addresses of a live pod.
    pub fn addresses_of<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = IpAddr> + 'a {
        let all = self.pod_addresses.iter();
        all.filter_map(move |(address, pod)| {
            let pod = self.pods.get(*pod as usize)?;
            (*pod.namespace == *namespace && *pod.name == *name && pod.live).then_some(*address)
        })
    }

    /// Endpoint of the pod that EndpointSlices list at this address, for addresses whose Pods were not read. `None` where
    /// they name several pods, and where the pod may share the address of its node.
    pub fn listed_pod(&self, address: IpAddr) -> Option<&Endpoint> {
        let all = self.listed_pods.get_or_init(|| self.collect_listed());
        let first = all.partition_point(|(at, ..)| *at < address);
        let from = all.get(first..).unwrap_or_default().iter();
        let mut here = from
            .take_while(|(at, ..)| *at == address)
            .filter_map(|(_, port, at)| self.port(*port).endpoints.get(*at as usize));
        let found = here.next()?;
        let single = here.all(|other| other.pod == found.pod);
        // Without the Node it is unknown whether the address is the pod's own.
        let node = self.node_named(found.node.as_deref()?);
        (single && node.is_some() && self.node_at(address).is_none()).then_some(found)
    }

    /// Built on first use: it is not needed where all Pods are known.
    fn collect_listed(&self) -> Vec<ListedPod> {
        let ports = (0..).map(PortId).zip(&self.ports);
        let endpoints = ports.flat_map(|(id, port)| {
            let with_pod = (0..).zip(&port.endpoints).filter(|(_, e)| e.pod.is_some());
            with_pod.map(move |(at, endpoint)| (endpoint.address, id, at))
        });
        let mut listed: Vec<ListedPod> = endpoints.collect();
        listed.sort_unstable();
        listed
    }

    /// Addresses of their own of live pods, sorted.
    pub fn pod_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.pod_addresses.iter().map(|(address, _)| *address)
    }

    /// The live host-network pod at this node address that declares the port, if exactly one does: all of them share the address,
    /// and every other choice is a guess.
    pub fn host_network_pod(&self, node_address: IpAddr, protocol: u8, port: u16) -> Option<&Pod> {
        let key = (node_address, protocol, port);
        let first = self
            .host_ports
            .partition_point(|p| (p.address, p.protocol, p.port) < key);
        let mut here = self.host_ports.get(first..)?.iter();
        let declares = |p: &&HostPort| (p.address, p.protocol, p.port) == key;
        let only = here.next().filter(declares)?;
        match here.next().filter(declares) {
            None => self.pods.get(only.pod as usize),
            Some(_) => None,
        }
    }

    /// Reports whether only the Pods of one node and those of certain addresses were read.
    pub fn pods_are_chosen(&self) -> bool {
        self.pods_asked.is_some()
    }

    /// Reports whether [`Index::pods_at`] is complete for this address.
    pub fn pods_known_at(&self, address: IpAddr) -> bool {
        let asked = self.pods_asked.as_ref();
        let known = asked.is_none_or(|asked| asked.contains(&address));
        self.completeness.pods && (known || self.pods_at(address).next().is_some())
    }

    /// Reports whether the endpoints of this Service were read.
    pub fn endpoints_known(&self, id: ServiceId) -> bool {
        let asked = self.slices_asked.as_ref();
        asked.is_none_or(|asked| asked.contains(&self.service(id).name))
    }

    /// Reports whether a narrow reading omitted EndpointSlices.
    pub fn slices_are_chosen(&self) -> bool {
        self.slices_asked.is_some()
    }

    /// Reports whether a narrow reading omitted Services.
    pub fn services_are_chosen(&self) -> bool {
        self.destinations_asked.is_some()
    }

    /// Reports whether [`Index::owners`] is complete for this address.
    pub fn owners_known(&self, address: IpAddr) -> bool {
        let asked = self.destinations_asked.as_ref();
        asked.is_none_or(|asked| asked.contains(&address))
    }

    /// Replaces Nodes, Pods and ranges by those of an earlier reading.
    pub(super) fn keep(&mut self, first: Index) {
        self.pods = first.pods;
        self.pod_addresses = first.pod_addresses;
        self.host_addresses = first.host_addresses;
        self.host_ports = first.host_ports;
        self.pods_asked = first.pods_asked;
        self.nodes = first.nodes;
        self.node_addresses = first.node_addresses;
        self.service_ranges = first.service_ranges;
        self.pod_ranges = first.pod_ranges;
        self.namespaces.extend(first.namespaces);
        self.completeness.pods = first.completeness.pods;
        self.completeness.nodes = first.completeness.nodes;
        self.completeness.service_cidrs = first.completeness.service_cidrs;
    }

    pub fn pod_named(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.pods.get(self.pod_position(namespace, name)?)
    }

    fn pod_position(&self, namespace: &str, name: &str) -> Option<usize> {
        let key = (namespace, name);
        self.pods
            .binary_search_by(|p| (&*p.namespace, &*p.name).cmp(&key))
            .ok()
    }

    /// Every pod that matches `--pod [NS/]NAME`, finished ones included, sorted by namespace. Searches the whole list: call it once
    /// for a selector, not for every entry.
    pub fn pod_candidates(&self, namespace: Option<&str>, name: &str) -> Vec<PodCandidate<'_>> {
        let positions: Vec<usize> = match namespace {
            Some(namespace) => self.pod_position(namespace, name).into_iter().collect(),
            None => (0..self.pods.len())
                .filter(|at| self.pods.get(*at).is_some_and(|p| &*p.name == name))
                .collect(),
        };
        let candidate = |at| self.candidate(at);
        positions.into_iter().filter_map(candidate).collect()
    }

    fn candidate(&self, at: usize) -> Option<PodCandidate<'_>> {
        let id = at as u32;
        let own = self.pod_addresses.iter().filter(|(_, pod)| *pod == id);
        let host = self.host_addresses.iter().filter(|(pod, _)| *pod == id);
        let mut ports: Vec<(u8, u16)> = self
            .host_ports
            .iter()
            .filter(|p| p.pod == id)
            .map(|p| (p.protocol, p.port))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        Some(PodCandidate {
            pod: self.pods.get(at)?,
            addresses: own.map(|(a, _)| *a).chain(host.map(|(_, a)| *a)).collect(),
            ports,
        })
    }

    /// Pods of this name, finished ones included, sorted by namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter()
    }

    /// The Node with this internal or external address. Of two Nodes with it, the first one by name is returned, and an internal
    /// address precedes an external one.
    pub fn node_at(&self, address: IpAddr) -> Option<&Node> {
        self.nodes.get(*self.node_addresses.get(&address)? as usize)
    }

    pub fn node_named(&self, name: &str) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|n| (*n.name).cmp(name)).ok()?;
        self.nodes.get(found)
    }

    /// Sorted by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Reports whether the address lies in the Service range of the cluster; `None` when no range of its family is known.
    pub fn in_service_range(&self, address: IpAddr) -> Option<bool> {
        in_ranges(&self.service_ranges, address)
    }

    /// Reports whether the address lies in a pod range (`Node.spec.podCIDRs`); `None` when no Node has one of its family. Many
    /// network plug-ins do not use these ranges: "no" proves nothing.
    pub fn in_pod_range(&self, address: IpAddr) -> Option<bool> {
        in_ranges(&self.pod_ranges, address)
    }

    /// Ranges of which Nodes give addresses to pods.
    pub fn pod_ranges(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.pod_ranges.iter().copied()
    }

    /// Namespaces of all objects that were read, sorted.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(|name| &**name)
    }
}

fn in_ranges(ranges: &[IpNet], address: IpAddr) -> Option<bool> {
    let same_family = |range: &&IpNet| range.addr().is_ipv4() == address.is_ipv4();
    let mut known = ranges.iter().filter(same_family).peekable();
    known.peek()?;
    Some(known.any(|range| range.contains(&address)))
}

#[cfg(test)]
mod tests;
