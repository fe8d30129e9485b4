//! Rule sets as nft 1.0.6 prints them. `tests/rules.rs` reads the output of a real nft.

use proptest::prelude::*;
use serde_json::json;

use super::super::{Condition, RuleFrontend, RuleKind, TargetAddresses, TargetPorts};
use super::*;

mod bounds;
mod router;

fn document(objects: Vec<Value>) -> String {
    let mut all = vec![json!({"metainfo": {"version": "1.0.6", "json_schema_version": 1}})];
    all.extend(objects);
    json!({"nftables": all}).to_string()
}

fn chain(family: &str, table: &str, name: &str, hook: Option<&str>) -> Value {
    let mut chain = json!({"family": family, "table": table, "name": name, "handle": 1});
    if let Some(hook) = hook {
        chain["type"] = json!("nat");
        chain["hook"] = json!(hook);
    }
    json!({"chain": chain})
}

fn rule(family: &str, table: &str, chain: &str, expr: Value) -> Value {
    json!({"rule": {"family": family, "table": table, "chain": chain, "handle": 2, "expr": expr}})
}

fn map(name: &str, elem: Value) -> Value {
    json!({"map": {"family": "ip", "table": "kube-proxy", "name": name, "map": "verdict", "type": "x", "elem": elem}})
}

const DNS: &str = "service-FY5PMXPG-kube-system/kube-dns/udp/dns";
const FIRST: &str = "endpoint-O6ON3DXL-kube-system/kube-dns/udp/dns__10.244.2.33/53";

fn kube() -> Vec<Value> {
    let goto = |chain: &str| json!({"goto": {"target": chain}});
    let key = |address: &str, port: u16| json!({"concat": [address, "udp", port]});
    let named = |key: Value, comment: &str| json!({"elem": {"val": key, "comment": comment}});
    let kp = |chain: &str, expr: Value| rule("ip", "kube-proxy", chain, expr);
    let external = "external-FY5PMXPG-kube-system/kube-dns/udp/dns";
    let mut all: Vec<Value> = [
        DNS,
        external,
        FIRST,
        "endpoint-2",
        "endpoint-old",
        "services",
        "mark-for-masquerade",
        "reject-chain",
    ]
    .iter()
    .map(|name| chain("ip", "kube-proxy", name, None))
    .collect();
    all.extend([
        json!({"set": {"family": "ip", "table": "kube-proxy", "name": "cluster-ips", "type": "ipv4_addr", "elem": ["10.96.0.10"]}}),
        json!({"set": {"family": "ip", "table": "kube-proxy", "name": "nodeport-ips", "type": "ipv4_addr", "elem": ["192.0.2.11"]}}),
        map("service-ips", json!([
            [named(key("10.96.0.10", 53), "kube-system/kube-dns:dns"), goto(DNS)],
            [key("203.0.113.9", 53), goto(external)],
            [key("203.0.113.10", 53), goto(external)],
        ])),
        map("firewall-ips", json!([[key("203.0.113.10", 53), goto("firewall-x")]])),
        map("service-nodeports", json!([[{"concat": ["udp", 30053]}, goto(external)]])),
        map("no-endpoint-services", json!([[named(key("10.96.2.50", 8125), "obs/statsd"), goto("reject-chain")]])),
        map("no-endpoint-nodeports", json!([[{"concat": ["udp", 30054]}, {"drop": null}]])),
        chain("ip", "kube-proxy", "nat-prerouting", Some("prerouting")),
        kp("mark-for-masquerade", json!([{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 16384]}}}])),
        kp(external, json!([{"match": {"op": "==", "left": {"fib": {"result": "type", "flags": ["saddr"]}}, "right": "local"}}, {"jump": {"target": "mark-for-masquerade"}}])),
        kp(external, json!([goto(DNS)])),
        kp(DNS, json!([{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@affinity-x"}}, goto(FIRST)])),
        kp(DNS, json!([{"vmap": {"key": {"numgen": {"mode": "random", "mod": 2, "offset": 0}}, "data": {"set": [[0, goto(FIRST)], [1, goto("endpoint-2")]]}}}])),
        kp(FIRST, json!([{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.244.2.33"}}, {"jump": {"target": "mark-for-masquerade"}}])),
        kp(FIRST, json!([{"set": {"op": "update", "elem": {"payload": {"protocol": "ip", "field": "saddr"}}, "set": "@affinity-x"}}])),
        kp(FIRST, json!([{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "udp"}}, {"dnat": {"addr": "10.244.2.33", "port": 53}}])),
        kp("endpoint-2", json!([{"dnat": {"addr": "10.244.2.34", "port": 53}}])),
        kp("endpoint-old", json!([{"dnat": {"addr": "10.244.2.99", "port": 53}}])),
    ]);
    all
}

fn at<'r>(rules: &'r NodeRules, address: &str, port: u16) -> &'r RuleFrontend {
    &rules.frontends[&(address.parse().unwrap(), 17, port)]
}

#[test]
fn frontends_lead_by_maps_and_chains_to_their_endpoints() {
    let rules = read(&document(kube()), &[]).unwrap();
    for (address, kind) in [
        ("10.96.0.10", RuleKind::ClusterIp),
        ("203.0.113.9", RuleKind::ExternalIp),
        ("203.0.113.10", RuleKind::LoadBalancerIp),
    ] {
        let frontend = at(&rules, address, 53);
        let targets: Vec<String> = frontend.targets.iter().map(|t| t.to_string()).collect();
        assert_eq!(targets, ["10.244.2.33:53", "10.244.2.34:53"], "{address}");
        assert!(frontend.understood && !frontend.refused);
        assert_eq!(frontend.kind, kind, "{address}");
        let service = frontend.service.as_ref().expect("by comment or by chain");
        assert_eq!(
            (&*service.namespace, &*service.name),
            ("kube-system", "kube-dns")
        );
        assert_eq!(service.port.as_deref(), Some("dns"));
    }
    assert!(at(&rules, "10.96.2.50", 8125).refused);
    let local = "192.0.2.11".parse().unwrap();
    assert_eq!(
        rules
            .node_port(local, 17, 30053, true)
            .unwrap()
            .targets
            .len(),
        2
    );
    assert!(rules.node_port(local, 17, 30054, true).unwrap().refused);
    assert!(
        rules
            .node_port("192.0.2.12".parse().unwrap(), 17, 30053, true)
            .is_none()
    );
    assert!(rules.has_kube_proxy() && rules.not_understood() == 0);
    assert!(
        rules.forwards.is_empty(),
        "kube-proxy's table is no other's"
    );
}

#[test]
fn without_the_set_node_ports_answer_on_every_local_address() {
    let mut objects = kube();
    objects.retain(|o| o.pointer("/set/name") != Some(&json!("nodeport-ips")));
    let rules = read(&document(objects), &[]).unwrap();
    let answers = |address: &str| {
        rules
            .node_port(address.parse().unwrap(), 17, 30053, true)
            .is_some()
    };
    assert!(answers("192.0.2.12") && !answers("127.0.0.1"));
}

#[test]
fn a_shape_that_is_not_understood_makes_the_frontend_unknown() {
    for expr in [
        json!([{"dnat": {"addr": {"map": {"key": 1}}, "port": 53}}]),
        json!([{"dnat": {"addr": "10.244.2.34"}}]),
        json!([{"xyzzy": {}}]),
        json!([{"goto": {"target": "no-such-chain"}}]),
        json!([{"vmap": {"key": 1, "data": "@no-such-map"}}]),
        json!("?"),
    ] {
        let mut objects = kube();
        objects.push(rule("ip", "kube-proxy", "endpoint-2", expr.clone()));
        let rules = read(&document(objects), &[]).unwrap();
        assert!(!at(&rules, "10.96.0.10", 53).understood, "{expr}");
        assert_eq!(rules.not_understood(), 4, "{expr}");
    }
    let mut objects = kube();
    objects.push(map(
        "service-nodeports",
        json!([[{"concat": ["udp", "x"]}, {"goto": {"target": DNS}}], 7]),
    ));
    assert_eq!(read(&document(objects), &[]).unwrap().unknown_shapes, 2);
}

/// `dnat ip addr . port to numgen random mod N map { ... }`.
fn dnat_map(modulus: u64, elements: Value) -> Value {
    let number = json!({"numgen": {"mode": "random", "mod": modulus, "offset": 0}});
    json!({"dnat": {"family": "ip", "addr": {"map": {"key": number, "data": {"set": elements}}}}})
}

fn place(address: &str, port: u16) -> Value {
    json!({"concat": [address, port]})
}

#[test]
fn a_translation_to_an_element_of_a_map_leads_to_every_element() {
    let endpoints = json!([[0, place("10.244.1.7", 53)], [1, place("10.244.2.34", 53)]]);
    let mut objects = kube();
    objects.retain(|o| o.pointer("/rule/chain") != Some(&json!(DNS)));
    objects.push(rule(
        "ip",
        "kube-proxy",
        DNS,
        json!([dnat_map(2, endpoints)]),
    ));
    let rules = read(&document(objects.clone()), &[]).unwrap();
    let dns = at(&rules, "10.96.0.10", 53);
    let targets: Vec<String> = dns.targets.iter().map(ToString::to_string).collect();
    assert_eq!(targets, ["10.244.1.7:53", "10.244.2.34:53"]);
    assert!(dns.understood);
    for odd in [
        json!([[0, "10.244.1.7"]]),
        json!([[0, {"concat": ["10.244.1.7", 53, 1]}]]),
        json!([[0, place("not an address", 53)]]),
        json!([[2, place("10.244.1.7", 53)]]),
        json!([0]),
        json!("@no-such-map"),
    ] {
        objects.pop();
        objects.push(rule(
            "ip",
            "kube-proxy",
            DNS,
            json!([dnat_map(2, odd.clone())]),
        ));
        let rules = read(&document(objects.clone()), &[]).unwrap();
        assert!(!at(&rules, "10.96.0.10", 53).understood, "{odd}");
    }
}

#[test]
fn an_unknown_form_of_kube_proxys_table_is_counted_as_not_understood() {
    let count = |objects: Vec<Value>| {
        let rules = read(&document(objects), &[]).unwrap();
        assert!(rules.has_kube_proxy());
        rules.unknown_shapes
    };
    let hooked = |expr: Value| {
        let mut objects = kube();
        objects.push(chain("ip", "kube-proxy", "nat-output", Some("output")));
        objects.push(rule("ip", "kube-proxy", "nat-output", expr));
        count(objects)
    };
    let services = json!({"vmap": {"key": {"concat": []}, "data": "@service-ips"}});
    assert_eq!(hooked(json!([services])), 0);
    for odd in [
        json!([{"vmap": {"key": {"concat": []}, "data": "@services-of-a-later-version"}}]),
        json!([dnat_map(1, json!([[0, place("10.244.1.7", 53)]]))]),
        json!([{"tproxy": {"port": 53}}]),
        json!([{"jump": {"target": "no-such-chain"}}]),
        json!("?"),
    ] {
        assert_eq!(hooked(odd.clone()), 1, "{odd}");
    }
    let mut renamed = kube();
    renamed.retain(|o| o.pointer("/map/name") != Some(&json!("service-ips")));
    assert!(count(renamed) > 0);
}

fn payload(protocol: &str, field: &str) -> Value {
    json!({"payload": {"protocol": protocol, "field": field}})
}

fn is(left: Value, op: &str, right: Value) -> Value {
    json!({"match": {"op": op, "left": left, "right": right}})
}

fn prerouting(expr: Value) -> NodeRules {
    let objects = vec![
        chain("ip", "nat", "prerouting", Some("prerouting")),
        rule("ip", "nat", "prerouting", expr),
    ];
    read(&document(objects), &[]).unwrap()
}

#[test]
fn rules_of_other_programs_keep_unknown_matches_as_conditions() {
    let dport = |right: Value| is(payload("udp", "dport"), "==", right);
    let dnat = json!({"dnat": {"addr": "10.0.3.10", "port": 49737}});
    let rules = prerouting(json!([
        is(payload("ip", "daddr"), "==", json!("192.0.2.5")), dport(json!(49737)), {"counter": {"packets": 0, "bytes": 0}}, dnat
    ]));
    let [forward] = &rules.forwards[..] else {
        panic!("{rules:?}")
    };
    assert_eq!(
        (forward.protocol, forward.ports.clone()),
        (17, 49737..=49737)
    );
    assert_eq!(forward.destination, Some("192.0.2.5/32".parse().unwrap()));
    assert_eq!(forward.targets[0].ports, TargetPorts::Range(49737..=49737));
    assert_eq!(forward.conditions, [Condition::Origin { local: false }]);
    assert_eq!(
        forward.rule,
        "ip nat prerouting: ip daddr 192.0.2.5 udp dport 49737 dnat to 10.0.3.10:49737"
    );

    let sets = prerouting(json!([
        is(
            payload("ip", "daddr"),
            "==",
            json!({"set": ["192.0.2.5", {"prefix": {"addr": "192.0.2.64", "len": 26}}]})
        ),
        dport(json!({"set": [100, {"range": [200, 300]}]})),
        dnat
    ]));
    assert_eq!(sets.forwards.len(), 4);

    let (odd, taken) = (
        prerouting(json!([
            dport(json!(7)),
            is(json!({"meta": {"key": "mark"}}), "==", json!(1)),
            dnat
        ])),
        prerouting(
            json!([dport(json!(7)), {"dnat": {"addr": {"map": {"key": {"numgen": {"mode": "inc", "mod": 2}}, "data": {"set": [[0, "10.0.0.1"], [1, "10.0.0.2"]]}}}}}]),
        ),
    );
    assert!(
        odd.forwards[0]
            .conditions
            .contains(&Condition::Other("mark 1".into()))
    );
    assert_eq!(taken.forwards.len(), 2);
    let by_port = prerouting(
        json!([{"dnat": {"addr": {"map": {"key": payload("udp", "dport"), "data": {"set": [[5, {"concat": ["10.0.0.1", 6]}]]}}}}}]),
    );
    let [one] = &by_port.forwards[..] else {
        panic!("{by_port:?}")
    };
    assert_eq!((one.protocol, one.ports.clone()), (17, 5..=5));
    assert_eq!(one.targets[0].ports, TargetPorts::Range(6..=6));
    let redirect = prerouting(json!([dport(json!(7)), {"redirect": {"port": 77}}]));
    let target = &redirect.forwards[0].targets[0];
    assert_eq!(target.addresses, TargetAddresses::OwnHost);
}

#[test]
fn rules_of_a_container_engine_are_found_through_jumps() {
    let local = is(
        json!({"fib": {"result": "type", "flags": ["daddr"]}}),
        "==",
        json!("local"),
    );
    let dport = is(payload("tcp", "dport"), "==", json!(8080));
    let objects = vec![
        chain("inet", "netavark", "PREROUTING", Some("prerouting")),
        chain("inet", "netavark", "NETAVARK-HOSTPORT-DNAT", None),
        chain("inet", "netavark", "nv_x", None),
        rule(
            "inet",
            "netavark",
            "PREROUTING",
            json!([local, {"jump": {"target": "NETAVARK-HOSTPORT-DNAT"}}]),
        ),
        rule(
            "inet",
            "netavark",
            "NETAVARK-HOSTPORT-DNAT",
            json!([dport, {"jump": {"target": "nv_x"}}]),
        ),
        rule(
            "inet",
            "netavark",
            "nv_x",
            json!([is(payload("ip", "saddr"), "==", json!("10.88.0.0")), dport, {"mangle": {"key": 1, "value": 2}}]),
        ),
        rule(
            "inet",
            "netavark",
            "nv_x",
            json!([dport, {"dnat": {"family": "ip", "addr": "10.88.0.7", "port": 80}}]),
        ),
    ];
    let rules = read(&document(objects), &[]).unwrap();
    let [forward] = &rules.forwards[..] else {
        panic!("{rules:?}")
    };
    assert!(forward.local_only && forward.protocol == 6 && forward.ports == (8080..=8080));
    assert!(
        forward.rule.ends_with("dnat ip to 10.88.0.7:80"),
        "{}",
        forward.rule
    );
}

#[test]
fn tables_of_iptables_are_left_to_the_iptables_reader() {
    let objects = || {
        document(vec![
            chain("ip", "nat", "PREROUTING", Some("prerouting")),
            rule(
                "ip",
                "nat",
                "PREROUTING",
                json!([{"xt": {"type": "target", "name": "DNAT"}}]),
            ),
        ])
    };
    assert!(!read(&objects(), &["ip"]).unwrap().cut);
    assert!(read(&objects(), &[]).unwrap().cut, "nobody read them");
}

proptest! {
    #[test]
    fn no_damage_to_a_document_makes_the_reader_fail(at in 0usize..6000, length in 0usize..30, put in "[ -~]{0,10}") {
        let mut bytes = document(kube()).into_bytes();
        let at = at.min(bytes.len());
        let end = (at + length).min(bytes.len());
        bytes.splice(at..end, put.bytes());
        let text = String::from_utf8_lossy(&bytes);
        let _ = read(&text, &[]);
        let _ = lb_chains(&text, &ServiceFilter { namespace: None, name: "kube-dns".into() });
    }

    #[test]
    fn any_expression_is_taken(word in "(match|jump|goto|vmap|dnat|redirect|xt|fib|return)", key in "(left|right|op|key|data|addr|port|target|set)", value in "[a-z0-9@.]{0,8}") {
        prerouting(json!([{word.clone(): {key.clone(): value}}, {word.clone(): {key.clone(): {"set": [[1, 2], 3]}}}, {word: null}]));
    }
}
