//! Flows of a Service concentrated on one endpoint: connections that are kept open stay at their endpoint, even if others
//! are added.
//!
//! Connection tracking shows connections and, with accounting, packets, but no requests. Many connections to one endpoint
//! are a warning when chance does not explain them. One busy connection is only information, as every pool of one
//! connection has that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::doctor::example::{self, Examples};
use crate::doctor::groups::BoundedGroups;
use crate::doctor::{Check, Facts, Finding, Severity, Thresholds};
use crate::entry::Entry;
use crate::percent::percent;
use crate::plural::count;
use crate::service::{KnownService, Reach, TrafficPolicy, is_inside, is_open};
use crate::spread::{Distinct, Spread, SpreadInput, SpreadReason};
use ctk_cluster::index::{Affinity, PortId};

const NAME: &str = "keep-alive-skew";
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Upper bound of the distinct clients and source ports that are stored of one Service.
const MAX_DISTINCT: usize = 64;
/// Upper bound of the endpoints of all Services together, at some 130 bytes each. A node's rules hold fewer.
const MAX_ENDPOINTS: usize = 65_536;
/// Upper bound of the listed Services and endpoints.
const MAX_LISTED: usize = 10;

pub struct Skew {
    groups: BoundedGroups<(PortId, Reach), Flows>,
    /// Endpoints that can still be added.
    free_endpoints: usize,
}

impl Default for Skew {
    fn default() -> Self {
        Skew {
            groups: BoundedGroups::default(),
            free_endpoints: MAX_ENDPOINTS,
        }
    }
}

/// Open flows of one Service port with the same candidate endpoints.
#[derive(Default)]
struct Flows {
    endpoints: HashMap<SocketAddr, Load>,
    /// Not all endpoints could be stored, so the group is not judged.
    is_cut: bool,
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

    fn title(&self) -> &'static str {
        "flows on one endpoint"
    }

    fn looks_for(&self) -> &'static str {
        "Open flows that concentrate on one endpoint, more than chance explains."
    }

    fn lacks(&self, facts: &Facts<'_>) -> Option<&'static str> {
        facts.lacks_objects()
    }

    fn observe(&mut self, entry: &Entry<'_>, facts: &Facts<'_>) {
        let flow = &entry.flow;
        let (Some((port, kind)), Some(number), Some(index)) = (
            entry.names.matched.ports().next(),
            flow.reply.sport(),
            facts.index,
        ) else {
            return;
        };
        if !flow.is_dnat() || flow.is_hairpin() || !is_open(flow) {
            return;
        }
        let service = index.service(index.port(port).service);
        let policy = |local| Some(TrafficPolicy::of(local));
        let (internal, external) = (service.internal_local, service.external_local);
        let reach = Reach::of(kind, policy(internal), policy(external), || {
            is_inside(index, facts.node?, flow.original.src)
        });
        let group = self.groups.at((port, reach));
        let place = SocketAddr::new(flow.reply.src, number);
        let is_known = group.endpoints.contains_key(&place);
        if !is_known && self.free_endpoints == 0 {
            group.is_cut = true;
        } else {
            self.free_endpoints -= usize::from(!is_known);
            let load = group.endpoints.entry(place).or_default();
            load.flows += 1;
            match flow.packets() {
                Some(packets) => load.packets = load.packets.saturating_add(packets),
                None => load.uncounted += 1,
            }
        }
        group.tcp += u64::from(flow.protocol() == TCP);
        group.udp += u64::from(flow.protocol() == UDP);
        if group.clients.len() < MAX_DISTINCT {
            group.clients.insert(flow.original.src);
        }
        if group.source_ports.len() < MAX_DISTINCT {
            group.source_ports.extend(flow.original.sport());
        }
        group.examples.push(entry, false);
    }

    fn findings(&self, facts: &Facts<'_>, thresholds: &Thresholds) -> Vec<Finding> {
        let missed = self.groups.missed();
        let services = self.groups.iter().filter(|(_, flows)| !flows.is_cut);
        let mut services: Vec<SkewedService<'_>> = services
            .filter_map(|((port, reach), flows)| SkewedService::of(*port, *reach, flows, facts))
            .collect();
        services.sort_by(|a, b| {
            (Reverse(a.spread.flows), &a.name).cmp(&(Reverse(b.spread.flows), &b.name))
        });
        let (uneven, rest): (Vec<_>, Vec<_>) = services
            .into_iter()
            .partition(|service| service.is_uneven(thresholds));
        let mut found: Vec<Finding> = uneven
            .iter()
            .map(|service| service.finding(missed))
            .collect();
        found.extend(busy(&rest, thresholds));
        found
    }
}

/// A Service port with the endpoints of its flows.
struct SkewedService<'a> {
    name: String,
    reach: Reach,
    flows: &'a Flows,
    /// Load by Pod, else by address.
    backends: BTreeMap<String, Load>,
    affine: bool,
    spread: Spread,
}

impl<'a> SkewedService<'a> {
    fn of(id: PortId, reach: Reach, flows: &'a Flows, facts: &Facts<'_>) -> Option<Self> {
        let index = facts.index?;
        let node = facts.node.and_then(|node| node.name.as_deref());
        let mut known = KnownService::of_index(index, &[id], node)?;
        if let Some(rules) = facts.rules {
            known.narrow(rules);
        }
        let mut backends: BTreeMap<String, Load> = BTreeMap::new();
        for endpoint in &known.endpoints {
            let load = flows
                .endpoints
                .get(&endpoint.address)
                .copied()
                .unwrap_or_default();
            if !endpoint.is_candidate(reach) && load.flows == 0 {
                continue;
            }
            let backend = match &endpoint.pod {
                Some((namespace, name)) => format!("{namespace}/{name}"),
                None => endpoint.address.ip().to_string(),
            };
            let sum = backends.entry(backend).or_default();
            sum.flows += load.flows;
            sum.packets = sum.packets.saturating_add(load.packets);
            sum.uncounted += load.uncounted;
        }
        let affine = known
            .affinity
            .is_some_and(|affinity| affinity != Affinity::None);
        let spread = Spread::of(&SpreadInput {
            endpoints: backends.values().map(|load| load.flows).collect(),
            on_old: 0,
            tcp: flows.tcp,
            udp: flows.udp,
            clients: distinct(flows.clients.len()),
            source_ports: distinct(flows.source_ports.len()),
            affinity: Some(affine),
            may_be_fewer: known.may_be_fewer(reach),
        });
        let port = index.port(id);
        let label = port
            .name
            .as_deref()
            .map_or_else(|| port.port.to_string(), str::to_owned);
        Some(SkewedService {
            name: format!("{}/{}:{label}", known.namespace, known.name),
            reach,
            flows,
            backends,
            affine,
            spread,
        })
    }

    fn is_uneven(&self, thresholds: &Thresholds) -> bool {
        let spread = &self.spread;
        matches!(
            spread.reason,
            SpreadReason::OneClient | SpreadReason::Uneven
        ) && spread.flows >= thresholds.skew_flows
            && spread
                .ratio
                .is_some_and(|ratio| ratio >= thresholds.skew_ratio)
            && spread
                .chance
                .is_some_and(|chance| chance < thresholds.skew_chance)
    }

    /// `missed` is the number of flows that it may lack, at any endpoint ([`BoundedGroups::missed`]).
    fn finding(&self, missed: u64) -> Finding {
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
        let mut backends: Vec<_> = self.backends.iter().collect();
        backends.sort_by_key(|(_, load)| Reverse(load.flows));
        let endpoints: Vec<Value> = backends
            .into_iter()
            .take(MAX_LISTED)
            .map(|(name, load)| {
                let packets = (load.uncounted == 0).then_some(load.packets);
                json!({"endpoint": name, "flows": load.flows, "packets": packets})
            })
            .collect();
        let severity = match missed {
            0 => Severity::Warning,
            _ => Severity::Info,
        };
        Finding::new(NAME, severity, message)
            .with("missed_at_most", missed)
            .with("service", self.name.as_str())
            .with("reach", self.reach.name())
            .with("flows", spread.flows)
            .with("max", spread.max)
            .with("mean", spread.mean.map(round))
            .with("ratio", spread.ratio.map(round))
            .with("idle", spread.idle)
            .with("clients", spread.clients.count)
            .with("clients_at_least", spread.clients.at_least)
            .with("reason", spread.reason.name())
            .list("endpoints", endpoints)
            .examples(&self.flows.examples)
            .help(format!(
                "let clients renew connections now and then (a maximum age or number of requests), or balance requests in the client or a mesh; this node only: ctk svc {}",
                example::shell_word(&self.name)
            ))
    }

    /// Endpoint with the most packets, its share in percent, and all packets; `None` unless all packets are counted.
    fn busiest(&self) -> Option<(&str, f64, u64)> {
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

/// Reports all Services together whose packets nearly all go to one endpoint.
fn busy(services: &[SkewedService<'_>], thresholds: &Thresholds) -> Option<Finding> {
    let least = thresholds.skew_share;
    let mut found: Vec<(u64, &str, Value)> = Vec::new();
    for service in services {
        let Some((endpoint, share, packets)) = service.busiest() else {
            continue;
        };
        if share >= least as f64 && packets >= thresholds.skew_packets {
            let flows: Vec<u64> = service.backends.values().map(|load| load.flows).collect();
            let line = json!({
                "service": service.name, "endpoint": endpoint, "percent": share, "packets": packets, "flows": flows,
            });
            found.push((packets, &service.name, line));
        }
    }
    found.sort_by_key(|(packets, ..)| Reverse(*packets));
    let all = found.len() as u64;
    let first = example::shell_word(found.first()?.1).into_owned();
    let listed: Vec<Value> = found
        .into_iter()
        .take(MAX_LISTED)
        .map(|(.., line)| line)
        .collect();
    let message = format!(
        "{} {least} % or more of its packets from here to one endpoint: connections that are kept open stay where they were made",
        count(all, "Service sends", "Services send")
    );
    let finding = Finding::info(NAME, message)
        .with("services", all)
        .list("busiest", listed)
        .help(format!(
            "healthy where one client has one connection: ctk svc {first}"
        ));
    Some(finding)
}

fn distinct(count: usize) -> Distinct {
    Distinct {
        count,
        at_least: count >= MAX_DISTINCT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::{self, FrontendMatch};
    use crate::doctor::testing::flow;
    use crate::this_node::{NetnsOwner, ThisNode};
    use ctk_cluster::testing::world;

    const SERVICE: &str =
        "svc shop/api 10.96.8.8 http:80/TCP ingress=203.0.113.9 externalTrafficPolicy=Local";
    const SLICE: &str = "slice shop/api http:8080/TCP 10.244.1.1(ready)@n1->a 10.244.2.2(ready)@n2->b 10.244.3.3(ready)@n3->c";

    /// Findings for 100 connections from `client` to the first endpoint.
    fn found(cluster: &[&str], client: &str, destination: &str) -> Vec<Finding> {
        seen(Skew::default(), cluster, client, destination)
    }

    #[test]
    fn a_service_with_more_endpoints_than_can_be_stored_is_not_judged() {
        for (free_endpoints, findings) in [(0, 0), (1, 1)] {
            let skew = Skew {
                free_endpoints,
                ..Skew::default()
            };
            let found = seen(skew, &[SERVICE, SLICE], "10.244.1.9", "10.96.8.8:80");
            assert_eq!(found.len(), findings, "{found:?}");
        }
    }

    /// Findings of `skew` for 100 connections of one client, all to the first endpoint.
    fn seen(mut skew: Skew, objects: &[&str], client: &str, destination: &str) -> Vec<Finding> {
        let all: Vec<&str> = objects
            .iter()
            .copied()
            .chain(["pod shop/web 10.244.1.9 @n1", "node n1 10.0.0.1"])
            .collect();
        let index = world(&all);
        let node = ThisNode {
            name: Some("n1".into()),
            local: None,
            routes: None,
            namespace: NetnsOwner::Node,
        };
        let facts = Facts {
            index: Some(&index),
            node: Some(&node),
            ..Facts::default()
        };
        for port in 0..100 {
            let client = format!("{client}:{}", 40000 + port);
            let mut entry = Entry::bare(flow(6, &client, destination, "10.244.1.1:8080"));
            let matched = FrontendMatch::of(&entry.flow, &index, &node);
            entry.names = attribution::names(&entry.flow, matched, &index);
            skew.observe(&entry, &facts);
        }
        skew.findings(&facts, &Thresholds::default())
    }

    #[test]
    fn flows_are_compared_with_the_endpoints_that_they_could_reach() {
        let all = [SERVICE, SLICE];
        let inside = found(&all, "10.244.1.9", "10.96.8.8:80");
        assert_eq!(inside.len(), 1, "{inside:?}");
        // The node's Pods reach every endpoint by the load balancer's address, too; external clients only this node's
        // endpoints.
        assert_eq!(found(&all, "10.244.1.9", "203.0.113.9:80").len(), 1);
        let outside = found(&all, "198.51.100.7", "203.0.113.9:80");
        assert!(outside.is_empty(), "{outside:?}");
    }

    #[test]
    fn topology_hints_are_no_skew() {
        let hinted = r#"{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": "shop", "name": "api-1", "labels": {"kubernetes.io/service-name": "api"}},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": [
            {"addresses": ["10.244.1.1"], "conditions": {"ready": true}, "hints": {"forZones": [{"name": "a"}]}},
            {"addresses": ["10.244.2.2"], "conditions": {"ready": true}, "hints": {"forZones": [{"name": "b"}]}}]}"#;
        let some = found(&[SERVICE, hinted], "10.244.1.9", "10.96.8.8:80");
        assert!(some.is_empty(), "{some:?}");
        let plain = hinted.replace(r#", "hints": {"forZones": [{"name": "a"}]}"#, "");
        let plain = plain.replace(r#", "hints": {"forZones": [{"name": "b"}]}"#, "");
        assert_eq!(
            found(&[SERVICE, &plain], "10.244.1.9", "10.96.8.8:80").len(),
            1
        );
    }
}
