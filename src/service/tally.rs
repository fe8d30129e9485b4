//! Counts the flows of one Service by destination.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use crate::attribution::FrontendKind;
use crate::entry::Entry;
use crate::spread::{Sources, Spread, SpreadInput};
use crate::verdict::{Reason, Verdict};
use ctk_cluster::index::Affinity;
use ctnetlink::flow::{Flow, ProtocolState};

use super::known_service::KnownService;
use super::reach::{Reach, TrafficPolicy};

/// Destinations other than endpoints that are counted separately, at most.
const MAX_OTHER_DESTINATIONS: usize = 4096;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Whether a flow can still carry traffic: TCP, SCTP and DCCP that are opening or established, and every entry of a protocol
/// without states. Closing and closed flows cannot.
pub fn is_open(flow: &Flow) -> bool {
    match flow.state.and_then(ProtocolState::name) {
        Some(word) => matches!(
            word,
            "SYN_SENT"
                | "SYN_SENT2"
                | "SYN_RECV"
                | "ESTABLISHED"
                | "COOKIE_WAIT"
                | "COOKIE_ECHOED"
                | "HEARTBEAT_SENT"
                | "HEARTBEAT_ACKED"
                | "REQUEST"
                | "RESPOND"
                | "PARTOPEN"
                | "OPEN"
        ),
        // No state, or a state that a later kernel added, which is not known to be closing.
        None => true,
    }
}

/// Counts of the flows to one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Flows for which [`is_open`] holds.
    pub open: u64,
    pub other: u64,
    /// Flows by state, for protocols with states.
    pub states: BTreeMap<&'static str, u64>,
    /// Sum over the flows with counters; `None` if none has them.
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    /// Flows without counters.
    pub uncounted: u64,
    /// Start of the oldest open flow with a timestamp, in nanoseconds since the Unix epoch.
    pub oldest: Option<u64>,
    /// Open flows without a timestamp; they are older than those with one.
    pub undated: u64,
    /// Flows with the verdict stale, open or not. See [`FlowCounts::stale`].
    pub judged_stale: u64,
    /// Flows without a verdict, or whose verdict is unknown for want of data.
    pub unjudged: u64,
}

impl FlowCounts {
    fn add(&mut self, entry: &Entry<'_>) {
        let flow = &entry.flow;
        if is_open(flow) {
            self.open += 1;
            self.undated += u64::from(flow.start.is_none());
            self.oldest = match (self.oldest, flow.start) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        } else {
            self.other += 1;
        }
        if let Some(state) = flow.state.and_then(ProtocolState::name) {
            *self.states.entry(state).or_default() += 1;
        }
        self.uncounted += u64::from(flow.packets().is_none());
        add(&mut self.packets, flow.packets());
        add(&mut self.bytes, flow.bytes());
        match entry.judgement.as_ref().map(|judgement| judgement.reason) {
            None | Some(Reason::SourceIncomplete | Reason::ForeignNetns) => self.unjudged += 1,
            Some(reason) => self.judged_stale += u64::from(reason.verdict() == Verdict::Stale),
        }
    }

    pub fn flows(&self) -> u64 {
        self.open + self.other
    }

    /// Stale flows; `None` if a flow could not be judged.
    pub fn stale(&self) -> Option<u64> {
        (self.unjudged == 0).then_some(self.judged_stale)
    }

    /// Stale flows among those that could be judged; `None` if none could.
    pub fn stale_at_least(&self) -> Option<u64> {
        (self.unjudged == 0 || self.unjudged < self.flows()).then_some(self.judged_stale)
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

/// A destination that is no endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherDestination {
    pub load: FlowCounts,
    /// Flows whose verdict says that the endpoint is gone.
    gone: u64,
    /// Flows by the reason of their verdict.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Namespace and name of the pod that owns the address now.
    pub pod: Option<(String, String)>,
    pub node: Option<String>,
}

/// Counts of [`super::ServiceReport`].
#[derive(Clone, Debug)]
pub struct ServiceTally {
    /// Position of an endpoint in [`KnownService::endpoints`].
    by_address: HashMap<(u8, SocketAddr), usize>,
    /// One for each of [`KnownService::endpoints`].
    pub loads: Vec<FlowCounts>,
    /// By protocol and address.
    pub others: BTreeMap<(u8, SocketAddr), OtherDestination>,
    /// Flows to destinations beyond the first `MAX_OTHER_DESTINATIONS`.
    pub more_others: FlowCounts,
    /// Flows that were never translated and end at the frontend's own address.
    pub untranslated: FlowCounts,
    /// Kind of frontend by address; other addresses are the node's.
    kinds: HashMap<IpAddr, FrontendKind>,
    internal: Option<TrafficPolicy>,
    external: Option<TrafficPolicy>,
    /// Open flows to endpoints.
    pools: BTreeMap<Reach, ReachFlows>,
}

/// Open flows of one reach.
#[derive(Clone, Debug, Default)]
struct ReachFlows {
    /// By position in [`KnownService::endpoints`].
    open: BTreeMap<usize, u64>,
    sources: Sources,
    tcp: u64,
    udp: u64,
}

impl ServiceTally {
    pub fn new(known: &KnownService) -> Self {
        let addresses = known.endpoints.iter().map(|e| (e.protocol, e.address));
        let frontends = known.frontends.iter();
        let kinds = frontends.filter_map(|frontend| Some((frontend.address?, frontend.kind)));
        ServiceTally {
            by_address: addresses.zip(0..).collect(),
            loads: vec![FlowCounts::default(); known.endpoints.len()],
            others: BTreeMap::new(),
            more_others: FlowCounts::default(),
            untranslated: FlowCounts::default(),
            kinds: kinds.rev().collect(),
            internal: known.internal_policy,
            external: known.external_policy,
            pools: BTreeMap::new(),
        }
    }

    /// Counts an entry of this Service. `inside` is the answer of [`super::is_inside`]; it is called only if it matters.
    pub fn add(&mut self, entry: &Entry<'_>, inside: impl FnOnce() -> Option<bool>) {
        let flow = &entry.flow;
        let Some(port) = flow.reply.sport() else {
            return;
        };
        let key = (flow.protocol(), SocketAddr::new(flow.reply.src, port));
        let position = self.by_address.get(&key).copied();
        if let Some((at, load)) = position.and_then(|at| Some((at, self.loads.get_mut(at)?))) {
            load.add(entry);
            if is_open(flow) {
                let kind = self.kinds.get(&flow.original.dst);
                let kind = kind.copied().unwrap_or(FrontendKind::NodePort);
                let reach = Reach::of(kind, self.internal, self.external, inside);
                self.pools.entry(reach).or_default().add(at, flow);
            }
        } else if !flow.is_dnat() {
            self.untranslated.add(entry);
        } else if self.others.len() < MAX_OTHER_DESTINATIONS || self.others.contains_key(&key) {
            self.others.entry(key).or_default().add(entry);
        } else {
            self.more_others.add(entry);
        }
    }

    /// Spread of the open flows of each reach over the endpoints that they may go to: at least one, most flows first. Flows
    /// to other destinations are left out, because no new flow goes to these.
    pub fn spreads(&self, known: &KnownService, affinity: Option<bool>) -> Vec<(Reach, Spread)> {
        let none = ReachFlows::default();
        let pools = self.pools.iter().map(|(reach, pool)| (*reach, pool));
        let mut spreads: Vec<_> = pools
            .map(|(reach, pool)| (reach, pool.spread(reach, known, affinity)))
            .collect();
        if spreads.is_empty() {
            let internal = Reach::of(FrontendKind::ClusterIp, self.internal, None, || None);
            let mut endpoints = known.endpoints.iter();
            let reach = match self.internal {
                // Rules may have no ClusterIP, or not show which frontend is one.
                None if !endpoints.any(|endpoint| endpoint.is_candidate(internal)) => {
                    Reach::NotKnown
                }
                _ => internal,
            };
            spreads.push((reach, none.spread(reach, known, affinity)));
        }
        // The sort is stable: of equal spreads the wider reach comes first.
        spreads.sort_by_key(|(_, spread)| Reverse(spread.flows));
        spreads
    }
}

impl ReachFlows {
    fn add(&mut self, endpoint: usize, flow: &Flow) {
        *self.open.entry(endpoint).or_default() += 1;
        self.sources.add(flow.original.src, flow.original.sport());
        self.tcp += u64::from(flow.protocol() == TCP);
        self.udp += u64::from(flow.protocol() == UDP);
    }

    fn spread(&self, reach: Reach, known: &KnownService, affinity: Option<bool>) -> Spread {
        // A pod with several ports, or with addresses of both families, counts once.
        let mut backends: BTreeMap<(&str, String), u64> = BTreeMap::new();
        let mut on_old = 0;
        for (at, endpoint) in known.endpoints.iter().enumerate() {
            let open = self.open.get(&at).copied().unwrap_or_default();
            if !endpoint.is_candidate(reach) && open == 0 {
                continue;
            }
            if !endpoint.is_candidate(reach) {
                on_old += open;
            }
            let backend = match &endpoint.pod {
                Some((namespace, name)) => (&**namespace, name.to_string()),
                None => ("", endpoint.address.ip().to_string()),
            };
            *backends.entry(backend).or_default() += open;
        }
        let by_source = match known.affinity {
            Some(affinity) => Some(affinity != Affinity::None),
            None => affinity,
        };
        Spread::of(&SpreadInput {
            endpoints: backends.into_values().collect(),
            on_old,
            tcp: self.tcp,
            udp: self.udp,
            clients: self.sources.clients(),
            source_ports: self.sources.ports(),
            affinity: by_source,
            may_be_fewer: known.may_be_fewer(reach),
        })
    }
}

impl OtherDestination {
    /// Whether a verdict says that the endpoint is gone. Otherwise something other than kube-proxy sends packets there, or the
    /// verdict is unknown.
    pub fn is_gone(&self) -> bool {
        self.gone > 0
    }

    fn add(&mut self, entry: &Entry<'_>) {
        self.load.add(entry);
        if let Some(judgement) = &entry.judgement {
            *self.reasons.entry(judgement.reason.name()).or_default() += 1;
            let gone = [Verdict::Stale, Verdict::Suspect, Verdict::Detached];
            self.gone += u64::from(gone.contains(&judgement.reason.verdict()));
        }
        let party = entry.names.endpoint.as_ref().map(|endpoint| endpoint.party);
        if let (None, Some(party)) = (&self.pod, party) {
            self.pod = party
                .namespace
                .map(str::to_owned)
                .zip(party.name.map(str::to_owned));
            self.node = party.node.map(str::to_owned);
        }
    }
}
