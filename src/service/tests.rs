use std::net::SocketAddr;

use super::*;
use crate::attribution::FrontendKind;
use crate::entry::Entry;
use crate::spread::{Spread, SpreadReason};
use crate::this_node::{NetnsOwner, ThisNode};
use ctk_cluster::index::Index;
use ctk_cluster::rules::iptables;
use ctk_cluster::testing::world;
use ctnetlink::flow::{Flow, L4, ProtocolState, TcpDirection, Tuple};

const GRPC: &str = "svc api/grpc 10.96.8.8 g:50051/TCP";
const SLICE: &str = "slice api/grpc g:50051/TCP 10.244.1.1(ready)@n1->a 10.244.1.2(ready)@n2->b 10.244.1.3(ready)@n2->c";

fn known(index: &Index, node: Option<&str>) -> KnownService {
    let id = index.service_named("api", "grpc").unwrap();
    let ports: Vec<_> = index.ports_of(id).map(|(id, _)| id).collect();
    KnownService::of_index(index, &ports, node).unwrap()
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

fn tally(known: &KnownService, flows: Vec<Flow>) -> ServiceTally {
    let mut tally = ServiceTally::new(known);
    for flow in flows {
        tally.add(&Entry::bare(flow), || panic!("no policy needs the source"));
    }
    tally
}

/// The spread of the reach with most flows.
fn spread(tally: &ServiceTally, known: &KnownService, affinity: Option<bool>) -> Spread {
    tally.spreads(known, affinity).swap_remove(0).1
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
    let spread = spread(&tally, &known, None);
    assert_eq!((spread.max, spread.flows, spread.endpoints), (40, 43, 3));
    assert_eq!((spread.clients.count, spread.source_ports.count), (2, 43));
    assert_eq!(spread.reason, SpreadReason::Uneven);
}

#[test]
fn opening_and_established_states_are_open() {
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
        // A state that a later kernel added.
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
fn an_endpoint_that_new_flows_cannot_reach_does_not_lower_the_mean() {
    let index = world(&[&format!("{GRPC} internalTrafficPolicy=Local"), SLICE]);
    let of = |node| {
        let known = known(&index, node);
        let spread = spread(&tally(&known, Vec::new()), &known, None);
        (
            spread.endpoints,
            known.internal_policy,
            known.external_policy,
        )
    };
    assert_eq!(of(Some("n1")), (1, Some(TrafficPolicy::Local), None));
    assert_eq!(of(Some("n2")), (2, Some(TrafficPolicy::Local), None));
    assert_eq!(of(None), (3, Some(TrafficPolicy::Local), None));
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
fn rules_restrict_the_candidates_and_describe_a_service_without_objects() {
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
    let alone = KnownService::of_rules(&rules, &"api".into(), &"grpc".into(), &[port]);
    assert_eq!(alone.endpoints.len(), 1);
    let one = &alone.endpoints[0];
    assert_eq!((one.ready, one.candidate, &one.pod), (None, true, &None));
    assert_eq!(alone.frontends[0].kind, FrontendKind::ClusterIp);
    let other = KnownService::of_rules(&rules, &"api".into(), &"grpc".into(), &[None]);
    assert!(other.frontends.is_empty());
}

#[test]
fn other_destinations_are_counted_separately_up_to_a_limit() {
    let index = world(&[GRPC, SLICE]);
    let known = known(&index, None);
    let mut flows = vec![tcp("10.244.2.1:9", "10.96.8.8:50051", 1)];
    for n in 0..5000_u16 {
        let [a, b] = n.to_be_bytes();
        flows.push(tcp("10.244.2.1:9", &format!("10.250.{a}.{b}:50051"), 3));
    }
    let tally = tally(&known, flows);
    assert_eq!((tally.others.len(), tally.more_others.open), (4096, 904));
    assert_eq!(tally.untranslated.open, 1);
    assert!(
        tally
            .loads
            .iter()
            .all(|load| *load == FlowCounts::default())
    );
    // Without flows nothing is stale; without a verdict the number is not known.
    assert_eq!(tally.loads[0].stale(), Some(0));
    assert_eq!(tally.untranslated.stale_at_least(), None);
    assert_eq!(spread(&tally, &known, None).reason, SpreadReason::NoFlow);
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
fn affinity_is_taken_from_the_service_else_from_the_rules() {
    let text = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "api", "name": "grpc"}, "spec": {"clusterIP": "10.96.8.8",
        "ports": [{"name": "g", "port": 50051}], "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}}"#;
    let affine = known(&world(&[text, SLICE]), None);
    assert_eq!(affine.affinity, Some(Affinity::ClientIp(Some(10800))));
    let found = spread(&tally(&affine, keep_alive()), &affine, None);
    assert_eq!(found.reason, SpreadReason::SessionAffinity);
    let untold = known(&world(&[GRPC, SLICE]), None);
    assert_eq!(untold.affinity, None);
    let found = spread(&tally(&untold, keep_alive()), &untold, Some(true));
    assert_eq!(found.reason, SpreadReason::SessionAffinity);
}

const BALANCED: &str =
    "svc api/grpc 10.96.8.8 g:50051/TCP@30051 ingress=203.0.113.9 externalTrafficPolicy=Local";

/// A connection to the address of the load balancer.
fn from_outside(n: u16) -> Flow {
    let mut flow = tcp(
        &format!("198.51.100.{}:{n}", n % 250),
        "10.244.1.1:50051",
        3,
    );
    flow.original.dst = [203, 0, 113, 9].into();
    flow
}

#[test]
fn connections_from_outside_on_the_only_endpoint_of_the_node_are_not_uneven() {
    let index = world(&[BALANCED, SLICE]);
    let known = known(&index, Some("n1"));
    assert_eq!(known.external_policy, Some(TrafficPolicy::Local));
    let of = |inside| {
        let mut tally = ServiceTally::new(&known);
        for n in 1..=100 {
            tally.add(&Entry::bare(from_outside(n)), || inside);
        }
        tally
    };
    for (inside, reach, endpoints, reason) in [
        (Some(false), Reach::Local, 1, SpreadReason::OneEndpoint),
        // The node and its pods reach all endpoints.
        (Some(true), Reach::Cluster, 3, SpreadReason::Uneven),
        (None, Reach::NotKnown, 3, SpreadReason::FewerEndpoints),
    ] {
        let spreads = of(inside).spreads(&known, None);
        assert_eq!(spreads.len(), 1);
        let (found, spread) = &spreads[0];
        let found = (*found, spread.endpoints, spread.reason);
        assert_eq!(found, (reach, endpoints, reason), "{inside:?}");
        assert_eq!(spread.is_beyond_chance(), inside == Some(true));
    }
    // Flows to the ClusterIP have a spread of their own.
    let mut both = of(Some(false));
    for n in 1..=30 {
        let to = format!("10.244.1.{}:50051", 1 + n % 3);
        let flow = tcp(&format!("10.244.2.1:{}", 40000 + n), &to, 3);
        both.add(&Entry::bare(flow), || None);
    }
    let spreads = both.spreads(&known, None);
    let reasons: Vec<_> = spreads
        .iter()
        .map(|(reach, s)| (*reach, s.flows, s.reason))
        .collect();
    let expected = [
        (Reach::Local, 100, SpreadReason::OneEndpoint),
        (Reach::Cluster, 30, SpreadReason::Even),
    ];
    assert_eq!(reasons, expected);
    // The endpoints of an unknown node are not known.
    let index = world(&[BALANCED, SLICE]);
    let nowhere = self::known(&index, None);
    let mut tally = ServiceTally::new(&nowhere);
    for n in 1..=100 {
        tally.add(&Entry::bare(from_outside(n)), || Some(false));
    }
    assert_eq!(
        spread(&tally, &nowhere, None).reason,
        SpreadReason::FewerEndpoints
    );
}

#[test]
fn rules_of_external_frontends_do_not_make_endpoints_of_other_nodes_local_candidates() {
    let more = r#"-A KUBE-SERVICES -d 203.0.113.9/32 -p tcp -m comment --comment "api/grpc:g loadbalancer IP" -m tcp --dport 50051 -j KUBE-EXT-G
-A KUBE-EXT-G -s 10.244.0.0/16 -j KUBE-SVC-G
-A KUBE-EXT-G -j KUBE-SVL-G
-A KUBE-SVL-G -j KUBE-SEP-1
-A KUBE-SVC-G -m statistic --mode random --probability 0.5 -j KUBE-SEP-2
-A KUBE-SVC-G -j KUBE-SEP-1
-A KUBE-SEP-1 -p tcp -m tcp -j DNAT --to-destination 10.244.1.1:50051
-A KUBE-SEP-2 -p tcp -m tcp -j DNAT --to-destination 10.244.1.2:50051
COMMIT
"#;
    let head = RULES.split("-A KUBE-SVC-G").next().unwrap();
    let rules = iptables::read(&format!("{head}{more}"));
    let mut known = known(&world(&[BALANCED, SLICE]), Some("n1"));
    known.narrow(&rules);
    let candidates: Vec<_> = known
        .endpoints
        .iter()
        .map(|e| (e.is_candidate(Reach::Cluster), e.is_candidate(Reach::Local)))
        .collect();
    assert_eq!(candidates, [(true, true), (true, false), (false, false)]);
    let alone = KnownService::of_rules(&rules, &"api".into(), &"grpc".into(), &[Some("g".into())]);
    assert_eq!(alone.external_policy, None);
    let node_port = RULES.replace("-d 10.96.8.8/32", "-d 203.0.113.9/32");
    let node_port = node_port.replace("cluster IP", "loadbalancer IP");
    let rules = iptables::read(&node_port);
    let outside =
        KnownService::of_rules(&rules, &"api".into(), &"grpc".into(), &[Some("g".into())]);
    let idle = spread(&tally(&outside, Vec::new()), &outside, None);
    assert_eq!((idle.endpoints, idle.reason), (1, SpreadReason::NoFlow));
    assert!(alone.may_be_fewer(Reach::NotKnown) && !alone.may_be_fewer(Reach::Cluster));
}

#[test]
fn hints_make_the_number_of_endpoints_unknown_unless_rules_are_known() {
    let slice = r#"{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "api", "name": "grpc-1", "labels": {"kubernetes.io/service-name": "grpc"}},
        "ports": [{"name": "g", "port": 50051, "protocol": "TCP"}], "endpoints": [
        {"addresses": ["10.244.1.1"], "conditions": {"ready": true}, "hints": {"forZones": [{"name": "a"}]}},
        {"addresses": ["10.244.1.2"], "conditions": {"ready": true}, "hints": {"forZones": [{"name": "b"}]}},
        {"addresses": ["10.244.1.3"], "conditions": {"ready": true}, "hints": {"forZones": [{"name": "b"}]}}]}"#;
    let mut known = known(&world(&[GRPC, slice]), None);
    let tally = tally(&known, keep_alive());
    let before = spread(&tally, &known, None);
    assert_eq!(
        (before.reason, before.is_beyond_chance()),
        (SpreadReason::FewerEndpoints, false)
    );
    known.narrow(&iptables::read(RULES));
    assert_eq!(spread(&tally, &known, None).reason, SpreadReason::Uneven);
}

#[test]
fn a_source_is_outside_only_if_it_is_no_pod_and_no_local_address() {
    let index = world(&[
        "node n1 10.0.0.1 podCIDR=10.244.1.0/24",
        "pod shop/web 10.244.9.5 @n1",
        "pod shop/far 10.250.9.6 @n2",
    ]);
    let node = ThisNode {
        name: Some("n1".into()),
        local: None,
        routes: None,
        namespace: NetnsOwner::Node,
    };
    for (source, inside) in [
        ("10.244.9.5", Some(true)),
        ("10.0.0.1", Some(true)),
        ("198.51.100.7", Some(false)),
        // The answer depends on how kube-proxy detects local traffic.
        ("10.250.9.6", None),
        ("10.244.1.77", None),
    ] {
        assert_eq!(
            is_inside(&index, &node, source.parse().unwrap()),
            inside,
            "{source}"
        );
    }
    let no_pods = ctk_cluster::testing::bare_world(&["node n1 10.0.0.1"]);
    assert_eq!(is_inside(&no_pods, &node, [198, 51, 100, 7].into()), None);
}
