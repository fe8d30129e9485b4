//! Rules that lead to this host itself, and rules that match the incoming interface.

use ctk_cluster::rules::{
    Condition, Forward, ForwardTarget, NodeRules, TargetAddresses, TargetPorts,
};

use super::{Setting, local, routes};
use crate::this_node::{NetnsOwner, ThisNode};

/// Router: br-lan 192.168.50.1/24, wan 203.0.113.7/24 with the default route.
fn router(more: &[(&str, &str)]) -> ThisNode {
    let mut all = vec![
        ("0.0.0.0/0", "wan"),
        ("203.0.113.0/24", "wan"),
        ("192.168.50.0/24", "br-lan"),
        ("2001:db8:50::/64", "br-lan"),
        ("::/0", "wan"),
    ];
    all.extend(more);
    ThisNode {
        name: None,
        local: Some(vec![
            local("lo", "127.0.0.1/8"),
            local("wan", "203.0.113.7/24"),
            local("br-lan", "192.168.50.1/24"),
            local("br-lan", "2001:db8:50::1/64"),
        ]),
        routes: Some(routes(&all)),
        namespace: NetnsOwner::Node,
    }
}

fn by(names: &[&str], equal: bool) -> Condition {
    Condition::Interface {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        equal,
    }
}

/// One rule for 53/udp.
fn rules(
    local: bool,
    conditions: &[Condition],
    addresses: TargetAddresses,
    port: u16,
) -> NodeRules {
    let mut all = vec![Condition::Origin { local }];
    all.extend_from_slice(conditions);
    NodeRules {
        forwards: vec![Forward {
            protocol: 17,
            destination: None,
            ipv6: Some(false),
            local_only: false,
            ports: 53..=53,
            targets: vec![ForwardTarget {
                addresses,
                ports: TargetPorts::Range(port..=port),
            }],
            conditions: all,
            rule: "r".into(),
        }],
        ..NodeRules::default()
    }
}

fn judge(rules: &NodeRules, node: &ThisNode, entry: &str) -> String {
    let setting = Setting {
        index: None,
        rules: Some(rules),
        node,
        zones: &[],
        time: None,
    };
    setting.judge(entry).unwrap().0
}

const PAST: &str = "192.168.50.9:1 198.51.100.53:53 198.51.100.53:53 >203.0.113.7:1";
const SERVED: &str = "192.168.50.9:1 198.51.100.53:53 192.168.50.1:53";
const FROM_WAN: &str = "198.51.100.9:1 203.0.113.7:53 203.0.113.7:53";
const OWN: &str = "203.0.113.7:1 198.51.100.53:53 198.51.100.53:53";

#[test]
fn redirect_leads_to_addresses_of_this_host_only() {
    let lan = by(&["br-lan"], true);
    for (conditions, port, entry, expected) in [
        (&[][..], 53, PAST, "stale/no-dnat"),
        (&[], 53, SERVED, "ok/endpoint"),
        (&[], 5353, SERVED, "stale/endpoint-gone"),
        (&[], 53, OWN, "unrelated/no-frontend"),
        // The query goes to the router itself.
        (
            &[],
            53,
            "192.168.50.9:1 192.168.50.1:53 192.168.50.1:53",
            "ok/endpoint",
        ),
        (&[], 53, FROM_WAN, "ok/endpoint"),
        // An address of another interface: the router may have been renumbered.
        (
            &[],
            53,
            "192.168.50.9:1 198.51.100.53:53 203.0.113.7:53",
            "unknown/not-kube-proxy",
        ),
        (
            &[],
            53,
            "192.168.50.9:1 198.51.100.53:53 192.168.50.77:53",
            "stale/endpoint-gone",
        ),
        (std::slice::from_ref(&lan), 53, PAST, "stale/no-dnat"),
        (std::slice::from_ref(&lan), 53, SERVED, "ok/endpoint"),
        (std::slice::from_ref(&lan), 53, OWN, "unrelated/no-frontend"),
        (
            std::slice::from_ref(&lan),
            53,
            FROM_WAN,
            "unrelated/no-frontend",
        ),
        (
            std::slice::from_ref(&lan),
            53,
            "192.168.50.9:1 198.51.100.53:53 192.168.50.77:53",
            "stale/endpoint-gone",
        ),
        // A rule of the other family.
        (
            &[],
            53,
            "[2001:db8:50::9]:1 [2001:db8::53]:53 [2001:db8::53]:53",
            "unrelated/no-frontend",
        ),
    ] {
        let rules = rules(false, conditions, TargetAddresses::OwnHost, port);
        assert_eq!(
            judge(&rules, &router(&[]), entry),
            expected,
            "{entry} {conditions:?}"
        );
    }
}

#[test]
fn redirect_in_output_leads_to_loopback() {
    let rules = rules(true, &[], TargetAddresses::OwnHost, 53);
    for (entry, expected) in [
        ("203.0.113.7:1 198.51.100.53:53 127.0.0.1:53", "ok/endpoint"),
        (OWN, "stale/no-dnat"),
        // The source may be an address that this host had.
        (PAST, "unknown/not-kube-proxy"),
    ] {
        assert_eq!(judge(&rules, &router(&[]), entry), expected, "{entry}");
    }
}

#[test]
fn a_port_without_an_address_keeps_the_destination() {
    let rules = rules(false, &[], TargetAddresses::Unchanged, 77);
    for (entry, expected) in [
        (
            "192.168.50.9:1 198.51.100.53:53 198.51.100.53:77",
            "ok/endpoint",
        ),
        (
            "192.168.50.9:1 198.51.100.53:53 192.168.50.7:77",
            "stale/endpoint-gone",
        ),
        (PAST, "stale/no-dnat"),
    ] {
        assert_eq!(judge(&rules, &router(&[]), entry), expected, "{entry}");
    }
}

#[test]
fn an_entry_that_suits_a_rule_of_another_interface_is_not_stale() {
    // The client's packets may come in by another interface than the routes lead back to.
    let mut by_wan = rules(
        false,
        &[by(&["wan"], true)],
        TargetAddresses::Range("192.168.50.30".parse().unwrap()..="192.168.50.30".parse().unwrap()),
        53,
    );
    let everywhere = rules(false, &[], TargetAddresses::OwnHost, 53);
    by_wan.forwards.extend(everywhere.forwards);
    for (entry, expected) in [
        (
            "192.168.50.9:1 198.51.100.53:53 192.168.50.30:53",
            "unknown/not-kube-proxy",
        ),
        (SERVED, "ok/endpoint"),
        (
            "192.168.50.9:1 198.51.100.53:53 192.168.50.77:53",
            "stale/endpoint-gone",
        ),
    ] {
        assert_eq!(judge(&by_wan, &router(&[]), entry), expected, "{entry}");
    }
}

#[test]
fn only_a_certain_interface_makes_an_entry_stale() {
    let unknown = "unknown/not-kube-proxy";
    let behind = "10.9.0.5:1 198.51.100.53:53 198.51.100.53:53 >203.0.113.7:1";
    let lan = by(&["br-lan"], true);
    let not_lan = by(&["br-lan"], false);
    let dead = "192.168.50.9:1 198.51.100.53:53 192.168.50.77:53";
    for (more, condition, entry, expected) in [
        // A network behind another router of the LAN.
        (
            &[("10.9.0.0/16", "br-lan")][..],
            &lan,
            behind,
            "stale/no-dnat",
        ),
        (&[("10.9.0.0/16", "br-lan")], &not_lan, behind, unknown),
        // Two ways.
        (
            &[("10.9.0.0/16", "br-lan"), ("10.9.0.0/16", "vpn")],
            &lan,
            behind,
            unknown,
        ),
        (
            &[("10.9.0.0/16", "br-lan"), ("10.9.0.0/16", "vpn")],
            &not_lan,
            behind,
            unknown,
        ),
        (
            &[("0.0.0.0/0", "lte")],
            &not_lan,
            FROM_WAN_PAST,
            "stale/no-dnat",
        ),
        (
            &[("0.0.0.0/0", "lte")],
            &by(&["wan"], true),
            FROM_WAN_PAST,
            unknown,
        ),
        (
            &[("0.0.0.0/0", "lte")],
            &by(&["wan", "lte"], true),
            FROM_WAN_PAST,
            "stale/no-dnat",
        ),
        // The route contradicts the network of the address.
        (&[("192.168.50.9/32", "vpn")], &lan, PAST, unknown),
        (&[("192.168.50.9/32", "vpn")], &lan, dead, unknown),
        (&[], &by(&["br-*"], true), PAST, "stale/no-dnat"),
        (&[], &by(&["vpn"], true), PAST, "unrelated/no-frontend"),
    ] {
        let rules = rules(
            false,
            std::slice::from_ref(condition),
            TargetAddresses::OwnHost,
            53,
        );
        let node = router(more);
        assert_eq!(
            judge(&rules, &node, entry),
            expected,
            "{entry} {condition:?} {more:?}"
        );
    }
    for node in [
        with_policy(),
        ThisNode {
            routes: None,
            ..router(&[])
        },
    ] {
        for condition in [&lan, &not_lan] {
            let rules = rules(
                false,
                std::slice::from_ref(condition),
                TargetAddresses::OwnHost,
                53,
            );
            assert_eq!(judge(&rules, &node, PAST), unknown, "{condition:?}");
        }
        let rules = rules(
            false,
            std::slice::from_ref(&lan),
            TargetAddresses::OwnHost,
            53,
        );
        assert_eq!(judge(&rules, &node, dead), unknown);
    }
    let rules = rules(false, &[], TargetAddresses::OwnHost, 53);
    let nowhere = ThisNode {
        local: None,
        ..router(&[])
    };
    assert_eq!(judge(&rules, &nowhere, SERVED), unknown);
}

const FROM_WAN_PAST: &str = "198.51.100.9:1 198.51.100.53:53 198.51.100.53:53";

fn with_policy() -> ThisNode {
    let mut node = router(&[]);
    if let Some(routes) = &mut node.routes {
        routes.undecided = true;
    }
    node
}
