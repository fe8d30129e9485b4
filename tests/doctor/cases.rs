//! Reported tables, inserted row by row.

use crate::{cluster, doctor, findings_except_settings, findings_of, only_finding};
use testkit::private_netns::private_netns;
use testkit::rows::Rows;
use testkit::tools::{run, run_with, succeeds, sysctl};

/// TCP row through a Service.
fn tcp(state: &str, client: &str, vip: &str, endpoint: &str, assured: &str) -> String {
    translated("tcp", state, client, vip, endpoint, client, assured)
}

/// Addresses are written `A:PORT`; `answer` is the destination of the replies.
fn translated(
    protocol: &str,
    state: &str,
    client: &str,
    to: &str,
    from: &str,
    answer: &str,
    flag: &str,
) -> String {
    let place = |text: &str| {
        let (address, port) = text.rsplit_once(':').expect("a port");
        (address.to_owned(), port.to_owned())
    };
    let ((src, sport), (dst, dport)) = (place(client), place(to));
    let ((rsrc, rsport), (rdst, rdport)) = (place(from), place(answer));
    format!(
        "{protocol} {state} src={src} dst={dst} sport={sport} dport={dport} src={rsrc} dst={rdst} sport={rsport} dport={rdport} {flag}"
    )
}

#[test]
fn half_closed_connections_are_attributed_to_their_workload() {
    private_netns(|| {
        crate::new_node();
        let row = |port: u32, state| {
            tcp(
                state,
                &format!("10.244.1.30:{port}"),
                "10.96.4.4:80",
                "10.244.2.40:8080",
                "[ASSURED]",
            )
        };
        let mut rows: Vec<String> = (40_001..=40_005)
            .map(|port| row(port, "CLOSE_WAIT"))
            .collect();
        rows.push(row(40_006, "ESTABLISHED"));
        Rows::insert(&rows);
        let file = cluster(&[
            "svc web/api 10.96.4.4 h:80/TCP",
            "slice web/api h:8080/TCP 10.244.2.40(ready)@node2->api-1",
            "pod web/api-1 10.244.2.40 @node2",
            "pod edge/nginx-1 10.244.1.30 @node1",
        ]);
        let outcome = doctor(&file, "--sample 0 --half-closed 5").exits(5);
        let found = only_finding(&outcome, "half-closed");
        assert_eq!(found["severity"], "warning");
        assert_eq!(
            found["message"],
            "edge/nginx-1 to web/api:h: 5 TCP connections are half-closed (CLOSE_WAIT 5, FIN_WAIT 0, LAST_ACK 0)"
        );
        assert_eq!(found["evidence"]["close_wait"], 5);
        assert_eq!(findings_except_settings(&outcome).len(), 1, "{outcome:#?}");
        // The threshold is a flag.
        assert!(
            findings_except_settings(&doctor(&file, "--sample 0 --half-closed 6").exits(0))
                .is_empty()
        );
    });
}

#[test]
fn long_lived_connections_on_one_endpoint_are_a_finding_and_a_spread_is_none() {
    private_netns(|| {
        crate::new_node();
        let vip = "10.96.8.8:50051";
        let row = |n: u32, state, endpoint| {
            let client = format!("10.244.1.{}:{}", 50 + n % 2, 30_000 + n);
            tcp(state, &client, vip, endpoint, "[ASSURED]")
        };
        let mut rows: Vec<String> = (0..40)
            .map(|n| row(n, "ESTABLISHED", "10.244.1.1:50051"))
            .collect();
        rows.extend((40..43).map(|n| row(n, "ESTABLISHED", "10.244.1.2:50051")));
        rows.extend((43..45).map(|n| row(n, "TIME_WAIT", "10.244.1.3:50051")));
        Rows::insert(&rows);
        let file = cluster(&[
            "svc api/grpc 10.96.8.8 g:50051/TCP",
            "slice api/grpc g:50051/TCP 10.244.1.1(ready)@node1->a 10.244.1.2(ready)@node1->b 10.244.1.3(ready)@node1->c",
            "pod api/a 10.244.1.1 @node1",
            "pod api/b 10.244.1.2 @node1",
            "pod api/c 10.244.1.3 @node1",
        ]);
        let outcome = doctor(&file, "--sample 0").exits(5);
        let found = only_finding(&outcome, "keep-alive-skew");
        assert_eq!(found["severity"], "warning");
        let evidence = &found["evidence"];
        assert_eq!(
            (&evidence["max"], &evidence["flows"], &evidence["clients"]),
            (&40.into(), &43.into(), &2.into())
        );
        assert_eq!(evidence["mean"], 14.33);
        let flows: Vec<_> = evidence["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| &e["flows"])
            .collect();
        assert_eq!(flows, [40, 3, 0]);
        assert!(
            found["message"]
                .as_str()
                .unwrap()
                .starts_with("api/grpc:g: api/a has 40 of 43 open flows over 3 endpoints")
        );
    });
}

#[test]
fn senders_that_were_never_translated_are_counted_by_destination() {
    private_netns(|| {
        crate::new_node();
        let to = "192.0.2.11:31514";
        let mut rows: Vec<String> = (90..=92)
            .map(|n| {
                translated(
                    "udp",
                    "",
                    &format!("198.51.100.{n}:7000"),
                    to,
                    to,
                    &format!("198.51.100.{n}:7000"),
                    "[UNREPLIED]",
                )
            })
            .collect();
        rows.push(translated(
            "udp",
            "",
            "198.51.100.93:7000",
            to,
            "10.244.1.6:514",
            "192.0.2.11:41001",
            "[ASSURED]",
        ));
        Rows::insert(&rows);
        let file = cluster(&[
            "svc log/syslog 10.96.5.5 s:514/UDP@31514 type=NodePort",
            "slice log/syslog s:514/UDP 10.244.1.6(ready)@node1->syslog-1",
            "pod log/syslog-1 10.244.1.6 @node1",
        ]);
        let outcome = doctor(&file, "--sample 0").exits(5);
        let found = only_finding(&outcome, "never-translated");
        assert_eq!(found["severity"], "warning");
        let evidence = &found["evidence"];
        assert_eq!(
            (&evidence["never_translated"], &evidence["entries"]),
            (&3.into(), &4.into())
        );
        assert_eq!(evidence["destination"], to);
        assert!(
            found["message"]
                .as_str()
                .unwrap()
                .contains("192.0.2.11:31514/udp): 3 of 4 entries"),
            "{found}"
        );
        // With timestamps the finding has the age.
        assert!(evidence["oldest_seconds"].is_u64(), "{found}");
        assert!(findings_of(&outcome, "stale-udp").is_empty());
    });
}

/// kube-proxy's rules for the node port of [`senders_to_an_address_that_only_the_node_knows_need_its_rules`].
const NODE_PORT_RULES: &str = "*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-EXT-A - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p udp -m comment --comment \"log/syslog:s\" -m udp --dport 31514 -j KUBE-EXT-A
-A KUBE-EXT-A -j KUBE-SVC-A
-A KUBE-SVC-A -m comment --comment \"log/syslog:s -> 10.244.1.6:514\" -j KUBE-SEP-A
-A KUBE-SEP-A -p udp -m comment --comment \"log/syslog:s\" -m udp -j DNAT --to-destination 10.244.1.6:514
COMMIT
";

#[test]
fn senders_to_an_address_that_only_the_node_knows_need_its_rules() {
    private_netns(|| {
        crate::new_node();
        run("ip", &["link", "set", "lo", "up"]);
        run("ip", &["addr", "add", "203.0.113.77/32", "dev", "lo"]);
        let to = "203.0.113.77:31514";
        let mut rows: Vec<String> = (90..=92)
            .map(|n| {
                let sender = format!("198.51.100.{n}:7000");
                translated("udp", "", &sender, to, to, &sender, "[UNREPLIED]")
            })
            .collect();
        let sender = "198.51.100.93:7000";
        let answer = "192.0.2.11:41001";
        rows.push(translated(
            "udp",
            "",
            sender,
            to,
            "10.244.1.6:514",
            answer,
            "[ASSURED]",
        ));
        Rows::insert(&rows);
        let file = cluster(&[
            "svc log/syslog 10.96.5.5 s:514/UDP@31514 type=NodePort",
            "slice log/syslog s:514/UDP 10.244.1.6(ready)@node1->syslog-1",
            "pod log/syslog-1 10.244.1.6 @node1",
        ]);
        // No Node object has the address. Only the rules tell whether the node accepts packets to it.
        let outcome = doctor(&file, "--sample 0").exits(0);
        assert!(
            findings_of(&outcome, "never-translated").is_empty(),
            "{outcome:#?}"
        );
        run_with("iptables-restore", &["--noflush"], NODE_PORT_RULES);
        let found = only_finding(&doctor(&file, "--sample 0").exits(5), "never-translated");
        let evidence = &found["evidence"];
        assert_eq!(
            (&evidence["never_translated"], &evidence["entries"]),
            (&3.into(), &4.into())
        );
        assert_eq!(evidence["destination"], to);
    });
}

#[test]
fn exhausted_source_ports_are_not_reported_as_a_full_table() {
    private_netns(|| {
        crate::new_node();
        let row = |n: u32, source: &str| {
            let client = format!("10.{}.{}.{}:40000", n >> 16, (n >> 8) & 255, n & 255);
            let answer = format!("{source}:{}", 1024 + n);
            translated(
                "tcp",
                "ESTABLISHED",
                &client,
                "203.0.113.10:443",
                "203.0.113.10:443",
                &answer,
                "[ASSURED]",
            )
        };
        let flows: Vec<_> = (0..63_900)
            .map(|n| testkit::rows::flow(&row(n, "192.0.2.11")))
            .collect();
        for result in testkit::rows::table().insert_all(&flows) {
            assert_eq!(result, Ok(()));
        }
        let file = cluster::<&str>(&[]);
        let outcome = doctor(&file, "--sample 0").exits(5);
        let found = only_finding(&outcome, "port-exhaustion");
        assert_eq!(found["severity"], "critical");
        let evidence = &found["evidence"];
        assert_eq!(
            (&evidence["used"], &evidence["available"]),
            (&63_900.into(), &64_512.into())
        );
        let percent = evidence["percent"].as_f64().unwrap();
        assert!((percent - 99.05).abs() < 0.01, "{percent}");
        assert_eq!(
            (&evidence["source"], &evidence["destination"]),
            (&"192.0.2.11".into(), &"203.0.113.10:443".into())
        );
        assert!(!outcome.stdout.contains("table is full"), "{outcome:#?}");
    });
}

#[test]
fn flows_to_an_address_without_a_pod_are_found() {
    private_netns(|| {
        crate::new_node();
        let silent = |n: u32, to: &str| {
            tcp(
                "SYN_SENT",
                &format!("10.244.1.5:{}", 30_000 + n),
                to,
                to,
                "[UNREPLIED]",
            )
        };
        let mut rows: Vec<String> = (0..25).map(|n| silent(n, "10.244.2.77:8080")).collect();
        // A live pod and an external host: they may be slow, or filtered.
        rows.extend((25..50).map(|n| silent(n, "10.244.2.40:8080")));
        rows.extend((50..75).map(|n| silent(n, "203.0.113.9:443")));
        Rows::insert(&rows);
        let file = cluster(&[
            "pod web/api-1 10.244.2.40 @node2",
            "pod shop/web-1 10.244.1.5 @node1",
        ]);
        let outcome = doctor(&file, "--sample 0").exits(5);
        let found = only_finding(&outcome, "lost-pod");
        let evidence = &found["evidence"];
        assert_eq!(
            (&evidence["address"], &evidence["entries"]),
            (&"10.244.2.77".into(), &25.into())
        );
        assert_eq!(
            (&evidence["connecting"], &evidence["clients"]),
            (&25.into(), &serde_json::json!(["shop/web-1"]))
        );
        assert_eq!(evidence["ports"], serde_json::json!([8080]));
    });
}

#[test]
fn hairpin_flows_are_a_finding_on_a_bridge_without_hairpin_mode() {
    private_netns(|| {
        crate::new_node();
        if !succeeds("ip", &["link", "add", "cni0", "type", "bridge"]) {
            eprintln!("skipped: no bridge can be made here");
            return;
        }
        run(
            "ip",
            &[
                "link", "add", "veth-a", "type", "veth", "peer", "name", "veth-b",
            ],
        );
        run("ip", &["link", "set", "veth-a", "master", "cni0"]);
        let rows: Vec<String> = (1..=3)
            .map(|n| {
                translated(
                    "tcp",
                    "SYN_SENT",
                    &format!("10.244.1.23:5200{n}"),
                    "10.96.8.8:80",
                    "10.244.1.23:8080",
                    &format!("192.0.2.11:5200{n}"),
                    "[UNREPLIED]",
                )
            })
            .collect();
        Rows::insert(&rows);
        let file = cluster(&[
            "svc shop/api 10.96.8.8 h:80/TCP",
            "slice shop/api h:8080/TCP 10.244.1.23(ready)@node1->api-1",
            "pod shop/api-1 10.244.1.23 @node1",
        ]);
        let found = only_finding(&doctor(&file, "--sample 0").exits(5), "hairpin");
        assert_eq!(found["severity"], "warning");
        let evidence = &found["evidence"];
        assert_eq!(
            (&evidence["flows"], &evidence["unreplied"]),
            (&3.into(), &3.into())
        );
        assert_eq!(evidence["hairpin_mode_0"], serde_json::json!(["veth-a"]));
        assert_eq!(
            evidence["senders"],
            serde_json::json!([{"sender": "192.0.2.11", "flows": 3, "is": "this-node"}])
        );
        run(
            "ip",
            &[
                "link",
                "set",
                "veth-a",
                "type",
                "bridge_slave",
                "hairpin",
                "on",
            ],
        );
        let found = only_finding(&doctor(&file, "--sample 0").exits(0), "hairpin");
        assert_eq!(found["severity"], "info");
        assert_eq!(found["evidence"]["bridge_ports"], 1);
    });
}

#[test]
fn entries_of_a_deleted_service_are_reported_as_such() {
    private_netns(|| {
        crate::new_node();
        Rows::insert(&[
            translated(
                "udp",
                "",
                "198.51.100.9:7000",
                "192.0.2.11:31999",
                "10.244.1.6:514",
                "192.0.2.11:41001",
                "[ASSURED]",
            ),
            translated(
                "udp",
                "",
                "198.51.100.9:7000",
                "203.0.113.5:514",
                "10.244.1.6:514",
                "192.0.2.11:41002",
                "[ASSURED]",
            ),
        ]);
        let outcome = doctor(
            &cluster(&["pod log/syslog-1 10.244.1.6 @node1", "cidr 10.96.0.0/16"]),
            "--sample 0",
        )
        .exits(0);
        let found = findings_of(&outcome, "unnamed-destination");
        let mut told: Vec<_> = found
            .iter()
            .map(|f| {
                (
                    f["evidence"]["destination"].as_str().unwrap(),
                    f["evidence"]["looks_like_node_port"].as_bool().unwrap(),
                    f["severity"].as_str().unwrap(),
                )
            })
            .collect();
        told.sort_unstable();
        assert_eq!(
            told,
            [
                ("192.0.2.11:31999", true, "info"),
                ("203.0.113.5:514", false, "info")
            ]
        );
    });
}

#[test]
fn kube_proxy_with_the_clean_up_bug_and_kube_proxy_out_of_sync_are_found() {
    private_netns(|| {
        crate::new_node();
        run("ip", &["link", "set", "lo", "up"]);
        let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old"}, "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.31"}],
            "nodeInfo": {"kubeletVersion": "v1.30.4", "kubeProxyVersion": ""}}}"#;
        run("ip", &["addr", "add", "192.0.2.31/32", "dev", "lo"]);
        let file = cluster(&[node]);
        let outcome = doctor(&file, "--sample 0 --node old").exits(0);
        assert_eq!(
            only_finding(&outcome, "kube-proxy-version")["evidence"]["version"],
            "v1.30.4"
        );
        assert!(findings_of(&outcome, "kube-proxy-sync").is_empty());

        let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let text = format!(
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds {}\nkubeproxy_sync_proxy_rules_last_queued_timestamp_seconds {}\n",
            since - 1000,
            since - 900
        );
        let server = std::net::TcpListener::bind("127.0.0.1:10249").unwrap();
        let asked = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            write!(stream, "HTTP/1.0 200 OK\r\n\r\n{text}").unwrap();
        });
        let outcome = doctor(&file, "--sample 0 --node old").exits(5);
        asked.join().unwrap();
        let found = only_finding(&outcome, "kube-proxy-sync");
        assert_eq!(found["severity"], "critical");
        assert!(
            found["evidence"]["waiting_seconds"]
                .as_u64()
                .is_some_and(|waits| (900..1000).contains(&waits)),
            "{found}"
        );
    });
}

#[test]
fn findings_from_counters_need_accounting() {
    private_netns(|| {
        crate::new_node();
        sysctl("acct", "0");
        let rows: Vec<String> = (0..4)
            .map(|n| {
                tcp(
                    "ESTABLISHED",
                    &format!("10.244.1.5:3000{n}"),
                    "10.96.8.8:80",
                    "10.244.1.1:80",
                    "[ASSURED]",
                )
            })
            .collect();
        Rows::insert_without_start(&rows);
        let file = cluster(&[
            "svc shop/api 10.96.8.8 h:80/TCP",
            "slice shop/api h:80/TCP 10.244.1.1(ready)->a 10.244.1.2(ready)->b",
            "pod shop/a 10.244.1.1 @node1",
            "pod shop/b 10.244.1.2 @node1",
        ]);
        let outcome = doctor(&file, "--sample 0 --skew-packets 1").exits(0);
        assert!(
            findings_of(&outcome, "keep-alive-skew").is_empty(),
            "{outcome:#?}"
        );
    });
}
