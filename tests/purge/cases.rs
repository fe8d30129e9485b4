//! Incidents that were reported in public: what `purge` takes and what it leaves.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::{at_once, cluster, new_node};
use testkit::ctk_binary::ctk;
use testkit::private_netns::private_netns;
use testkit::rows::Rows;

struct Case {
    name: &'static str,
    rows: &'static [&'static str],
    cluster: &'static [&'static str],
    /// Each purge follows the one before on the same table: arguments, rows left, held back.
    purges: &'static [(&'static str, &'static [usize], Held)],
}

type Held = &'static [(&'static str, u64)];

const CASES: &[Case] = &[
    Case {
        name: "a Service scaled to zero keeps its old translations",
        rows: &[
            "udp 17 29 src=10.244.1.11 dst=10.96.2.50 sport=33001 dport=8125 [UNREPLIED] src=10.244.9.4 dst=10.244.1.11 sport=8125 dport=33001 mark=0 use=1",
            "udp 17 30 src=10.244.3.12 dst=10.96.2.50 sport=33002 dport=8125 [UNREPLIED] src=10.244.9.4 dst=10.244.3.12 sport=8125 dport=33002 mark=0 use=1",
        ],
        cluster: &[
            "svc obs/statsd 10.96.2.50 udp:8125/UDP",
            r#"{"kind":"EndpointSlice","metadata":{"namespace":"obs","name":"statsd-a","labels":{"kubernetes.io/service-name":"statsd"}},"addressType":"IPv4","ports":[{"name":"udp","port":8125,"protocol":"UDP"}],"endpoints":null}"#,
            "pod app/a 10.244.1.11 @node1",
            "pod app/b 10.244.3.12 @node1",
        ],
        purges: &[("--stale", &[], &[])],
    },
    Case {
        name: "the only endpoint is not ready for a moment, and nothing else could take its packets",
        rows: &[
            "udp 17 100 src=10.244.0.2 dst=10.96.0.10 sport=4000 dport=53 src=10.244.0.11 dst=10.244.0.2 sport=53 dport=4000 [ASSURED] mark=0 use=1",
        ],
        cluster: &[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.0.11(!ready,!serving)",
        ],
        purges: &[
            ("--stale", &[1], &[("last-endpoint", 1)]),
            ("--verdict stale", &[1], &[("last-endpoint", 1)]),
            ("--reason endpoint-not-serving", &[], &[]),
        ],
    },
    Case {
        name: "the only endpoint is terminating, so that it will not be ready again",
        rows: &[
            "udp 17 100 src=10.244.0.2 dst=10.96.0.10 sport=4000 dport=53 src=10.244.0.11 dst=10.244.0.2 sport=53 dport=4000 [ASSURED] mark=0 use=1",
        ],
        cluster: &[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.0.11(!ready,!serving,terminating)",
        ],
        purges: &[("--stale", &[], &[])],
    },
    Case {
        name: "an endpoint is not serving, and another one is",
        rows: &[
            "udp 17 100 src=10.244.0.2 dst=10.96.0.10 sport=4000 dport=53 src=10.244.0.11 dst=10.244.0.2 sport=53 dport=4000 [ASSURED] mark=0 use=1",
        ],
        cluster: &[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.0.11(!ready,!serving) 10.244.0.12",
        ],
        purges: &[("--stale", &[], &[])],
    },
    Case {
        name: "the Service was deleted, its range is known",
        rows: &[SERVICE_GONE],
        cluster: &["cidr 10.96.0.0/16", "pod pay/ledger-7 10.244.0.62 @node1"],
        purges: &[("--stale", &[], &[])],
    },
    Case {
        name: "SIP with one port on both sides, by clusterIP and by node port",
        rows: &[
            "udp 17 118 src=10.244.3.61 dst=10.96.110.7 sport=5060 dport=5060 src=10.244.3.70 dst=10.244.3.61 sport=5060 dport=5060 [ASSURED] mark=0 use=1",
            "udp 17 175 src=198.51.100.20 dst=192.0.2.11 sport=5060 dport=32060 [UNREPLIED] src=10.244.3.70 dst=192.0.2.11 sport=5060 dport=5060 mark=0 use=1",
            "udp 17 100 src=198.51.100.21 dst=198.51.100.99 sport=5060 dport=5060 src=198.51.100.99 dst=198.51.100.21 sport=5060 dport=5060 [ASSURED] mark=0 use=1",
        ],
        cluster: &[
            "svc voice/sip 10.96.110.7 sip:5060/UDP@32060",
            "slice voice/sip sip:5060/UDP 10.244.3.75(ready)->sip-9",
        ],
        purges: &[("--stale --svc sip", &[3], &[])],
    },
    Case {
        name: "a port number that two Services and the Internet have",
        rows: &[
            "udp 17 29 src=198.51.100.3 dst=192.0.2.11 sport=4000 dport=30123 [UNREPLIED] src=10.244.1.9 dst=192.0.2.11 sport=9000 dport=61001 mark=0 use=1",
            "udp 17 170 src=10.244.1.50 dst=10.96.7.7 sport=4001 dport=30123 src=10.244.1.60 dst=10.244.1.50 sport=30123 dport=4001 [ASSURED] mark=0 use=1",
            "udp 17 29 src=10.244.1.51 dst=203.0.113.200 sport=4002 dport=30123 [UNREPLIED] src=203.0.113.200 dst=192.0.2.11 sport=30123 dport=4002 mark=0 use=1",
        ],
        cluster: &[
            "svc a/one 10.96.7.6 x:9000/UDP@30123",
            "slice a/one x:9000/UDP 10.244.1.77(ready)",
            "svc b/two 10.96.7.7 y:30123/UDP",
            "slice b/two y:30123/UDP 10.244.1.60(ready)",
        ],
        purges: &[("--stale", &[2, 3], &[])],
    },
    Case {
        name: "healthy QUIC sessions stay where they are",
        rows: &[
            "udp 17 175 src=198.51.100.30 dst=203.0.113.10 sport=50443 dport=443 src=10.244.5.5 dst=192.0.2.11 sport=8443 dport=17001 [ASSURED] mark=0 use=1",
            "udp 17 28 src=198.51.100.31 dst=203.0.113.10 sport=50444 dport=443 [UNREPLIED] src=10.244.5.6 dst=192.0.2.11 sport=8443 dport=17002 mark=0 use=1",
            "udp 17 28 src=198.51.100.32 dst=203.0.113.10 sport=50445 dport=443 [UNREPLIED] src=203.0.113.10 dst=198.51.100.32 sport=443 dport=50445 mark=0 use=1",
        ],
        cluster: &[
            "svc web/h3 10.96.1.1 quic:443/UDP ingress=203.0.113.10 type=LoadBalancer",
            "slice web/h3 quic:8443/UDP 10.244.5.5(ready) 10.244.5.6(ready)",
        ],
        purges: &[("--stale", &[1, 2], &[])],
    },
    Case {
        name: "policy Local, and the endpoint is on this node",
        rows: &[IPFIX],
        cluster: &[
            IPFIX_SERVICE,
            "slice net/ipfix f:6343/UDP 10.244.2.8(ready)@node1",
        ],
        purges: &[("--stale", &[], &[])],
    },
    Case {
        name: "policy Local, and the only endpoint is elsewhere: a new packet would fare no better",
        rows: &[IPFIX],
        cluster: &[
            IPFIX_SERVICE,
            "slice net/ipfix f:6343/UDP 10.244.1.8(ready)@node2",
        ],
        purges: &[
            ("--stale", &[1], &[("pending", 1)]),
            ("--stale --include draining", &[1], &[("pending", 1)]),
            ("--stale --include pending", &[], &[]),
        ],
    },
    Case {
        name: "an endpoint that still serves while it terminates",
        rows: &[
            "udp 17 119 src=10.244.1.5 dst=10.96.0.10 sport=40001 dport=53 src=10.244.2.2 dst=10.244.1.5 sport=53 dport=40001 [ASSURED] mark=0 use=1",
            "udp 17 29 src=10.244.1.6 dst=10.96.0.10 sport=40002 dport=53 [UNREPLIED] src=10.244.2.3 dst=10.244.1.6 sport=53 dport=40002 mark=0 use=1",
        ],
        cluster: &[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.2.2(!ready,serving,terminating) 10.244.2.3(!ready,!serving,terminating) 10.244.2.4(ready)",
        ],
        purges: &[
            ("--stale", &[1], &[("draining", 1)]),
            // Naming the verdict is not enough.
            ("--verdict draining", &[1], &[("draining", 1)]),
            ("--reason endpoint-terminating", &[1], &[("draining", 1)]),
            ("--verdict draining --include draining", &[], &[]),
        ],
    },
    Case {
        name: "both families, each with its own slice",
        rows: &[
            "udp 17 28 src=2001:db8:244:1::7 dst=2001:db8:96::a sport=41001 dport=53 [UNREPLIED] src=2001:db8:244:2::9 dst=2001:db8:244:1::7 sport=53 dport=41001 mark=0 use=1",
            "udp 17 28 src=10.244.1.7 dst=10.96.0.10 sport=41001 dport=53 [UNREPLIED] src=10.244.2.9 dst=10.244.1.7 sport=53 dport=41001 mark=0 use=1",
            "udp 17 28 src=2001:db8:244:1::8 dst=2001:db8:96::a sport=41002 dport=53 [UNREPLIED] src=2001:db8:244:2::30 dst=2001:db8:244:1::8 sport=53 dport=41002 mark=0 use=1",
        ],
        cluster: &[
            "svc kube-system/kube-dns 10.96.0.10 2001:db8:96::a dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
            "slice kube-system/kube-dns dns:53/UDP 2001:db8:244:2::30(ready)",
        ],
        purges: &[("--stale", &[3], &[])],
    },
    Case {
        name: "the hops of one flow in zones of their own",
        rows: OVN,
        cluster: &[
            "svc t/sctp 10.96.151.9 s:30200/SCTP ingress=203.0.113.93 type=LoadBalancer",
            "slice t/sctp s:30200/SCTP 10.244.0.72(ready)->sctpserver",
        ],
        purges: &[("--stale --sctp", &[1, 2, 3, 4], &[("foreign-zone", 3)])],
    },
    Case {
        name: "the same without the Service; only a zone that is named is judged",
        rows: OVN,
        cluster: &["cidr 10.96.0.0/16", "pod t/sctpserver 10.244.0.72 @node1"],
        purges: &[
            ("--stale --sctp", &[1, 2, 3, 4], &[("foreign-zone", 3)]),
            ("--stale --sctp --zone 12", &[1, 2, 4], &[]),
        ],
    },
    Case {
        name: "TCP is held back until it is named, and a pod that lives until it is included",
        rows: &[
            "tcp 6 119 SYN_SENT src=198.51.100.1 dst=10.96.10.10 sport=61000 dport=80 [UNREPLIED] src=10.244.2.13 dst=192.0.2.11 sport=80 dport=45000 mark=0 use=1",
            "tcp 6 86370 ESTABLISHED src=10.244.1.4 dst=10.96.10.10 sport=61001 dport=80 src=10.244.2.5 dst=10.244.1.4 sport=80 dport=61001 [ASSURED] mark=0 use=1",
        ],
        cluster: &[
            "svc w/web 10.96.10.10 h:80/TCP",
            "slice w/web h:80/TCP 10.244.2.9(ready)",
            "pod w/web-old 10.244.2.5 @node1",
        ],
        purges: &[
            ("--stale", &[1, 2], &[("protocol", 1), ("detached", 1)]),
            ("--stale --udp", &[1, 2], &[]),
            ("--stale --include detached", &[1, 2], &[("protocol", 2)]),
            ("--stale --tcp", &[2], &[("detached", 1)]),
            ("--stale --tcp --include detached", &[], &[]),
        ],
    },
];

const SERVICE_GONE: &str = "udp 17 29 src=10.244.0.61 dst=10.96.2.60 sport=33210 dport=9100 [UNREPLIED] src=10.244.0.62 dst=10.244.0.61 sport=9100 dport=33210 mark=0 use=1";
const IPFIX: &str = "udp 17 29 src=198.51.100.40 dst=203.0.113.20 sport=50287 dport=6343 [UNREPLIED] src=203.0.113.20 dst=198.51.100.40 sport=6343 dport=50287 mark=0 use=1";
const IPFIX_SERVICE: &str = "svc net/ipfix 10.96.1.9 f:6343/UDP ingress=203.0.113.20 externalTrafficPolicy=Local type=LoadBalancer";
const OVN: &[&str] = &[
    "sctp 132 3 COOKIE_WAIT src=192.0.2.69 dst=203.0.113.93 sport=40541 dport=30200 [UNREPLIED] src=10.96.151.9 dst=192.0.2.69 sport=30200 dport=40541 mark=0 use=1",
    "sctp 132 3 COOKIE_WAIT src=192.0.2.69 dst=10.96.151.9 sport=40541 dport=30200 [UNREPLIED] src=10.96.151.9 dst=169.254.169.2 sport=30200 dport=40541 mark=0 zone=64001 use=1",
    "sctp 132 3 COOKIE_WAIT src=169.254.169.2 dst=10.96.151.9 sport=40541 dport=30200 [UNREPLIED] src=10.244.0.72 dst=169.254.169.2 sport=30200 dport=40541 mark=0 zone=12 use=1",
    "sctp 132 3 COOKIE_WAIT src=100.64.0.5 dst=10.244.0.72 sport=40541 dport=30200 [UNREPLIED] src=10.244.0.72 dst=100.64.0.5 sport=30200 dport=40541 mark=0 zone=39 use=1",
];

#[test]
fn reported_incidents_lose_exactly_the_entries_that_they_should() {
    private_netns(|| {
        for case in CASES {
            new_node();
            let rows = Rows::insert(case.rows);
            let file = cluster(case.cluster);
            let mut there = case.rows.len();
            for (args, left, held) in case.purges {
                let context = format!("{}, {args}", case.name);
                let args = at_once(&file, args);
                let dry: Vec<&str> = [&args[..], &["--dry-run", "-o", "json"]].concat();
                let would = ctk(&dry).exits(0).json();
                assert_eq!(rows.left().len(), there, "{context}: a dry run");
                let said = ctk([&args[..], &["-o", "json"]].concat()).exits(0);
                let document = said.json();
                assert_eq!(rows.left(), *left, "{context}: {document}");
                let gone = there - left.len();
                let summary = &document["summary"];
                assert_eq!(summary["matched"], gone, "{context}");
                assert_eq!(would["summary"]["matched"], gone, "{context}: a dry run");
                assert_eq!(summary["deleted"], gone, "{context}");
                assert_eq!(would["summary"]["deleted"], 0, "{context}: a dry run");
                assert_held(&document, held, &context);
                assert_held(&would, held, &context);
                for (why, count) in *held {
                    let entries = if *count == 1 { "entry" } else { "entries" };
                    let line = format!("ctk: {count} {entries} held back ({why}): ");
                    assert!(said.stderr.contains(&line), "{context}: {said:?}");
                }
                there = left.len();
            }
        }
    });
}

#[track_caller]
fn assert_held(document: &Value, held: Held, context: &str) {
    let summary = &document["summary"];
    let by: serde_json::Map<String, Value> = held
        .iter()
        .map(|(why, count)| ((*why).to_owned(), json!(count)))
        .collect();
    assert_eq!(summary["held_back_by"], Value::Object(by), "{context}");
    let total: u64 = held.iter().map(|(_, count)| count).sum();
    assert_eq!(summary["held_back"], total, "{context}");
}

#[test]
fn tunnel_packets_to_an_address_that_is_also_a_services_are_left_alone() {
    // With a fifth of its rows.
    const PORTS: RangeInclusive<u16> = 40_001..=60_000;
    private_netns(|| {
        new_node();
        let tunnel = |sport: u16| {
            format!(
                "udp 17 29 src=192.0.2.12 dst=192.0.2.11 sport={sport} dport=8472 [UNREPLIED] \
                 src=192.0.2.11 dst=192.0.2.12 sport=8472 dport={sport}"
            )
        };
        let mut lines: Vec<String> = PORTS.map(tunnel).collect();
        lines.push(
            "udp 17 29 src=198.51.100.5 dst=192.0.2.11 sport=5000 dport=514 [UNREPLIED] \
             src=10.244.8.1 dst=198.51.100.5 sport=514 dport=5000"
                .to_owned(),
        );
        let flows: Vec<_> = lines.iter().map(|line| testkit::rows::flow(line)).collect();
        let results = testkit::rows::table().insert_all(&flows);
        assert!(results.iter().all(Result::is_ok));
        let file = cluster(&[
            "svc log/syslog 10.96.0.99 s:514/UDP external=192.0.2.11 type=LoadBalancer",
            "slice log/syslog s:514/UDP 10.244.8.2(ready)->syslog-0",
        ]);
        let dry = ctk(at_once(&file, "--stale --dry-run -o json")).exits(0);
        let [item] = &dry.items()[..] else {
            panic!("{dry:?}")
        };
        assert_eq!(item["original"]["dport"], 514);
        assert_eq!(item["result"], "would-delete");
        assert_eq!(dry.json()["summary"]["scanned"], lines.len());
        let done = ctk(at_once(&file, "--stale -o json")).exits(0);
        assert_eq!(done.json()["summary"]["deleted"], 1);
        let left = testkit::rows::dump();
        assert_eq!(left.len(), lines.len() - 1);
        assert!(left.iter().all(|flow| flow.original.dport() == Some(8472)));
    });
}

#[test]
fn thousands_of_stale_entries_go_and_thousands_of_healthy_ones_stay() {
    // With a tenth of its rows; the bench has them all.
    private_netns(|| {
        new_node();
        let dns = |number: u16, endpoint: &str| {
            let (host, sport) = (number / 250, 20_000 + number);
            testkit::rows::flow(&format!(
                "udp 17 29 src=10.244.9.{host} dst=10.96.0.10 sport={sport} dport=53 \
                 src={endpoint} dst=10.244.9.{host} sport=53 dport={sport}"
            ))
        };
        let both = |n| [dns(n, "10.244.2.9"), dns(n + 5_000, "10.244.2.30")];
        let flows: Vec<_> = (0..5_000).flat_map(both).collect();
        let results = testkit::rows::table().insert_all(&flows);
        assert!(results.iter().all(Result::is_ok));
        let file = cluster(&[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
        ]);
        let dry = ctk(at_once(&file, "--stale --dry-run -o json")).exits(0);
        let done = ctk(at_once(&file, "--stale -o json")).exits(0).json();
        assert_eq!(dry.json()["summary"]["matched"], 5_000);
        assert_eq!(done["summary"]["deleted"], 5_000);
        assert_eq!(done["summary"]["scanned"], 10_000, "one scan");
        let left = testkit::rows::dump();
        assert_eq!(left.len(), 5_000);
        let healthy = |flow: &ctnetlink::flow::Flow| flow.reply.src.to_string() == "10.244.2.30";
        assert!(left.iter().all(healthy));
    });
}
