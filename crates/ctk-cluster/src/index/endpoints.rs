//! Endpoints of a Service port, with what is asked for each entry of the table.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::ops::Deref;

use super::{Endpoint, Name};

/// Endpoints of every slice of the Service, families mixed. Sorted by address and port, each listed once: of two slices the
/// conditions that serve better are kept. The questions below take no longer with more endpoints, except by their logarithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointList {
    list: Vec<Endpoint>,
    /// By family: IPv4, IPv6.
    counts: [EndpointCounts; 2],
    /// Counts of each node, sorted by its name. Empty unless a traffic policy is Local.
    of_nodes: Box<[(Name, [EndpointCounts; 2])]>,
    /// `addresses[1..]` of all endpoints, sorted.
    secondary: Box<[IpAddr]>,
}

/// Numbers of endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    pub all: usize,
    pub ready: usize,
    /// [`Endpoint::serves`].
    pub serving: usize,
    /// Serving while they terminate.
    pub draining: usize,
}

impl EndpointCounts {
    fn add(&mut self, endpoint: &Endpoint) {
        self.all += 1;
        self.ready += usize::from(endpoint.ready);
        self.serving += usize::from(endpoint.serves());
        self.draining += usize::from(endpoint.serving && endpoint.terminating);
    }
}

impl Deref for EndpointList {
    type Target = [Endpoint];

    fn deref(&self) -> &[Endpoint] {
        &self.list
    }
}

impl<'e> IntoIterator for &'e EndpointList {
    type Item = &'e Endpoint;
    type IntoIter = std::slice::Iter<'e, Endpoint>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl EndpointList {
    /// Endpoints as the slices list them. `by_node`: counts of each node are asked for.
    pub(crate) fn new(mut list: Vec<Endpoint>, by_node: bool) -> Self {
        merge(&mut list);
        list.shrink_to_fit();
        let mut counts = <[EndpointCounts; 2]>::default();
        let mut secondary = Vec::new();
        for endpoint in &list {
            family(&mut counts, endpoint.address).add(endpoint);
            secondary.extend(endpoint.secondary.iter().copied());
        }
        secondary.sort_unstable();
        secondary.dedup();
        let of_nodes = match by_node {
            true => of_nodes(&list),
            false => Box::default(),
        };
        EndpointList {
            list,
            counts,
            of_nodes,
            secondary: secondary.into(),
        }
    }

    /// Endpoints with this address, one for each port.
    pub fn at(&self, address: IpAddr) -> &[Endpoint] {
        let first = self.list.partition_point(|e| e.address < address);
        let rest = self.list.get(first..).unwrap_or_default();
        let length = rest.partition_point(|e| e.address == address);
        rest.get(..length).unwrap_or_default()
    }

    /// Endpoint with this address and port.
    pub fn find(&self, address: IpAddr, port: u16) -> Option<&Endpoint> {
        let found = self
            .list
            .binary_search_by_key(&(address, port), |e| (e.address, e.port));
        self.list.get(found.ok()?)
    }

    /// Whether the address is one of `addresses[1..]` of an endpoint.
    pub fn has_secondary(&self, address: IpAddr) -> bool {
        self.secondary.binary_search(&address).is_ok()
    }

    /// Numbers of endpoints in the family of an address.
    pub fn counts(&self, address: IpAddr) -> EndpointCounts {
        let [v4, v6] = self.counts;
        if address.is_ipv6() { v6 } else { v4 }
    }

    /// The same for the endpoints of a node. Zeros unless a traffic policy of the Service is Local.
    pub fn counts_on(&self, node: &str, address: IpAddr) -> EndpointCounts {
        let found = self
            .of_nodes
            .binary_search_by(|(name, _)| (**name).cmp(node));
        let counts = found.ok().and_then(|at| self.of_nodes.get(at));
        let [v4, v6] = counts.map(|(_, counts)| *counts).unwrap_or_default();
        if address.is_ipv6() { v6 } else { v4 }
    }
}

fn family(counts: &mut [EndpointCounts; 2], address: IpAddr) -> &mut EndpointCounts {
    let [v4, v6] = counts;
    if address.is_ipv6() { v6 } else { v4 }
}

fn of_nodes(list: &[Endpoint]) -> Box<[(Name, [EndpointCounts; 2])]> {
    let mut of_nodes = std::collections::BTreeMap::<Name, [EndpointCounts; 2]>::new();
    for endpoint in list {
        if let Some(node) = &endpoint.node {
            let counts = of_nodes.entry(node.clone()).or_default();
            family(counts, endpoint.address).add(endpoint);
        }
    }
    of_nodes.into_iter().collect()
}

/// Keeps each address and port once, with the conditions that serve best: an endpoint that moves from slice to slice is listed in
/// both for a moment.
pub(crate) fn merge(endpoints: &mut Vec<Endpoint>) {
    let rank = |e: &Endpoint| (e.serves(), e.ready, !e.terminating);
    endpoints.sort_by_key(|e| (e.address, e.port, Reverse(rank(e))));
    endpoints.dedup_by(|worse, kept| {
        let same = (worse.address, worse.port) == (kept.address, kept.port);
        if same {
            kept.hinted |= worse.hinted;
            kept.node = kept.node.take().or_else(|| worse.node.take());
            kept.pod = kept.pod.take().or_else(|| worse.pod.take());
            let new = |address: &&IpAddr| !kept.secondary.contains(address);
            let more: Vec<IpAddr> = worse.secondary.iter().filter(new).copied().collect();
            if !more.is_empty() {
                kept.secondary = kept.secondary.iter().copied().chain(more).collect();
            }
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(address: &str, port: u16, state: &str, node: &str) -> Endpoint {
        Endpoint {
            address: address.parse().unwrap(),
            port,
            ready: state == "ready",
            serving: state != "down",
            terminating: state == "draining",
            hinted: false,
            node: Some(node.into()),
            pod: None,
            secondary: Box::default(),
        }
    }

    #[test]
    fn questions_are_answered_as_a_walk_over_the_list_would() {
        let mut list = vec![
            endpoint("10.244.1.3", 53, "ready", "n1"),
            endpoint("10.244.1.1", 53, "down", "n1"),
            endpoint("10.244.1.1", 54, "draining", "n2"),
            endpoint("fd00::1", 53, "ready", "n2"),
        ];
        list[0].secondary = ["10.244.9.9".parse().unwrap()].into();
        let all = EndpointList::new(list.clone(), true);
        for address in [
            "10.244.1.1",
            "10.244.1.2",
            "10.244.1.3",
            "fd00::1",
            "0.0.0.0",
        ] {
            let address: IpAddr = address.parse().unwrap();
            let at: Vec<_> = all.iter().filter(|e| e.address == address).collect();
            assert_eq!(all.at(address).iter().collect::<Vec<_>>(), at);
            for port in [53, 54] {
                let found = list.iter().find(|e| (e.address, e.port) == (address, port));
                assert_eq!(all.find(address, port), found, "{address}:{port}");
            }
        }
        let [v4, v6]: [IpAddr; 2] = ["0.0.0.0".parse().unwrap(), "::".parse().unwrap()];
        let counts = |all, ready, serving, draining| EndpointCounts {
            all,
            ready,
            serving,
            draining,
        };
        assert_eq!(all.counts(v4), counts(3, 1, 2, 1));
        assert_eq!(all.counts(v6), counts(1, 1, 1, 0));
        assert_eq!(all.counts_on("n1", v4), counts(2, 1, 1, 0));
        assert_eq!(all.counts_on("n2", v6), counts(1, 1, 1, 0));
        assert_eq!(all.counts_on("n3", v4), EndpointCounts::default());
        assert!(all.has_secondary("10.244.9.9".parse().unwrap()) && !all.has_secondary(v4));
    }
}
