//! Collects objects, in any order, for an [`Index`].
//!
//! This module holds the parts that all kinds need; `items` decodes each kind. Services and slices are joined at the end
//! (`join`), because a slice may precede its Service.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;

use super::addresses::Addresses;
use super::index::{Index, Name, Node, Pod, Service, ServicePort};
use super::object::{self, Item, Kind, Metadata, Str, text};
use super::service_scope::{ChosenAddresses, Destinations, ServiceScope};
use super::warnings::Warnings;

/// Number of items of each kind in a source, and number of omitted ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObjectCounts {
    pub services: usize,
    pub endpoint_slices: usize,
    pub pods: usize,
    pub nodes: usize,
    pub service_cidrs: usize,
    /// Items of other kinds.
    pub skipped: usize,
    /// Items that could not be read.
    pub broken: usize,
}

/// Result of a build.
#[derive(Debug)]
pub struct Built {
    pub index: Index,
    pub counts: ObjectCounts,
    pub warnings: Vec<String>,
}

/// A Service range given on the command line that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{range} is no Service range: {owner} has the address {address} in it")]
pub struct NotAServiceRange {
    pub range: IpNet,
    pub address: IpAddr,
    /// `Node node1` or `Pod shop/web-1`.
    pub owner: String,
}

/// Collects items, then builds the index.
#[derive(Debug, Default)]
pub struct Builder {
    pub(super) names: HashSet<Name>,
    pub(super) warnings: Warnings,
    pub(super) counts: ObjectCounts,
    pub(super) services: Vec<(Service, Vec<ServicePort>)>,
    pub(super) slices: Vec<Slice>,
    pub(super) pods: Vec<(Pod, Addresses)>,
    pub(super) host_ports: Vec<(usize, u8, u16)>,
    pub(super) nodes: Vec<(Node, Vec<IpNet>)>,
    /// Ranges, with the name of the ServiceCIDR.
    pub(super) service_ranges: Vec<(Name, IpNet)>,
    pub(super) given_ranges: Vec<IpNet>,
    pub(super) conflict: Option<NotAServiceRange>,
    pub(super) namespaces: BTreeSet<Name>,
    /// An EndpointSlice of `default/kubernetes` was read, of any address type.
    pub(super) api_slice: bool,
    /// See [`Index::uid`].
    pub(super) uid: Option<Name>,
    /// Kinds that are known to be incomplete.
    pub(super) partial: HashSet<Kind>,
    /// Kinds that were read to the last page, by a source that lists each kind by itself: an empty list is an answer as well.
    pub(super) listed: HashSet<Kind>,
    /// See [`Index`].
    pub(super) pods_asked: Option<HashSet<IpAddr>>,
    /// See [`Index`].
    pub(super) slices_asked: Option<HashSet<Name>>,
    /// See [`Index`].
    pub(super) destinations_asked: Option<HashSet<IpAddr>>,
    /// The source itself reports the kinds that it lacks.
    pub(super) gaps_are_told: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) namespace: Name,
    pub(super) name: Option<Name>,
    pub(super) service: Name,
    /// Without a label that makes kube-proxy ignore it.
    pub(super) kube_proxy: bool,
    /// Port name, protocol, number.
    pub(super) ports: Vec<(Option<Name>, u8, u16)>,
    pub(super) endpoints: Vec<SlimEndpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlimEndpoint {
    pub(super) address: IpAddr,
    pub(super) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
    pub(super) hinted: bool,
    pub(super) node: Option<Name>,
    pub(super) pod: Option<(Name, Name)>,
    pub(super) secondary: Box<[IpAddr]>,
}

impl Builder {
    /// `service_ranges` are the Service ranges given by the user; a Node or Pod with an address inside refutes one.
    pub fn new(service_ranges: &[IpNet]) -> Self {
        Builder {
            given_ranges: service_ranges.to_vec(),
            ..Builder::default()
        }
    }

    /// Number of items so far.
    pub(super) fn items(&self) -> usize {
        let ObjectCounts {
            services,
            endpoint_slices,
            pods,
            nodes,
            service_cidrs,
            skipped,
            broken,
        } = self.counts;
        services + endpoint_slices + pods + nodes + service_cidrs + skipped + broken
    }

    /// Counts an item of a kind that is not read.
    pub fn skip(&mut self) {
        self.counts.skipped += 1;
    }

    /// Counts an item that cannot be read, and makes its kind incomplete; without a kind it may be of any of them.
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

    /// Notes that the list ended with a token for further pages. `None`: a list of several kinds.
    pub fn more_pages(&mut self, kind: Option<Kind>) {
        let kinds = kind.as_ref().map_or(&Kind::ALL[..], std::slice::from_ref);
        self.partial.extend(kinds);
        self.warnings.note("lists that are only a page", || {
            kind.map_or("List", Kind::name).to_owned()
        });
    }

    /// Notes that a source which lists each kind by itself read this kind to its end. Returns whether every item was read.
    pub fn listed(&mut self, kind: Kind) -> bool {
        self.listed.insert(kind);
        !self.partial.contains(&kind)
    }

    /// Notes that the source could not list the kind, or not to its end.
    pub fn not_listed(&mut self, kind: Kind) {
        self.partial.insert(kind);
        self.gaps_are_told = true;
    }

    /// Limits the Pods to those of one node and those that have these addresses.
    pub fn chose_pods(&mut self, asked: HashSet<IpAddr>) {
        self.pods_asked = Some(asked);
    }

    /// Limits the EndpointSlices to those of these Services, sorted. `None` for all.
    pub fn slices_of(&mut self, concerned: &ServiceScope) -> Option<Vec<Name>> {
        let names = concerned.names(&self.services)?;
        let mut sorted: Vec<Name> = names.iter().cloned().collect();
        sorted.sort();
        self.slices_asked = Some(names);
        Some(sorted)
    }

    /// Reports whether every one of these addresses belongs to a Service that was read.
    pub fn owns(&self, destinations: &Destinations) -> bool {
        destinations.are_owned(&self.services)
    }

    /// Limits the Services to those that have these addresses.
    pub fn knows_services_of(&mut self, destinations: &Destinations) {
        self.destinations_asked = Some(destinations.addresses.clone());
    }

    /// Removes the addresses that a live Pod read so far has as its own.
    pub fn leave_unknown(&self, addresses: &mut ChosenAddresses) {
        let own = self
            .pods
            .iter()
            .filter(|(pod, _)| pod.live && !pod.host_network);
        let known: HashSet<IpAddr> = own.flat_map(|(_, addresses)| addresses.iter()).collect();
        addresses
            .deciding
            .retain(|address| !known.contains(address));
        addresses.named.retain(|address| !known.contains(address));
    }

    /// Drops every item of a kind before it is listed again: of two states of a list only one is valid.
    pub fn forget(&mut self, kind: Kind) {
        self.partial.remove(&kind);
        self.listed.remove(&kind);
        let counts = &mut self.counts;
        match kind {
            Kind::Service => {
                self.services.clear();
                self.uid = None;
                counts.services = 0;
            }
            Kind::EndpointSlice => {
                self.slices.clear();
                self.api_slice = false;
                counts.endpoint_slices = 0;
            }
            Kind::Pod => {
                self.pods.clear();
                self.host_ports.clear();
                counts.pods = 0;
            }
            Kind::Node => {
                self.nodes.clear();
                counts.nodes = 0;
            }
            Kind::ServiceCidr => {
                self.service_ranges.clear();
                counts.service_cidrs = 0;
            }
        }
    }

    pub fn add(&mut self, kind: Kind, item: &Item) {
        let none = Metadata::default();
        let metadata = item.metadata.as_ref().unwrap_or(&none);
        let name = match text(&metadata.name) {
            Some(name) => self.name(name),
            // Slices are identified by their label; one written by hand may lack a name.
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

    pub(super) fn name(&mut self, name: &str) -> Name {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new: Name = Arc::from(name);
        self.names.insert(new.clone());
        new
    }

    pub(super) fn optional(&mut self, name: &Option<Str>) -> Option<Name> {
        text(name).map(|name| self.name(name))
    }

    /// The default is `default`, as for `kubectl apply`.
    pub(super) fn namespace(&mut self, metadata: &Metadata) -> Name {
        let namespace = self.name(text(&metadata.namespace).unwrap_or("default"));
        if !self.namespaces.contains(&namespace) {
            self.namespaces.insert(namespace.clone());
        }
        namespace
    }

    /// Reads an address of an object of `kind`. Without it the kind is not complete.
    pub(super) fn address(
        &mut self,
        kind: Kind,
        text: &str,
        owner: impl Fn() -> String,
    ) -> Option<IpAddr> {
        let parsed = object::address(text);
        match parsed {
            Some((_, true)) => {}
            Some((address, false)) => self
                .warnings
                .note("addresses with leading zeros, read as decimal", || {
                    format!("{text} of {} as {address}", owner())
                }),
            None => self.incomplete(kind, "addresses that cannot be read", || {
                format!("{text:?} of {}", owner())
            }),
        }
        parsed.map(|(address, _)| address)
    }

    pub(super) fn range(&mut self, text: &str, owner: impl Fn() -> String) -> Option<IpNet> {
        let parsed = object::range(text);
        if parsed.is_none() {
            let detail = || format!("{text:?} of {}", owner());
            self.warnings.note("ranges that cannot be read", detail);
        }
        parsed.map(|(range, _)| range)
    }

    /// Notes a part of an object of `kind` that is not understood and left out, so that the kind is not complete.
    pub(super) fn incomplete(
        &mut self,
        kind: Kind,
        problem: &'static str,
        detail: impl FnOnce() -> String,
    ) {
        self.partial.insert(kind);
        self.warnings.note(problem, detail);
    }

    /// Reads the protocol of a port of an object of `kind`. Without it the kind is not complete.
    pub(super) fn protocol(
        &mut self,
        kind: Kind,
        word: &Option<Str>,
        owner: impl Fn() -> String,
    ) -> Option<u8> {
        let word = word.as_deref();
        let protocol = object::protocol(word);
        if protocol.is_none() {
            let detail = || format!("{:?} of {}", word.unwrap_or_default(), owner());
            self.incomplete(kind, "ports left out for their protocol", detail);
        }
        protocol
    }

    /// Compares a given Service range with an address of a Node or Pod.
    pub(super) fn refute(&mut self, address: IpAddr, owner: impl FnOnce() -> String) {
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
