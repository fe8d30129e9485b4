//! The result of `ctk svc`.

use std::net::SocketAddr;

use crate::attribution::FrontendKind;
use crate::spread::Spread;
use ctk_cluster::index::Affinity;
use ctk_cluster::rules::lb_chain::{LbChain, one_of};

use super::known_service::{KnownService, kind_of_rule};
use super::next_flow::NextFlow;
use super::reach::Reach;
use super::tally::{FlowCounts, ServiceTally};

/// One rule of this node that sends new flows to an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct NewFlowPath {
    pub chain: String,
    /// Kinds of the frontends that lead to the chain.
    pub frontends: Vec<FrontendKind>,
    /// IANA number.
    pub protocol: u8,
    pub address: SocketAddr,
    /// Probability of the rule for a packet that reaches it, 0 to 1.
    pub probability: f64,
    /// Part of the chain's new flows that take the rule, 0 to 1.
    pub share: f64,
    /// New flows that took the rule since it was loaded; `None` without counters.
    pub packets: Option<u64>,
    /// New flows that session affinity sent to the endpoint; `None` without counters.
    pub affinity_packets: Option<u64>,
}

impl NewFlowPath {
    /// N for a rule with probability 1/N; 1 for the last rule of a chain.
    pub fn one_of(&self) -> Option<u32> {
        one_of(self.probability)
    }
}

/// Rules of this node for new flows of a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewFlowPaths {
    pub paths: Vec<NewFlowPath>,
    /// Chains with a rule that is not understood.
    pub not_understood: Vec<String>,
}

/// A Service with its flows and their spread.
#[derive(Clone, Debug)]
pub struct ServiceReport {
    pub known: KnownService,
    pub tally: ServiceTally,
    /// Spread of the flows of each reach: at least one, most flows first.
    pub spreads: Vec<(Reach, Spread)>,
    /// `Err` says why the paths are not known: this node's rules could not be read, or hold nothing of the Service.
    pub new_flow_paths: Result<NewFlowPaths, String>,
    /// Next flows of the clients that were asked for; `None` if none was. `Err` says why they are not known.
    pub next_flows: Option<Result<Vec<NextFlow>, String>>,
    /// Time at which the table was read, in nanoseconds since the Unix epoch.
    pub now: u64,
}

impl ServiceReport {
    /// `lb_chains` are the load-balancing chains of the node's rules, or the reason why they are not known.
    pub fn new(
        mut known: KnownService,
        tally: ServiceTally,
        lb_chains: Result<&[LbChain], String>,
        now: u64,
    ) -> Self {
        let found = lb_chains.and_then(|lb_chains| chains_of(&known, lb_chains));
        let affinity = found
            .as_ref()
            .ok()
            .map(|lb_chains| lb_chains.iter().any(|chain| chain.affinity));
        if let (None, Some(affinity)) = (known.affinity, affinity) {
            known.affinity = Some(match affinity {
                true => Affinity::ClientIp(None),
                false => Affinity::None,
            });
        }
        ServiceReport {
            spreads: tally.spreads(&known, affinity),
            known,
            tally,
            next_flows: None,
            new_flow_paths: found.map(|lb_chains| NewFlowPaths::of(&lb_chains)),
            now,
        }
    }

    /// Counts of every destination, endpoint or not.
    pub fn loads(&self) -> impl Iterator<Item = &FlowCounts> {
        let tally = &self.tally;
        let others = tally.others.values().map(|other| &other.load);
        let more = [&tally.more_others, &tally.untranslated];
        tally.loads.iter().chain(others).chain(more)
    }

    /// Stale flows of the Service; `None` if a flow could not be judged.
    pub fn stale(&self) -> Option<u64> {
        self.loads().map(FlowCounts::stale).sum()
    }

    /// Stale flows among those that could be judged; `None` if none could.
    pub fn stale_at_least(&self) -> Option<u64> {
        let all = self.loads().filter(|load| load.flows() > 0);
        let judged: Vec<_> = all.map(FlowCounts::stale_at_least).collect();
        let none = !judged.is_empty() && judged.iter().all(Option::is_none);
        (!none).then(|| judged.into_iter().flatten().sum())
    }
}

/// The chains of the Service and its selected ports, or the reason why none is known.
pub fn chains_of<'r>(
    known: &KnownService,
    lb_chains: &'r [LbChain],
) -> Result<Vec<&'r LbChain>, String> {
    let of_service = |chain: &&LbChain| {
        let ports = known.frontends.iter();
        let mut ports = ports.map(|frontend| (frontend.protocol, &frontend.name));
        chain.service.namespace == known.namespace
            && chain.service.name == known.name
            && ports.any(|port| port == (chain.protocol, &chain.service.port))
    };
    let found: Vec<&LbChain> = lb_chains.iter().filter(of_service).collect();
    match found.is_empty() {
        true => Err("they hold no rule that translates this Service".to_owned()),
        false => Ok(found),
    }
}

impl NewFlowPaths {
    fn of(lb_chains: &[&LbChain]) -> Self {
        let mut all = NewFlowPaths::default();
        for chain in lb_chains {
            let Some(shares) = &chain.shares else {
                all.not_understood.push(chain.chain.clone());
                continue;
            };
            all.paths.extend(shares.iter().map(|share| {
                NewFlowPath {
                    chain: chain.chain.clone(),
                    frontends: chain
                        .frontends
                        .iter()
                        .map(|kind| kind_of_rule(*kind))
                        .collect(),
                    protocol: chain.protocol,
                    address: share.endpoint,
                    probability: share.probability,
                    share: share.share,
                    packets: share.packets,
                    affinity_packets: share.pinned,
                }
            }));
        }
        all
    }
}
