//! The decision table, row by row, and the cases behind it.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use crate::attribution::FrontendMatch;
use ctk_cluster::index::Index;
use ctk_cluster::rules::NodeRules;
use ctk_cluster::testing::world;
use ctnetlink::flow::{Flow, L4, ProtocolState, Status, TcpDirection, Tuple};
use ctnetlink::rtnetlink::{LocalAddress, Route, Routes};

mod damage;
mod growth;
mod names;
mod redirect;
mod rules;
mod source;

use super::{Judge, Reason};
use crate::this_node::{NetnsOwner, ThisNode};

/// `[udp|tcp|sctp|icmp] SRC DST REPLY_SRC [>REPLY_DST] [word...]`; words: `established`, `syn-sent`, `assured`,
/// `unreplied`, `offload`, `zone=N`, `timeout=N`.
pub(super) fn flow(text: &str) -> Flow {
    let mut words = text.split_whitespace().peekable();
    let protocol = ctnetlink::flow::protocol_number(words.peek().expect("a word"));
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
                ("close-wait", _) => flow.state = Some(tcp_state(5)),
                ("time-wait", _) => flow.state = Some(tcp_state(7)),
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

fn routes(all: &[(&str, &str)]) -> Routes {
    let route = |(to, by): &(&str, &str)| Route {
        destination: to.parse().unwrap(),
        interface: Some((*by).to_owned()),
    };
    Routes {
        routes: all.iter().map(route).collect(),
        undecided: false,
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
        routes: Some(routes(&[("0.0.0.0/0", "eth0"), ("192.168.7.0/24", "eth0")])),
        namespace: NetnsOwner::Node,
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
            kube_proxy_replacement: None,
            zones: self.zones,
            source_time: self.time,
        };
        let matched = match self.index {
            Some(index) => FrontendMatch::of(&flow, index, self.node),
            None => self.rules.map_or(FrontendMatch::Nothing, |rules| {
                FrontendMatch::by_rules(&flow, rules, self.node)
            }),
        };
        let judgement = judge.judge(&flow, matched)?;
        let evidence = judgement.evidence.to_string();
        assert!(!evidence.is_empty(), "{entry}");
        let words = (judgement.verdict().name(), judgement.reason.name());
        Some((format!("{}/{}", words.0, words.1), evidence))
    }
}

const C_VIP_E1: &str = "10.244.0.2:4000 10.96.0.10:53 10.244.0.11:53";
const C_VIP_VIP: &str = "10.244.0.2:4000 10.96.0.10:53 10.96.0.10:53 unreplied";

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
        // Only rules tell whether an address other than the Node's accepts node ports.
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
        routes: None,
        namespace: NetnsOwner::Node,
    };
    let entry = "198.51.100.9:1 192.168.7.1:32053 10.244.0.11:53";
    assert_eq!(
        setting(&unknown).judge(entry).unwrap().0,
        "unknown/source-incomplete"
    );
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

#[test]
fn a_local_dns_cache_is_told_from_ipvs() {
    let dns = "slice a/dns dns:53/UDP 10.244.0.11";
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

/// Verdict, entry and objects of each vector.
fn vectors() -> Vec<(String, String, Vec<String>)> {
    let mut named = std::collections::HashMap::new();
    let mut vectors = Vec::new();
    let lines = include_str!("tests/vectors.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        match parts.as_slice() {
            [verdict, entry, objects] => {
                let object =
                    |text: &str| named.get(text).map_or(text, |text: &&str| *text).to_owned();
                let objects = objects.split("; ").map(object).collect();
                vectors.push((verdict.to_string(), entry.to_string(), objects));
            }
            _ => {
                let (name, object) = line.split_once(" = ").expect(line);
                named.insert(name, object);
            }
        }
    }
    vectors
}

#[test]
fn every_vector_gets_its_verdict() {
    let node = this_node();
    let vectors = vectors();
    assert!(vectors.len() > 60, "{}", vectors.len());
    for (expected, entry, objects) in vectors {
        let lines: Vec<&str> = objects.iter().map(String::as_str).collect();
        let index = cluster(&lines);
        let setting = Setting {
            index: Some(&index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        let verdict = setting
            .judge(&entry)
            .map_or("-".to_owned(), |(verdict, _)| verdict);
        assert_eq!(verdict, expected, "{entry} in {objects:?}");
    }
}

#[test]
fn every_reason_has_a_row_that_expects_it() {
    let texts = [
        include_str!("tests.rs"),
        include_str!("tests/rules.rs"),
        include_str!("tests/source.rs"),
    ];
    let mut expected: HashSet<String> = texts
        .iter()
        .flat_map(|t| t.split('"'))
        .map(str::to_owned)
        .collect();
    expected.extend(vectors().into_iter().map(|(verdict, ..)| verdict));
    for reason in Reason::ALL {
        let words = format!("{}/{}", reason.verdict().name(), reason.name());
        assert!(
            expected.contains(&words),
            "no row of a test expects {words}"
        );
    }
}
