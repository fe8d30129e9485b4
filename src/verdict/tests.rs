//! The decision table, row by row, and the cases behind it.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use crate::cluster::index::Index;
use crate::cluster::rules::{
    Condition, Forward, ForwardTarget, NodeRules, RuleFrontend, TargetPorts,
};
use crate::cluster::testing::{bare_world, world};
use crate::entry::{Names, PartyKind};
use crate::flow::{Flow, L4, ProtocolState, Status, TcpDirection, Tuple};
use crate::label::{self, Matched};
use crate::netns::LocalAddress;

use super::{Judge, Namespace, Reason, ThisNode, Verdict};

/// `[udp|tcp|sctp|icmp] SRC DST REPLY_SRC [>REPLY_DST] [word...]`; words: `established`, `syn-sent`, `assured`,
/// `unreplied`, `offload`, `zone=N`, `timeout=N`.
pub(super) fn flow(text: &str) -> Flow {
    let mut words = text.split_whitespace().peekable();
    let protocol = crate::flow::protocol_number(words.peek().expect("a word"));
    let protocol = protocol.inspect(|_| {
        words.next();
    });
    let protocol = protocol.unwrap_or(17);
    let mut place = || place(words.next().expect("three places"));
    let (src, dst, reply_src) = (place(), place(), place());
    let mut flow = Flow::new(tuple(protocol, src, dst), tuple(protocol, reply_src, src));
    flow.status = flow.status.with(Status::SEEN_REPLY);
    for word in words {
        match word.split_once('=') {
            Some(("zone", id)) => flow.zone.id = id.parse().unwrap(),
            Some(("timeout", seconds)) => flow.timeout = Some(seconds.parse().unwrap()),
            Some(("start", seconds)) => {
                flow.start = Some(seconds.parse::<u64>().unwrap() * 1_000_000_000);
            }
            Some(_) => panic!("{word}"),
            None => match (word, word.strip_prefix('>')) {
                (_, Some(text)) => {
                    flow.reply = tuple(protocol, reply_src, self::place(text));
                }
                ("established", _) => flow.state = Some(tcp_state(3)),
                ("syn-sent", _) => flow.state = Some(tcp_state(1)),
                ("assured", _) => flow.status = flow.status.with(Status::ASSURED),
                ("unreplied", _) => flow.status = flow.status.without(Status::SEEN_REPLY),
                ("offload", _) => flow.status = flow.status.with(Status::OFFLOAD),
                ("hw-offload", _) => flow.status = flow.status.with(Status::HW_OFFLOAD),
                ("unconfirmed", _) => flow.status = flow.status.without(Status::CONFIRMED),
                ("dying", _) => flow.status = flow.status.with(Status::DYING),
                _ => panic!("{word}"),
            },
        }
    }
    flow
}

fn tcp_state(state: u8) -> ProtocolState {
    let (original, reply) = (TcpDirection::default(), TcpDirection::default());
    ProtocolState::Tcp {
        state,
        original,
        reply,
    }
}

/// An address with or without a port.
fn place(text: &str) -> (IpAddr, Option<u16>) {
    match text.parse::<SocketAddr>() {
        Ok(place) => (place.ip(), Some(place.port())),
        Err(_) => (text.parse().expect(text), None),
    }
}

fn tuple(protocol: u8, src: (IpAddr, Option<u16>), dst: (IpAddr, Option<u16>)) -> Tuple {
    let l4 = match (protocol, src.1, dst.1) {
        (1, ..) => L4::Icmp {
            kind: 8,
            code: 0,
            id: 1,
        },
        (_, Some(src), Some(dst)) => L4::Ports { src, dst },
        _ => L4::None,
    };
    Tuple {
        src: src.0,
        dst: dst.0,
        protocol,
        l4,
    }
}

pub(super) fn local(interface: &str, address: &str) -> LocalAddress {
    LocalAddress {
        interface: interface.to_owned(),
        network: address.parse().unwrap(),
    }
}

/// Node `n`, 192.168.7.1, in its own namespace.
fn this_node() -> ThisNode {
    ThisNode {
        name: Some("n".to_owned()),
        local: Some(vec![
            local("lo", "127.0.0.1/8"),
            local("eth0", "192.168.7.1/24"),
        ]),
        namespace: Namespace::Node,
    }
}

const NODES: [&str; 2] = [
    "node n 192.168.7.1 podCIDR=10.244.0.0/24",
    "node m 192.168.7.2",
];
const VIP: &str = "svc a/dns 10.96.0.10 dns:53/UDP@32053 http:80/TCP";

/// A cluster with Nodes, Service range and a pod, and these lines.
fn cluster(lines: &[&str]) -> Index {
    let mut all = vec![
        "cidr 10.96.0.0/16 fd00:96::/112",
        "pod a/client 10.244.0.2 @n",
    ];
    all.extend(NODES);
    all.extend(lines);
    world(&all)
}

pub(super) struct Setting<'a> {
    pub index: Option<&'a Index>,
    pub rules: Option<&'a NodeRules>,
    pub node: &'a ThisNode,
    pub zones: &'a [u16],
    pub time: Option<SystemTime>,
}

impl Setting<'_> {
    pub fn judge(&self, entry: &str) -> Option<(String, String)> {
        let flow = flow(entry);
        let judge = Judge {
            index: self.index,
            rules: self.rules,
            node: self.node,
            zones: self.zones,
            source_time: self.time,
        };
        let matched = match self.index {
            Some(index) => Matched::of(&flow, index, self.node),
            None => Matched::Nothing,
        };
        let judgement = judge.judge(&flow, matched)?;
        let evidence = judgement.evidence.to_string();
        assert!(!evidence.is_empty(), "{entry}");
        let words = (judgement.verdict().name(), judgement.reason.name());
        Some((format!("{}/{}", words.0, words.1), evidence))
    }
}

/// The verdict in the cluster that `lines` make, on node `n`.
fn verdict(entry: &str, lines: &[&str]) -> String {
    let (index, node) = (cluster(lines), this_node());
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &node,
        zones: &[],
        time: None,
    };
    setting
        .judge(entry)
        .map_or("-".to_owned(), |(verdict, _)| verdict)
}

const C_VIP_E1: &str = "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53";
const C_VIP_VIP: &str = "10.244.0.2:4000 10.96.0.10:53 10.96.0.10:53 unreplied";

#[test]
fn every_vector_gets_its_verdict() {
    let e1 = "slice a/dns dns:53/UDP 10.244.0.11(ready)@n";
    let e2 = "slice a/dns dns:53/UDP 10.244.0.12(ready)@n";
    let ext = "svc a/dns 10.96.0.10 dns:53/UDP@32053 external=203.0.113.5 ingress=203.0.113.6 ingress=203.0.113.7(Proxy)";
    let ext_local =
        "svc a/dns 10.96.0.10 dns:53/UDP ingress=203.0.113.6 externalTrafficPolicy=Local";
    let v4_and_v6 = "svc a/dns 10.96.0.10 fd00:96::a dns:53/UDP";
    let vectors: &[(&str, &[&str], &str)] = &[
        (C_VIP_E1, &[VIP, e1], "ok/endpoint"),
        (C_VIP_E1, &[VIP, e2], "stale/endpoint-gone"),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53 assured timeout=119",
            &[VIP, e2],
            "stale/endpoint-gone",
        ),
        (C_VIP_E1, &[VIP], "stale/service-empty"),
        (
            C_VIP_E1,
            &[VIP, "slice a/dns dns:53/UDP"],
            "stale/service-empty",
        ),
        (
            C_VIP_E1,
            &[
                VIP,
                "slice a/dns dns:53/UDP 10.244.0.11(!ready,serving,terminating)",
                e2,
            ],
            "draining/endpoint-terminating",
        ),
        (
            C_VIP_E1,
            &[
                VIP,
                "slice a/dns dns:53/UDP 10.244.0.11(!ready,!serving)",
                e2,
            ],
            "stale/endpoint-not-serving",
        ),
        (
            C_VIP_E1,
            &[VIP, "slice a/dns dns:53/UDP 10.244.0.11(ready,!serving)"],
            "ok/endpoint",
        ),
        (
            C_VIP_E1,
            &[VIP, "slice a/dns dns:53/UDP 10.244.0.11"],
            "ok/endpoint",
        ),
        (
            C_VIP_E1,
            &[
                "svc a/dns 10.96.0.10 dns:53/UDP internalTrafficPolicy=Local",
                "slice a/dns dns:53/UDP 10.244.0.11(ready)@m",
            ],
            "ok/endpoint",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:8053",
            &[VIP, e1],
            "stale/endpoint-port-changed",
        ),
        (C_VIP_VIP, &[VIP, e1], "stale/no-dnat"),
        (C_VIP_VIP, &[VIP], "pending/no-dnat-no-endpoint"),
        (
            "10.244.0.2:4000 10.96.0.10:9153 10.244.0.11:9153",
            &[VIP, e1],
            "stale/port-gone",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.13:53",
            &[VIP, "slice a/dns dns:53/UDP 10.244.0.11+10.244.0.13"],
            "unknown/secondary-address",
        ),
        (
            "10.244.0.2:4000 192.168.7.1:32053 169.254.0.252:32053",
            &[VIP, e1],
            "unknown/cni-internal",
        ),
        (
            "198.51.100.1:4000 203.0.113.6:53 192.168.7.2:32053",
            &[ext, e1],
            "unknown/service-hop",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:9999 10.96.0.10:9999",
            &[VIP, e1],
            "unrelated/other-port",
        ),
        (
            "tcp 10.244.0.2:4000 10.96.0.10:80 10.244.0.11:80 syn-sent",
            &[VIP, "slice a/dns http:80/TCP 10.244.0.12"],
            "stale/endpoint-gone",
        ),
        (
            "198.51.100.1:4000 192.168.7.1:32053 10.244.0.11:53 >192.168.7.1:4000",
            &[VIP, e1],
            "ok/endpoint",
        ),
        (
            "198.51.100.1:4000 192.168.7.1:32053 10.244.0.11:53 >192.168.7.1:4000",
            &[VIP, e2],
            "stale/endpoint-gone",
        ),
        (
            "10.244.0.2:4000 192.168.7.2:32053 192.168.7.2:32053",
            &[VIP, e1],
            "unrelated/remote-node-port",
        ),
        (
            "10.244.0.2:4000 10.244.0.12:32053 10.244.0.12:32053",
            &[VIP, e1, "pod a/p 10.244.0.12"],
            "unrelated/no-frontend",
        ),
        (
            "198.51.100.1:4000 192.168.7.1:32053 192.168.7.1:32053",
            &[VIP, e1],
            "stale/no-dnat",
        ),
        (
            "198.51.100.1:4000 203.0.113.5:53 10.244.0.11:53",
            &[ext, e2],
            "stale/endpoint-gone",
        ),
        (
            "198.51.100.1:4000 203.0.113.6:53 10.244.0.11:53",
            &[ext, e2],
            "stale/endpoint-gone",
        ),
        (
            "198.51.100.1:4000 203.0.113.7:53 203.0.113.7:53",
            &[ext, e1],
            "unknown/not-kube-proxy",
        ),
        (
            "198.51.100.1:4000 203.0.113.6:53 203.0.113.6:53",
            &[ext_local, "slice a/dns dns:53/UDP 10.244.0.11(ready)@m"],
            "pending/no-dnat-no-endpoint",
        ),
        (
            "10.244.0.11:4000 10.96.0.10:53 10.244.0.11:53 >192.168.7.1:4000",
            &[VIP, e1],
            "ok/endpoint",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53 >10.244.0.2:5000",
            &[VIP, e1],
            "ok/endpoint",
        ),
        (
            "[fd00::2]:4000 [fd00:96::a]:53 [fd00:10::11]:53",
            &[v4_and_v6, e1, "slice a/dns dns:53/UDP fd00:10::12"],
            "stale/endpoint-gone",
        ),
        (
            "[fd00::2]:4000 [fd00:96::a]:53 [fd00:10::11]:53",
            &[v4_and_v6, e1],
            "stale/service-empty",
        ),
        (
            "[fd00::2]:4000 [fd00:96::a]:53 [fd00:0:0:0::11]:53",
            &[v4_and_v6, "slice a/dns dns:53/UDP fd00::11"],
            "ok/endpoint",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53 zone=5",
            &[VIP, e2],
            "unknown/foreign-zone",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53 offload",
            &[VIP, e2],
            "unknown/offloaded",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53 hw-offload",
            &[VIP, e2],
            "unknown/offloaded",
        ),
        (
            "10.244.0.2:4000 10.96.0.77:8125 10.244.0.11:53",
            &[VIP, e1],
            "stale/service-gone",
        ),
        (
            C_VIP_E1,
            &[
                VIP,
                "slice a/dns name=x dns:53/UDP 10.244.0.12",
                "slice a/dns name=y dns:53/UDP 10.244.0.11",
            ],
            "ok/endpoint",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 203.0.113.9:53",
            &[VIP, "slice a/dns dns:53/UDP 203.0.113.9"],
            "ok/endpoint",
        ),
        (
            "10.244.0.2:4000 10.244.0.11:53 10.244.0.11:53",
            &[VIP, e1],
            "unrelated/no-frontend",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53 unreplied",
            &[VIP, e1],
            "ok/endpoint",
        ),
        (
            "10.244.0.2:4000 169.254.20.10:53 169.254.20.10:53",
            &[VIP, e1],
            "unrelated/no-frontend",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53 unconfirmed",
            &[VIP, e2],
            "-",
        ),
        (
            "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53 dying",
            &[VIP, e2],
            "-",
        ),
    ];
    for (entry, lines, expected) in vectors {
        assert_eq!(verdict(entry, lines), *expected, "{entry} in {lines:?}");
    }
}

#[test]
fn traffic_policy_decides_what_is_usable_here_and_nothing_else() {
    let local = "svc a/s 10.96.1.1 x:99/UDP external=203.0.113.5 externalTrafficPolicy=Local internalTrafficPolicy=Local";
    let remote = "slice a/s x:99/UDP 10.244.1.9(ready)@m";
    let here = "slice a/s x:99/UDP 10.244.0.9(ready)@n";
    let draining = "slice a/s x:99/UDP 10.244.0.9(!ready,serving,terminating)@n";
    for (entry, lines, expected) in [
        (
            "10.244.0.2:1 10.96.1.1:99 10.96.1.1:99",
            &[local, remote][..],
            "pending/no-dnat-no-endpoint",
        ),
        (
            "10.244.0.2:1 10.96.1.1:99 10.96.1.1:99",
            &[local, here],
            "stale/no-dnat",
        ),
        (
            "10.244.0.2:1 10.96.1.1:99 10.96.1.1:99",
            &[local, draining],
            "stale/no-dnat",
        ),
        // Pods and the node itself reach an external address as if the policy were Cluster.
        (
            "10.244.0.2:1 203.0.113.5:99 203.0.113.5:99",
            &[local, remote],
            "stale/no-dnat",
        ),
        (
            "192.168.7.1:1 203.0.113.5:99 203.0.113.5:99",
            &[local, remote],
            "stale/no-dnat",
        ),
        (
            "198.51.100.1:1 203.0.113.5:99 203.0.113.5:99",
            &[local, remote],
            "pending/no-dnat-no-endpoint",
        ),
        (
            "198.51.100.1:1 203.0.113.5:99 203.0.113.5:99",
            &[local, here],
            "stale/no-dnat",
        ),
        (
            "198.51.100.1:1 203.0.113.5:99 10.244.1.9:99",
            &[local, remote],
            "ok/endpoint",
        ),
    ] {
        assert_eq!(verdict(entry, lines), expected, "{entry} in {lines:?}");
    }
    let index = cluster(&[local, remote]);
    let nowhere = ThisNode {
        name: None,
        ..this_node()
    };
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &nowhere,
        zones: &[],
        time: None,
    };
    let (verdict, _) = setting
        .judge("10.244.0.2:1 10.96.1.1:99 10.96.1.1:99")
        .unwrap();
    assert_eq!(
        verdict, "unknown/source-incomplete",
        "policy Local on a node that is not known"
    );
}

#[test]
fn a_source_that_is_not_whole_never_makes_an_entry_stale() {
    let node = this_node();
    let e2 = "slice a/dns dns:53/UDP 10.244.0.12";
    let np = "10.244.0.2:4000 192.168.7.1:32053 10.244.0.11:53";
    let tcp = "tcp 10.244.0.2:4000 10.96.0.10:80 10.244.0.11:80";
    let hop = "10.244.0.2:4000 10.96.0.10:53 192.168.7.2:32053";
    let no_pods = world(&[
        NODES[0],
        NODES[1],
        VIP,
        e2,
        "slice a/dns http:80/TCP 10.244.0.12",
    ]);
    let no_nodes = world(&["pod a/p 10.244.0.50", VIP, e2]);
    for (name, index, entry, expected) in [
        (
            "nothing of default/kubernetes",
            bare_world(&[VIP, e2]),
            C_VIP_E1,
            "unknown/source-incomplete",
        ),
        (
            "its slice is missing",
            bare_world(&["svc default/kubernetes 10.96.0.1 443/TCP", VIP, e2]),
            C_VIP_E1,
            "unknown/source-incomplete",
        ),
        (
            "no slices, unrelated entry",
            bare_world(&[VIP]),
            "1.2.3.4:1 5.6.7.8:9 5.6.7.8:9",
            "unknown/source-incomplete",
        ),
    ] {
        let setting = Setting {
            index: Some(&index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        assert_eq!(setting.judge(entry).unwrap().0, expected, "{name}");
    }
    for (name, index, entry, expected) in [
        (
            "no Nodes: node port",
            &no_nodes,
            np,
            "unknown/source-incomplete",
        ),
        (
            "no Nodes: a node port elsewhere",
            &no_nodes,
            "10.244.0.2:1 198.51.100.9:32053 198.51.100.9:32053",
            "unknown/source-incomplete",
        ),
        (
            "no Nodes: reply from a node port",
            &no_nodes,
            hop,
            "unknown/source-incomplete",
        ),
        (
            "no Nodes: clusterIP",
            &no_nodes,
            C_VIP_E1,
            "stale/endpoint-gone",
        ),
        ("no Pods: UDP", &no_pods, C_VIP_E1, "stale/endpoint-gone"),
        ("no Pods: TCP", &no_pods, tcp, "unknown/source-incomplete"),
        (
            "no range: nobody owns it",
            &no_pods,
            "10.244.0.2:1 10.96.0.77:53 10.244.0.11:53",
            "unknown/service-range-unknown",
        ),
        (
            "no range: not translated",
            &no_pods,
            "10.244.0.2:1 10.96.0.77:53 10.96.0.77:53",
            "unrelated/no-frontend",
        ),
        (
            "no range: a Node's address",
            &no_pods,
            "10.244.0.2:1 192.168.7.2:8080 10.244.0.11:53",
            "unrelated/no-frontend",
        ),
    ] {
        let setting = Setting {
            index: Some(index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        assert_eq!(setting.judge(entry).unwrap().0, expected, "{name}");
    }
}

#[test]
fn an_entry_younger_than_the_source_is_not_stale_by_it() {
    let (index, node) = (
        cluster(&[VIP, "slice a/dns dns:53/UDP 10.244.0.12"]),
        this_node(),
    );
    let time = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1000));
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &node,
        zones: &[],
        time,
    };
    for (start, expected) in [
        ("start=1001", "unknown/source-incomplete"),
        ("start=999", "stale/endpoint-gone"),
    ] {
        let entry = format!("{C_VIP_E1} {start}");
        assert_eq!(setting.judge(&entry).unwrap().0, expected, "{start}");
    }
    let healthy = "10.244.0.2:4000 10.96.0.10:53 10.244.0.12:53 start=1001";
    assert_eq!(setting.judge(healthy).unwrap().0, "ok/endpoint");
}

#[test]
fn a_namespace_that_is_not_the_nodes_gets_no_verdict_from_the_cluster() {
    let index = cluster(&[VIP, "slice a/dns dns:53/UDP 10.244.0.11"]);
    let node = ThisNode {
        namespace: Namespace::Foreign,
        ..this_node()
    };
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &node,
        zones: &[],
        time: None,
    };
    assert_eq!(setting.judge(C_VIP_VIP).unwrap().0, "unknown/foreign-netns");
}

#[test]
fn a_zone_is_judged_only_when_it_is_named() {
    let (index, node) = (
        cluster(&[VIP, "slice a/dns dns:53/UDP 10.244.0.12"]),
        this_node(),
    );
    let entry = format!("{C_VIP_E1} zone=5");
    for (zones, expected) in [
        (&[][..], "unknown/foreign-zone"),
        (&[5], "stale/endpoint-gone"),
        (&[6], "unknown/foreign-zone"),
    ] {
        let setting = Setting {
            index: Some(&index),
            rules: None,
            node: &node,
            zones,
            time: None,
        };
        assert_eq!(setting.judge(&entry).unwrap().0, expected, "{zones:?}");
    }
}

#[test]
fn a_reused_address_is_told_from_a_pod_that_only_left_its_service() {
    let lines = [
        VIP,
        "slice a/dns dns:53/UDP http:80/TCP 10.244.0.12",
        "pod b/other 10.244.0.11",
        "pod b/host 192.168.7.1 hostNetwork",
        "svc a/two 10.96.0.20 x:53/UDP y:54/UDP",
        "slice a/two x:53/UDP 10.244.0.12",
        "slice a/two y:54/UDP 10.244.0.11",
    ];
    for (entry, expected) in [
        (C_VIP_E1, "stale/misdelivery"),
        (
            "tcp 10.244.0.2:4000 10.96.0.10:80 10.244.0.11:80 established",
            "detached/pod-not-endpoint",
        ),
        (
            "tcp 10.244.0.2:4000 10.96.0.10:80 10.244.0.11:80 syn-sent",
            "stale/misdelivery",
        ),
        // A host-network pod never makes a misdelivery, and neither does a pod that backs another port.
        (
            "10.244.0.2:4000 10.96.0.10:53 192.168.7.1:53",
            "stale/endpoint-gone",
        ),
        (
            "10.244.0.2:4000 10.96.0.20:53 10.244.0.11:53",
            "stale/endpoint-gone",
        ),
    ] {
        assert_eq!(verdict(entry, &lines), expected, "{entry}");
    }
    let finished = [
        VIP,
        "slice a/dns dns:53/UDP 10.244.0.12",
        "pod b/done 10.244.0.11 phase=Succeeded",
    ];
    assert_eq!(verdict(C_VIP_E1, &finished), "stale/endpoint-gone");
}

#[test]
fn addresses_that_others_manage_are_left_to_them() {
    let dns = "slice a/dns dns:53/UDP 10.244.0.11";
    for (entry, lines, expected) in [
        (
            "10.244.0.2:1 10.96.0.30:53 10.244.0.99:53",
            &[
                "svc a/own 10.96.0.30 x:53/UDP label=service.kubernetes.io/service-proxy-name=mine",
                "slice a/own x:53/UDP 10.244.0.5",
            ][..],
            "unknown/not-kube-proxy",
        ),
        (
            "10.244.0.2:1 10.96.0.30:54 10.244.0.99:54",
            &["svc a/own 10.96.0.30 x:53/UDP label=service.kubernetes.io/service-proxy-name=mine"],
            "unknown/not-kube-proxy",
        ),
        (
            "198.51.100.1:1 203.0.113.7:54 203.0.113.7:54",
            &["svc a/lb 10.96.0.31 x:53/UDP ingress=203.0.113.7(Proxy)"],
            "unknown/not-kube-proxy",
        ),
        // An external address with a port that the Service lost: nothing says that it was translated for the Service.
        (
            "198.51.100.1:1 203.0.113.5:54 10.244.0.99:54",
            &["svc a/ext 10.96.0.32 x:53/UDP external=203.0.113.5"],
            "unrelated/other-port",
        ),
        (
            "icmp 10.244.0.2 10.96.0.10 10.96.0.10",
            &[VIP, dns],
            "unrelated/other-port",
        ),
    ] {
        assert_eq!(verdict(entry, lines), expected, "{entry} in {lines:?}");
    }
    // A node-local DNS cache has the clusterIP on an interface of its own; IPVS has all of them on kube-ipvs0.
    let index = cluster(&[VIP, dns]);
    for (interface, expected) in [
        ("nodelocaldns", "unknown/nodelocal-dns"),
        ("kube-ipvs0", "stale/no-dnat"),
    ] {
        let mut node = this_node();
        node.local
            .as_mut()
            .unwrap()
            .push(local(interface, "10.96.0.10/32"));
        let setting = Setting {
            index: Some(&index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        assert_eq!(setting.judge(C_VIP_VIP).unwrap().0, expected, "{interface}");
    }
}

#[test]
fn node_ports_answer_on_this_nodes_addresses_only() {
    let index = cluster(&[VIP, "slice a/dns dns:53/UDP 10.244.0.11"]);
    let mut node = this_node();
    node.local
        .as_mut()
        .unwrap()
        .push(local("vip0", "203.0.113.77/32"));
    let setting = |node| Setting {
        index: Some(&index),
        rules: None,
        node,
        zones: &[],
        time: None,
    };
    for (entry, expected) in [
        // Whether an address beside the Node's own accepts node ports is known from rules only.
        (
            "198.51.100.9:1 203.0.113.77:32053 203.0.113.77:32053",
            "unknown/source-incomplete",
        ),
        (
            "127.0.0.1:1 127.0.0.1:32053 127.0.0.1:32053",
            "unknown/source-incomplete",
        ),
        (
            "198.51.100.9:1 203.0.113.77:32053 10.244.0.11:53",
            "ok/endpoint",
        ),
        (
            "198.51.100.9:1 192.168.7.1:32053 192.168.7.1:32053",
            "stale/no-dnat",
        ),
        (
            "tcp 198.51.100.9:1 192.168.7.1:32053 192.168.7.1:32053",
            "unrelated/no-frontend",
        ),
    ] {
        assert_eq!(setting(&node).judge(entry).unwrap().0, expected, "{entry}");
    }
    let unknown = ThisNode {
        name: None,
        local: None,
        namespace: Namespace::Node,
    };
    let entry = "198.51.100.9:1 192.168.7.1:32053 10.244.0.11:53";
    assert_eq!(
        setting(&unknown).judge(entry).unwrap().0,
        "unknown/source-incomplete"
    );
}

fn frontend(targets: &[&str]) -> RuleFrontend {
    RuleFrontend {
        targets: targets.iter().map(|t| t.parse().unwrap()).collect(),
        understood: true,
        ..RuleFrontend::default()
    }
}

#[test]
fn rules_alone_suspect_but_never_condemn_a_missing_endpoint() {
    let mut rules = NodeRules::default();
    let key = |ip: &str, port| (ip.parse::<IpAddr>().unwrap(), 17, port);
    rules
        .frontends
        .insert(key("10.96.0.10", 53), frontend(&["10.244.0.11:53"]));
    rules.frontends.insert(
        key("10.96.0.20", 53),
        RuleFrontend {
            refused: true,
            ..frontend(&[])
        },
    );
    rules.frontends.insert(
        key("10.96.0.30", 53),
        RuleFrontend {
            understood: false,
            ..frontend(&[])
        },
    );
    rules
        .node_ports
        .insert((17, 32053), frontend(&["10.244.0.11:53"]));
    let node = this_node();
    let setting = Setting {
        index: None,
        rules: Some(&rules),
        node: &node,
        zones: &[],
        time: None,
    };
    for (entry, expected) in [
        (C_VIP_E1, "ok/endpoint"),
        (
            "10.244.0.2:1 10.96.0.10:53 10.244.0.12:53",
            "suspect/not-in-node-rules",
        ),
        (C_VIP_VIP, "stale/no-dnat"),
        (
            "10.244.0.2:1 10.96.0.20:53 10.96.0.20:53",
            "pending/no-dnat-no-endpoint",
        ),
        (
            "10.244.0.2:1 10.96.0.20:53 10.244.0.12:53",
            "suspect/not-in-node-rules",
        ),
        (
            "10.244.0.2:1 10.96.0.30:53 10.244.0.12:53",
            "unknown/source-incomplete",
        ),
        (
            "10.244.0.2:1 10.96.0.10:54 10.244.0.12:53",
            "unrelated/other-port",
        ),
        (
            "10.244.0.2:1 192.168.7.1:32053 10.244.0.11:53",
            "ok/endpoint",
        ),
        (
            "10.244.0.2:1 198.51.100.1:53 198.51.100.1:53",
            "unrelated/no-frontend",
        ),
    ] {
        assert_eq!(setting.judge(entry).unwrap().0, expected, "{entry}");
    }
    let nothing = Setting {
        rules: None,
        ..setting
    };
    assert_eq!(
        nothing.judge(C_VIP_E1).unwrap().0,
        "unknown/source-incomplete"
    );
}

#[test]
fn rules_beside_the_cluster_tell_whether_a_new_packet_would_be_translated() {
    let index = cluster(&[VIP, "slice a/dns dns:53/UDP 10.244.0.11"]);
    let node = this_node();
    let with = |frontend: Option<RuleFrontend>, entry: &str| {
        let mut rules = NodeRules::default();
        if let Some(frontend) = frontend {
            rules
                .frontends
                .insert(("10.96.0.10".parse().unwrap(), 17, 53), frontend);
        }
        let setting = Setting {
            index: Some(&index),
            rules: Some(&rules),
            node: &node,
            zones: &[],
            time: None,
        };
        setting.judge(entry).unwrap().0
    };
    assert_eq!(with(None, C_VIP_VIP), "pending/no-dnat-no-rule");
    assert_eq!(
        with(Some(frontend(&["10.244.0.11:53"])), C_VIP_VIP),
        "stale/no-dnat"
    );
    let refused = RuleFrontend {
        refused: true,
        ..frontend(&[])
    };
    assert_eq!(
        with(Some(refused), C_VIP_VIP),
        "pending/no-dnat-no-endpoint"
    );
    let odd = RuleFrontend {
        understood: false,
        ..frontend(&["10.244.0.11:53"])
    };
    assert_eq!(with(Some(odd), C_VIP_VIP), "unknown/source-incomplete");
    // The cluster decides where both are known.
    assert_eq!(
        with(
            Some(frontend(&["10.244.0.99:53"])),
            "10.244.0.2:1 10.96.0.10:53 10.244.0.99:53"
        ),
        "stale/endpoint-gone"
    );
}

/// A published container port: 52897/udp on every local address -> 172.17.0.9:51820, but not from docker0.
fn docker(conditions: Vec<Condition>) -> NodeRules {
    NodeRules {
        forwards: vec![Forward {
            protocol: 17,
            destination: None,
            local_only: true,
            ports: 52897..=52897,
            targets: vec![ForwardTarget {
                addresses: "172.17.0.9".parse().unwrap()..="172.17.0.9".parse().unwrap(),
                ports: TargetPorts::Range(51820..=51820),
            }],
            conditions,
            rule: "-A DOCKER ! -i docker0 -p udp --dport 52897 -j DNAT --to-destination 172.17.0.9:51820".into(),
        }],
        ..NodeRules::default()
    }
}

#[test]
fn published_container_ports_are_judged_by_every_rule_that_could_match() {
    let mut node = this_node();
    node.local
        .as_mut()
        .unwrap()
        .push(local("docker0", "172.17.0.1/16"));
    let not_docker = Condition::Interface {
        name: "docker0".into(),
        equal: false,
    };
    let odd = Condition::Other("-m recent --name x".into());
    let source = Condition::Source {
        net: "198.51.100.0/24".parse().unwrap(),
        equal: true,
    };
    let untranslated = "198.51.100.60:40555 192.168.7.1:52897 192.168.7.1:52897 unreplied";
    for (conditions, entry, expected) in [
        (vec![not_docker.clone()], untranslated, "stale/no-dnat"),
        (
            vec![not_docker.clone()],
            "198.51.100.61:40556 192.168.7.1:52897 172.17.0.9:51820",
            "ok/endpoint",
        ),
        (
            vec![not_docker.clone()],
            "198.51.100.61:40556 192.168.7.1:52897 172.17.0.8:51820",
            "stale/endpoint-gone",
        ),
        // The container port itself is no frontend.
        (
            vec![not_docker.clone()],
            "198.51.100.62:40557 192.168.7.1:51820 192.168.7.1:51820",
            "unrelated/no-frontend",
        ),
        // A container that talks to its host's published port goes through the proxy process.
        (
            vec![not_docker.clone()],
            "172.17.0.5:40557 192.168.7.1:52897 192.168.7.1:52897",
            "unknown/not-kube-proxy",
        ),
        (vec![odd.clone()], untranslated, "unknown/not-kube-proxy"),
        (
            vec![odd],
            "198.51.100.61:40556 192.168.7.1:52897 172.17.0.8:51820",
            "unknown/not-kube-proxy",
        ),
        (vec![source.clone()], untranslated, "stale/no-dnat"),
        (
            vec![source.clone()],
            "203.0.113.1:40555 192.168.7.1:52897 192.168.7.1:52897",
            "unknown/not-kube-proxy",
        ),
        (
            vec![source],
            "198.51.100.61:40556 192.168.7.1:52897 172.17.0.8:51820",
            "unknown/not-kube-proxy",
        ),
        (
            vec![],
            "198.51.100.61:40556 198.51.100.99:52897 172.17.0.8:51820",
            "unrelated/no-frontend",
        ),
    ] {
        let rules = docker(conditions);
        // The rules were read in this namespace, whose it is does not matter.
        for namespace in [Namespace::Node, Namespace::Foreign] {
            let node = ThisNode {
                namespace,
                ..node.clone()
            };
            if namespace == Namespace::Foreign && expected.starts_with("unrelated") {
                continue;
            }
            let setting = Setting {
                index: None,
                rules: Some(&rules),
                node: &node,
                zones: &[],
                time: None,
            };
            assert_eq!(
                setting.judge(entry).unwrap().0,
                expected,
                "{entry} {namespace:?}"
            );
        }
    }
}

#[test]
fn a_rule_of_somebody_else_that_leads_there_too_keeps_the_entry() {
    let index = cluster(&[
        "svc a/s 10.96.0.9 x:52897/UDP external=192.168.7.1",
        "slice a/s x:52897/UDP 10.244.0.11",
    ]);
    let (rules, node) = (docker(vec![]), this_node());
    let setting = Setting {
        index: Some(&index),
        rules: Some(&rules),
        node: &node,
        zones: &[],
        time: None,
    };
    let entry = "198.51.100.1:1 192.168.7.1:52897 172.17.0.9:51820";
    assert_eq!(setting.judge(entry).unwrap().0, "unknown/not-kube-proxy");
}

#[test]
fn shifted_and_ranged_targets_are_honoured() {
    let mut rules = docker(vec![]);
    let targets = |ports| {
        vec![ForwardTarget {
            addresses: "172.17.0.9".parse().unwrap()..="172.17.0.10".parse().unwrap(),
            ports,
        }]
    };
    rules.forwards[0].ports = 8000..=8010;
    let node = this_node();
    for (ports, reply, expected) in [
        (TargetPorts::Shift(9000), "172.17.0.9:9002", "ok/endpoint"),
        (
            TargetPorts::Shift(9000),
            "172.17.0.9:9003",
            "stale/endpoint-gone",
        ),
        (TargetPorts::Range(1..=100), "172.17.0.10:50", "ok/endpoint"),
        (
            TargetPorts::Range(1..=100),
            "172.17.0.10:101",
            "stale/endpoint-gone",
        ),
        (TargetPorts::Unchanged, "172.17.0.10:7", "ok/endpoint"),
        (
            TargetPorts::Unchanged,
            "172.17.0.11:8002",
            "stale/endpoint-gone",
        ),
    ] {
        rules.forwards[0].targets = targets(ports);
        let setting = Setting {
            index: None,
            rules: Some(&rules),
            node: &node,
            zones: &[],
            time: None,
        };
        let entry = format!("198.51.100.1:1 192.168.7.1:8002 {reply}");
        assert_eq!(setting.judge(&entry).unwrap().0, expected, "{entry}");
    }
}

#[test]
fn the_table_produces_every_reason() {
    // Every reason is expected by name in one of the tests above; this holds that none was forgotten.
    let text = include_str!("tests.rs");
    let expected: HashSet<&str> = text.split('"').collect();
    for reason in Reason::ALL {
        let words = format!("{}/{}", reason.verdict().name(), reason.name());
        assert!(
            expected.contains(words.as_str()),
            "no row of a test expects {words}"
        );
    }
    assert_eq!(Verdict::ALL.len(), 8);
}

#[test]
fn evidence_is_a_sentence_with_the_numbers_in_it() {
    let node = this_node();
    for (entry, lines, expected) in [
        (
            C_VIP_E1,
            &[VIP, "slice a/dns dns:53/UDP 10.244.0.12 10.244.0.13"][..],
            "10.244.0.11:53 is no endpoint of a/dns, which has 2",
        ),
        (
            C_VIP_VIP,
            &[VIP, "slice a/dns dns:53/UDP 10.244.0.12"],
            "never translated: 10.96.0.10:53 answers for itself, while a/dns has 1 usable endpoint",
        ),
        (
            C_VIP_E1,
            &[
                VIP,
                "slice a/dns dns:53/UDP 10.244.0.12",
                "pod b/x 10.244.0.11",
            ],
            "10.244.0.11 now belongs to pod b/x, which is no endpoint of a/dns",
        ),
        (
            "10.244.0.2:1 10.96.0.77:8125 10.244.0.62:9100",
            &["pod pay/ledger-7 10.244.0.62"],
            "no Service owns 10.96.0.77, which lies in the Service range; the entry still leads to 10.244.0.62:9100, which is pod pay/ledger-7, no endpoint for this address",
        ),
    ] {
        let index = cluster(lines);
        let setting = Setting {
            index: Some(&index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        assert_eq!(setting.judge(entry).unwrap().1, expected);
    }
}

fn names<'c>(entry: &str, index: &'c Index) -> Names<'c> {
    let flow = flow(entry);
    label::names(&flow, Matched::of(&flow, index, &this_node()), index)
}

#[test]
fn host_network_pods_are_named_only_when_exactly_one_declares_the_port() {
    let lines = [
        "pod kube-system/kube-proxy-a 192.168.7.1 @n hostNetwork",
        "pod obs/agent-a 192.168.7.1 @n hostNetwork port=8125/UDP",
        "pod kube-system/cni-a 192.168.7.1 @n hostNetwork",
        "svc x/api 10.96.0.2 https:443/TCP",
        "slice x/api https:6443/TCP 192.168.7.2(ready)",
    ];
    let index = cluster(&lines);
    let endpoint = |entry: &str| names(entry, &index).endpoint.unwrap();
    let agent = endpoint("198.51.100.9:7000 192.168.7.1:8125 192.168.7.1:8125");
    assert_eq!(
        (agent.party.kind, agent.party.name),
        (PartyKind::HostNetwork, Some("agent-a"))
    );
    let node = endpoint("198.51.100.9:7000 192.168.7.1:9999 192.168.7.1:9999");
    assert_eq!(
        (node.party.kind, node.party.name),
        (PartyKind::Node, Some("n"))
    );
    // A slice without a pod: the node is named, the conditions are the slice's.
    let api = endpoint("tcp 10.244.0.3:40000 10.96.0.2:443 192.168.7.2:6443");
    assert_eq!(
        (api.party.kind, api.party.name, api.ready),
        (PartyKind::Node, Some("m"), Some(true))
    );
    let two = [
        &lines[..],
        &["pod obs/agent-b 192.168.7.1 @n hostNetwork port=8125/UDP"],
    ]
    .concat();
    let index = cluster(&two);
    let shared = names(
        "198.51.100.9:7000 192.168.7.1:8125 192.168.7.1:8125",
        &index,
    );
    assert_eq!(
        shared.endpoint.unwrap().party.kind,
        PartyKind::Node,
        "two pods declare it"
    );
}

#[test]
fn the_pod_of_the_slice_comes_before_the_pod_of_the_address() {
    let index = cluster(&[
        VIP,
        "slice a/dns dns:53/UDP 10.244.0.11(ready)@n->coredns-b",
        "pod other/late 10.244.0.11 @n",
        "pod a/done 10.244.0.12 @n phase=Succeeded",
        "pod a/new 10.244.0.12 @n",
    ]);
    let listed = names(C_VIP_E1, &index).endpoint.unwrap();
    assert_eq!(
        (listed.party.namespace, listed.party.name),
        (Some("a"), Some("coredns-b"))
    );
    assert_eq!((listed.ready, listed.manual), (Some(true), false));
    let gone = names("10.244.0.2:1 10.96.0.10:53 10.244.0.12:53", &index)
        .endpoint
        .unwrap();
    assert_eq!(
        (gone.party.name, gone.ready),
        (Some("new"), None),
        "conditions belong to listed endpoints"
    );
    let nobody = names("10.244.0.2:1 10.96.0.10:53 10.244.0.99:53", &index);
    assert_eq!(nobody.endpoint, None);
    assert_eq!(nobody.client.unwrap().name, Some("client"));
    let service = nobody.service.unwrap();
    assert_eq!(
        (service.name, service.port, service.port_number),
        (Some("dns"), Some("dns"), 53)
    );
}

#[test]
fn a_shared_external_address_takes_the_endpoints_of_both_services() {
    let index = cluster(&[
        "svc a/one 10.96.0.41 x:53/UDP external=203.0.113.5",
        "slice a/one x:53/UDP 10.244.0.11",
        "svc a/two 10.96.0.42 y:53/UDP external=203.0.113.5",
        "slice a/two y:53/UDP 10.244.0.12",
    ]);
    let node = this_node();
    let setting = Setting {
        index: Some(&index),
        rules: None,
        node: &node,
        zones: &[],
        time: None,
    };
    for (reply, service, expected) in [
        ("10.244.0.11:53", "one", "ok/endpoint"),
        ("10.244.0.12:53", "two", "ok/endpoint"),
        ("10.244.0.13:53", "one", "stale/endpoint-gone"),
    ] {
        let entry = format!("198.51.100.1:1 203.0.113.5:53 {reply}");
        assert_eq!(setting.judge(&entry).unwrap().0, expected);
        assert_eq!(names(&entry, &index).service.unwrap().name, Some(service));
    }
}
