use serde_json::Value;

use super::*;
use crate::output::Summary;
use crate::service::{Gone, Known, Listed, Policy, Tally, Way};

fn report() -> Report {
    let endpoint = |n: u8, pod: &str| Listed {
        protocol: 6,
        place: ([10, 244, 1, n], 8080).into(),
        ports: [Some("http".into())].into(),
        ready: Some(n != 3),
        serving: Some(n != 3),
        terminating: Some(n == 2),
        pod: Some(("shop".into(), pod.into())),
        node: Some("node2".into()),
        candidate: n != 3,
    };
    let known = Known {
        namespace: "shop".into(),
        name: "api".into(),
        kube_proxy: Some(true),
        frontends: vec![Frontend {
            kind: FrontendKind::NodePort,
            address: None,
            protocol: 6,
            port: 30080,
            name: None,
        }],
        internal_policy: Some(Policy::Cluster),
        external_policy: Some(Policy::Local),
        affinity: Some(Affinity::None),
        endpoints: vec![
            endpoint(1, "a"),
            endpoint(2, "b"),
            endpoint(3, "c\u{1b}[2J\u{202e}"),
        ],
    };
    let mut tally = Tally::new(&known);
    tally.loads[0] = Load {
        open: 40,
        oldest: Some(1_000_000_000),
        undated: 1,
        packets: Some(7),
        ..Load::default()
    };
    tally.loads[1] = Load {
        open: 3,
        oldest: Some(1_000_000_000),
        ..Load::default()
    };
    let mut report = Report::new(known, tally, Err("nobody said".into()), 61_000_000_000);
    report.ahead = Some(Ahead {
        ways: vec![Way {
            chain: "KUBE-SVC-A".into(),
            frontends: vec![FrontendKind::ClusterIp, FrontendKind::NodePort],
            protocol: 6,
            place: ([10, 244, 1, 1], 8080).into(),
            probability: 0.333_333_333_49,
            share: 0.25,
            packets: None,
            pinned: Some(2),
        }],
        not_understood: vec!["KUBE-SVL-A".into()],
    });
    report
}

fn table(report: &Report) -> String {
    let style = ServiceStyle {
        palette: Palette::PLAIN,
        glyphs: Glyphs::Ascii,
    };
    service_table(report, style)
}

#[test]
fn the_sections_show_what_is_known_and_dashes_where_nothing_is() {
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
        assert!(words.iter().any(|said| said == line), "{line}\n{text}");
    }
    let mut headless = report();
    headless.known.frontends.clear();
    headless.complete = false;
    headless
        .tally
        .gone
        .insert((6, ([10, 244, 1, 9], 8080).into()), Gone::default());
    let text = table(&headless);
    assert!(text.starts_with("shop/api\nno frontend: "), "{text}");
    assert!(text.contains("\nNOT LISTED "), "{text}");
    let mut unknown = report();
    unknown.ahead = None;
    assert!(table(&unknown).ends_with("(this node only)\nnot known: nobody said\n"));
}

#[test]
fn sentences_are_broken_between_words() {
    let text = "word ".repeat(60);
    let lines = wrapped(&text);
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
    assert_eq!(lines.join(" "), text.trim());
}

#[test]
fn the_document_has_null_for_what_is_absent_and_no_bare_controls() {
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
    unknown.ahead = None;
    let bytes = service_document(&unknown, &Summary::default()).unwrap();
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["new_packets"], Value::Null);
}
