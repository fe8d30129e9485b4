//! How evenly the open flows of a Service spread over its endpoints, and what the numbers say of why they do not.
//!
//! Pure. A reason is given only where the numbers carry it: connection tracking sees addresses and ports, never processes,
//! and it keeps no record of the endpoints that were there when a flow was made.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;

use crate::plural::count;

/// Distinct clients that are told apart; about 3 MB at most.
pub const MAX_CLIENTS: usize = 65_536;

/// A chance below this is taken for none.
const SIGNIFICANCE_LEVEL: f64 = 0.01;

/// How many different values were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distinct {
    pub count: usize,
    /// There may be more: counting ended at a limit.
    pub at_least: bool,
}

impl fmt::Display for Distinct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.at_least { "at least " } else { "" };
        write!(f, "{least}{}", self.count)
    }
}

impl Distinct {
    fn is_one(self) -> bool {
        self.count == 1 && !self.at_least
    }

    /// `1 client address`, `at least 65536 client addresses`.
    fn client_addresses(self) -> String {
        let least = if self.at_least { "at least " } else { "" };
        let number = count(self.count as u64, "client address", "client addresses");
        format!("{least}{number}")
    }
}

/// Where flows come from, counted in bounded memory.
#[derive(Clone, Debug)]
pub struct Sources {
    clients: DistinctCounter<IpAddr>,
    ports: DistinctCounter<u16>,
}

impl Default for Sources {
    fn default() -> Self {
        Sources::with_limit(MAX_CLIENTS)
    }
}

impl Sources {
    /// `clients`: how many are told apart, at most. Source ports always are: there are few.
    pub fn with_limit(clients: usize) -> Self {
        Sources {
            clients: DistinctCounter::with_limit(clients),
            ports: DistinctCounter::with_limit(1 << 16),
        }
    }

    /// One more flow, of this client address and source port.
    pub fn add(&mut self, client: IpAddr, port: Option<u16>) {
        self.clients.add(client);
        if let Some(port) = port {
            self.ports.add(port);
        }
    }

    pub fn clients(&self) -> Distinct {
        self.clients.distinct()
    }

    pub fn ports(&self) -> Distinct {
        self.ports.distinct()
    }
}

#[derive(Clone, Debug)]
struct DistinctCounter<T> {
    values: HashSet<T>,
    limit: usize,
    missed: bool,
}

impl<T: Eq + Hash> DistinctCounter<T> {
    fn with_limit(limit: usize) -> Self {
        DistinctCounter {
            values: HashSet::new(),
            limit,
            missed: false,
        }
    }

    fn add(&mut self, value: T) {
        if self.values.len() < self.limit {
            self.values.insert(value);
        } else if !self.missed {
            self.missed = !self.values.contains(&value);
        }
    }

    fn distinct(&self) -> Distinct {
        Distinct {
            count: self.values.len(),
            at_least: self.missed,
        }
    }
}

/// What was counted of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpreadInput {
    /// Open flows of each endpoint: of every one that new flows may go to, idle ones too, and of every one that still has
    /// some.
    pub endpoints: Vec<u64>,
    /// How many of these flows are TCP, and how many UDP.
    pub tcp: u64,
    pub udp: u64,
    pub clients: Distinct,
    pub source_ports: Distinct,
    /// The Service keeps a client address on one endpoint; `None` when that is not known.
    pub affinity: Option<bool>,
    /// Something left these flows maybe fewer endpoints than are counted: topology hints, or a policy.
    pub may_be_fewer: bool,
}

/// Why the flows lie as they do, as far as the numbers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpreadReason {
    NoEndpoint,
    NoFlow,
    OneEndpoint,
    /// All flows have one source address and port, and UDP keeps them where they are.
    OneSource,
    OneFlow,
    /// As even as the number of flows allows.
    Even,
    /// There are not enough flows for all endpoints.
    FewFlows,
    SessionAffinity,
    /// How many endpoints they could choose among is not known.
    FewerEndpoints,
    /// A choice at random for each flow may well give this.
    Chance,
    /// Beyond chance, and all flows are of one client address.
    OneClient,
    /// Beyond chance.
    Uneven,
}

impl SpreadReason {
    /// The word of JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SpreadReason::NoEndpoint => "no-endpoint",
            SpreadReason::NoFlow => "no-flow",
            SpreadReason::OneEndpoint => "one-endpoint",
            SpreadReason::OneSource => "one-source",
            SpreadReason::OneFlow => "one-flow",
            SpreadReason::Even => "even",
            SpreadReason::FewFlows => "few-flows",
            SpreadReason::SessionAffinity => "session-affinity",
            SpreadReason::FewerEndpoints => "fewer-endpoints",
            SpreadReason::Chance => "chance",
            SpreadReason::OneClient => "one-client",
            SpreadReason::Uneven => "uneven",
        }
    }
}

/// How the flows of one Service lie.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Open flows.
    pub flows: u64,
    pub endpoints: usize,
    /// Endpoints without an open flow.
    pub idle: usize,
    /// Open flows of the busiest endpoint.
    pub max: u64,
    /// Open flows for each endpoint; `None` without endpoints.
    pub mean: Option<f64>,
    /// `max / mean`; `None` without flows. 1 is even.
    pub ratio: Option<f64>,
    /// Part of all flows that the busiest endpoint has, 0 to 1; `None` without flows.
    pub share: Option<f64>,
    /// How likely a choice at random for each flow makes some endpoint at least this busy, at most; `None` without flows,
    /// and where it is not known among how many endpoints.
    pub chance: Option<f64>,
    pub clients: Distinct,
    pub source_ports: Distinct,
    pub reason: SpreadReason,
    /// What the flows are called: connections when all are TCP.
    noun: &'static str,
}

impl Spread {
    pub fn of(counted: &SpreadInput) -> Self {
        let endpoints = counted.endpoints.len();
        let flows: u64 = counted.endpoints.iter().sum();
        let max = counted.endpoints.iter().copied().max().unwrap_or_default();
        let mean = (endpoints > 0).then(|| flows as f64 / endpoints as f64);
        let some = |value: f64| (flows > 0).then_some(value);
        let chance = some(1.0).map(|_| chance(flows, endpoints, max));
        let reason = reason(counted, flows, max, chance);
        Spread {
            flows,
            endpoints,
            idle: counted.endpoints.iter().filter(|n| **n == 0).count(),
            max,
            mean,
            ratio: mean.and_then(|mean| some(max as f64 / mean)),
            share: some(max as f64 / flows as f64),
            // Among how many is not known.
            chance: chance.filter(|_| reason != SpreadReason::FewerEndpoints),
            clients: counted.clients,
            source_ports: counted.source_ports,
            reason,
            noun: match (counted.tcp == flows, counted.udp == flows) {
                (true, _) => "connection",
                (_, true) => "UDP flow",
                _ => "flow",
            },
        }
    }

    /// Some endpoint is busier than a choice at random for each flow would make it.
    pub fn is_beyond_chance(&self) -> bool {
        self.chance
            .is_some_and(|chance| chance < SIGNIFICANCE_LEVEL)
    }

    /// The reason in words, with its numbers.
    pub fn sentence(&self) -> String {
        let noun = self.noun;
        let flows = count(
            self.flows,
            &format!("open {noun}"),
            &format!("open {noun}s"),
        );
        let clients = self.clients.client_addresses();
        match self.reason {
            SpreadReason::NoEndpoint => "no endpoint to go to".to_owned(),
            SpreadReason::NoFlow => "no open flow on this node".to_owned(),
            SpreadReason::OneEndpoint => "one endpoint: there is nothing to spread over".to_owned(),
            SpreadReason::OneSource => format!(
                "{flows} of 1 client address and source port: one UDP socket cannot spread, every packet of its entry \
                 goes where the first one went"
            ),
            SpreadReason::OneFlow => format!(
                "{flows}: whatever is sent in it goes to the endpoint that was chosen when it was made"
            ),
            SpreadReason::Even => format!("{flows} lie as evenly as they can"),
            SpreadReason::FewFlows => {
                format!("{flows} cannot reach all of {} endpoints", self.endpoints)
            }
            SpreadReason::SessionAffinity => format!(
                "session affinity keeps each client address on one endpoint; these are of {clients}"
            ),
            SpreadReason::FewerEndpoints => format!(
                "topology hints or a traffic policy may leave these {flows} fewer endpoints than {}: whether they are \
                 uneven is not known",
                self.endpoints
            ),
            SpreadReason::Chance => "no more uneven than a choice at random may be".to_owned(),
            SpreadReason::OneClient => format!(
                "{flows} of 1 client address, more uneven than a choice at random for each: a {noun} stays on its endpoint as \
                 long as it is kept open"
            ),
            SpreadReason::Uneven => format!(
                "{flows} of {clients}, more uneven than a choice at random for each: a {noun} stays on its endpoint as long as \
                 it is kept open, and an endpoint that comes later gets new ones only"
            ),
        }
    }
}

fn reason(counted: &SpreadInput, flows: u64, max: u64, chance: Option<f64>) -> SpreadReason {
    let endpoints = counted.endpoints.len() as u64;
    let one_source = counted.clients.is_one() && counted.source_ports.is_one();
    match endpoints {
        0 => SpreadReason::NoEndpoint,
        _ if flows == 0 => SpreadReason::NoFlow,
        1 => SpreadReason::OneEndpoint,
        _ if counted.udp == flows && one_source => SpreadReason::OneSource,
        _ if flows == 1 => SpreadReason::OneFlow,
        _ if counted.affinity == Some(true) && max > flows.div_ceil(endpoints) => {
            SpreadReason::SessionAffinity
        }
        _ if counted.may_be_fewer && max > flows.div_ceil(endpoints) => {
            SpreadReason::FewerEndpoints
        }
        _ if chance.is_some_and(|chance| chance >= SIGNIFICANCE_LEVEL) => match flows {
            _ if flows < endpoints => SpreadReason::FewFlows,
            _ if max == flows.div_ceil(endpoints) => SpreadReason::Even,
            _ => SpreadReason::Chance,
        },
        _ if counted.clients.is_one() => SpreadReason::OneClient,
        _ => SpreadReason::Uneven,
    }
}

/// Upper bound of the probability that, of `flows` thrown at `endpoints` at random, some endpoint gets at least `max`:
/// the binomial tail of one endpoint, for each of them.
fn chance(flows: u64, endpoints: usize, max: u64) -> f64 {
    if endpoints < 2 || max == 0 {
        return 1.0;
    }
    let one = 1.0 / endpoints as f64;
    let (n, m) = (flows as f64, max as f64);
    if m <= n * one + 1.0 {
        return 1.0;
    }
    // ln of the probability of exactly `max`.
    let mut log = m * one.ln() + (n - m) * (1.0 - one).ln();
    let mut i = 1.0;
    while i <= m {
        log += ((n - m + i) / i).ln();
        i += 1.0;
    }
    // Above the mean each further term is smaller by this factor and more.
    let odds = one / (1.0 - one);
    let (mut term, mut sum, mut k) = (1.0_f64, 1.0_f64, m);
    while k < n && term > sum * 1e-12 {
        term *= (n - k) / (k + 1.0) * odds;
        sum += term;
        k += 1.0;
    }
    (log.exp() * sum * endpoints as f64).min(1.0)
}

#[cfg(test)]
mod tests;
