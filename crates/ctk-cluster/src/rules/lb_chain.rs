//! Chains of kube-proxy that choose the endpoint of a new flow: each rule in order, with its chance and its packet counter. Only
//! the first packet of a flow reaches these rules, so that packets are new flows.
//!
//! These chains are read apart from [`super::NodeRules`], for one Service: counters and chances of every Service would double its
//! size, and no two readings would be equal.

use std::net::SocketAddr;

use super::affinity::ClientList;
use super::reach::each_chain;
use super::{RuleKind, RuleService};

/// Service whose rules are read.
#[derive(Clone, Debug)]
pub struct ServiceFilter {
    /// `None` for any namespace.
    pub namespace: Option<Box<str>>,
    pub name: Box<str>,
}

impl ServiceFilter {
    pub(super) fn is(&self, service: &RuleService) -> bool {
        let mut namespace = self.namespace.iter();
        *service.name == *self.name && namespace.all(|filter| **filter == *service.namespace)
    }
}

/// A chain that chooses the endpoint of a new flow.
#[derive(Clone, Debug, PartialEq)]
pub struct LbChain {
    pub chain: String,
    pub ipv6: bool,
    /// IANA number of the protocol.
    pub protocol: u8,
    pub service: RuleService,
    /// Relations to the Service of the frontends that lead here; each once.
    pub frontends: Vec<RuleKind>,
    /// Some clients are sent to their earlier endpoint.
    pub affinity: bool,
    /// Endpoints that affinity sends clients to, with the list of them, in the order of the rules.
    pub client_lists: Vec<(SocketAddr, ClientList)>,
    /// Shares in the order of the rules; `None` where the shape of a rule is not understood.
    pub shares: Option<Vec<BackendShare>>,
}

/// Share of one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendShare {
    pub endpoint: SocketAddr,
    /// Chance that a packet which reaches this rule takes it; 1 for the last rule, which takes the rest.
    pub probability: f64,
    /// Share of the new flows of the chain, 0 to 1; flows by affinity are excluded.
    pub share: f64,
    /// Packets that took the rule since it was loaded; `None` without a counter.
    pub packets: Option<u64>,
    /// Packets sent by affinity.
    pub pinned: Option<u64>,
}

/// Accumulates the rules of one chain.
#[derive(Debug)]
pub(super) struct ChainShares {
    /// Part of the packets that no rule has taken yet.
    left: f64,
    /// A rule is not understood.
    odd: bool,
    /// All remaining packets go to another chain.
    passes_on: bool,
    pub affinity: bool,
    shares: Vec<BackendShare>,
    pinned: Vec<(SocketAddr, Option<u64>)>,
    client_lists: Vec<(SocketAddr, ClientList)>,
}

impl ChainShares {
    pub fn new() -> Self {
        ChainShares {
            left: 1.0,
            odd: false,
            passes_on: false,
            affinity: false,
            shares: Vec::new(),
            pinned: Vec::new(),
            client_lists: Vec::new(),
        }
    }

    /// Adds a rule that takes a packet with this chance.
    pub fn add(&mut self, endpoint: SocketAddr, probability: f64, packets: Option<u64>) {
        self.shares.push(BackendShare {
            endpoint,
            probability,
            share: self.left * probability,
            packets,
            pinned: None,
        });
        self.left *= 1.0 - probability;
    }

    /// Adds a part of a rule that takes all remaining packets: `parts` of `whole` go to this endpoint.
    pub fn add_part(&mut self, endpoint: SocketAddr, part: f64, packets: Option<u64>) {
        self.shares.push(BackendShare {
            endpoint,
            probability: part,
            share: self.left * part,
            packets,
            pinned: None,
        });
    }

    /// Completes the rule of [`ChainShares::add_part`].
    pub fn taken(&mut self, parts: f64) {
        self.left *= (1.0 - parts).max(0.0);
    }

    /// Adds a rule that takes packets of earlier clients of this endpoint.
    pub fn pin(&mut self, endpoint: SocketAddr, packets: Option<u64>, clients: ClientList) {
        self.affinity = true;
        self.pinned.push((endpoint, packets));
        self.client_lists.push((endpoint, clients));
    }

    pub fn not_understood(&mut self) {
        self.odd = true;
    }

    /// Adds a rule that sends every packet to another chain, which chooses the endpoint. kube-proxy never combines it with rules that
    /// choose one here.
    pub fn pass_on(&mut self) {
        self.passes_on = true;
    }

    /// Reports whether no rule so far leads to an endpoint, and each is understood.
    pub fn is_empty(&self) -> bool {
        self.shares.is_empty() && self.pinned.is_empty() && !self.odd
    }

    /// `None` where the shape is not understood.
    pub fn shares(mut self) -> Option<Vec<BackendShare>> {
        for (endpoint, packets) in self.pinned {
            let mut shares = self.shares.iter_mut();
            shares.find(|share| share.endpoint == endpoint)?.pinned = packets;
        }
        let mixed = self.passes_on && !self.shares.is_empty();
        (!self.odd && !mixed).then_some(self.shares)
    }
}

/// Path of packets to a load-balancing chain.
pub(super) struct FrontendPath {
    pub service: RuleService,
    pub protocol: u8,
    pub kind: RuleKind,
    pub ipv6: bool,
}

impl FrontendPath {
    /// Collects every load-balancing chain that a frontend's chain can lead to. `take` reads the rules of one chain, and returns the
    /// names of the chains that they lead to, without those of endpoints.
    pub fn walk(
        &self,
        chain: &str,
        mut take: impl FnMut(&str, &mut ChainShares) -> Vec<String>,
    ) -> Vec<LbChain> {
        let mut lb_chains = Vec::new();
        each_chain(chain, |chain| {
            let mut chain_shares = ChainShares::new();
            let onward = take(chain, &mut chain_shares);
            if !chain_shares.is_empty() {
                lb_chains.push(LbChain {
                    chain: chain.to_owned(),
                    ipv6: self.ipv6,
                    protocol: self.protocol,
                    service: self.service.clone(),
                    frontends: vec![self.kind],
                    affinity: chain_shares.affinity,
                    client_lists: std::mem::take(&mut chain_shares.client_lists),
                    shares: chain_shares.shares(),
                });
            }
            onward
        });
        lb_chains
    }
}

/// Returns one item for each chain, because several frontends lead to one.
pub(super) fn together(lb_chains: Vec<LbChain>) -> Vec<LbChain> {
    let mut all: Vec<LbChain> = Vec::new();
    for chain in lb_chains {
        let same = |other: &&mut LbChain| {
            (&other.chain, other.ipv6, other.protocol) == (&chain.chain, chain.ipv6, chain.protocol)
                && other.shares == chain.shares
        };
        match all.iter_mut().find(same) {
            None => all.push(chain),
            Some(known) => {
                for kind in chain.frontends {
                    if !known.frontends.contains(&kind) {
                        known.frontends.push(kind);
                    }
                }
            }
        }
    }
    all
}

/// Fractions that decimals stand for: `0.33333333349` is one of three. `None` for other decimals.
pub fn one_of(probability: f64) -> Option<u32> {
    let whole = (1.0 / probability).round();
    let near = (probability * whole - 1.0).abs() < 1e-6;
    (near && (1.0..=1e6).contains(&whole)).then_some(whole as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_decimals_that_stand_for_a_fraction_become_one() {
        for (probability, whole) in [
            (0.333_333_333_49, Some(3)),
            (0.5, Some(2)),
            (1.0, Some(1)),
            (0.000_999_999_9, Some(1000)),
            (0.4, None),
            (0.0, None),
            (f64::NAN, None),
        ] {
            assert_eq!(one_of(probability), whole, "{probability}");
        }
    }
}
