//! Chains of kube-proxy's table that choose the endpoint of a new flow: `service-*`, `local-*`, and `external-*` with policy
//! Local. A random number chooses the endpoint, or its chain, by an anonymous map. Earlier rules send clients of an affinity set
//! to their earlier endpoint.

use std::net::SocketAddr;

use serde_json::Value;

use super::super::lb_chain::{ChainShares, FrontendPath, LbChain, ServiceFilter};
use super::super::{RuleKind, service_name};
use super::draw::{Translation, draw, place};
use super::entrance::{NODE_PORTS, SERVICE_IPS};
use super::kube::{Kinds, address_key, named_by_chain, port_key, split};
use super::{NftTable, jump};

pub(super) fn lb_chains(table: &NftTable<'_>, filter: &ServiceFilter) -> Vec<LbChain> {
    let kinds = Kinds::of_table(table);
    let mut lb_chains = Vec::new();
    for map in [SERVICE_IPS, NODE_PORTS] {
        for pair in table.named(map).unwrap_or_default() {
            let found = split(&pair).and_then(|(key, verdict, comment)| {
                let (chain, _) = jump(verdict)?;
                let service = comment.and_then(service_name);
                let service = service.or_else(|| named_by_chain(chain))?;
                let (protocol, kind) = match map {
                    SERVICE_IPS => {
                        let (address, protocol, _) = address_key(key)?;
                        (protocol, kinds.of(key, address, verdict))
                    }
                    _ => (port_key(key)?.0, RuleKind::NodePort),
                };
                filter.is(&service).then(|| {
                    let way = FrontendPath {
                        service,
                        protocol,
                        kind,
                        ipv6: table.family == "ip6",
                    };
                    way.walk(chain, |chain, chain_shares| {
                        let rules = table.rules(chain);
                        let onward = rules.filter_map(|rule| take(table, &rule, chain_shares));
                        onward.collect()
                    })
                })
            });
            lb_chains.extend(found.into_iter().flatten());
        }
    }
    lb_chains
}

/// Prefix of the chains of endpoints (`servicePortEndpointChainNamePrefix`).
const ENDPOINT: &str = "endpoint-";

/// A rule in parts.
#[derive(Default)]
struct Parts<'r> {
    /// Condition of the rule, if any, and whether it is an affinity set.
    some: bool,
    affinity: Option<&'r str>,
    packets: Option<u64>,
    /// Expression that decides the target of the packet; the last one of the rule.
    verdict: Option<(&'r str, &'r Value)>,
    odd: bool,
}

impl<'r> Parts<'r> {
    fn of(rule: &'r [Value]) -> Self {
        let mut parts = Parts {
            odd: rule.is_empty(),
            ..Parts::default()
        };
        for expression in rule {
            let Some((word, body)) = expression.as_object().and_then(|o| o.iter().next()) else {
                parts.odd = true;
                continue;
            };
            match word.as_str() {
                "match" if is_protocol(body) => {}
                "match" => {
                    // Two conditions are no affinity.
                    parts.affinity = affinity_set(body).filter(|_| !parts.some);
                    parts.some = true;
                }
                // A named counter gives only its name here.
                "counter" => parts.packets = body.get("packets").and_then(Value::as_u64),
                "mangle" | "set" | "log" => {}
                word @ ("jump" | "goto" | "vmap" | "dnat") if parts.verdict.is_none() => {
                    let whole = if word == "jump" || word == "goto" {
                        expression
                    } else {
                        body
                    };
                    parts.verdict = Some((word, whole));
                }
                _ => parts.odd = true,
            }
        }
        parts
    }
}

/// Reads one rule of a chain. Returns the chain that it leads to, unless that is the chain of an endpoint.
fn take(table: &NftTable<'_>, rule: &[Value], chain_shares: &mut ChainShares) -> Option<String> {
    let parts = Parts::of(rule);
    if parts.odd {
        chain_shares.not_understood();
        return None;
    }
    let (word, verdict) = parts.verdict?;
    match word {
        "vmap" => {
            let to = |verdict: &Value| endpoint_of(table, jump(verdict)?.0);
            if parts.some || by_number(table, verdict, chain_shares, to).is_none() {
                chain_shares.not_understood();
            }
            None
        }
        "dnat" => {
            let understood = match Translation::of(verdict).filter(|_| !parts.some) {
                Some(Translation::One(endpoint)) => {
                    chain_shares.add(endpoint, 1.0, parts.packets);
                    true
                }
                Some(Translation::Drawn(map)) => {
                    // No counter exists for the packets of one element.
                    by_number(table, map, chain_shares, |to| Some((place(to)?, None))).is_some()
                }
                None => false,
            };
            if !understood {
                chain_shares.not_understood();
            }
            None
        }
        _ => {
            let (chain, goto) = jump(verdict)?;
            match endpoint_of(table, chain) {
                Some((endpoint, _)) if parts.affinity.is_some() => {
                    let set = parts.affinity.unwrap_or_default();
                    chain_shares.pin(endpoint, parts.packets, table.client_list(set));
                }
                Some((endpoint, counted)) if !parts.some => {
                    chain_shares.add(endpoint, 1.0, counted.or(parts.packets));
                }
                Some(_) => chain_shares.not_understood(),
                None => {
                    // Packets of some sources may take another path. A jump returns.
                    if goto && !parts.some {
                        chain_shares.pass_on();
                    }
                    return Some(chain.to_owned());
                }
            }
            None
        }
    }
}

/// Adds a random choice among endpoints. `to` returns the endpoint of an element, and its packet counter.
fn by_number(
    table: &NftTable<'_>,
    map: &Value,
    chain_shares: &mut ChainShares,
    to: impl Fn(&Value) -> Option<(SocketAddr, Option<u64>)>,
) -> Option<()> {
    let draw = draw(table, map)?;
    for (chance, element) in draw.chances() {
        let (endpoint, packets) = to(element)?;
        chain_shares.add_part(endpoint, chance, packets);
    }
    chain_shares.taken(draw.total());
    Some(())
}

/// Endpoint of an endpoint's chain, and the number of packets it translated where that is counted. A Service's chain with a `dnat`
/// of its own is no such chain: it chooses the endpoint itself.
fn endpoint_of(table: &NftTable<'_>, chain: &str) -> Option<(SocketAddr, Option<u64>)> {
    if !chain.starts_with(ENDPOINT) {
        return None;
    }
    let mut found = None;
    for rule in table.rules(chain) {
        let parts = Parts::of(&rule);
        match parts.verdict {
            _ if parts.odd => return None,
            None | Some(("jump", _)) => {}
            Some(("dnat", body)) if found.is_none() && !parts.some => {
                let Translation::One(endpoint) = Translation::of(body)? else {
                    return None;
                };
                found = Some((endpoint, parts.packets));
            }
            Some(_) => return None,
        }
    }
    found
}

/// `meta l4proto udp`: every packet of this frontend matches.
fn is_protocol(body: &Value) -> bool {
    let key = body.get("left").and_then(|left| left.get("meta"));
    key.and_then(|meta| meta.get("key")).and_then(Value::as_str) == Some("l4proto")
}

/// The set of `ip saddr @affinity-...`.
fn affinity_set(body: &Value) -> Option<&str> {
    let text = |value: Option<&'_ Value>| value.and_then(Value::as_str).map(str::to_owned);
    let field = body.get("left").and_then(|left| left.get("payload"));
    let is_source =
        text(field.and_then(|payload| payload.get("field"))).as_deref() == Some("saddr");
    let is_equal = matches!(text(body.get("op")).as_deref(), Some("==" | "in"));
    let set = body
        .get("right")
        .and_then(Value::as_str)?
        .strip_prefix('@')?;
    (is_source && is_equal).then_some(set)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn goto(chain: &str) -> Value {
        json!({"goto": {"target": chain}})
    }

    fn rule(chain: &str, expr: Value) -> Value {
        json!({"rule": {"family": "ip", "table": "kube-proxy", "chain": chain, "handle": 2, "expr": expr}})
    }

    fn saddr(right: &str) -> Value {
        json!({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": right}})
    }

    fn numgen(whole: u64, elements: Value) -> Value {
        json!({"vmap": {"key": {"numgen": {"mode": "random", "mod": whole, "offset": 0}}, "data": {"set": elements}}})
    }

    /// Service a/s with two endpoints; `service` holds the rules of its chain.
    fn of(service: Vec<Value>) -> Vec<LbChain> {
        let endpoint = |n: u8, counter: Value| {
            let chain = format!("endpoint-{n}");
            let address = format!("10.244.1.{n}");
            vec![
                rule(
                    &chain,
                    json!([saddr(&address), {"jump": {"target": "mark"}}]),
                ),
                rule(
                    &chain,
                    json!([{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}}, counter, {"dnat": {"addr": address, "port": 8080}}]),
                ),
            ]
        };
        let mut all = vec![
            json!({"set": {"family": "ip", "table": "kube-proxy", "name": "cluster-ips", "elem": ["10.96.0.5"]}}),
            json!({"map": {"family": "ip", "table": "kube-proxy", "name": SERVICE_IPS, "elem": [
                [{"elem": {"val": {"concat": ["10.96.0.5", "tcp", 80]}, "comment": "a/s:p"}}, goto("service")],
                [{"elem": {"val": {"concat": ["10.96.0.6", "tcp", 80]}, "comment": "b/s:p"}}, goto("endpoint-1")],
            ]}}),
            json!({"map": {"family": "ip", "table": "kube-proxy", "name": NODE_PORTS, "elem": [
                [{"elem": {"val": {"concat": ["tcp", 30080]}, "comment": "a/s:p"}}, goto("external")],
            ]}}),
            rule("external", json!([saddr("10.244.0.0"), goto("service")])),
            rule(
                "external",
                json!([numgen(1, json!([[0, goto("endpoint-2")]]))]),
            ),
            rule("mark", json!([{"mangle": {"key": 1, "value": 2}}])),
        ];
        all.extend(endpoint(
            1,
            json!({"counter": {"packets": 4, "bytes": 240}}),
        ));
        all.extend(endpoint(2, json!({"counter": "named"})));
        all.extend(service);
        let text = json!({ "nftables": all }).to_string();
        let filter = ServiceFilter {
            namespace: None,
            name: "s".into(),
        };
        let mut lb_chains = super::super::lb_chains(&text, &filter).unwrap();
        lb_chains.retain(|chain| &*chain.service.namespace == "a");
        lb_chains
    }

    #[test]
    fn shares_follow_the_count_of_numbers_and_counters_are_those_of_the_endpoint() {
        let lb_chains = of(vec![
            rule(
                "service",
                json!([saddr("@affinity-1"), {"counter": {"packets": 2, "bytes": 9}}, goto("endpoint-1")]),
            ),
            rule(
                "service",
                json!([numgen(
                    4,
                    json!([[{"range": [0, 2]}, goto("endpoint-1")], [3, goto("endpoint-2")]])
                )]),
            ),
        ]);
        let chains: Vec<_> = lb_chains
            .iter()
            .map(|d| (&*d.chain, d.frontends[0]))
            .collect();
        assert_eq!(
            chains,
            [
                ("service", RuleKind::ClusterIp),
                ("external", RuleKind::NodePort),
                ("service", RuleKind::NodePort),
            ]
        );
        let shares = lb_chains[0].shares.as_ref().unwrap();
        let shown: Vec<_> = shares
            .iter()
            .map(|share| {
                (
                    share.endpoint.to_string(),
                    share.share,
                    share.packets,
                    share.pinned,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("10.244.1.1:8080".into(), 0.75, Some(4), Some(2)),
                ("10.244.1.2:8080".into(), 0.25, None, None),
            ]
        );
        assert!(lb_chains[0].affinity);
        let local = lb_chains[1].shares.as_ref().unwrap();
        assert_eq!((local.len(), local[0].share), (1, 1.0));
    }

    #[test]
    fn a_shape_that_is_not_understood_gives_no_shares() {
        let whole = || numgen(2, json!([[0, goto("endpoint-1")], [1, goto("endpoint-2")]]));
        let fine = of(vec![rule("service", json!([whole()]))]);
        assert!(fine[0].shares.is_some());
        for odd in [
            json!([saddr("10.0.0.1"), whole()]),
            json!([numgen(
                2,
                json!([[0, goto("endpoint-1")], [2, goto("endpoint-2")]])
            )]),
            json!([numgen(
                2,
                json!([[0, goto("endpoint-1")], [1, goto("mark")]])
            )]),
            json!([{"xt": null}, whole()]),
            json!([numgen(
                2,
                json!([[0, goto("endpoint-1")], [{"range": [0, 1]}, goto("endpoint-2")]])
            )]),
            json!([numgen(
                u64::MAX,
                json!([[{"range": [0, u64::MAX - 1]}, goto("endpoint-1")], [1, goto("endpoint-2")]])
            )]),
            json!([{"vmap": {"key": {"meta": {"key": "mark"}}, "data": {"set": [[0, goto("endpoint-1")]]}}}]),
        ] {
            let lb_chains = of(vec![
                rule("service", odd.clone()),
                rule("service", json!([goto("endpoint-1")])),
            ]);
            assert_eq!(lb_chains[0].shares, None, "{odd}");
        }
        let dropped = of(vec![
            rule("service", json!([saddr("10.0.0.1"), {"drop": null}])),
            rule("service", json!([whole()])),
        ]);
        assert_eq!(dropped[0].shares, None);
    }
}
