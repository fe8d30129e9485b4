//! `ctk watch` follows the cluster over the API, and reports uncertainty where it cannot.

mod access;
mod late;

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use super::living::Living;
use super::objects;
use testkit::api_server::{ApiServer, BodyPart};
use testkit::ctk_binary::ctk;
use testkit::lab::{self, BACKENDS, CLIENTS, Client, Lab, Proxy, add_node_address};
use testkit::mixed::{insert, to_dns};
use testkit::private_netns::private_netns;
use testkit::tools::assert_error;
use testkit::watch_process::{Watch, start, start_unread};

const PORT: u16 = 40_123;
const DYING: Ipv4Addr = BACKENDS[0];
const LIVING: Ipv4Addr = BACKENDS[1];

fn living() -> Living {
    Living::new(objects().0)
}

fn follow(server: &ApiServer, args: &str) -> Watch {
    let kubeconfig = server.kubeconfig();
    let mut all = vec!["--cluster", "api", "--kubeconfig"];
    all.push(kubeconfig.to_str().unwrap());
    all.extend(args.split_whitespace());
    start(&all)
}

/// Slice of kube-dns with these endpoints: ready, serving, terminating.
fn slice_of(endpoints: &[(Ipv4Addr, [bool; 3])]) -> Value {
    let addresses: Vec<Ipv4Addr> = endpoints.iter().map(|(address, _)| *address).collect();
    let mut slice = of(
        &lab::cluster_objects(&addresses),
        "EndpointSlice",
        "kube-dns",
    );
    for (place, (_, [ready, serving, terminating])) in endpoints.iter().enumerate() {
        slice["endpoints"][place]["conditions"] =
            json!({"ready": ready, "serving": serving, "terminating": terminating});
    }
    slice
}

fn of(objects: &[Value], kind: &str, name: &str) -> Value {
    let named = |o: &&Value| {
        let full = o["metadata"]["name"].as_str().unwrap();
        o["kind"] == kind && full.starts_with(name)
    };
    objects.iter().find(named).unwrap().clone()
}

const READY: [bool; 3] = [true, true, false];
const GOING: [bool; 3] = [false, true, true];

/// One word for each record: the change of an endpoint with its last number, or the verdict that an entry changed to.
fn story(records: &[Value]) -> Vec<String> {
    let told = records.iter().filter_map(|record| {
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        match record["type"].as_str().unwrap() {
            "endpoint" => {
                let address = word(&record["endpoint"]["address"]);
                let last = address.rsplit('.').next().unwrap().to_owned();
                Some(format!(
                    "{} {last} {}",
                    word(&record["change"]),
                    word(&record["seen_by"])
                ))
            }
            "verdict" => Some(word(&record["after"])),
            "new" => Some(format!("new {}", word(&record["entry"]["verdict"]))),
            _ => None,
        }
    });
    told.collect()
}

#[track_caller]
fn wait(watch: &Watch, word: &str) {
    watch.wait(word, |records| {
        story(records).iter().any(|told| told == word)
    });
}

#[track_caller]
fn never_stale(records: &[Value]) {
    for record in records {
        assert_ne!(record["entry"]["verdict"], "stale", "{record:#}");
    }
}

#[test]
fn one_log_records_the_removed_endpoint_and_its_stale_flow() {
    private_netns(|| {
        let mut lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&[DYING]);
        let living = living();
        living.put(&slice_of(&[
            (DYING, [false, false, false]),
            (LIVING, READY),
        ]));
        let server = living.serve();
        let watch = follow(&server, "--udp 53 --interval 1s");
        living.put(&slice_of(&[(DYING, READY), (LIVING, READY)]));
        wait(&watch, "ready 7 api");
        let client = Client::bind(CLIENTS[0], PORT);
        client.ask().unwrap();
        // At once, or a moment later where the event of the flow was faster than that of the cluster.
        watch.wait("a healthy flow", |records| {
            records.iter().any(|r| r["entry"]["verdict"] == "ok")
        });
        living.put(&slice_of(&[(DYING, GOING), (LIVING, READY)]));
        wait(&watch, "draining");
        living.put(&slice_of(&[(LIVING, READY)]));
        wait(&watch, "stale");
        lab.kill(DYING);
        lab.set_endpoints(&[LIVING]);
        wait(&watch, "gone 7 rules");
        let ended = watch.stop();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        let told = story(&ended.records);
        // Two ports of the Service have the endpoint; the flow is UDP.
        let udp = |record: &&Value| {
            record["type"] != "endpoint" || record["endpoint"]["protocol"] == "udp"
        };
        let records: Vec<Value> = ended.records.iter().filter(udp).cloned().collect();
        let mut of_udp = story(&records);
        of_udp.retain(|word| word != "added 33 rules" && word != "ok" && !word.starts_with("new"));
        let expected = [
            "ready 7 api",
            "terminating 7 api",
            "draining",
            "gone 7 api",
            "stale",
            "gone 7 rules",
        ];
        assert_eq!(of_udp, expected, "{told:?}");
        let gone = records.iter().find(|r| r["change"] == "gone").unwrap();
        assert_eq!(gone["service"]["name"], "kube-dns");
        assert_eq!(gone["service"]["port"], "dns");
        assert_eq!(gone["endpoint"]["name"], "coredns-a");
        // A verdict is of the time of judging: an earlier event may be recorded after it.
        for seen_by in ["api", "rules"] {
            let of_one = records.iter().filter(|r| r["seen_by"] == seen_by);
            let times: Vec<&str> = of_one.map(|r| r["time"].as_str().unwrap()).collect();
            assert!(times.len() > 1 && times.is_sorted(), "{seen_by}: {times:?}");
        }
    });
}

/// Node with one entry to a live endpoint.
fn quiet_node(args: &str) -> (Living, ApiServer, Watch) {
    add_node_address();
    insert(&[to_dns(17, PORT, &DYING.to_string())]);
    let living = living();
    let server = living.serve();
    let watch = follow(&server, args);
    (living, server, watch)
}

fn lists_of(server: &ApiServer, resource: &str) -> usize {
    let asked = server.requests();
    let lists = asked
        .iter()
        .filter(|a| a.resource() == resource && a.value("watch").is_none());
    lists.count()
}

#[test]
fn after_a_disconnect_the_stream_resumes_at_its_version() {
    private_netns(|| {
        let (living, server, watch) = quiet_node("--interval 1s");
        living.send(
            "endpointslices",
            &[BodyPart::Text("{\"type\":\"ADD".to_owned()), BodyPart::Cut],
        );
        living.put(&slice_of(&[(LIVING, READY)]));
        wait(&watch, "stale");
        let ended = watch.stop();
        assert_eq!(
            lists_of(&server, "endpointslices"),
            1,
            "it was not listed anew"
        );
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        let seen = story(&ended.records);
        let changes = seen.iter().filter(|word| *word == "gone 7 api").count();
        assert_eq!(changes, 2, "of both ports, each once: {seen:?}");
    });
}

#[test]
fn without_the_stream_nothing_is_judged_by_its_earlier_events() {
    private_netns(|| {
        let (living, server, watch) = quiet_node("--interval 1s");
        living.refuse_watches("endpointslices", Some(503));
        living.end("endpointslices");
        living.put(&slice_of(&[(LIVING, READY)]));
        wait(&watch, "unknown");
        never_stale(&watch.records());
        living.refuse_watches("endpointslices", None);
        wait(&watch, "stale");
        let ended = watch.stop();
        assert_eq!(
            lists_of(&server, "endpointslices"),
            2,
            "what was missed is read once, whole"
        );
        assert_eq!(ended.status, Some(0), "it is whole again: {ended:#?}");
        let unsure = ended
            .records
            .iter()
            .find(|r| r["after"] == "unknown")
            .unwrap();
        assert_eq!(unsure["entry"]["reason"], "source-incomplete");
        let lines = |text: &str| ended.stderr.lines().filter(|l| l.contains(text)).count();
        assert_eq!(
            lines("endpointslices may be out of date"),
            1,
            "{}",
            ended.stderr
        );
        assert_eq!(
            lines("endpointslices are up to date again"),
            1,
            "{}",
            ended.stderr
        );
    });
}

#[test]
fn an_expired_version_leads_to_a_new_list_before_any_verdict() {
    private_netns(|| expired(false));
}

#[test]
fn an_expiry_event_of_the_stream_leads_to_a_new_list_before_any_verdict() {
    private_netns(|| expired(true));
}

fn expired(by_event: bool) {
    let (living, server, watch) = quiet_node("--interval 1s");
    living.refuse_lists("endpointslices", Some(503));
    living.expire();
    if by_event {
        let status = json!({"kind": "Status", "code": 410, "reason": "Expired"});
        let text = format!("{}\n", json!({"type": "ERROR", "object": status}));
        living.send("endpointslices", &[BodyPart::Text(text)]);
    } else {
        living.end("endpointslices");
    }
    wait(&watch, "unknown");
    living.put(&slice_of(&[(LIVING, READY)]));
    never_stale(&watch.records());
    living.refuse_lists("endpointslices", None);
    wait(&watch, "stale");
    let ended = watch.stop();
    assert!(lists_of(&server, "endpointslices") >= 2);
    assert_eq!(ended.status, Some(0), "{ended:#?}");
    assert!(story(&ended.records).contains(&"gone 7 api".to_owned()));
}

#[test]
fn a_line_that_is_no_event_leads_to_a_new_list_and_never_to_a_verdict() {
    private_netns(|| {
        let (living, server, watch) = quiet_node("--interval 1s");
        for text in [
            "what?\n",
            "{\"type\":\"ADDED\",\"object\":{\"secret\":\"abc\"}}\n",
        ] {
            let before = lists_of(&server, "endpointslices");
            watch.wait("a new list", |_| {
                // The same, just after the stream's timeout.
                living.send("endpointslices", &[BodyPart::Text(text.to_owned())]);
                lists_of(&server, "endpointslices") > before
            });
            watch.wait("a new stream", |_| living.streams("endpointslices") > 0);
        }
        living.put(&slice_of(&[(LIVING, READY)]));
        wait(&watch, "stale");
        let ended = watch.stop();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert!(!ended.stderr.contains("abc"), "{}", ended.stderr);
    });
}

#[test]
fn a_flow_to_an_endpoint_unknown_so_far_is_not_stale() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&[DYING]);
        let living = living();
        living.put(&slice_of(&[(LIVING, READY)]));
        let server = living.serve();
        let watch = follow(&server, "--udp 53 --interval 1s");
        let client = Client::bind(CLIENTS[0], PORT);
        client.ask().unwrap();
        wait(&watch, "new unknown");
        living.put(&slice_of(&[(DYING, READY), (LIVING, READY)]));
        wait(&watch, "ok");
        never_stale(&watch.records());
        // An endpoint that never appears in the API.
        living.put(&slice_of(&[(LIVING, READY)]));
        wait(&watch, "stale");
        let other = Client::bind(CLIENTS[0], PORT + 1);
        other.ask().unwrap();
        watch.wait("the second one", |records| {
            let of = |r: &&Value| r["entry"]["original"]["sport"] == PORT + 1;
            records.iter().filter(of).any(|r| r["after"] == "stale")
        });
        watch.stop();
    });
}

#[test]
fn without_the_right_to_watch_a_note_says_so_and_nothing_is_judged() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, PORT, "10.244.9.9")]);
        let living = living();
        living.refuse_watches("endpointslices", Some(403));
        let server = living.serve();
        let watch = follow(&server, "--interval 1s");
        watch.wait("no verdict", |records| {
            let reason = |r: &Value| r["entry"]["reason"] == "source-incomplete";
            records.iter().any(reason)
        });
        let ended = watch.stop();
        assert_eq!(ended.status, Some(3), "{ended:#?}");
        let rule = "watch on endpointslices.discovery.k8s.io";
        assert!(ended.stderr.contains(rule), "{ended:#?}");
        living.refuse_lists("endpointslices", Some(403));
        let watch = follow(&server, "--interval 1s");
        let ended = watch.stop();
        assert!(
            ended.stderr.contains("list on endpointslices"),
            "{ended:#?}"
        );
        assert_eq!(ended.status, Some(3), "{ended:#?}");
        never_stale(&ended.records);
    });
}

#[test]
fn on_a_node_only_needed_pods_are_followed_and_a_new_owner_of_an_address_is_found() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(6, PORT, "10.244.9.9")]);
        let living = living();
        let server = living.serve();
        let watch = follow(&server, "--interval 1s");
        let of_pods = |watches: bool| -> Vec<String> {
            let asked = server.requests();
            let pods = asked.iter().filter(|asked| asked.resource() == "pods");
            let pods = pods.filter(|asked| asked.value("watch").is_some() == watches);
            let selector = |a: &testkit::api_server::ApiRequest| {
                a.value("fieldSelector").unwrap_or("all").to_owned()
            };
            pods.map(selector).collect()
        };
        watch.wait("streams of Pods", |_| of_pods(true).len() == 2);
        for watches in [false, true] {
            let mut selectors = of_pods(watches);
            selectors.sort();
            assert_eq!(
                selectors,
                ["spec.nodeName=node1", "status.podIP=10.244.9.9"]
            );
        }
        assert_eq!(watch.records()[0]["entry"]["reason"], "endpoint-gone");
        living.put(&lab::cluster::pod(
            "shop",
            "new-owner",
            "10.244.9.9",
            "node2",
        ));
        wait(&watch, "detached");
        watch.stop();
    });
}

#[test]
fn only_endpoints_of_the_selected_service_are_recorded() {
    private_netns(|| {
        let (living, _server, watch) = quiet_node("--interval 1s --svc kube-dns:dns");
        let apiserver = of(&objects().0, "EndpointSlice", "kubernetes");
        living.delete(&apiserver);
        living.put(&apiserver);
        living.put(&slice_of(&[(DYING, GOING), (LIVING, READY)]));
        wait(&watch, "draining");
        living.delete(&of(&objects().0, "Service", "kube-dns"));
        wait(&watch, "unknown");
        let ended = watch.stop();
        assert_eq!(ended.status, Some(3), "{ended:#?}");
        never_stale(&ended.records);
        assert!(
            ended.stderr.contains("nothing is judged for now"),
            "{ended:#?}"
        );
        let endpoints = ended.records.iter().filter(|r| r["type"] == "endpoint");
        for record in endpoints {
            assert_eq!(record["service"]["port"], "dns", "{record:#}");
        }
        let told = story(&ended.records);
        assert_eq!(
            told.iter()
                .filter(|word| *word == "terminating 7 api")
                .count(),
            1,
            "{told:?}"
        );
    });
}

#[test]
fn endpoint_records_count_and_until_ends_the_watch() {
    private_netns(|| {
        let (living, _server, watch) = quiet_node("--interval 1s --until stale");
        living.put(&slice_of(&[(LIVING, READY)]));
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        let (living, _server, watch) = quiet_node_again("--count 2");
        living.put(&slice_of(&[(DYING, READY)]));
        let ended = watch.wait_for_exit();
        let told = story(&ended.records);
        assert_eq!(told, ["gone 33 api", "gone 33 api"], "{ended:#?}");
    });
}

fn quiet_node_again(args: &str) -> (Living, ApiServer, Watch) {
    let living = living();
    let server = living.serve();
    let watch = follow(&server, args);
    (living, server, watch)
}

#[test]
fn an_absent_server_is_an_error_and_with_auto_a_note() {
    private_netns(|| {
        add_node_address();
        let living = living();
        let server = living.serve();
        let kubeconfig = server.kubeconfig_of(&json!({"token": "wrong"}), "ca.pem");
        let path = kubeconfig.to_str().unwrap();
        let args = ["watch", "--for", "1s", "--kubeconfig", path, "--cluster"];
        let outcome = ctk(args.iter().chain(&["api"]));
        assert_error(&outcome, 1, &["401", "log in again"]);
        let unread = start_unread(&["--for", "1s", "--kubeconfig", path]);
        let ended = unread.read().wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert!(ended.stderr.contains("not the API"), "{ended:#?}");
    });
}
