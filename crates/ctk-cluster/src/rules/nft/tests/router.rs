//! Rules of a router's firewall, as OpenWrt's fw4 writes them: one `inet` table, a chain for each zone.

use super::super::super::{Condition, Forward, NodeRules, TargetAddresses, TargetPorts};
use super::*;

fn fw4(zone: &str, expr: Value) -> Value {
    let mut rule = rule("inet", "fw4", zone, expr);
    rule["rule"]["comment"] = json!("!fw4: a rule");
    rule
}

fn iifname(names: Value) -> Value {
    is(json!({"meta": {"key": "iifname"}}), "==", names)
}

fn nfproto(family: &str) -> Value {
    is(json!({"meta": {"key": "nfproto"}}), "==", json!(family))
}

fn router() -> NodeRules {
    let dport = |port: Value| is(payload("th", "dport"), "==", port);
    let counter = || json!({"counter": {"packets": 1, "bytes": 60}});
    let jump = |zone: &str| json!({"jump": {"target": zone}});
    let reflection = json!({"prefix": {"addr": "192.168.50.0", "len": 24}});
    read(
        &document(vec![
            chain("inet", "fw4", "dstnat", Some("prerouting")),
            chain("inet", "fw4", "dstnat_lan", None),
            chain("inet", "fw4", "dstnat_wan", None),
            fw4(
                "dstnat",
                json!([iifname(json!("br-lan")), jump("dstnat_lan")]),
            ),
            fw4(
                "dstnat",
                json!([iifname(json!({"set": ["wan", "ppp*"]})), jump("dstnat_wan")]),
            ),
            fw4(
                "dstnat_lan",
                json!([
                    nfproto("ipv4"),
                    is(
                        json!({"meta": {"key": "l4proto"}}),
                        "==",
                        json!({"set": ["tcp", "udp"]})
                    ),
                    dport(json!(53)),
                    counter(),
                    {"redirect": {"port": 53}}
                ]),
            ),
            fw4(
                "dstnat_lan",
                json!([
                    is(payload("ip", "saddr"), "==", reflection),
                    is(payload("ip", "daddr"), "==", json!("203.0.113.7")),
                    is(payload("tcp", "dport"), "==", json!(8443)),
                    {"dnat": {"family": "ip", "addr": "192.168.50.30", "port": 443}}
                ]),
            ),
            fw4(
                "dstnat_wan",
                json!([
                    is(payload("udp", "dport"), "==", json!(51820)),
                    {"dnat": {"family": "ip", "addr": "192.168.50.31"}}
                ]),
            ),
            fw4(
                "dstnat_wan",
                json!([is(payload("udp", "dport"), "==", json!(7)), {"dnat": {"port": 77}}]),
            ),
            fw4(
                "dstnat_wan",
                json!([is(payload("udp", "dport"), "==", json!(9)), {"redirect": null}]),
            ),
        ]),
        &[],
    )
    .unwrap()
}

fn by_port(rules: &NodeRules, port: u16) -> Vec<&Forward> {
    let found = rules.forwards.iter();
    found.filter(|f| f.ports.contains(&port)).collect()
}

#[test]
fn zones_of_a_router_are_conditions_on_the_incoming_interface() {
    let rules = router();
    let interface = |names: &[&str]| Condition::Interface {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        equal: true,
    };
    let [tcp, udp] = by_port(&rules, 53)[..] else {
        panic!("{rules:?}")
    };
    assert_eq!((tcp.protocol, udp.protocol), (6, 17));
    assert_eq!(udp.ipv6, Some(false));
    assert_eq!(udp.targets[0].addresses, TargetAddresses::OwnHost);
    assert_eq!(udp.targets[0].ports, TargetPorts::Range(53..=53));
    let came_in = Condition::Origin { local: false };
    assert_eq!(udp.conditions, [came_in.clone(), interface(&["br-lan"])]);
    let [reflection] = by_port(&rules, 8443)[..] else {
        panic!("{rules:?}")
    };
    assert_eq!(reflection.ipv6, Some(false));
    assert_eq!(reflection.destination, "203.0.113.7/32".parse().ok());
    for (port, addresses, ports, ipv6) in [
        (
            51820,
            TargetAddresses::Range(
                "192.168.50.31".parse().unwrap()..="192.168.50.31".parse().unwrap(),
            ),
            TargetPorts::Unchanged,
            Some(false),
        ),
        (
            7,
            TargetAddresses::Unchanged,
            TargetPorts::Range(77..=77),
            None,
        ),
        (9, TargetAddresses::OwnHost, TargetPorts::Unchanged, None),
    ] {
        let [forward] = by_port(&rules, port)[..] else {
            panic!("{rules:?}")
        };
        let wan = interface(&["wan", "ppp*"]);
        assert_eq!(forward.conditions, [came_in.clone(), wan], "{port}");
        assert_eq!(forward.targets[0].addresses, addresses, "{port}");
        assert_eq!(forward.targets[0].ports, ports, "{port}");
        assert_eq!(forward.ipv6, ipv6, "{port}");
    }
}

#[test]
fn a_rule_for_the_other_family_never_matches() {
    let odd = read(
        &document(vec![
            chain("ip6", "t", "p", Some("prerouting")),
            rule(
                "ip6",
                "t",
                "p",
                json!([nfproto("ipv4"), is(payload("udp", "dport"), "==", json!(53)), {"redirect": null}]),
            ),
        ]),
        &[],
    );
    assert!(odd.unwrap().forwards.is_empty());
}
