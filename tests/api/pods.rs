//! Scope of the reads of Pods: on a node its own and those that decide a verdict; elsewhere and on request all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use ctnetlink::flow::{Flow, Status};
use serde_json::{Value, json};

use super::objects;
use testkit::api_server::{Answer, ApiServer, Objects};
use testkit::ctk_binary::ctk;
use testkit::lab::cluster::{ClusterFile, pod, service, slice};
use testkit::lab::{self, add_node_address};
use testkit::mixed::{ASSURED, insert, plain, ports, to_dns, translated, tuple};
use testkit::private_netns::private_netns;
use testkit::tools::Outcome;

const GONE: &str = "10.244.9.9";
/// Pod on the other node.
const MOVED: &str = "10.244.2.33";

/// Second backend, which left the Service and lives on.
fn after_a_move() -> Objects {
    let mut objects = objects();
    objects.0.retain(|object| {
        object["kind"] != "EndpointSlice" || object["metadata"]["namespace"] != "kube-system"
    });
    let left = lab::cluster_objects(&lab::BACKENDS[..1]);
    objects.0.extend(left.into_iter().filter(|object| {
        object["kind"] == "EndpointSlice" && object["metadata"]["namespace"] == "kube-system"
    }));
    objects
}

fn healthy(objects: Objects) -> ApiServer {
    ApiServer::start(move |asked| objects.answer(asked))
}

fn ls(server: &ApiServer, args: &str) -> Outcome {
    let kubeconfig = server.kubeconfig();
    let mut all = vec!["ls", "--cluster", "api", "-o", "json"];
    all.extend(["--kubeconfig", kubeconfig.to_str().unwrap()]);
    all.extend(args.split_whitespace());
    ctk(all)
}

/// Field selectors of the requests for Pods, sorted; "all" for a request without one.
fn pods_asked(server: &ApiServer) -> Vec<String> {
    let asked = server.requests();
    let pods = asked.iter().filter(|asked| asked.resource() == "pods");
    let selector = |asked: &testkit::api_server::ApiRequest| {
        asked.value("fieldSelector").unwrap_or("all").to_owned()
    };
    let mut selectors: Vec<String> = pods.map(selector).collect();
    selectors.sort();
    selectors
}

/// Reason by the last octet of the reply's source.
fn reason(outcome: &Outcome, endpoint: &str) -> String {
    let items = outcome.items();
    let item = items.iter().find(|item| item["reply"]["src"] == endpoint);
    item.expect("it is listed")["reason"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn on_a_node_only_pods_that_matter_are_read_and_verdicts_are_the_same() {
    private_netns(|| {
        add_node_address();
        insert(&[
            to_dns(17, 40_000, GONE),
            to_dns(17, 40_001, MOVED),
            to_dns(17, 40_002, "10.244.1.7"),
            to_dns(6, 40_003, GONE),
        ]);
        let wanted = [
            "spec.nodeName=node1".to_owned(),
            format!("status.podIP={MOVED}"),
            format!("status.podIP={GONE}"),
        ];
        let server = healthy(after_a_move());
        let few = ls(&server, "").exits(0);
        assert_eq!(pods_asked(&server), wanted);
        let server = healthy(after_a_move());
        let all = ls(&server, "--all-pods").exits(0);
        assert_eq!(pods_asked(&server), ["all"]);
        for (address, expected) in [
            (GONE, "endpoint-gone"),
            (MOVED, "misdelivery"),
            ("10.244.1.7", "endpoint"),
        ] {
            assert_eq!(reason(&few, address), expected);
            assert_eq!(reason(&all, address), expected);
        }
        assert_eq!(few.items().len(), 4);
        let name = |outcome: &Outcome| outcome.items()[0]["client"].clone();
        assert_eq!(name(&few), name(&all));
    });
}

#[test]
fn all_pods_are_read_where_a_selection_is_not_enough() {
    private_netns(|| {
        let all = |args: &str| {
            let server = healthy(after_a_move());
            ls(&server, args);
            pods_asked(&server)
        };
        add_node_address();
        assert_eq!(all("--node node2"), ["all"], "this is not that node");
        assert_eq!(all(""), ["spec.nodeName=node1"], "an empty table");
        assert_eq!(all("--pod web-1"), ["all"], "by name it may be any pod");
        assert_eq!(all("-n shop"), ["all"]);
        insert(&[to_dns(17, 40_000, GONE)]);
        assert_eq!(
            all("--sport 40001"),
            ["spec.nodeName=node1"],
            "not selected"
        );
        let many: Vec<_> = (0..51)
            .map(|n| to_dns(17, 41_000 + n, &format!("10.244.8.{n}")))
            .collect();
        insert(&many);
        assert_eq!(all(""), ["all", "spec.nodeName=node1"], "52 addresses");
    });
}

#[test]
fn entries_that_were_not_translated_ask_for_their_sources_only_under_policy_local() {
    private_netns(|| {
        add_node_address();
        let plain_to =
            |source: &str, sport, to| plain(tuple(17, source, to, ports(sport, 53)), ASSURED);
        let to_dns: Vec<_> = (0..60)
            .map(|n| plain_to(&format!("10.244.1.{}", 100 + n), 40_000 + n, "10.96.0.10"))
            .collect();
        insert(&to_dns);
        let mut objects = after_a_move();
        for (name, address, policy) in [
            ("local", "203.0.113.5", "Local"),
            ("cluster", "203.0.113.6", "Cluster"),
        ] {
            let port = [("p", 53, "UDP")];
            let mut balanced = service("a", name, "10.96.1.1", &port);
            balanced["spec"]["type"] = json!("LoadBalancer");
            balanced["spec"]["externalTrafficPolicy"] = json!(policy);
            balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": address}]}});
            let endpoints = slice("a", name, &port, &[("10.244.2.7", "")]);
            objects.0.extend([balanced, endpoints]);
        }
        let server = healthy(objects.clone());
        ls(&server, "").exits(0);
        assert_eq!(pods_asked(&server), ["spec.nodeName=node1"]);
        insert(&[
            plain_to("10.244.2.50", 41_000, "203.0.113.5"),
            plain_to("10.244.2.51", 41_001, "203.0.113.6"),
        ]);
        let server = healthy(objects);
        ls(&server, "").exits(0);
        assert_eq!(
            pods_asked(&server),
            ["spec.nodeName=node1", "status.podIP=10.244.2.50"]
        );
    });
}

#[test]
fn an_entry_created_after_the_first_look_is_not_judged_by_unread_pods() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 40_000, GONE)]);
        let objects = after_a_move();
        let late = AtomicBool::new(false);
        // The server's thread started in this namespace.
        let server = ApiServer::start(move |asked| {
            if asked.resource() == "pods" && !late.swap(true, Ordering::SeqCst) {
                insert(&[to_dns(17, 40_001, MOVED)]);
            }
            objects.answer(asked)
        });
        let outcome = ls(&server, "");
        assert_eq!(reason(&outcome, GONE), "endpoint-gone");
        assert_eq!(
            reason(&outcome, MOVED),
            "source-incomplete",
            "it may be a misdelivery"
        );
    });
}

/// Flow of client `web-1` to a Service address that has no Service any more, translated to this endpoint.
fn to_gone(sport: u16, endpoint: &str) -> Flow {
    translated(
        tuple(17, "10.244.1.45", "10.96.99.9", ports(sport, 53)),
        tuple(17, endpoint, "10.244.1.45", ports(53, sport)),
        ASSURED.with(Status::DST_NAT),
    )
}

/// Name of the endpoint by source port.
fn endpoints(outcome: &Outcome) -> BTreeMap<u64, Value> {
    let items = outcome.items().into_iter();
    let named = items.map(|item| {
        let port = item["original"]["sport"].as_u64().unwrap();
        (port, item["endpoint"]["name"].clone())
    });
    named.collect()
}

#[test]
fn a_pod_of_another_node_is_named_where_the_destination_is_no_frontend_any_more() {
    private_netns(|| {
        add_node_address();
        let mut objects = objects();
        // No slice lists it.
        let unlisted = "10.244.2.44";
        objects.0.push(pod("shop", "unlisted", unlisted, "node2"));
        let listed = lab::BACKENDS[1].to_string();
        insert(&[
            to_gone(40_000, unlisted),
            to_gone(40_001, &listed),
            to_gone(40_002, GONE),
        ]);
        let names = |outcome: &Outcome| endpoints(outcome).into_values().collect::<Vec<_>>();
        let file = ClusterFile::of(&objects.0);
        let by_file = ctk(["ls", "--cluster", file.path(), "-o", "json"]).exits(0);
        assert_eq!(
            names(&by_file),
            [json!("unlisted"), json!("coredns-b"), Value::Null]
        );
        let server = healthy(objects.clone());
        let by_api = ls(&server, "").exits(0);
        assert_eq!(names(&by_api), names(&by_file));
        assert_eq!(
            pods_asked(&server),
            [
                "spec.nodeName=node1".to_owned(),
                format!("status.podIP={unlisted}"),
                format!("status.podIP={GONE}"),
            ],
            "a slice names the other one"
        );
        let server = healthy(objects);
        ls(&server, "--svc kube-dns").exits(0);
        assert_eq!(pods_asked(&server), ["spec.nodeName=node1"]);
    });
}

#[test]
fn addresses_without_a_lookup_of_their_name_are_counted() {
    private_netns(|| {
        add_node_address();
        let many: Vec<_> = (0..12)
            .map(|n| to_gone(41_000 + n, &format!("10.244.8.{n}")))
            .collect();
        insert(&many);
        let server = healthy(objects());
        let outcome = ls(&server, "").exits(0);
        assert_eq!(pods_asked(&server).len(), 11, "{:?}", pods_asked(&server));
        assert!(
            outcome
                .stderr
                .contains("2 entries lead to an address whose pod was not read"),
            "{outcome:#?}"
        );
        let outcome = ls(&healthy(objects()), "--all-pods").exits(0);
        assert!(!outcome.stderr.contains("was not read"), "{outcome:#?}");
    });
}

#[test]
fn a_name_of_a_forbidden_kind_makes_the_answer_partial() {
    private_netns(|| {
        add_node_address();
        let backend = lab::BACKENDS[0].to_string();
        let of_node = translated(
            tuple(17, &lab::NODE.to_string(), "10.96.0.10", ports(40_001, 53)),
            tuple(17, &backend, &lab::NODE.to_string(), ports(53, 40_001)),
            ASSURED.with(Status::DST_NAT),
        );
        insert(&[to_dns(17, 40_000, &backend), of_node]);
        let without = |kind: &'static str| {
            let objects = objects();
            ApiServer::start(move |asked| match asked.resource() == kind {
                true => Answer::status(403),
                false => objects.answer(asked),
            })
        };
        for args in ["--svc kube-dns", ""] {
            // The slice names the endpoint; one client is a pod, the other is the node.
            for (kind, rule) in [("pods", "list on pods"), ("nodes", "list on nodes")] {
                let outcome = ls(&without(kind), args).exits(3);
                let mut named = endpoints(&outcome).into_values();
                assert!(named.all(|name| name == "coredns-a"));
                let items = outcome.items();
                let nameless = items.iter().filter(|item| item["client"].is_null());
                assert_eq!(nameless.count(), 1);
                for word in ["1 entry lacks a name", kind, rule] {
                    assert!(outcome.stderr.contains(word), "{word}: {outcome:#?}");
                }
            }
            ls(&without("nothing"), args).exits(0);
        }
        // An answer without entries misses nothing.
        ls(&without("pods"), "--sport 9").exits(0);
    });
}
