//! Changes of endpoints, reported by the API or by this node's rules, as records among those of the flows.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::attribution;
use crate::attribution::{EndpointName, Party, PartyKind};
use ctk_cluster::follow::{self, EndpointChange};
use ctk_cluster::index::Index;
use ctk_cluster::rules::NodeRules;
use ctk_cluster::rules::changes::{RuleEndpoint, Targets, changes, targets};

use super::record::{self, Change, SeenBy};

/// A change of an endpoint with its time.
#[derive(Debug)]
pub struct EndpointEvent {
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    report: Report,
}

/// Service port of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct ServicePort<'a> {
    pub namespace: &'a str,
    pub service: &'a str,
    /// Name of the port; `None` for a port without a name.
    pub name: Option<&'a str>,
    /// Number of the port, when it is known.
    pub number: Option<u16>,
}

#[derive(Debug)]
enum Report {
    Api(EndpointChange),
    Rules {
        /// `false`: the target was removed.
        is_added: bool,
        target: RuleEndpoint,
        /// Number of the Service port, when it is known.
        port_number: Option<u16>,
    },
}

impl EndpointEvent {
    pub fn of_api(time: SystemTime, change: EndpointChange) -> Self {
        EndpointEvent {
            time: nanos(time),
            report: Report::Api(change),
        }
    }

    /// Returns the Service port of the endpoint.
    pub fn service_port(&self) -> ServicePort<'_> {
        match &self.report {
            Report::Api(change) => ServicePort {
                namespace: &change.namespace,
                service: &change.service,
                name: change.port.as_deref(),
                number: Some(change.number),
            },
            Report::Rules {
                target,
                port_number,
                ..
            } => {
                let (namespace, service, port) = &target.service;
                ServicePort {
                    namespace,
                    service,
                    name: port.as_deref(),
                    number: *port_number,
                }
            }
        }
    }

    /// Returns the record of the event. `index` knows the owners of addresses.
    pub fn record<'t>(&'t self, index: Option<&'t Index>) -> record::EndpointChange<'t> {
        let party = |address: SocketAddr, protocol: u8| {
            attribution::party_at(index?, address.ip(), Some((protocol, address.port())))
        };
        match &self.report {
            Report::Api(change) => {
                let endpoint = &change.endpoint;
                let address = SocketAddr::new(endpoint.address, endpoint.port);
                let index = index.unwrap_or_else(|| EMPTY_INDEX.get_or_init(Index::default));
                let party = party(address, change.protocol);
                record::EndpointChange {
                    service: Some((&change.namespace, &change.service)),
                    port: change.port.as_deref(),
                    protocol: change.protocol,
                    address,
                    endpoint: attribution::listed_endpoint(index, endpoint, party),
                    change: record_change(change.change),
                    seen_by: SeenBy::Api,
                }
            }
            Report::Rules {
                is_added, target, ..
            } => {
                let (namespace, name, port) = &target.service;
                let unknown = Party {
                    kind: PartyKind::Unknown,
                    namespace: None,
                    name: None,
                    node: None,
                };
                record::EndpointChange {
                    service: Some((namespace, name)),
                    port: port.as_deref(),
                    protocol: target.protocol,
                    address: target.place,
                    endpoint: EndpointName {
                        party: party(target.place, target.protocol).unwrap_or(unknown),
                        ready: None,
                        serving: None,
                        terminating: None,
                        manual: false,
                    },
                    change: match is_added {
                        true => Change::Added,
                        false => Change::Gone,
                    },
                    seen_by: SeenBy::Rules,
                }
            }
        }
    }
}

/// Index for changes that arrive before the first one of the cluster.
static EMPTY_INDEX: OnceLock<Index> = OnceLock::new();

fn record_change(change: follow::Change) -> Change {
    match change {
        follow::Change::Added => Change::Added,
        follow::Change::Ready => Change::Ready,
        follow::Change::Serving => Change::Serving,
        follow::Change::Terminating => Change::Terminating,
        follow::Change::Gone => Change::Gone,
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Endpoints that the node's rules led to at the last reading.
#[derive(Debug, Default)]
pub struct RuleTargets(Option<Targets>);

impl RuleTargets {
    /// Returns the changes since the last reading. Rules that are not known completely give none, and the first reading gives
    /// none.
    pub fn update(&mut self, rules: &NodeRules, time: SystemTime) -> Vec<EndpointEvent> {
        let Some(now) = targets(rules) else {
            return Vec::new();
        };
        let found = match &self.0 {
            Some(before) => changes(before, &now),
            None => Vec::new(),
        };
        self.0 = Some(now);
        let time = nanos(time);
        let events = found
            .into_iter()
            .map(|(is_added, target, port_number)| EndpointEvent {
                time,
                report: Report::Rules {
                    is_added,
                    target,
                    port_number,
                },
            });
        events.collect()
    }
}
