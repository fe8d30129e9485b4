//! How evenly the open flows of a Service are spread over its endpoints, and the reason as far as the numbers show it.
//!
//! Pure. A reason is given only if the numbers support it: connection tracking has addresses and ports but no processes, and
//! it does not record which endpoints existed when a flow was made.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;

use crate::plural::count;

/// Distinct clients that are counted, at most. They take about 3 MB.
pub const MAX_CLIENTS: usize = 65_536;

/// A spread with a smaller [`Spread::chance`] is not attributed to chance.
const SIGNIFICANCE_LEVEL: f64 = 0.01;

/// Number of distinct values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distinct {
    pub count: usize,
    /// The number is a lower bound, because counting stopped at a limit.
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

/// Distinct client addresses and source ports, counted in bounded memory.
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
    /// Counts at most this many distinct clients. All source ports are counted: they are at most 65,536.
    pub fn with_limit(clients: usize) -> Self {
        Sources {
            clients: DistinctCounter::with_limit(clients),
            ports: DistinctCounter::with_limit(1 << 16),
        }
    }

    /// Counts a flow with this client address and source port.
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

/// Numbers of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpreadInput {
    /// Open flows of each endpoint that new flows may go to, idle ones included, and of each other endpoint with an open
    /// flow.
    pub endpoints: Vec<u64>,
    /// Open flows on endpoints that new flows do not reach.
    pub on_old: u64,
    /// Number of these flows that are TCP, and that are UDP.
    pub tcp: u64,
    pub udp: u64,
    pub clients: Distinct,
    pub source_ports: Distinct,
    /// The Service has session affinity by client address; `None` if that is not known.
    pub affinity: Option<bool>,
    /// Topology hints or a traffic policy may have restricted these flows to fewer endpoints.
    pub may_be_fewer: bool,
}

/// Reason for a spread, as far as the numbers show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpreadReason {
    NoEndpoint,
    NoFlow,
    OneEndpoint,
    /// All flows are UDP from one source address and port, which stay on the endpoint of their entry.
    OneSource,
    OneFlow,
    /// As even as possible for the number of flows.
    Even,
    /// Fewer flows than endpoints.
    FewFlows,
    SessionAffinity,
    /// The number of endpoints that the flows may go to is not known.
    FewerEndpoints,
    /// Some flows are on endpoints that new flows do not reach.
    OldEndpoints,
    /// A random choice for each flow may give this spread.
    Chance,
    /// Not explained by chance, and all flows have one client address.
    OneClient,
    /// Not explained by chance.
    Uneven,
}

impl SpreadReason {
    /// Word of JSON.
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
            SpreadReason::OldEndpoints => "old-endpoints",
            SpreadReason::Chance => "chance",
            SpreadReason::OneClient => "one-client",
            SpreadReason::Uneven => "uneven",
        }
    }
}

/// Spread of the open flows of one Service.
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
    /// `max / mean`, 1 or more; `None` without flows.
    pub ratio: Option<f64>,
    /// Part of all flows on the busiest endpoint, 0 to 1; `None` without flows.
    pub share: Option<f64>,
    /// Upper bound of the probability that a random choice for each flow makes some endpoint at least this busy; `None`
    /// without flows, and if the number of endpoints is not known.
    pub chance: Option<f64>,
    pub clients: Distinct,
    pub source_ports: Distinct,
    pub reason: SpreadReason,
    /// Open flows on endpoints that new flows do not reach.
    pub on_old: u64,
    /// Noun for the flows: `connection` if all are TCP.
    noun: &'static str,
}

impl Spread {
    pub fn of(counted: &SpreadInput) -> Self {
        let endpoints = counted.endpoints.len();
        let flows: u64 = counted.endpoints.iter().sum();
        let max = counted.endpoints.iter().copied().max().unwrap_or_default();
        let mean = (endpoints > 0).then(|| flows as f64 / endpoints as f64);
        let if_flows = |value: f64| (flows > 0).then_some(value);
        let chance = if_flows(1.0).map(|_| chance(flows, endpoints, max));
        let reason = match reason(counted, flows, max, chance) {
            // Flows that lie evenly are no good news where some endpoints should have none.
            SpreadReason::OneEndpoint
            | SpreadReason::Even
            | SpreadReason::FewFlows
            | SpreadReason::Chance
                if counted.on_old > 0 =>
            {
                SpreadReason::OldEndpoints
            }
            reason => reason,
        };
        Spread {
            flows,
            endpoints,
            idle: counted.endpoints.iter().filter(|n| **n == 0).count(),
            max,
            mean,
            ratio: mean.and_then(|mean| if_flows(max as f64 / mean)),
            share: if_flows(max as f64 / flows as f64),
            // The number of endpoints to choose among is not known.
            chance: chance.filter(|_| reason != SpreadReason::FewerEndpoints),
            clients: counted.clients,
            source_ports: counted.source_ports,
            on_old: counted.on_old,
            reason,
            noun: match (counted.tcp == flows, counted.udp == flows) {
                (true, _) => "connection",
                (_, true) => "UDP flow",
                _ => "flow",
            },
        }
    }

    /// Whether some endpoint is busier than a random choice for each flow explains.
    pub fn is_beyond_chance(&self) -> bool {
        self.chance
            .is_some_and(|chance| chance < SIGNIFICANCE_LEVEL)
    }

    /// Sentence of the reason with its numbers.
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
            SpreadReason::OldEndpoints => format!(
                "{} of {flows} on an endpoint that gets no new flows, because it does not serve or another one is preferred",
                self.on_old
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

/// Upper bound of the probability that some endpoint gets at least `max` of `flows` distributed at random over `endpoints`:
/// the binomial tail of one endpoint, multiplied by their number.
fn chance(flows: u64, endpoints: usize, max: u64) -> f64 {
    if endpoints < 2 || max == 0 {
        return 1.0;
    }
    let one = 1.0 / endpoints as f64;
    let (n, m) = (flows as f64, max as f64);
    if m <= n * one + 1.0 {
        return 1.0;
    }
    // Natural logarithm of the probability of exactly `max`.
    let mut log = m * one.ln() + (n - m) * (1.0 - one).ln();
    let mut i = 1.0;
    while i <= m {
        log += ((n - m + i) / i).ln();
        i += 1.0;
    }
    // Above the mean, each term is smaller than the one before by at least this factor.
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
