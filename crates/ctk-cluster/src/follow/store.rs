//! Current objects of a followed cluster, in their slim shapes.
//!
//! Each followed list (a *feed*) has its own objects, so that a new list of it replaces only these. An index is built from all
//! of them on demand. It is immutable, so that its users have one state of the cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::transition::{Endpoints, changes};
use super::{EndpointChange, Feed};
use crate::addresses::Addresses;
use crate::build::{Builder, NotAServiceRange, Slice};
use crate::index::merge;
use crate::index::{Endpoint, Name, Node, Pod, Service, ServicePort};
use crate::join::MAX_ENDPOINTS;
use crate::object::{Item, Kind, Metadata, text};

/// Namespace (empty where a kind has none) and name.
pub type Key = (Name, Name);

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slim {
    Service(Box<(Service, Vec<ServicePort>)>),
    Slice(Box<Slice>),
    Pod(Box<SlimPod>),
    Node(Box<(Node, Vec<IpNet>)>),
    Ranges(Vec<IpNet>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlimPod {
    pod: Pod,
    addresses: Addresses,
    /// Ports declared by a host-network pod: protocol and port.
    ports: Box<[(u8, u16)]>,
}

pub type Items = BTreeMap<Key, Slim>;

/// Decoder of slim objects. All objects of one decoder share their names.
#[derive(Debug, Default)]
pub struct Decoder {
    names: HashSet<Name>,
    given_ranges: Vec<IpNet>,
    /// Number of names after the unused ones were last dropped.
    kept: usize,
}

/// Content of an item or a list.
#[derive(Debug, Default)]
pub struct Decoded {
    pub items: Items,
    /// A part of it cannot be read.
    pub broken: bool,
    pub conflict: Option<NotAServiceRange>,
    pub warnings: Vec<String>,
}

impl Decoder {
    pub fn new(given_ranges: &[IpNet]) -> Self {
        Decoder {
            given_ranges: given_ranges.to_vec(),
            ..Decoder::default()
        }
    }

    /// Decodes one object.
    pub fn item(&mut self, kind: Kind, item: &Item<'_>) -> Decoded {
        let mut builder = Builder::new(&self.given_ranges);
        builder.names = std::mem::take(&mut self.names);
        builder.add(kind, item);
        self.list(builder, kind)
    }

    /// Decodes a whole list, which a builder collected.
    pub fn list(&mut self, mut builder: Builder, kind: Kind) -> Decoded {
        let items = take(&mut builder, kind);
        let names = std::mem::take(&mut builder.names);
        match self.names.is_empty() {
            true => self.names = names,
            false => self.names.extend(names),
        }
        if self.names.len() > 2 * self.kept + 1024 {
            // Pods come and go, and each has a name.
            self.names.retain(|name| Name::strong_count(name) > 1);
            self.kept = self.names.len();
        }
        Decoded {
            items,
            broken: builder.partial.contains(&kind),
            conflict: builder.conflict,
            warnings: builder.warnings.into_lines(),
        }
    }

    /// Key of an object of this kind.
    pub fn key(kind: Kind, metadata: &Metadata<'_>) -> Option<Key> {
        let namespace = match kind {
            Kind::Node | Kind::ServiceCidr => "",
            Kind::Service | Kind::EndpointSlice | Kind::Pod => {
                text(&metadata.namespace).unwrap_or("default")
            }
        };
        Some((Name::from(namespace), Name::from(text(&metadata.name)?)))
    }
}

/// Takes the objects of one kind out of a builder.
fn take(builder: &mut Builder, kind: Kind) -> Items {
    match kind {
        Kind::Service => {
            let services = std::mem::take(&mut builder.services);
            let keyed = services.into_iter().map(|(service, ports)| {
                let key = (service.namespace.clone(), service.name.clone());
                (key, Slim::Service(Box::new((service, ports))))
            });
            keyed.collect()
        }
        Kind::EndpointSlice => {
            let slices = std::mem::take(&mut builder.slices);
            let keyed = slices.into_iter().filter_map(|slice| {
                let key = (slice.namespace.clone(), slice.name.clone()?);
                Some((key, Slim::Slice(Box::new(slice))))
            });
            keyed.collect()
        }
        Kind::Pod => {
            let mut ports: HashMap<usize, Vec<(u8, u16)>> = HashMap::new();
            for (position, protocol, port) in std::mem::take(&mut builder.host_ports) {
                ports.entry(position).or_default().push((protocol, port));
            }
            let pods = std::mem::take(&mut builder.pods).into_iter().enumerate();
            let keyed = pods.map(|(position, (pod, addresses))| {
                let key = (pod.namespace.clone(), pod.name.clone());
                let ports = ports.remove(&position).unwrap_or_default().into();
                let slim = SlimPod {
                    pod,
                    addresses,
                    ports,
                };
                (key, Slim::Pod(Box::new(slim)))
            });
            keyed.collect()
        }
        Kind::Node => {
            let nodes = std::mem::take(&mut builder.nodes).into_iter();
            let keyed = nodes.map(|(node, ranges)| {
                let key = (Name::from(""), node.name.clone());
                (key, Slim::Node(Box::new((node, ranges))))
            });
            keyed.collect()
        }
        Kind::ServiceCidr => {
            let mut items = Items::new();
            for (name, range) in std::mem::take(&mut builder.service_ranges) {
                let ranges = items.entry((Name::from(""), name));
                if let Slim::Ranges(ranges) = ranges.or_insert(Slim::Ranges(Vec::new())) {
                    ranges.push(range);
                }
            }
            items
        }
    }
}

/// All objects.
#[derive(Debug, Default)]
pub struct Store {
    feeds: BTreeMap<Feed, Items>,
    /// Slices of each Service.
    slices_of: HashMap<Key, SlicesOf>,
}

/// Slices of one Service.
#[derive(Debug, Default)]
struct SlicesOf {
    names: BTreeSet<Name>,
    /// Names of the slices that list an address.
    at: HashMap<IpAddr, Vec<Name>>,
    /// Number of slices that are kube-proxy's.
    kube_proxy: usize,
    /// Number of endpoints of all slices.
    endpoints: usize,
}

impl SlicesOf {
    fn add(&mut self, name: &Name, slice: &Slice) {
        self.names.insert(name.clone());
        self.kube_proxy += usize::from(slice.kube_proxy);
        self.endpoints += slice.endpoints.len();
        for endpoint in &slice.endpoints {
            let names = self.at.entry(endpoint.address).or_default();
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }

    fn remove(&mut self, name: &Name, slice: &Slice) {
        self.names.remove(name);
        self.kube_proxy -= usize::from(slice.kube_proxy);
        self.endpoints -= slice.endpoints.len();
        for endpoint in &slice.endpoints {
            if let Some(names) = self.at.get_mut(&endpoint.address) {
                names.retain(|one| one != name);
                if names.is_empty() {
                    self.at.remove(&endpoint.address);
                }
            }
        }
    }
}

impl Store {
    /// Replaces a list: an object that it lacks is gone. Returns whether the state changed, and the changes of endpoints.
    pub fn replace(&mut self, feed: &Feed, items: Items) -> (bool, Vec<EndpointChange>) {
        let known = self.feeds.entry(feed.clone()).or_default();
        let gone = known.keys().filter(|key| !items.contains_key(*key));
        let mut differing: Vec<(Key, Option<Slim>)> = gone.map(|key| (key.clone(), None)).collect();
        let differs = |(key, slim): &(Key, Slim)| known.get(key) != Some(slim);
        let new = items.into_iter().filter(differs);
        differing.extend(new.map(|(key, slim)| (key, Some(slim))));
        // Removing old objects first would report endpoints that only moved between slices, so that each Service is compared at once.
        let touched: BTreeSet<Key> = differing
            .iter()
            .flat_map(|(key, slim)| self.touched(feed, key, slim.as_ref()))
            .collect();
        let before: Vec<(Key, Endpoints)> = touched
            .into_iter()
            .filter(|service| self.is_told(service))
            .map(|service| (service.clone(), self.endpoints(&service, None)))
            .collect();
        let changed = !differing.is_empty();
        for (key, slim) in differing {
            self.put(feed, key, slim);
        }
        let told = before
            .into_iter()
            .flat_map(|(service, before)| self.told(&service, &before, None));
        (changed, told.collect())
    }

    /// Sets an object to `slim`, or removes it. Returns whether the state changed, and the changes of endpoints.
    pub fn apply(
        &mut self,
        feed: &Feed,
        key: Key,
        slim: Option<Slim>,
    ) -> (bool, Vec<EndpointChange>) {
        if self.get(feed, &key) == slim.as_ref() {
            return (false, Vec::new());
        }
        let touched = self.touched(feed, &key, slim.as_ref());
        let only = self.addresses(feed, &key, slim.as_ref());
        let before: Vec<(Key, Endpoints)> = touched
            .into_iter()
            .filter(|service| self.is_told(service))
            .map(|service| (service.clone(), self.endpoints(&service, only.as_ref())))
            .collect();
        self.put(feed, key, slim);
        let told = before
            .into_iter()
            .flat_map(|(service, before)| self.told(&service, &before, only.as_ref()));
        (true, told.collect())
    }

    /// Reports whether the list was read once.
    pub fn has(&self, feed: &Feed) -> bool {
        self.feeds.contains_key(feed)
    }

    /// Drops a feed.
    pub fn forget(&mut self, feed: &Feed) {
        self.feeds.remove(feed);
        if *feed == Feed::Slices {
            self.slices_of.clear();
        }
    }

    fn get(&self, feed: &Feed, key: &Key) -> Option<&Slim> {
        self.feeds.get(feed)?.get(key)
    }

    /// Services whose endpoints may change with an object: its current one, and its former one.
    fn touched(&self, feed: &Feed, key: &Key, slim: Option<&Slim>) -> BTreeSet<Key> {
        let of = |slim: &Slim| match slim {
            Slim::Service(_) => Some(key.clone()),
            Slim::Slice(slice) => Some((slice.namespace.clone(), slice.service.clone())),
            _ => None,
        };
        let both = [self.get(feed, key), slim];
        both.into_iter().flatten().filter_map(of).collect()
    }

    /// Reports whether changes of the endpoints of a Service are told. Beyond the bound of the index they are not.
    fn is_told(&self, service: &Key) -> bool {
        let Some(Slim::Service(owner)) = self.get(&Feed::Services, service) else {
            return true;
        };
        let endpoints = self.slices_of.get(service).map_or(0, |of| of.endpoints);
        endpoints.saturating_mul(owner.1.len()) <= MAX_ENDPOINTS
    }

    /// Addresses of the endpoints that may change with a slice; `None` for all of its Service.
    fn addresses(&self, feed: &Feed, key: &Key, slim: Option<&Slim>) -> Option<HashSet<IpAddr>> {
        let known = self.get(feed, key);
        let (old, new) = (slice(known), slice(slim));
        if known.is_some() != old.is_some() || slim.is_some() != new.is_some() {
            return None;
        }
        let slices = [old, new].into_iter().flatten();
        // The first and the last slice of kube-proxy decide whether slices of another proxy count.
        for slice in slices.clone() {
            let service = (slice.namespace.clone(), slice.service.clone());
            let known = self.slices_of.get(&service).map_or(0, |of| of.kube_proxy);
            let is_own = |slice: &Slice| {
                slice.kube_proxy && (&slice.namespace, &slice.service) == (&service.0, &service.1)
            };
            let without = known - usize::from(old.is_some_and(is_own));
            let now = without + usize::from(new.is_some_and(is_own));
            if (known == 0) != (now == 0) {
                return None;
            }
        }
        let endpoints = slices.flat_map(|slice| &slice.endpoints);
        Some(endpoints.map(|endpoint| endpoint.address).collect())
    }

    fn put(&mut self, feed: &Feed, key: Key, slim: Option<Slim>) {
        let items = self.feeds.entry(feed.clone()).or_default();
        let service = |slice: &Slice| (slice.namespace.clone(), slice.service.clone());
        if let Some(Slim::Slice(slice)) = items.get(&key) {
            let of = service(slice);
            if let Some(slices) = self.slices_of.get_mut(&of) {
                slices.remove(&key.1, slice);
                if slices.names.is_empty() {
                    self.slices_of.remove(&of);
                }
            }
        }
        if let Some(Slim::Slice(slice)) = &slim {
            let slices = self.slices_of.entry(service(slice)).or_default();
            slices.add(&key.1, slice);
        }
        match slim {
            Some(slim) => items.insert(key, slim),
            None => items.remove(&key),
        };
    }

    fn told(
        &self,
        service: &Key,
        before: &Endpoints,
        only: Option<&HashSet<IpAddr>>,
    ) -> Vec<EndpointChange> {
        if !self.is_told(service) {
            return Vec::new();
        }
        let found = changes(before, &self.endpoints(service, only)).into_iter();
        let told = found.map(
            |(change, (port, number, protocol, ..), endpoint)| EndpointChange {
                namespace: service.0.clone(),
                service: service.1.clone(),
                port,
                number,
                protocol,
                endpoint,
                change,
            },
        );
        told.collect()
    }

    /// Endpoints that an index of the current state has for this Service, by the names of its ports; all, or those with `only` these
    /// addresses.
    fn endpoints(&self, service: &Key, only: Option<&HashSet<IpAddr>>) -> Endpoints {
        let mut found = Endpoints::new();
        let Some(Slim::Service(owner)) = self.get(&Feed::Services, service) else {
            return found;
        };
        let Some(of) = self.slices_of.get(service) else {
            return found;
        };
        let (owner, ports) = &**owner;
        let names: BTreeSet<&Name> = match only {
            None => of.names.iter().collect(),
            Some(only) => {
                let at = only.iter().filter_map(|address| of.at.get(address));
                at.flatten().collect()
            }
        };
        let slices: Vec<&Slice> = names
            .into_iter()
            .filter_map(|name| {
                let key = (service.0.clone(), name.clone());
                slice(self.get(&Feed::Slices, &key))
            })
            .collect();
        // A Service of which all slices belong to another proxy is that proxy's, as in the index.
        let kube_proxy = owner.kube_proxy && of.kube_proxy > 0;
        let is_wanted =
            |endpoint: &Endpoint| only.is_none_or(|only| only.contains(&endpoint.address));
        for port in ports {
            let held = slices.iter().filter(|slice| slice.is_for(kube_proxy));
            let mut all = held
                .flat_map(|slice| slice.endpoints_on(&port.name, port.protocol))
                .filter(is_wanted)
                .collect();
            merge(&mut all);
            found.extend(all.into_iter().map(|endpoint| {
                let (address, number) = (endpoint.address, endpoint.port);
                let key = (port.name.clone(), port.port, port.protocol, address, number);
                (key, endpoint)
            }));
        }
        found
    }

    /// Pods of a feed, with their addresses.
    pub fn pods(&self, feed: &Feed) -> impl Iterator<Item = (&Pod, &Addresses)> {
        let items = self.feeds.get(feed).into_iter().flatten();
        items.filter_map(|(_, slim)| match slim {
            Slim::Pod(slim) => Some((&slim.pod, &slim.addresses)),
            _ => None,
        })
    }

    /// Feeds all objects into a builder, without the gaps.
    pub fn fill(&self, builder: &mut Builder) {
        let mut pods = HashSet::new();
        for (feed, items) in &self.feeds {
            for (key, slim) in items {
                if feed.kind() == Kind::Pod && !pods.insert(key) {
                    continue; // two feeds have it
                }
                if !key.0.is_empty() && !builder.namespaces.contains(&key.0) {
                    builder.namespaces.insert(key.0.clone());
                }
                fill_one(builder, key, slim);
            }
        }
    }
}

fn fill_one(builder: &mut Builder, key: &Key, slim: &Slim) {
    let counts = &mut builder.counts;
    match slim {
        Slim::Service(service) => {
            counts.services += 1;
            builder.services.push((**service).clone());
        }
        Slim::Slice(slice) => {
            counts.endpoint_slices += 1;
            builder.api_slice |= &*slice.namespace == "default" && &*slice.service == "kubernetes";
            builder.slices.push((**slice).clone());
        }
        Slim::Pod(slim) => {
            counts.pods += 1;
            let position = builder.pods.len();
            let ports = slim.ports.iter();
            builder
                .host_ports
                .extend(ports.map(|(protocol, port)| (position, *protocol, *port)));
            builder
                .pods
                .push((slim.pod.clone(), slim.addresses.clone()));
        }
        Slim::Node(node) => {
            counts.nodes += 1;
            builder.nodes.push((**node).clone());
        }
        Slim::Ranges(ranges) => {
            counts.service_cidrs += 1;
            let named = ranges.iter().map(|range| (key.1.clone(), *range));
            builder.service_ranges.extend(named);
        }
    }
}

fn slice(slim: Option<&Slim>) -> Option<&Slice> {
    match slim {
        Some(Slim::Slice(slice)) => Some(slice),
        _ => None,
    }
}
