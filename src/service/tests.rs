use std::net::SocketAddr;

use super::*;
use crate::cluster::index::Index;
use crate::cluster::rules::iptables;
use crate::cluster::testing::world;
use crate::entry::{Entry, FrontendKind};
use crate::flow::{Flow, L4, ProtocolState, TcpDirection, Tuple};
use crate::spread::Reason;

const GRPC: &str = "svc api/grpc 10.96.8.8 g:50051/TCP";
const SLICE: &str = "slice api/grpc g:50051/TCP 10.244.1.1(ready)@n1->a 10.244.1.2(ready)@n2->b 10.244.1.3(ready)@n2->c";

fn known(index: &Index, node: Option<&str>) -> Known {
    let id = index.service_named("api", "grpc").unwrap();
    let ports: Vec<_> = index.ports_of(id).map(|(id, _)| id).collect();
    Known::of_index(index, &ports, node).unwrap()
}

fn tcp(client: &str, endpoint: &str, state: u8) -> Flow {
    let tuple = |src: &str, dst: &str| {
        let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
        Tuple {
            src: src.ip(),
            dst: dst.ip(),
            protocol: 6,
            l4: L4::Ports {
                src: src.port(),
                dst: dst.port(),
            },
        }
    };
    let mut flow = Flow::new(tuple(client, "10.96.8.8:50051"), tuple(endpoint, client));
    flow.state = Some(ProtocolState::Tcp {
        state,
        original: TcpDirection::default(),
        reply: TcpDirection::default(),
    });
    flow
}

/// 40 connections of two clients to the first endpoint, 3 to the second, 2 in TIME_WAIT on the third.
fn keep_alive() -> Vec<Flow> {
    let mut flows = Vec::new();
    for n in 0..40 {
        let client = format!("10.244.2.{}:{}", 1 + n % 2, 40000 + n);
        flows.push(tcp(&client, "10.244.1.1:50051", 3));
    }
    for n in 0..3 {
        flows.push(tcp(
            &format!("10.244.2.1:{}", 41000 + n),
            "10.244.1.2:50051",
            3,
        ));
    }
    for n in 0..2 {
        flows.push(tcp(
            &format!("10.244.2.1:{}", 42000 + n),
            "10.244.1.3:50051",
            7,
        ));
    }
    flows
}

fn tally(known: &Known, flows: Vec<Flow>) -> Tally {
    let mut tally = Tally::new(known);
    for flow in flows {
        tally.see(&Entry::bare(flow));
    }
    tally
}

#[test]
fn closing_connections_are_counted_apart_and_an_idle_endpoint_is_listed() {
    let index = world(&[GRPC, SLICE]);
    let known = known(&index, None);
    let tally = tally(&known, keep_alive());
    let loads: Vec<_> = tally
        .loads
        .iter()
        .map(|load| (load.open, load.other))
        .collect();
    assert_eq!(loads, [(40, 0), (3, 0), (0, 2)]);
    assert_eq!(tally.loads[2].states.get("TIME_WAIT"), Some(&2));
    let spread = tally.spread(&known, None);
    assert_eq!((spread.max, spread.flows, spread.endpoints), (40, 43, 3));
    assert_eq!((spread.clients.count, spread.source_ports.count), (2, 43));
    assert_eq!(spread.reason, Reason::Uneven);
}

#[test]
fn what_carries_traffic_is_open() {
    for (state, open) in [
        (1, true),
        (2, true),
        (3, true),
        (9, true),
        (4, false),
        (5, false),
        (6, false),
        (7, false),
        (8, false),
        // Of a kernel that is younger than this program.
        (200, true),
    ] {
        let flow = tcp("10.0.0.1:1", "10.0.0.2:2", state);
        assert_eq!(is_open(&flow), open, "{state}");
    }
    let mut udp = tcp("10.0.0.1:1", "10.0.0.2:2", 3);
    udp.state = None;
    assert!(is_open(&udp));
}

#[test]
fn an_endpoint_that_nothing_new_can_reach_from_here_does_not_lower_the_mean() {
    let index = world(&[&format!("{GRPC} internalTrafficPolicy=Local"), SLICE]);
    let of = |node| {
        let known = known(&index, node);
        let spread = tally(&known, Vec::new()).spread(&known, None);
        (
            spread.endpoints,
            known.internal_policy,
            known.external_policy,
        )
    };
    assert_eq!(of(Some("n1")), (1, Some(Policy::Local), None));
    assert_eq!(of(Some("n2")), (2, Some(Policy::Local), None));
    assert_eq!(of(None), (3, Some(Policy::Local), None));
    let slice = "slice api/grpc g:50051/TCP 10.244.1.1(ready) 10.244.1.2(!ready,serving,terminating) 10.244.1.3(!ready)";
    let draining = known(&world(&[GRPC, slice]), None);
    let candidates: Vec<_> = draining.endpoints.iter().map(|e| e.candidate).collect();
    assert_eq!(candidates, [true, false, false]);
    let last =
        "slice api/grpc g:50051/TCP 10.244.1.2(!ready,serving,terminating) 10.244.1.3(!ready)";
    let last = known(&world(&[GRPC, last]), None);
    let candidates: Vec<_> = last.endpoints.iter().map(|e| e.candidate).collect();
    assert_eq!(candidates, [true, false]);
}

const RULES: &str = r#"*nat
:KUBE-SVC-G - [0:0]
:KUBE-SEP-1 - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.8.8/32 -p tcp -m comment --comment "api/grpc:g cluster IP" -m tcp --dport 50051 -j KUBE-SVC-G
-A KUBE-SVC-G -j KUBE-SEP-1
-A KUBE-SEP-1 -p tcp -m tcp -j DNAT --to-destination 10.244.1.2:50051
COMMIT
"#;

#[test]
fn the_nodes_rules_tell_where_new_flows_go_and_are_enough_alone() {
    let rules = iptables::read(RULES);
    let mut by_objects = known(&world(&[GRPC, SLICE]), None);
    by_objects.narrow(&rules);
    let candidates: Vec<_> = by_objects.endpoints.iter().map(|e| e.candidate).collect();
    assert_eq!(candidates, [false, true, false]);
    let odd = RULES.replace("-A KUBE-SVC-G -j", "-A KUBE-SVC-G -m odd -j");
    let mut untouched = known(&world(&[GRPC, SLICE]), None);
    untouched.narrow(&iptables::read(&odd));
    assert!(untouched.endpoints.iter().all(|e| e.candidate));

    let port = Some("g".into());
    let alone = Known::of_rules(&rules, &"api".into(), &"grpc".into(), &[port]);
    assert_eq!(alone.endpoints.len(), 1);
    let one = &alone.endpoints[0];
    assert_eq!((one.ready, one.candidate, &one.pod), (None, true, &None));
    assert_eq!(alone.frontends[0].kind, FrontendKind::ClusterIp);
    let other = Known::of_rules(&rules, &"api".into(), &"grpc".into(), &[None]);
    assert!(other.frontends.is_empty());
}

#[test]
fn places_that_are_no_endpoints_are_told_apart_up_to_a_bound() {
    let index = world(&[GRPC, SLICE]);
    let known = known(&index, None);
    let mut flows = vec![tcp("10.244.2.1:9", "10.96.8.8:50051", 1)];
    for n in 0..5000_u16 {
        let [a, b] = n.to_be_bytes();
        flows.push(tcp("10.244.2.1:9", &format!("10.250.{a}.{b}:50051"), 3));
    }
    let tally = tally(&known, flows);
    assert_eq!((tally.gone.len(), tally.more_gone.open), (4096, 904));
    assert_eq!(tally.untranslated.open, 1);
    assert!(tally.loads.iter().all(|load| *load == Load::default()));
    // No flow, nothing stale; flows of which nobody judged one: not known.
    assert_eq!(tally.loads[0].stale(), Some(0));
    assert_eq!(tally.untranslated.stale(), None);
    assert_eq!(tally.spread(&known, None).reason, Reason::NoFlow);
}

#[test]
fn a_flow_without_a_timestamp_is_older_than_those_with_one() {
    let index = world(&[GRPC, SLICE]);
    let known = known(&index, None);
    let mut dated = tcp("10.244.2.1:1", "10.244.1.1:50051", 3);
    dated.start = Some(7_000_000_000);
    let mut closed = dated.clone();
    closed.start = Some(1);
    closed.state = tcp("10.244.2.1:1", "10.244.1.1:50051", 7).state;
    let undated = tcp("10.244.2.1:2", "10.244.1.1:50051", 3);
    let tally = tally(&known, vec![dated, closed, undated]);
    let load = &tally.loads[0];
    assert_eq!((load.oldest, load.undated), (Some(7_000_000_000), 1));
    assert_eq!((load.packets, load.uncounted), (None, 3));
}

#[test]
fn affinity_is_what_the_source_says_else_what_the_rules_do() {
    let text = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "api", "name": "grpc"}, "spec": {"clusterIP": "10.96.8.8",
        "ports": [{"name": "g", "port": 50051}], "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}}"#;
    let affine = known(&world(&[text, SLICE]), None);
    assert_eq!(affine.affinity, Some(Affinity::ClientIp(Some(10800))));
    let spread = tally(&affine, keep_alive()).spread(&affine, None);
    assert_eq!(spread.reason, Reason::SessionAffinity);
    let untold = known(&world(&[GRPC, SLICE]), None);
    assert_eq!(untold.affinity, None);
    let spread = tally(&untold, keep_alive()).spread(&untold, Some(true));
    assert_eq!(spread.reason, Reason::SessionAffinity);
}
