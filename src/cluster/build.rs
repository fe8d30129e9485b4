//! Makes an [`Index`] from objects that come in any order.
//!
//! Services and slices are joined only at the end, because a slice may come before its Service.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;

use super::index::{AddressKind, Index, Name, Node, Pod, Service, ServiceId, ServicePort};
use super::object::{
    self, Conditions, Container, Item, Kind, Labels, Metadata, SliceEndpoint, Str, each, text,
};
use super::warnings::Warnings;

/// How many items of each kind a source held, and how many were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub services: usize,
    pub endpoint_slices: usize,
    pub pods: usize,
    pub nodes: usize,
    pub service_cidrs: usize,
    /// Of kinds that are not read.
    pub skipped: usize,
    /// That could not be read.
    pub broken: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Built {
    pub index: Index,
    pub counts: Counts,
    pub warnings: Vec<String>,
}

/// A Service range given by hand that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{range} is no Service range: {owner} has the address {address} in it")]
pub struct NotAServiceRange {
    pub range: IpNet,
    pub address: IpAddr,
    /// `Node node1` or `Pod shop/web-1`.
    pub owner: String,
}

/// Takes items, then gives the index.
#[derive(Debug, Default)]
pub struct Builder {
    pub(super) names: HashSet<Name>,
    pub(super) warnings: Warnings,
    pub(super) counts: Counts,
    pub(super) services: Vec<(Service, Vec<ServicePort>)>,
    pub(super) slices: Vec<Slice>,
    pub(super) pods: Vec<(Pod, Addresses)>,
    pub(super) host_ports: Vec<(usize, u8, u16)>,
    pub(super) nodes: Vec<(Node, Vec<IpNet>)>,
    pub(super) service_ranges: Vec<IpNet>,
    pub(super) given_ranges: Vec<IpNet>,
    pub(super) conflict: Option<NotAServiceRange>,
    pub(super) namespaces: BTreeSet<Name>,
    /// An EndpointSlice of `default/kubernetes` was seen, of any address type.
    pub(super) api_slice: bool,
    /// Kinds of which something is known to be missing.
    pub(super) partial: HashSet<Kind>,
}

/// A pod's addresses: nearly always one or two, and 50,000 short lists on the heap would cost more than the addresses.
#[derive(Debug)]
pub(super) enum Addresses {
    Few([Option<IpAddr>; 2]),
    Many(Box<[IpAddr]>),
}

impl Addresses {
    fn new(list: Vec<IpAddr>) -> Self {
        match list[..] {
            [] => Addresses::Few([None, None]),
            [one] => Addresses::Few([Some(one), None]),
            [one, two] => Addresses::Few([Some(one), Some(two)]),
            _ => Addresses::Many(list.into()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = IpAddr> {
        let (few, many): (&[Option<IpAddr>], &[IpAddr]) = match self {
            Addresses::Few(few) => (few, &[]),
            Addresses::Many(many) => (&[], many),
        };
        few.iter().copied().flatten().chain(many.iter().copied())
    }
}

#[derive(Debug)]
pub(super) struct Slice {
    pub(super) namespace: Name,
    pub(super) name: Option<Name>,
    pub(super) service: Name,
    /// Without a label that makes kube-proxy leave it alone.
    pub(super) kube_proxy: bool,
    /// Port name, protocol, number.
    pub(super) ports: Vec<(Option<Name>, u8, u16)>,
    pub(super) endpoints: Vec<SlimEndpoint>,
}

#[derive(Debug)]
pub(super) struct SlimEndpoint {
    pub(super) address: IpAddr,
    pub(super) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
    pub(super) node: Option<Name>,
    pub(super) pod: Option<(Name, Name)>,
    pub(super) secondary: Box<[IpAddr]>,
}

impl Builder {
    /// `service_ranges`: what the user says the Service ranges are; a Node or Pod with an address inside refutes it.
    pub fn new(service_ranges: &[IpNet]) -> Self {
        Builder {
            given_ranges: service_ranges.to_vec(),
            ..Builder::default()
        }
    }

    /// Counts an item of a kind that is not read.
    pub fn skip(&mut self) {
        self.counts.skipped += 1;
    }

    /// Counts an item that cannot be read. Its kind is not complete then; without a kind it may have been any of them.
    pub fn broken(
        &mut self,
        kind: Option<Kind>,
        namespace: Option<&str>,
        name: Option<&str>,
        error: &str,
    ) {
        self.counts.broken += 1;
        let kinds = kind.as_ref().map_or(&Kind::ALL[..], std::slice::from_ref);
        self.partial.extend(kinds);
        self.warnings.note("items that cannot be read", || {
            let kind = kind.map_or("an item", Kind::name);
            let name = name.unwrap_or("without a name");
            match namespace {
                Some(namespace) => format!("{kind} {namespace}/{name} ({error})"),
                None => format!("{kind} {name} ({error})"),
            }
        });
    }

    /// The list ended with a token for further pages. `None`: a list of several kinds.
    pub fn more_pages(&mut self, kind: Option<Kind>) {
        let kinds = kind.as_ref().map_or(&Kind::ALL[..], std::slice::from_ref);
        self.partial.extend(kinds);
        self.warnings.note("lists that are only a page", || {
            kind.map_or("List", Kind::name).to_owned()
        });
    }

    pub fn add(&mut self, kind: Kind, item: &Item) {
        let none = Metadata::default();
        let metadata = item.metadata.as_ref().unwrap_or(&none);
        let name = match text(&metadata.name) {
            Some(name) => self.name(name),
            // Slices are known by their label; written by hand they may lack a name.
            None if kind == Kind::EndpointSlice => return self.add_slice(metadata, None, item),
            None => {
                let namespace = text(&metadata.namespace);
                return self.broken(Some(kind), namespace, None, "it has no name");
            }
        };
        match kind {
            Kind::Service => self.add_service(metadata, name, item),
            Kind::EndpointSlice => self.add_slice(metadata, Some(name), item),
            Kind::Pod => self.add_pod(metadata, name, item),
            Kind::Node => self.add_node(metadata, name, item),
            Kind::ServiceCidr => self.add_service_cidr(&name, item),
        }
    }

    fn name(&mut self, name: &str) -> Name {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new: Name = Arc::from(name);
        self.names.insert(new.clone());
        new
    }

    fn optional(&mut self, name: &Option<Str>) -> Option<Name> {
        text(name).map(|name| self.name(name))
    }

    /// Without one it is `default`, as for `kubectl apply`.
    fn namespace(&mut self, metadata: &Metadata) -> Name {
        let namespace = self.name(text(&metadata.namespace).unwrap_or("default"));
        if !self.namespaces.contains(&namespace) {
            self.namespaces.insert(namespace.clone());
        }
        namespace
    }

    fn address(&mut self, text: &str, owner: impl Fn() -> String) -> Option<IpAddr> {
        let parsed = object::address(text);
        match parsed {
            Some((_, true)) => {}
            Some((address, false)) => self
                .warnings
                .note("addresses with leading zeros, read as decimal", || {
                    format!("{text} of {} as {address}", owner())
                }),
            None => self.warnings.note("addresses that cannot be read", || {
                format!("{text:?} of {}", owner())
            }),
        }
        parsed.map(|(address, _)| address)
    }

    fn range(&mut self, text: &str, owner: impl Fn() -> String) -> Option<IpNet> {
        let parsed = object::range(text);
        if parsed.is_none() {
            let detail = || format!("{text:?} of {}", owner());
            self.warnings.note("ranges that cannot be read", detail);
        }
        parsed.map(|(range, _)| range)
    }

    fn protocol(&mut self, word: &Option<Str>, owner: impl Fn() -> String) -> Option<u8> {
        let protocol = object::protocol(text(word));
        if protocol.is_none() {
            let detail = || format!("{:?} of {}", text(word).unwrap_or(""), owner());
            self.warnings
                .note("ports left out for their protocol", detail);
        }
        protocol
    }

    fn add_service(&mut self, metadata: &Metadata, name: Name, item: &Item) {
        let namespace = self.namespace(metadata);
        let addresses = self.service_addresses(item, &namespace, &name);
        let Some(spec) = &item.spec else {
            return self.broken(
                Some(Kind::Service),
                Some(&namespace),
                Some(&name),
                "it has no spec",
            );
        };
        self.counts.services += 1;
        let local = |policy: &Option<Str>| text(policy) == Some("Local");
        let mut ports = Vec::new();
        for port in each(&spec.ports) {
            let owner = || format!("Service {namespace}/{name}");
            let protocol = self.protocol(&port.protocol, owner);
            let number = port.port.filter(|number| *number != 0);
            if let (Some(protocol), Some(number)) = (protocol, number) {
                ports.push(ServicePort {
                    service: ServiceId(0), // known once all are sorted
                    name: self.optional(&port.name),
                    protocol,
                    port: number,
                    node_port: port.node_port.filter(|number| *number != 0),
                    endpoints: Vec::new(),
                });
            }
        }
        // ShouldSkipService (pkg/proxy/util): ExternalName, and Services without a clusterIP.
        let has_cluster_ip = addresses
            .iter()
            .any(|(_, kind)| *kind == AddressKind::ClusterIp);
        let labelled = metadata.labels.as_ref().is_some_and(Labels::not_kube_proxy);
        let external_name = text(&spec.service_type) == Some("ExternalName");
        let service = Service {
            kube_proxy: has_cluster_ip && !labelled && !external_name,
            internal_local: local(&spec.internal_traffic_policy),
            external_local: local(&spec.external_traffic_policy),
            addresses: addresses.into(),
            ports: 0..0,
            namespace,
            name,
        };
        self.services.push((service, ports));
    }

    fn service_addresses(
        &mut self,
        item: &Item,
        namespace: &str,
        name: &str,
    ) -> Vec<(IpAddr, AddressKind)> {
        let mut found: Vec<(&str, AddressKind)> = Vec::new();
        if let Some(spec) = &item.spec {
            let several = each(&spec.cluster_ips).iter().map(|ip| &**ip);
            let cluster_ips: Vec<&str> = match several.len() {
                0 => spec.cluster_ip.as_deref().into_iter().collect(),
                _ => several.collect(),
            };
            let set = cluster_ips
                .into_iter()
                .filter(|ip| !ip.is_empty() && *ip != "None");
            found.extend(set.map(|ip| (ip, AddressKind::ClusterIp)));
            let external = each(&spec.external_ips).iter();
            found.extend(external.map(|ip| (&**ip, AddressKind::ExternalIp)));
        }
        let status = item.status.as_ref();
        let balancer = status.and_then(|status| status.load_balancer.as_ref());
        for ingress in balancer.map_or(&[][..], |balancer| each(&balancer.ingress)) {
            let kind = match text(&ingress.ip_mode) {
                None | Some("VIP") => AddressKind::Ingress,
                Some(_) => AddressKind::ProxyIngress,
            };
            found.extend(text(&ingress.ip).map(|ip| (ip, kind)));
        }
        let owner = || format!("Service {namespace}/{name}");
        let mut addresses: Vec<(IpAddr, AddressKind)> = found
            .into_iter()
            .filter_map(|(text, kind)| Some((self.address(text, owner)?, kind)))
            .collect();
        // Stable: addresses of one kind keep the order of the spec.
        addresses.sort_by_key(|(_, kind)| *kind);
        let mut seen = HashSet::new();
        addresses.retain(|(address, _)| seen.insert(*address));
        addresses
    }

    fn add_slice(&mut self, metadata: &Metadata, name: Option<Name>, item: &Item) {
        self.counts.endpoint_slices += 1;
        let namespace = self.namespace(metadata);
        let label = || format!("{namespace}/{}", name.as_deref().unwrap_or("?"));
        let labels = metadata.labels.as_ref();
        let Some(service) = labels.and_then(|labels| text(&labels.service_name)) else {
            return self
                .warnings
                .note("EndpointSlices without a Service's name", label);
        };
        self.api_slice |= &*namespace == "default" && service == "kubernetes";
        let service = self.name(service);
        let ipv4 = match text(&item.address_type) {
            Some("IPv4") => Some(true),
            Some("IPv6") => Some(false),
            None => None,
            Some("FQDN") => return,
            Some(_) => {
                let what = "EndpointSlices of an unknown address type";
                return self.warnings.note(what, label);
            }
        };
        let mut ports = Vec::new();
        for port in each(&item.ports) {
            let protocol = self.protocol(&port.protocol, || format!("EndpointSlice {}", label()));
            let number = port.port.filter(|number| *number != 0);
            if let (Some(protocol), Some(number)) = (protocol, number) {
                ports.push((self.optional(&port.name), protocol, number));
            }
        }
        let mut endpoints = Vec::new();
        for endpoint in each(&item.endpoints) {
            endpoints.extend(self.endpoint(endpoint, ipv4, &namespace, &label));
        }
        self.slices.push(Slice {
            kube_proxy: !labels.is_some_and(Labels::not_kube_proxy),
            namespace,
            name,
            service,
            ports,
            endpoints,
        });
    }

    fn endpoint(
        &mut self,
        endpoint: &SliceEndpoint,
        ipv4: Option<bool>,
        namespace: &Name,
        slice: &impl Fn() -> String,
    ) -> Option<SlimEndpoint> {
        let owner = || format!("EndpointSlice {}", slice());
        let mut addresses = Vec::new();
        for (position, text) in each(&endpoint.addresses).iter().enumerate() {
            let mut address = self.address(text, owner);
            if address.is_some_and(|a| ipv4.is_some_and(|ipv4| a.is_ipv4() != ipv4)) {
                let detail = || format!("{} of {}", &**text, owner());
                self.warnings.note(
                    "addresses of another family than their EndpointSlice",
                    detail,
                );
                address = None;
            }
            match address {
                Some(address) => addresses.push(address),
                // kube-proxy looks at the first one only: no other one can take its place.
                None if position == 0 => return None,
                None => {}
            }
        }
        let (first, secondary) = addresses.split_first()?;
        let pod = endpoint.target_ref.as_ref();
        let pod = pod.filter(|target| text(&target.kind) == Some("Pod"));
        let pod = pod.and_then(|target| {
            let name = self.optional(&target.name)?;
            let own = self.optional(&target.namespace);
            Some((own.unwrap_or_else(|| namespace.clone()), name))
        });
        let Conditions {
            ready,
            serving,
            terminating,
        } = endpoint.conditions.unwrap_or_default();
        let ready = ready.unwrap_or(true);
        Some(SlimEndpoint {
            address: *first,
            ready,
            serving: serving.unwrap_or(ready),
            terminating: terminating.unwrap_or(false),
            node: self.optional(&endpoint.node_name),
            pod,
            secondary: secondary.into(),
        })
    }

    fn add_pod(&mut self, metadata: &Metadata, name: Name, item: &Item) {
        self.counts.pods += 1;
        let namespace = self.namespace(metadata);
        let spec = item.spec.as_ref();
        let host_network = spec.and_then(|spec| spec.host_network).unwrap_or(false);
        let phase = item.status.as_ref().and_then(|status| text(&status.phase));
        let live = !matches!(phase, Some("Succeeded" | "Failed"));
        let addresses = self.pod_addresses(item, host_network, &namespace, &name);
        for address in &addresses {
            self.refute(*address, || format!("Pod {namespace}/{name}"));
        }
        let position = self.pods.len();
        if host_network && live {
            let always = |c: &&Container| text(&c.restart_policy) == Some("Always");
            let init = spec.map_or(&[][..], |spec| each(&spec.init_containers));
            let containers = spec.map_or(&[][..], |spec| each(&spec.containers));
            let running = containers.iter().chain(init.iter().filter(always));
            for port in running.flat_map(|container| each(&container.ports)) {
                let numbers = port.container_port.into_iter().chain(port.host_port);
                let protocol = object::protocol(text(&port.protocol));
                let declared = protocol
                    .into_iter()
                    .flat_map(|p| numbers.clone().map(move |n| (p, n)));
                self.host_ports
                    .extend(declared.map(|(protocol, port)| (position, protocol, port)));
            }
        }
        let node = spec.and_then(|spec| text(&spec.node_name));
        let node = node.map(|node| self.name(node));
        let pod = Pod {
            namespace,
            name,
            node,
            host_network,
            live,
        };
        let addresses = if live { addresses } else { Vec::new() };
        self.pods.push((pod, Addresses::new(addresses)));
    }

    /// Own addresses, or the node's for a host-network pod.
    fn pod_addresses(
        &mut self,
        item: &Item,
        host_network: bool,
        namespace: &str,
        name: &str,
    ) -> Vec<IpAddr> {
        let Some(status) = &item.status else {
            return Vec::new();
        };
        let several = each(&status.pod_ips).iter().filter_map(|ip| text(&ip.ip));
        let mut found: Vec<&str> = several.collect();
        if found.is_empty() {
            found.extend(text(&status.pod_ip));
        }
        if host_network {
            found.extend(each(&status.host_ips).iter().filter_map(|ip| text(&ip.ip)));
            found.extend(text(&status.host_ip));
        }
        let owner = || format!("Pod {namespace}/{name}");
        let mut addresses = Vec::new();
        for text in found {
            let address = self.address(text, owner);
            addresses.extend(address.filter(|address| !addresses.contains(address)));
        }
        addresses
    }

    fn add_node(&mut self, metadata: &Metadata, name: Name, item: &Item) {
        self.counts.nodes += 1;
        let owner = || format!("Node {name}");
        let labels = metadata.labels.as_ref();
        let mut hostname = labels.and_then(|labels| self.optional(&labels.hostname));
        let (mut internal, mut external) = (Vec::new(), Vec::new());
        let status = item.status.as_ref();
        for entry in status.map_or(&[][..], |status| each(&status.addresses)) {
            let Some(value) = text(&entry.address) else {
                continue;
            };
            let list = match text(&entry.address_type) {
                Some("InternalIP") => &mut internal,
                Some("ExternalIP") => &mut external,
                Some("Hostname") => {
                    hostname = hostname.or_else(|| Some(self.name(value)));
                    continue;
                }
                _ => continue,
            };
            let address = self.address(value, owner);
            list.extend(address.filter(|address| !list.contains(address)));
        }
        external.retain(|address| !internal.contains(address));
        for address in internal.iter().chain(&external) {
            self.refute(*address, owner);
        }
        let mut ranges = Vec::new();
        if let Some(spec) = &item.spec {
            let several = each(&spec.pod_cidrs).iter().map(|range| &**range);
            let texts: Vec<&str> = match several.len() {
                0 => text(&spec.pod_cidr).into_iter().collect(),
                _ => several.collect(),
            };
            for range in texts {
                ranges.extend(self.range(range, owner));
            }
        }
        let node = Node {
            internal: internal.into(),
            external: external.into(),
            hostname,
            name,
        };
        self.nodes.push((node, ranges));
    }

    fn add_service_cidr(&mut self, name: &str, item: &Item) {
        self.counts.service_cidrs += 1;
        let spec = item.spec.as_ref();
        for range in spec.map_or(&[][..], |spec| each(&spec.cidrs)) {
            let range = self.range(range, || format!("ServiceCIDR {name}"));
            self.service_ranges.extend(range);
        }
    }

    /// Holds a given Service range against an address that a Node or Pod really has.
    fn refute(&mut self, address: IpAddr, owner: impl FnOnce() -> String) {
        if self.conflict.is_none()
            && let Some(range) = self.given_ranges.iter().find(|r| r.contains(&address))
        {
            self.conflict = Some(NotAServiceRange {
                range: *range,
                address,
                owner: owner(),
            });
        }
    }
}
