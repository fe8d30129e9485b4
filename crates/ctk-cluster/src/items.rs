//! Decodes the items of each kind. An oddity in one item becomes a warning, never a failure of the whole.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::addresses::Addresses;
use super::build::{Builder, Slice, SlimEndpoint};
use super::index::{
    AddressKind, Affinity, EndpointList, Name, Node, Pod, Service, ServiceId, ServicePort,
};
use super::object::{
    self, Conditions, Container, Item, Kind, Labels, Metadata, SliceEndpoint, Spec, Str, each, text,
};

/// Maximum number of addresses of one Pod or Node; usual are one or two of each family and kind.
const MAX_ADDRESSES: usize = 64;

fn affinity(spec: &Spec) -> Option<Affinity> {
    let config = spec.session_affinity_config.as_ref();
    let client_ip = config.and_then(|config| config.client_ip.as_ref());
    match text(&spec.session_affinity)? {
        "None" => Some(Affinity::None),
        "ClientIP" => Some(Affinity::ClientIp(
            client_ip.and_then(|config| config.timeout_seconds),
        )),
        _ => None,
    }
}

impl Builder {
    pub(super) fn add_service(&mut self, metadata: &Metadata, name: Name, item: &Item) {
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
        if (&*namespace, &*name) == ("default", "kubernetes") {
            self.uid = self.optional(&metadata.uid);
        }
        let internal_local = self.is_local(&spec.internal_traffic_policy, &namespace, &name);
        let external_local = self.is_local(&spec.external_traffic_policy, &namespace, &name);
        let ports = self.service_ports(spec, &namespace, &name);
        // ShouldSkipService (pkg/proxy/util): ExternalName, and Services without a clusterIP.
        let has_cluster_ip = addresses
            .iter()
            .any(|(_, kind)| *kind == AddressKind::ClusterIp);
        let labelled = metadata.labels.as_ref().is_some_and(Labels::not_kube_proxy);
        let external_name = text(&spec.service_type) == Some("ExternalName");
        let service = Service {
            kube_proxy: has_cluster_ip && !labelled && !external_name,
            internal_local,
            external_local,
            affinity: affinity(spec),
            addresses: addresses.into(),
            ports: 0..0,
            namespace,
            name,
        };
        self.services.push((service, ports));
    }

    /// The traffic policy is `Local`. With an unknown one it is not known which endpoints get new packets.
    fn is_local(&mut self, policy: &Option<Str>, namespace: &str, name: &str) -> bool {
        match text(policy) {
            None | Some("" | "Cluster") => false,
            Some("Local") => true,
            Some(other) => {
                let detail = || format!("{other:?} of Service {namespace}/{name}");
                self.incomplete(Kind::Service, "unknown traffic policies", detail);
                false
            }
        }
    }

    fn service_ports(&mut self, spec: &Spec, namespace: &str, name: &str) -> Vec<ServicePort> {
        let owner = || format!("Service {namespace}/{name}");
        let mut ports = Vec::new();
        for port in each(&spec.ports) {
            let protocol = self.protocol(Kind::Service, &port.protocol, owner);
            let number = port.port.filter(|number| *number != 0);
            if number.is_none() {
                self.incomplete(Kind::Service, "ports without a number", owner);
            }
            if let (Some(protocol), Some(number)) = (protocol, number) {
                ports.push(ServicePort {
                    service: ServiceId(0), // known once all are sorted
                    name: self.optional(&port.name),
                    protocol,
                    port: number,
                    node_port: port.node_port.filter(|number| *number != 0),
                    endpoints: EndpointList::default(),
                });
            }
        }
        ports
    }

    fn service_addresses(
        &mut self,
        item: &Item,
        namespace: &str,
        name: &str,
    ) -> Vec<(IpAddr, AddressKind)> {
        let mut found: Vec<(&str, AddressKind)> = Vec::new();
        if let Some(spec) = &item.spec {
            // The first of several is the single one again. An object with an empty one among them is damaged.
            let several: Vec<&str> = each(&spec.cluster_ips).iter().map(|ip| &**ip).collect();
            let one = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty());
            let one = one.filter(|ip| !several.contains(ip));
            let set = one.into_iter().chain(several).filter(|ip| *ip != "None");
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
            .filter_map(|(text, kind)| Some((self.address(Kind::Service, text, owner)?, kind)))
            .collect();
        // The sort is stable: addresses of one kind keep the order of the spec.
        addresses.sort_by_key(|(_, kind)| *kind);
        let mut seen = HashSet::new();
        addresses.retain(|(address, _)| seen.insert(*address));
        addresses
    }

    pub(super) fn add_slice(&mut self, metadata: &Metadata, name: Option<Name>, item: &Item) {
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
                let problem = "EndpointSlices of an unknown address type";
                return self.incomplete(Kind::EndpointSlice, problem, label);
            }
        };
        let mut ports = Vec::new();
        for port in each(&item.ports) {
            let owner = || format!("EndpointSlice {}", label());
            let protocol = self.protocol(Kind::EndpointSlice, &port.protocol, owner);
            let number = port.port.filter(|number| *number != 0);
            if number.is_none() {
                self.incomplete(Kind::EndpointSlice, "ports without a number", owner);
            }
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
            let mut address = self.address(Kind::EndpointSlice, text, owner);
            if address.is_some_and(|a| ipv4.is_some_and(|ipv4| a.is_ipv4() != ipv4)) {
                let detail = || format!("{} of {}", &**text, owner());
                let problem = "addresses of another family than their EndpointSlice";
                self.incomplete(Kind::EndpointSlice, problem, detail);
                address = None;
            }
            match address {
                Some(address) => addresses.push(address),
                // kube-proxy looks at the first address only, so that no other one replaces it.
                None if position == 0 => return None,
                None => {}
            }
        }
        let Some((first, secondary)) = addresses.split_first() else {
            self.incomplete(Kind::EndpointSlice, "endpoints without an address", owner);
            return None;
        };
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
            hinted: endpoint.hints.is_some(),
            node: self.optional(&endpoint.node_name),
            pod,
            secondary: secondary.into(),
        })
    }

    pub(super) fn add_pod(&mut self, metadata: &Metadata, name: Name, item: &Item) {
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
        if let Some(spec) = spec.filter(|_| host_network && live) {
            self.declared_ports(spec, self.pods.len());
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

    /// Ports of containers that run as long as the pod does: containers, and init containers that restart always.
    fn declared_ports(&mut self, spec: &Spec, position: usize) {
        let stays = |container: &&Container| text(&container.restart_policy) == Some("Always");
        let init = each(&spec.init_containers).iter().filter(stays);
        for container in each(&spec.containers).iter().chain(init) {
            for port in each(&container.ports) {
                let Some(protocol) = object::protocol(text(&port.protocol)) else {
                    continue;
                };
                let numbers = port.container_port.into_iter().chain(port.host_port);
                self.host_ports
                    .extend(numbers.map(|number| (position, protocol, number)));
            }
        }
    }

    /// Addresses of the pod itself, or those of the node for a host-network pod.
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
            if addresses.len() >= MAX_ADDRESSES {
                self.incomplete(Kind::Pod, "Pods with very many addresses", owner);
                break;
            }
            let address = self.address(Kind::Pod, text, owner);
            addresses.extend(address.filter(|address| !addresses.contains(address)));
        }
        addresses
    }

    pub(super) fn add_node(&mut self, metadata: &Metadata, name: Name, item: &Item) {
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
            if list.len() >= MAX_ADDRESSES {
                self.incomplete(Kind::Node, "Nodes with very many addresses", owner);
                continue;
            }
            let address = self.address(Kind::Node, value, owner);
            list.extend(address.filter(|address| !list.contains(address)));
        }
        external.retain(|address| !internal.contains(address));
        let info = status.and_then(|status| status.node_info.as_ref());
        let version = info.and_then(|info| {
            let proxy = text(&info.kube_proxy_version).filter(|version| !version.is_empty());
            proxy.or(text(&info.kubelet_version))
        });
        let version = version.map(|version| self.name(version));
        for address in internal.iter().chain(&external) {
            self.refute(*address, owner);
        }
        let spec = item.spec.as_ref();
        let ranges = spec.map_or_else(Vec::new, |spec| self.pod_ranges(spec, &name));
        let node = Node {
            internal: internal.into(),
            external: external.into(),
            hostname,
            version,
            name,
        };
        self.nodes.push((node, ranges));
    }

    fn pod_ranges(&mut self, spec: &Spec, node: &str) -> Vec<IpNet> {
        let several = each(&spec.pod_cidrs).iter().map(|range| &**range);
        let texts: Vec<&str> = match several.len() {
            0 => text(&spec.pod_cidr).into_iter().collect(),
            _ => several.collect(),
        };
        let owner = || format!("Node {node}");
        let read = texts.into_iter().filter_map(|text| self.range(text, owner));
        read.collect()
    }

    pub(super) fn add_service_cidr(&mut self, name: &Name, item: &Item) {
        self.counts.service_cidrs += 1;
        let spec = item.spec.as_ref();
        for range in spec.map_or(&[][..], |spec| each(&spec.cidrs)) {
            let range = self.range(range, || format!("ServiceCIDR {name}"));
            self.service_ranges
                .extend(range.map(|range| (name.clone(), range)));
        }
    }
}
