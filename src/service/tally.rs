//! The flows of one Service, counted by where they go.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use crate::cluster::index::Affinity;
use crate::entry::Entry;
use crate::flow::{Flow, ProtocolState};
use crate::spread::{Counted, Sources, Spread};
use crate::verdict::{Reason, Verdict};

use super::known::Known;

/// Addresses that are told apart under `gone`.
const GONE: usize = 4096;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A flow that can still carry traffic: TCP, SCTP and DCCP that are being made or are established, and every entry of a
/// protocol without states. What closes or is closed is not.
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
        // No state, or one of a later kernel: nothing says that it is closing.
        None => true,
    }
}

/// Flows to one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// See [`is_open`].
    pub open: u64,
    pub other: u64,
    /// Flows by state, where the protocol has some.
    pub states: BTreeMap<&'static str, u64>,
    /// Of the flows that are counted; `None` where none is.
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    /// Flows without counters.
    pub uncounted: u64,
    /// When the oldest open flow with a timestamp began, in nanoseconds since the Unix epoch.
    pub oldest: Option<u64>,
    /// Open flows without a timestamp: older than every one with.
    pub undated: u64,
    /// Flows whose verdict is stale, open or not. See [`Load::stale`].
    pub judged_stale: u64,
    /// Flows of which the source cannot tell, or of which no verdict was sought.
    pub unjudged: u64,
}

impl Load {
    fn see(&mut self, entry: &Entry<'_>) {
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

    /// Stale flows, at least; `None` where not one flow could be judged.
    pub fn stale(&self) -> Option<u64> {
        (self.unjudged == 0 || self.unjudged < self.flows()).then_some(self.judged_stale)
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

/// A place that is no endpoint, or none any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    pub load: Load,
    /// Why the flows are judged as they are, by the words of verdicts.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Namespace and name of the pod that has the address now.
    pub pod: Option<(String, String)>,
    pub node: Option<String>,
}

/// Counts what [`super::Report`] shows.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Position of an endpoint in [`Known::endpoints`].
    by_place: HashMap<(u8, SocketAddr), usize>,
    /// One for each of [`Known::endpoints`].
    pub loads: Vec<Load>,
    /// By protocol and place.
    pub gone: BTreeMap<(u8, SocketAddr), Gone>,
    /// Flows to more places than [`Tally::gone`] can hold.
    pub more_gone: Load,
    /// Flows that still have the frontend's address: never translated.
    pub untranslated: Load,
    /// Of open flows to endpoints.
    sources: Sources,
    tcp: u64,
    udp: u64,
}

impl Tally {
    pub fn new(known: &Known) -> Self {
        let places = known.endpoints.iter().map(|e| (e.protocol, e.place));
        Tally {
            by_place: places.zip(0..).collect(),
            loads: vec![Load::default(); known.endpoints.len()],
            gone: BTreeMap::new(),
            more_gone: Load::default(),
            untranslated: Load::default(),
            sources: Sources::default(),
            tcp: 0,
            udp: 0,
        }
    }

    /// An entry of this Service.
    pub fn see(&mut self, entry: &Entry<'_>) {
        let flow = &entry.flow;
        let Some(port) = flow.reply.sport() else {
            return;
        };
        let key = (flow.protocol(), SocketAddr::new(flow.reply.src, port));
        let position = self.by_place.get(&key);
        if let Some(load) = position.and_then(|at| self.loads.get_mut(*at)) {
            load.see(entry);
            if is_open(flow) {
                self.sources.see(flow.original.src, flow.original.sport());
                self.tcp += u64::from(key.0 == TCP);
                self.udp += u64::from(key.0 == UDP);
            }
        } else if !flow.is_dnat() {
            self.untranslated.see(entry);
        } else if self.gone.len() < GONE || self.gone.contains_key(&key) {
            self.gone.entry(key).or_default().see(entry);
        } else {
            self.more_gone.see(entry);
        }
    }

    /// How the open flows lie on the endpoints. What lies under `gone` is no part of it: nothing new comes there.
    pub fn spread(&self, known: &Known, affinity: Option<bool>) -> Spread {
        // A pod that answers on several ports, or in both families, is one.
        let mut backends: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for (endpoint, load) in known.endpoints.iter().zip(&self.loads) {
            if !endpoint.candidate && load.open == 0 {
                continue;
            }
            let backend = match &endpoint.pod {
                Some((namespace, name)) => (&**namespace, name.to_string()),
                None => ("", endpoint.place.ip().to_string()),
            };
            *backends.entry(backend).or_default() += load.open;
        }
        let by_source = match known.affinity {
            Some(affinity) => Some(affinity != Affinity::None),
            None => affinity,
        };
        Spread::of(&Counted {
            endpoints: backends.into_values().collect(),
            tcp: self.tcp,
            udp: self.udp,
            clients: self.sources.clients(),
            source_ports: self.sources.ports(),
            affinity: by_source,
        })
    }
}

impl Gone {
    fn see(&mut self, entry: &Entry<'_>) {
        self.load.see(entry);
        if let Some(judgement) = &entry.judgement {
            *self.reasons.entry(judgement.reason.name()).or_default() += 1;
        }
        let party = entry.names.endpoint.as_ref().map(|endpoint| endpoint.party);
        if let (None, Some(party)) = (&self.pod, party) {
            let own = |text: &str| text.to_owned();
            self.pod = party.namespace.map(own).zip(party.name.map(own));
            self.node = party.node.map(own);
        }
    }
}
