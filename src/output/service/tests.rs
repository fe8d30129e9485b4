use std::net::SocketAddr;

use serde_json::Value;

use super::*;
use crate::entry::Entry;
use crate::output::Summary;
use crate::service::{
    KnownEndpoint, KnownService, NewFlowPath, Reach, ServiceTally, TrafficPolicy,
};
use crate::spread::{Spread, SpreadInput};
use crate::verdict::{Evidence, Judgement, Reason};
use ctnetlink::flow::{Flow, L4, Tuple};

fn report() -> ServiceReport {
    let endpoint = |n: u8, pod: &str| KnownEndpoint {
        protocol: 6,
        address: ([10, 244, 1, n], 8080).into(),
        ports: [Some("http".into())].into(),
        ready: Some(n != 3),
        serving: Some(n != 3),
        terminating: Some(n == 2),
        pod: Some(("shop".into(), pod.into())),
        node: Some("node2".into()),
        candidate: n != 3,
        local_candidate: false,
    };
    let known = KnownService {
        namespace: "shop".into(),
        name: "api".into(),
        kube_proxy: Some(true),
        frontends: vec![KnownFrontend {
            kind: FrontendKind::NodePort,
            address: None,
            protocol: 6,
            port: 30080,
            name: None,
        }],
        internal_policy: Some(TrafficPolicy::Cluster),
        external_policy: Some(TrafficPolicy::Local),
        affinity: Some(Affinity::None),
        endpoints: vec![
            endpoint(1, "a"),
            endpoint(2, "b"),
            endpoint(3, "c\u{1b}[2J\u{202e}"),
        ],
        hinted: false,
        node_unknown: false,
        endpoints_complete: true,
    };
    let mut tally = ServiceTally::new(&known);
    tally.loads[0] = FlowCounts {
        open: 40,
        oldest: Some(1_000_000_000),
        undated: 1,
        packets: Some(7),
        ..FlowCounts::default()
    };
    tally.loads[1] = FlowCounts {
        open: 3,
        oldest: Some(1_000_000_000),
        ..FlowCounts::default()
    };
    let mut report = ServiceReport::new(known, tally, Err("no permission".into()), 61_000_000_000);
    let counted = SpreadInput {
        endpoints: vec![40, 3],
        ..SpreadInput::default()
    };
    report.spreads = vec![(Reach::Cluster, Spread::of(&counted))];
    report.new_flow_paths = Ok(NewFlowPaths {
        paths: vec![NewFlowPath {
            chain: "KUBE-SVC-A".into(),
            frontends: vec![FrontendKind::ClusterIp, FrontendKind::NodePort],
            protocol: 6,
            address: ([10, 244, 1, 1], 8080).into(),
            probability: 0.333_333_333_49,
            share: 0.25,
            packets: None,
            affinity_packets: Some(2),
        }],
        not_understood: vec!["KUBE-SVL-A".into()],
    });
    report
}

fn table(report: &ServiceReport) -> String {
    let style = ServiceStyle {
        palette: Palette::PLAIN,
        glyphs: Glyphs::Ascii,
    };
    service_table(report, style)
}

#[test]
fn sections_have_dashes_for_unknown_values() {
    let text = table(&report());
    assert!(text.is_ascii(), "{text}");
    let words: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "shop/api",
        "node-port every node 30080/tcp -",
        "internal traffic policy cluster, external traffic policy local, no session affinity",
        "10.244.1.1:8080/tcp a node2 ready 40 ########### 0 7 - >1m 0",
        "10.244.1.2:8080/tcp b node2 ready, terminating 3 # 0 - - 1m 0",
        "10.244.1.3:8080/tcp c\\x1b[2J\\u{202e} node2 not serving 0 0 - - - 0",
        "busiest has 40 of 43 open flows (93.0%), max/mean 40/21.5 = 1.9, clients: 0, source ports: 0",
        "10.244.1.1:8080/tcp 1/3 25.0% ### - 2 cluster-ip,node-port KUBE-SVC-A",
        "not known in chain KUBE-SVL-A: a rule of it is not understood",
    ] {
        assert!(words.iter().any(|shown| shown == line), "{line}\n{text}");
    }
    let mut headless = report();
    headless.known.frontends.clear();
    let text = table(&headless);
    assert!(text.starts_with("shop/api\nno frontend: "), "{text}");
    let mut unknown = report();
    unknown.new_flow_paths = Err("no permission".into());
    assert!(table(&unknown).ends_with("(this node only)\nnot known: no permission\n"));
}

/// An entry to this address, with this verdict.
fn to(address: &str, reason: Reason) -> Entry<'static> {
    let tuple = |src: &str, dst: &str| {
        let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
        let l4 = L4::Ports {
            src: src.port(),
            dst: dst.port(),
        };
        Tuple {
            src: src.ip(),
            dst: dst.ip(),
            protocol: 6,
            l4,
        }
    };
    let client = "10.244.2.1:4000";
    let flow = Flow::new(tuple(client, "10.96.8.8:80"), tuple(address, client));
    let evidence = Evidence::new(reason, &flow);
    let mut entry = Entry::bare(flow);
    entry.judgement = Some(Judgement { reason, evidence });
    entry
}

#[test]
fn only_former_endpoints_are_listed_as_gone() {
    let mut report = report();
    for (address, reason) in [
        ("10.244.1.9:8080", Reason::EndpointGone),
        ("10.244.1.9:8080", Reason::SourceIncomplete),
        ("10.244.1.8:8080", Reason::ServiceHop),
        ("10.244.1.7:8080", Reason::SecondaryAddress),
        ("10.244.1.6:8080", Reason::ForeignNetns),
    ] {
        report.tally.add(&to(address, reason), || None);
    }
    let text = table(&report);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = text.lines().map(words).collect();
    let at = |begin: &str| {
        let found = lines.iter().position(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("{begin}: {text}"))
    };
    let gone = at("10.244.1.9:8080/tcp - - 2 0 1+ endpoint-gone (1), source-incomplete (1)");
    assert!(at("GONE ") < gone && gone < at("ELSEWHERE "), "{text}");
    for line in [
        "10.244.1.8:8080/tcp - - 1 0 0 service-hop",
        "10.244.1.7:8080/tcp - - 1 0 0 secondary-address",
        "10.244.1.6:8080/tcp - - 1 0 - foreign-netns",
    ] {
        assert!(at("ELSEWHERE ") < at(line), "{text}");
    }
    let bytes = service_document(&report, &Summary::default()).unwrap();
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    let count = |list: &str| document[list].as_array().unwrap().len();
    assert_eq!((count("gone"), count("elsewhere")), (1, 3));
    // One of two flows was judged, so the number of stale flows is a lower bound.
    let gone = &document["gone"][0];
    assert_eq!(
        (&gone["stale"], &gone["stale_at_least"]),
        (&Value::Null, &1.into())
    );
    assert_eq!((report.stale(), report.stale_at_least()), (None, Some(1)));
}

#[test]
fn flows_of_different_reach_have_skews_of_their_own() {
    let mut report = report();
    let alone = report.spreads[0].1.clone();
    report.spreads.push((Reach::Local, alone));
    let text = table(&report);
    let heading = "SKEW (flows on this node)\nflows that may go to every endpoint:\n";
    assert!(text.contains(heading), "{text}");
    assert!(
        text.contains("\nflows that may go to endpoints on this node only"),
        "{text}"
    );
    let bytes = service_document(&report, &Summary::default()).unwrap();
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    let skew = &document["skew"];
    assert_eq!(
        (&skew["reach"], &skew["apart"][0]["reach"]),
        (&"cluster".into(), &"local".into())
    );
}

#[test]
fn the_document_has_null_for_absent_values_and_escapes_control_characters() {
    let report = report();
    let bytes = service_document(&report, &Summary::default()).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.is_ascii(), "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let endpoints = &document["endpoints"];
    assert_eq!(endpoints[2]["pod"]["name"], "c\u{1b}[2J\u{202e}");
    assert_eq!(endpoints[0]["oldest"], Value::Null);
    assert_eq!(endpoints[0]["oldest_at_least"], 60);
    assert_eq!(endpoints[1]["oldest"], 60);
    assert_eq!(endpoints[1]["packets"], Value::Null);
    assert_eq!(document["service"]["frontends"][0]["address"], Value::Null);
    assert_eq!(document["service"]["external_traffic_policy"], "local");
    assert_eq!(document["skew"]["max"], 40);
    assert_eq!(document["new_packets"][0]["share"], 0.25);
    assert_eq!(document["new_packets"][0]["packets"], Value::Null);
    let mut unknown = report;
    unknown.new_flow_paths = Err("no permission".into());
    let bytes = service_document(&unknown, &Summary::default()).unwrap();
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["new_packets"], Value::Null);
}
