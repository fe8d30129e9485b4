//! Flows of a Service that lie on one endpoint: connections that are kept open stay where they were made, whatever endpoints
//! come later.
//!
//! Connection tracking sees connections and, with accounting, packets; never requests. Many connections on one endpoint are
//! a warning when chance cannot explain them. One busy connection is only told: every pool of one has that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::cluster::index::{Affinity, PortId};
use crate::doctor::example::Examples;
use crate::doctor::finding::{count, percent};
use crate::doctor::groups::Groups;
use crate::doctor::{Check, Facts, Finding, Thresholds};
use crate::entry::Entry;
use crate::service::{Known, is_open};
use crate::spread::{Counted, Distinct, Reason, Spread};

const NAME: &str = "keep-alive-skew";
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Endpoints, clients and source ports of one Service that are told apart.
const MOST: usize = 1024;
/// Of as many Services as a large cluster has, none is this uneven by chance.
const BY_CHANCE: f64 = 1e-6;
/// Services in the list of those with one busy endpoint.
const LISTED: usize = 10;

#[derive(Default)]
pub struct Skew(Groups<PortId, Flows>);

/// Open flows of one Service port.
#[derive(Default)]
struct Flows {
    places: HashMap<SocketAddr, Load>,
    clients: BTreeSet<IpAddr>,
    source_ports: BTreeSet<u16>,
    tcp: u64,
    udp: u64,
    examples: Examples,
}

#[derive(Clone, Copy, Default)]
struct Load {
    flows: u64,
    packets: u64,
    /// Flows without counters.
    uncounted: u64,
}

impl Check for Skew {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, entry: &Entry<'_>, _: &Facts<'_>) {
        let flow = &entry.flow;
        let (Some((port, _)), Some(number)) =
            (entry.names.matched.ports().next(), flow.reply.sport())
        else {
            return;
        };
        if !flow.is_dnat() || flow.is_hairpin() || !is_open(flow) {
            return;
        }
        let group = self.0.at(port);
        let place = SocketAddr::new(flow.reply.src, number);
        if group.places.len() < MOST || group.places.contains_key(&place) {
            let load = group.places.entry(place).or_default();
            load.flows += 1;
            match flow.packets() {
                Some(packets) => load.packets = load.packets.saturating_add(packets),
                None => load.uncounted += 1,
            }
        }
        group.tcp += u64::from(flow.protocol() == TCP);
        group.udp += u64::from(flow.protocol() == UDP);
        if group.clients.len() < MOST {
            group.clients.insert(flow.original.src);
        }
        if group.source_ports.len() < MOST {
            group.source_ports.extend(flow.original.sport());
        }
        group.examples.push(entry, false);
    }

    fn conclude(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let services = self.0.iter();
        let mut services: Vec<Service<'_>> = services
            .filter_map(|(port, flows)| Service::of(*port, flows, facts))
            .collect();
        services.sort_by(|a, b| {
            (Reverse(a.spread.flows), &a.name).cmp(&(Reverse(b.spread.flows), &b.name))
        });
        let (uneven, rest): (Vec<_>, Vec<_>) = services
            .into_iter()
            .partition(|service| service.is_uneven(thresholds));
        let mut found: Vec<Finding> = uneven.iter().map(Service::finding).collect();
        found.extend(busy(&rest, thresholds));
        found
    }
}

/// A Service port with the endpoints that its flows lie on.
struct Service<'a> {
    name: String,
    flows: &'a Flows,
    /// By pod, else by address.
    backends: BTreeMap<String, Load>,
    affine: bool,
    spread: Spread,
}

impl<'a> Service<'a> {
    fn of(id: PortId, flows: &'a Flows, facts: &Facts<'_>) -> Option<Self> {
        let index = facts.index?;
        let node = facts.node.and_then(|node| node.name.as_deref());
        let mut known = Known::of_index(index, &[id], node)?;
        if let Some(rules) = facts.rules {
            known.narrow(rules);
        }
        let mut backends: BTreeMap<String, Load> = BTreeMap::new();
        for endpoint in &known.endpoints {
            let load = flows
                .places
                .get(&endpoint.place)
                .copied()
                .unwrap_or_default();
            if !endpoint.candidate && load.flows == 0 {
                continue;
            }
            let backend = match &endpoint.pod {
                Some((namespace, name)) => format!("{namespace}/{name}"),
                None => endpoint.place.ip().to_string(),
            };
            let sum = backends.entry(backend).or_default();
            sum.flows += load.flows;
            sum.packets = sum.packets.saturating_add(load.packets);
            sum.uncounted += load.uncounted;
        }
        let affine = known
            .affinity
            .is_some_and(|affinity| affinity != Affinity::None);
        let spread = Spread::of(&Counted {
            endpoints: backends.values().map(|load| load.flows).collect(),
            tcp: flows.tcp,
            udp: flows.udp,
            clients: distinct(flows.clients.len()),
            source_ports: distinct(flows.source_ports.len()),
            affinity: Some(affine),
        });
        let port = index.port(id);
        let label = port
            .name
            .as_deref()
            .map_or_else(|| port.port.to_string(), str::to_owned);
        Some(Service {
            name: format!("{}/{}:{label}", known.namespace, known.name),
            flows,
            backends,
            affine,
            spread,
        })
    }

    fn is_uneven(&self, thresholds: &Thresholds) -> bool {
        let spread = &self.spread;
        matches!(spread.reason, Reason::OneClient | Reason::Uneven)
            && spread.flows >= thresholds.skew_flows
            && spread
                .ratio
                .is_some_and(|ratio| ratio >= thresholds.skew_ratio)
            && spread.chance.is_some_and(|chance| chance < BY_CHANCE)
    }

    fn finding(&self) -> Finding {
        let spread = &self.spread;
        let busiest = self.backends.iter().max_by_key(|(_, load)| load.flows);
        let busiest = busiest.map_or_else(String::new, |(name, _)| name.clone());
        let message = format!(
            "{}: {busiest} has {} of {} over {} endpoints: {}",
            self.name,
            spread.max,
            count(spread.flows, "open flow", "open flows"),
            spread.endpoints,
            spread.sentence()
        );
        let round = |value: f64| (value * 100.0).round() / 100.0;
        let endpoints: Vec<Value> = self
            .backends
            .iter()
            .take(LISTED)
            .map(|(name, load)| {
                let packets = (load.uncounted == 0).then_some(load.packets);
                json!({"endpoint": name, "flows": load.flows, "packets": packets})
            })
            .collect();
        Finding::warning(NAME, message)
            .with("service", self.name.as_str())
            .with("flows", spread.flows)
            .with("max", spread.max)
            .with("mean", spread.mean.map(round))
            .with("ratio", spread.ratio.map(round))
            .with("idle", spread.idle)
            .with("clients", spread.clients.count)
            .with("clients_at_least", spread.clients.at_least)
            .with("reason", spread.reason.name())
            .with("endpoints", endpoints)
            .with("examples", self.flows.examples.to_json())
            .help(format!(
                "let clients renew connections now and then (a maximum age or number of requests), or balance requests in the client or a mesh; this node only: ctk svc {}",
                self.name
            ))
    }

    /// The endpoint with most packets, its part in percent, and all packets; where packets are counted.
    fn busiest(&self) -> Option<(&str, u64, u64)> {
        if self.affine || self.backends.len() < 2 {
            return None;
        }
        if self.backends.values().any(|load| load.uncounted > 0) {
            return None;
        }
        let all = self.backends.values().map(|load| load.packets).sum();
        let (name, load) = self.backends.iter().max_by_key(|(_, load)| load.packets)?;
        Some((name, percent(load.packets, all)?, all))
    }
}

/// One line for all Services whose packets nearly all go to one endpoint.
fn busy(services: &[Service<'_>], thresholds: &Thresholds) -> Option<Finding> {
    const NEARLY_ALL: u64 = 90;
    let mut found: Vec<(u64, Value)> = Vec::new();
    for service in services {
        let Some((endpoint, share, packets)) = service.busiest() else {
            continue;
        };
        if share >= NEARLY_ALL && packets >= thresholds.skew_packets {
            let flows: Vec<u64> = service.backends.values().map(|load| load.flows).collect();
            let line = json!({
                "service": service.name, "endpoint": endpoint, "percent": share, "packets": packets, "flows": flows,
            });
            found.push((packets, line));
        }
    }
    found.sort_by_key(|(packets, _)| Reverse(*packets));
    let all = found.len() as u64;
    (all > 0).then(|| {
        let message = format!(
            "{} {NEARLY_ALL} % or more of its packets from here to one endpoint: connections that are kept open stay where they were made",
            count(all, "Service sends", "Services send")
        );
        let listed: Vec<Value> = found.into_iter().take(LISTED).map(|(_, line)| line).collect();
        Finding::info(NAME, message)
            .with("services", all)
            .with("busiest", listed)
            .help("healthy where one client has one connection; see ctk svc NAME")
    })
}

fn distinct(count: usize) -> Distinct {
    Distinct {
        count,
        at_least: count >= MOST,
    }
}
