//! kube-proxy's table (`pkg/proxy/nftables/proxier.go`): the map `service-ips` leads to the chain of a Service.
//!
//! Up to 1.35, and with session affinity in all versions, a random number leads from there to the chain of an endpoint, which
//! holds the `dnat` (`writeServiceToEndpointRules`, `writeServiceToEndpointJumps`). Since 1.36 the Service's chain holds a
//! `dnat` to a random element of a map of endpoints (`writeServiceToEndpointDNATs`); 1.37 writes a plain `dnat` where one
//! endpoint is left. Chain names are truncated and hashed, so that only the `dnat` shows the endpoint.

use std::net::IpAddr;

use serde_json::Value;

use super::super::reach::{ChainReach, Reached};
use super::super::{
    NodePortScope, NodeRules, Proxy, RuleFrontend, RuleKind, RuleService, service_name,
};
use super::draw::Translation;
use super::entrance::{self, NODE_PORTS, SERVICE_IPS};
use super::{NftTable, element, jump, net, pairs, port, protocol};

pub(super) const TABLE: &str = "kube-proxy";
const NODE_PORT_IPS: &str = "nodeport-ips";
/// Length at which kube-proxy truncates chain names.
const NAME_LIMIT: usize = 240;

struct ServiceWalk<'a, 't> {
    table: &'a NftTable<'t>,
    reached: Reached,
}

pub(super) fn table(table: &NftTable<'_>, rules: &mut NodeRules) {
    rules.proxies.insert(Proxy::Nftables);
    rules.unknown_shapes += entrance::not_understood(table);
    let Some(services) = table.named(SERVICE_IPS) else {
        // A table of this name without such a map is an unknown form of kube-proxy.
        rules.unknown_shapes += 1;
        return;
    };
    let kinds = Kinds::of_table(table);
    let mut walk = ServiceWalk {
        table,
        reached: Reached::default(),
    };
    for pair in &services {
        let Some((key, verdict, comment)) = split(pair) else {
            rules.unknown_shapes += 1;
            continue;
        };
        let Some(place) = address_key(key) else {
            rules.unknown_shapes += 1;
            continue;
        };
        let kind = kinds.of(key, place.0, verdict);
        rules.add_frontend(place, walk.frontend(verdict, comment, kind));
    }
    node_ports(&mut walk, rules);
    refused(table, rules);
}

/// Relations of frontends to their Services.
pub(super) struct Kinds {
    cluster_ips: Vec<Value>,
    limited: Vec<Value>,
}

impl Kinds {
    pub(super) fn of_table(table: &NftTable<'_>) -> Self {
        Kinds {
            cluster_ips: table.named("cluster-ips").unwrap_or_default(),
            limited: table.named("firewall-ips").unwrap_or_default(),
        }
    }

    pub(super) fn of(&self, key: &Value, address: IpAddr, verdict: &Value) -> RuleKind {
        let mut cluster_ips = self.cluster_ips.iter();
        let cluster_ip = cluster_ips.any(|ip| net(element(ip).0) == Some(address.into()));
        let chain = jump(verdict).map_or("", |(chain, _)| chain);
        let mut limited = self.limited.iter().filter_map(|pair| pair.get(0));
        if cluster_ip || !chain.starts_with("external-") {
            RuleKind::ClusterIp
        } else if limited.any(|other| element(other).0 == key) {
            // Only load balancer addresses have source ranges.
            RuleKind::LoadBalancerIp
        } else {
            RuleKind::ExternalIp
        }
    }
}

fn node_ports(walk: &mut ServiceWalk<'_, '_>, rules: &mut NodeRules) {
    let table = walk.table;
    let ipv6 = table.family == "ip6";
    for pair in table.named(NODE_PORTS).unwrap_or_default() {
        let found = split(&pair).and_then(|(key, verdict, comment)| {
            let (protocol, port) = port_key(key)?;
            let frontend = walk.frontend(verdict, comment, RuleKind::NodePort);
            Some(((ipv6, protocol, port), frontend))
        });
        match found {
            Some((key, frontend)) => rules.add_node_port(key, frontend),
            None => rules.unknown_shapes += 1,
        }
    }
    // Without the set node ports answer on every local address except loopback.
    let Some(addresses) = table.named(NODE_PORT_IPS) else {
        let loopback = if ipv6 { "::1/128" } else { "127.0.0.0/8" };
        rules.node_port_scopes.push(NodePortScope {
            ipv6,
            destination: None,
            except: loopback.parse().ok(),
        });
        return;
    };
    for address in &addresses {
        match net(element(address).0) {
            Some(net) => rules.node_port_scopes.push(NodePortScope {
                ipv6,
                destination: Some(net),
                except: None,
            }),
            None => rules.unknown_shapes += 1,
        }
    }
    if addresses.is_empty() {
        rules.node_ports.retain(|(of, ..), _| *of != ipv6);
    }
}

/// Frontends that are rejected or dropped because no endpoint exists.
fn refused(table: &NftTable<'_>, rules: &mut NodeRules) {
    let frontend = |comment: Option<&str>, kind| RuleFrontend {
        kind,
        service: comment.and_then(service_name),
        refused: true,
        understood: true,
        ..RuleFrontend::default()
    };
    for pair in table.named("no-endpoint-services").unwrap_or_default() {
        match split(&pair).and_then(|(key, _, comment)| Some((address_key(key)?, comment))) {
            Some((key, comment)) => {
                rules.add_frontend(key, frontend(comment, RuleKind::Unknown));
            }
            None => rules.unknown_shapes += 1,
        }
    }
    let ipv6 = table.family == "ip6";
    for pair in table.named("no-endpoint-nodeports").unwrap_or_default() {
        match split(&pair).and_then(|(key, _, comment)| Some((port_key(key)?, comment))) {
            Some(((protocol, port), comment)) => {
                let key = (ipv6, protocol, port);
                rules.add_node_port(key, frontend(comment, RuleKind::NodePort));
            }
            None => rules.unknown_shapes += 1,
        }
    }
}

impl ServiceWalk<'_, '_> {
    fn frontend(&mut self, verdict: &Value, comment: Option<&str>, kind: RuleKind) -> RuleFrontend {
        let Some((chain, _)) = jump(verdict) else {
            return RuleFrontend {
                kind,
                service: comment.and_then(service_name),
                refused: verdict.get("drop").is_some(),
                understood: verdict.get("drop").is_some(),
                ..RuleFrontend::default()
            };
        };
        let service = comment.and_then(service_name);
        let service = service.or_else(|| named_by_chain(chain));
        self.reach(chain).frontend(service, kind)
    }

    fn reach(&mut self, chain: &str) -> ChainReach {
        let table = self.table;
        self.reached.from(chain, |chain, reach| {
            reach.not_understood |= !table.has(chain);
            let mut onward = Vec::new();
            for rule in table.rules(chain) {
                // A rule that is no list of expressions.
                reach.not_understood |= rule.is_empty();
                for expression in &rule {
                    reach.not_understood |= take(table, expression, reach, &mut onward).is_none();
                }
            }
            onward
        })
    }
}

/// Reads one expression, and returns the chains that it leads to; `None` where it is not understood.
fn take(
    table: &NftTable<'_>,
    expression: &Value,
    reach: &mut ChainReach,
    onward: &mut Vec<String>,
) -> Option<()> {
    let (word, body) = expression.as_object()?.iter().next()?;
    match word.as_str() {
        // Matches and bookkeeping: the packet may continue in any case.
        "match" | "counter" | "mangle" | "set" | "return" | "accept" | "continue" | "log" => {}
        "jump" | "goto" => onward.push(jump(expression)?.0.to_owned()),
        "vmap" => {
            for (_, verdict) in &pairs(table, body.get("data")?)? {
                onward.push(jump(verdict)?.0.to_owned());
            }
        }
        "dnat" => reach
            .targets
            .extend(Translation::of(body)?.endpoints(table)?),
        "drop" | "reject" => reach.refused = true,
        _ => return None,
    }
    Some(())
}

/// Key, verdict and comment of an element of a map.
pub(super) fn split(pair: &Value) -> Option<(&Value, &Value, Option<&str>)> {
    let (key, comment) = element(pair.get(0)?);
    Some((key, pair.get(1)?, comment))
}

/// `address . protocol . port`.
pub(super) fn address_key(key: &Value) -> Option<(IpAddr, u8, u16)> {
    let [address, proto, number] = key.get("concat")?.as_array()?.as_slice() else {
        return None;
    };
    let address = address.as_str()?.parse().ok()?;
    Some((address, protocol(proto)?, port(number)?))
}

/// `protocol . port`.
pub(super) fn port_key(key: &Value) -> Option<(u8, u16)> {
    let [proto, number] = key.get("concat")?.as_array()?.as_slice() else {
        return None;
    };
    Some((protocol(proto)?, port(number)?))
}

/// `service-HASH-namespace/name/protocol/port`, unless truncated.
pub(super) fn named_by_chain(chain: &str) -> Option<RuleService> {
    if chain.len() >= NAME_LIMIT {
        return None;
    }
    let (_, name) = chain.split_once('-')?.1.split_once('-')?;
    let [namespace, name, _, port] = name.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    service_name(&match port {
        "" => format!("{namespace}/{name}"),
        port => format!("{namespace}/{name}:{port}"),
    })
}
