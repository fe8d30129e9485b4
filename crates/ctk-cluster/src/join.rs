//! Last step of building: joins the collected objects into an [`Index`].

use std::collections::{HashMap, HashSet};

use super::build::{Builder, Built, NotAServiceRange, Slice, SlimEndpoint};
use super::index::{
    Completeness, Endpoint, EndpointList, Frontend, HostPort, Index, Name, PortId, ServiceId,
    ServicePort,
};
use super::object::Kind;

/// Maximum number of frontends of one Service: ports, for each address.
const MAX_FRONTENDS: usize = 65_536;
/// Maximum number of endpoints of one Service: addresses, for each port.
pub(super) const MAX_ENDPOINTS: usize = 262_144;
/// Maximum number of frontends, and of endpoints, of all Services.
const MAX_IN_ALL: usize = 4_000_000;

/// Counter of what is multiplied from the parts of an object, with its bounds.
struct Product {
    max: usize,
    all: usize,
}

impl Product {
    fn new(max: usize) -> Self {
        Product { max, all: 0 }
    }

    /// Counts `more` for a Service that has `known`. False, and nothing is counted, beyond a bound.
    fn may_have(&mut self, known: usize, more: usize) -> bool {
        let all = self.all.saturating_add(more);
        let may = known.saturating_add(more) <= self.max && all <= MAX_IN_ALL;
        if may {
            self.all = all;
        }
        may
    }
}

impl Builder {
    /// Joins slices with their Services and builds the look-up tables.
    ///
    /// Fails when a Service range given on the command line holds an address of a Node or Pod.
    pub fn finish(mut self) -> Result<Built, NotAServiceRange> {
        let index = self.without_pods();
        self.finish_with_pods(index)
    }

    /// Builds an index without Pods and without the findings of the end, from which the caller chooses the Pods to read. Continue
    /// with [`Builder::finish_with_pods`].
    pub fn without_pods(&mut self) -> Index {
        let mut index = Index {
            slices_asked: self.slices_asked.take(),
            destinations_asked: self.destinations_asked.take(),
            uid: self.uid.take(),
            ..Index::default()
        };
        self.place_services(&mut index);
        self.place_endpoints(&mut index);
        self.place_nodes(&mut index);
        self.place_frontends(&mut index);
        index
    }

    /// Completes the index of [`Builder::without_pods`] with the Pods that were added since.
    ///
    /// Fails as [`Builder::finish`] does.
    pub fn finish_with_pods(mut self, mut index: Index) -> Result<Built, NotAServiceRange> {
        if let Some(conflict) = self.conflict {
            return Err(conflict);
        }
        index.completeness = self.completeness(&index);
        self.place_pods(&mut index);
        index.pods_asked = self.pods_asked;
        let ranges = self.service_ranges.into_iter();
        index.service_ranges = ranges.map(|(_, range)| range).collect();
        index.service_ranges.append(&mut self.given_ranges);
        index.namespaces = self.namespaces;
        Ok(Built {
            index,
            counts: self.counts,
            warnings: self.warnings.into_lines(),
        })
    }

    /// Two items have one name where lists were put together by hand: the later one counts.
    fn twice(&mut self, kind: Kind, how_many: usize) {
        if how_many > 0 {
            let what = "items listed twice, the later one taken";
            self.warnings
                .note(what, || format!("{how_many} of kind {}", kind.name()));
        }
    }

    fn place_services(&mut self, index: &mut Index) {
        let mut services = std::mem::take(&mut self.services);
        let repeated = keep_last(&mut services, |(service, _)| {
            Some((service.namespace.clone(), service.name.clone()))
        });
        self.twice(Kind::Service, repeated);
        for (mut service, ports) in services {
            let id = ServiceId(index.services.len() as u32);
            let first = index.ports.len() as u32;
            index.ports.extend(ports.into_iter().map(|mut port| {
                port.service = id;
                port
            }));
            service.ports = first..index.ports.len() as u32;
            index.services.push(service);
        }
    }

    fn place_endpoints(&mut self, index: &mut Index) {
        let mut slices = std::mem::take(&mut self.slices);
        let repeated = keep_last(&mut slices, |slice| {
            Some((slice.namespace.clone(), slice.name.clone()?))
        });
        self.twice(Kind::EndpointSlice, repeated);
        mark_foreign(index, &slices);
        let mut product = Product::new(MAX_ENDPOINTS);
        let mut lists: Vec<Vec<Endpoint>> = Vec::new();
        lists.resize_with(index.ports.len(), Vec::new);
        for slice in slices {
            let Some(id) = index.service_named(&slice.namespace, &slice.service) else {
                continue; // an orphan, soon to be collected
            };
            if !slice.is_for(index.service(id).kube_proxy) {
                let what = "EndpointSlices left out because kube-proxy does not read them";
                let name = slice.name.as_deref().unwrap_or("?");
                self.warnings
                    .note(what, || format!("{}/{name}", slice.namespace));
                continue;
            }
            let range = index.service(id).ports.clone();
            let range = range.start as usize..range.end as usize;
            let (Some(ports), Some(lists)) = (index.ports.get(range.clone()), lists.get_mut(range))
            else {
                continue;
            };
            let numbers = slice.numbers();
            let known = lists.iter().map(Vec::len).sum();
            let here = |port: &ServicePort| {
                numbers
                    .get(&(&port.name, port.protocol))
                    .map_or(0, Vec::len)
            };
            let listed: usize = ports.iter().map(here).sum();
            if !product.may_have(known, listed.saturating_mul(slice.endpoints.len())) {
                let detail = || format!("{}/{}", slice.namespace, slice.service);
                let problem = "Services with very many endpoints and ports";
                self.incomplete(Kind::EndpointSlice, problem, detail);
                continue;
            }
            for (port, list) in ports.iter().zip(lists) {
                let numbers = numbers.get(&(&port.name, port.protocol));
                for number in numbers.into_iter().flatten() {
                    let listed = slice.endpoints.iter().map(|e| e.on_port(*number));
                    list.extend(listed);
                }
            }
        }
        for (port, list) in index.ports.iter_mut().zip(lists) {
            let service = index.services.get(port.service.0 as usize);
            let local = service.is_some_and(|s| s.internal_local || s.external_local);
            port.endpoints = EndpointList::new(list, local);
        }
    }

    fn place_frontends(&mut self, index: &mut Index) {
        let mut product = Product::new(MAX_FRONTENDS);
        for (id, service) in (0..).map(ServiceId).zip(&index.services) {
            for (address, kind) in &service.addresses {
                index.owners.entry(*address).or_default().push((id, *kind));
            }
            let frontends = service.ports.len().saturating_mul(service.addresses.len());
            let addresses = match product.may_have(0, frontends) {
                true => &service.addresses[..],
                false => {
                    let detail = || format!("{}/{}", service.namespace, service.name);
                    let problem = "Services with very many addresses and ports";
                    self.incomplete(Kind::Service, problem, detail);
                    &[]
                }
            };
            for port_id in service.ports.clone().map(PortId) {
                let Some(port) = index.ports.get(port_id.0 as usize) else {
                    continue;
                };
                for (address, kind) in addresses {
                    let key = (*address, port.protocol, port.port);
                    index.frontends.entry(key).or_default().push(Frontend {
                        port: port_id,
                        kind: *kind,
                    });
                }
                if let Some(number) = port.node_port {
                    let key = (port.protocol, number);
                    index.node_ports.entry(key).or_default().push(port_id);
                }
            }
        }
    }

    /// Notes signs that a text is not the whole cluster. A source that lists each kind by itself knows its gaps better.
    fn warn_of_gaps(&mut self, api_service: bool, one_namespace: bool) {
        if self.gaps_are_told {
            return;
        }
        let text = self.listed.is_empty();
        if !api_service || !self.api_slice {
            let what = match api_service {
                true => "EndpointSlice",
                false => "Service",
            };
            let problem = match text {
                true => "not the whole cluster (was a kind or -A forgotten?)",
                false => "not the whole cluster",
            };
            let detail = || format!("no {what} default/kubernetes");
            self.warnings.note(problem, detail);
        } else if one_namespace || (text && self.namespaces.len() == 1 && self.counts.services > 1)
        {
            let detail = || "every object lies in the namespace default".to_owned();
            self.warnings.note("was -A forgotten?", detail);
        }
    }

    /// Reports whether every object lies in the namespace `default`, as kubectl prints it without `-A`. Every cluster has objects in
    /// others. A small list written by hand need not, and holds no uid.
    fn is_of_one_namespace(&self, index: &Index) -> bool {
        let is_text = self.listed.is_empty() && !self.gaps_are_told;
        is_text && index.uid.is_some() && self.namespaces.len() == 1
    }

    /// Services and slices of a source are complete only if it holds the objects that every cluster has: the Service
    /// `default/kubernetes`, a slice of it, and an object in another namespace. Their absence shows a forgotten kind, a forgotten
    /// `-A`, or a cut.
    fn completeness(&mut self, index: &Index) -> Completeness {
        let api_service = index.service_named("default", "kubernetes").is_some();
        let one_namespace = self.is_of_one_namespace(index);
        self.warn_of_gaps(api_service, one_namespace);
        let all = !one_namespace;
        let read = |kind| !self.partial.contains(&kind);
        let counts = &self.counts;
        let some = |count, kind| count > 0 || self.listed.contains(&kind);
        let ranges = !self.given_ranges.is_empty() || !self.service_ranges.is_empty();
        Completeness {
            services: api_service && all && read(Kind::Service),
            slices: self.api_slice && all && read(Kind::EndpointSlice),
            pods: some(counts.pods, Kind::Pod) && read(Kind::Pod),
            nodes: some(counts.nodes, Kind::Node) && read(Kind::Node),
            service_cidrs: ranges && read(Kind::ServiceCidr),
        }
    }

    fn place_pods(&mut self, index: &mut Index) {
        let mut pods: Vec<_> = std::mem::take(&mut self.pods)
            .into_iter()
            .enumerate()
            .collect();
        let repeated = keep_last(&mut pods, |(_, (pod, _))| {
            Some((pod.namespace.clone(), pod.name.clone()))
        });
        self.twice(Kind::Pod, repeated);
        // Declared ports refer to a pod by its position on arrival.
        let mut place = HashMap::new();
        index.pods.reserve_exact(pods.len());
        for (arrival, (pod, addresses)) in pods {
            let id = index.pods.len() as u32;
            if pod.host_network {
                place.insert(arrival, id);
                let here = addresses.iter().map(|address| (id, address));
                index.host_addresses.extend(here);
            } else {
                let own = addresses.iter().map(|address| (address, id));
                index.pod_addresses.extend(own);
            }
            index.pods.push(pod);
        }
        index.pod_addresses.sort_unstable();
        index.pod_addresses.shrink_to_fit();
        for (arrival, protocol, port) in std::mem::take(&mut self.host_ports) {
            let Some(&pod) = place.get(&arrival) else {
                continue; // listed twice, and this one did not stay
            };
            let first = index.host_addresses.partition_point(|(id, _)| *id < pod);
            let from = index.host_addresses.get(first..).unwrap_or_default();
            let here = from.iter().take_while(|(id, _)| *id == pod);
            index.host_ports.extend(here.map(|&(_, address)| HostPort {
                address,
                protocol,
                port,
                pod,
            }));
        }
        index.host_ports.sort_unstable();
        index.host_ports.dedup(); // containerPort = hostPort, or two containers
    }

    fn place_nodes(&mut self, index: &mut Index) {
        let mut nodes = std::mem::take(&mut self.nodes);
        let repeated = keep_last(&mut nodes, |(node, _)| {
            Some((node.name.clone(), node.name.clone()))
        });
        self.twice(Kind::Node, repeated);
        for (node, ranges) in nodes {
            index.pod_ranges.extend(ranges);
            index.nodes.push(node);
        }
        let internal = (0u32..).zip(&index.nodes).map(|(id, n)| (id, &n.internal));
        let external = (0u32..).zip(&index.nodes).map(|(id, n)| (id, &n.external));
        for (id, addresses) in internal.chain(external) {
            for address in addresses {
                index.node_addresses.entry(*address).or_insert(id);
            }
        }
    }
}

/// Reports Services of which all slices are labelled for another proxy: these are not kube-proxy's, even without the label.
fn mark_foreign(index: &mut Index, slices: &[Slice]) {
    // Services with a slice that kube-proxy reads, and those with one that it ignores.
    let (mut read, mut unread) = (HashSet::new(), HashSet::new());
    for slice in slices {
        if let Some(id) = index.service_named(&slice.namespace, &slice.service) {
            let set = if slice.kube_proxy {
                &mut read
            } else {
                &mut unread
            };
            set.insert(id);
        }
    }
    for id in unread.difference(&read) {
        if let Some(service) = index.services.get_mut(id.0 as usize) {
            service.kube_proxy = false;
        }
    }
}

impl Slice {
    /// Reports whether a slice counts for its Service. `kube_proxy`: kube-proxy serves the Service, and ignores some slices then.
    pub(super) fn is_for(&self, kube_proxy: bool) -> bool {
        self.kube_proxy || !kube_proxy
    }

    /// Numbers of the ports with a name and protocol.
    fn numbers(&self) -> HashMap<(&Option<Name>, u8), Vec<u16>> {
        let mut numbers: HashMap<_, Vec<u16>> = HashMap::new();
        for (name, protocol, number) in &self.ports {
            numbers.entry((name, *protocol)).or_default().push(*number);
        }
        numbers
    }

    /// Endpoints of the slice for the Service port of this name and protocol.
    pub(super) fn endpoints_on(
        &self,
        name: &Option<Name>,
        protocol: u8,
    ) -> impl Iterator<Item = Endpoint> {
        let ports = self.ports.iter();
        ports
            .filter(move |(own, of, _)| own == name && *of == protocol)
            .flat_map(|(.., number)| self.endpoints.iter().map(|e| e.on_port(*number)))
    }
}

/// Sorts by key and keeps the last of equal ones. Elements without a key all stay. Returns the number of removed ones.
fn keep_last<T>(list: &mut Vec<T>, key: impl Fn(&T) -> Option<(Name, Name)>) -> usize {
    let before = list.len();
    list.reverse();
    list.sort_by_cached_key(&key); // stable, so that the last one stands first
    list.dedup_by(|later, kept| key(later).is_some_and(|k| Some(k) == key(kept)));
    before - list.len()
}

impl SlimEndpoint {
    fn on_port(&self, port: u16) -> Endpoint {
        Endpoint {
            address: self.address,
            port,
            ready: self.ready,
            serving: self.serving,
            terminating: self.terminating,
            hinted: self.hinted,
            node: self.node.clone(),
            pod: self.pod.clone(),
            secondary: self.secondary.clone(),
        }
    }
}
