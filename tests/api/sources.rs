//! API and the node's own rules: cross-check, and one in place of the other.

use std::net::Ipv4Addr;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::objects;
use testkit::api_server::{Answer, ApiRequest, ApiServer, BodyPart, Objects};
use testkit::ctk_binary::ctk;
use testkit::lab::{self, BACKENDS, Lab, Proxy, add_node_address};
use testkit::mixed::{insert, to_dns};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error, nft, run};

/// kube-dns with these endpoints, and no TCP port, for which the lab has no rules.
fn cluster_of(endpoints: &[Ipv4Addr]) -> Objects {
    let mut objects = lab::cluster_objects(endpoints);
    for object in &mut objects {
        let ports = match object["kind"].as_str() {
            Some("Service") => &mut object["spec"]["ports"],
            Some("EndpointSlice") => &mut object["ports"],
            _ => continue,
        };
        ports.as_array_mut().unwrap().truncate(1);
        // The lab has no rules for default/kubernetes.
        if object["metadata"]["name"] == "kubernetes-x7k2p" {
            object["endpoints"] = json!([]);
        }
    }
    Objects(objects)
}

fn server_of(endpoints: &[Ipv4Addr]) -> ApiServer {
    let objects = cluster_of(endpoints);
    ApiServer::start(move |asked| objects.answer(asked))
}

/// Runs `ctk` with `args` and this server as its cluster.
fn with(server: &ApiServer, args: &str) -> Outcome {
    let kubeconfig = server.kubeconfig();
    let mut all: Vec<&str> = args.split_whitespace().collect();
    all.extend(["--kubeconfig", kubeconfig.to_str().unwrap()]);
    ctk(all)
}

fn verdicts(outcome: &Outcome) -> Vec<String> {
    let word = |item: &Value, key: &str| item[key].as_str().unwrap_or("null").to_owned();
    let mut all: Vec<(u64, String)> = outcome
        .items()
        .iter()
        .map(|item| {
            let port = item["original"]["sport"].as_u64().unwrap();
            (
                port,
                format!("{}/{}", word(item, "verdict"), word(item, "reason")),
            )
        })
        .collect();
    all.sort();
    all.into_iter().map(|(_, words)| words).collect()
}

#[test]
fn rules_behind_the_api_are_reported_and_the_api_decides() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Iptables);
        lab.set_endpoints(&BACKENDS);
        let both = ["10.244.1.7", "10.244.2.33"];
        insert(&[to_dns(17, 40_000, both[0]), to_dns(17, 40_001, both[1])]);
        let args = "ls --cluster api,rules --udp 53 -o json";
        // Both sources agree.
        let outcome = with(&server_of(&BACKENDS), args).exits(0);
        let cluster = &outcome.json()["summary"]["cluster"];
        assert_eq!(cluster["disagreements"], json!({"count": 0, "items": []}));
        assert_eq!(cluster["rules"]["kube_proxy"], json!(["iptables"]));
        assert_eq!(cluster["source"], "api");
        assert!(!outcome.stderr.contains("behind"), "{outcome:#?}");
        let announced = outcome
            .stderr
            .lines()
            .filter(|line| line.starts_with("ctk: cluster: "));
        let announced: Vec<&str> = announced.collect();
        assert_eq!(announced[0], "ctk: cluster: the API");
        assert!(
            announced[1].starts_with("ctk: cluster: this node's rules: kube-proxy's (iptables)")
        );
        // The API has removed the first endpoint, the rules have not.
        let server = server_of(&BACKENDS[1..]);
        for source in ["api,rules", "rules,api"] {
            let outcome =
                with(&server, &format!("ls --cluster {source} --udp 53 -o json")).exits(0);
            assert_eq!(verdicts(&outcome), ["stale/endpoint-gone", "ok/endpoint"]);
            assert!(
                outcome.stderr.contains(
                    "kube-proxy on this node is behind: rules still list 10.244.1.7 for kube-system/kube-dns"
                ),
                "{outcome:#?}"
            );
            let found = &outcome.json()["summary"]["cluster"]["disagreements"];
            assert_eq!(found["count"], 1);
            assert_eq!(
                found["items"][0],
                json!({
                    "difference": "lingering-endpoint",
                    "service": {"namespace": "kube-system", "name": "kube-dns", "port": "dns"},
                    "frontend": {"address": "10.96.0.10", "port": 53, "protocol": "udp", "protocol_number": 17},
                    "endpoint": "10.244.1.7:53",
                })
            );
        }
        // The reverse.
        lab.set_endpoints(&BACKENDS[1..]);
        let outcome = with(&server_of(&BACKENDS), args).exits(0);
        assert_eq!(verdicts(&outcome), ["ok/endpoint", "ok/endpoint"]);
        let lacks =
            "kube-proxy on this node is behind: rules lack 10.244.1.7 for kube-system/kube-dns";
        assert!(outcome.stderr.contains(lacks), "{outcome:#?}");
    });
}

#[test]
fn changes_between_two_reads_are_not_reported_as_delay_of_kube_proxy() {
    private_netns(|| {
        for (before, after) in [
            (&BACKENDS[..], &BACKENDS[1..]),
            (&BACKENDS[1..], &BACKENDS[..]),
        ] {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let lab = Lab::new(Proxy::Iptables);
            lab.set_endpoints(before);
            let objects = cluster_of(after);
            let after = after.to_vec();
            // The server's thread started in this namespace.
            let server = ApiServer::start(move |asked| {
                if asked.resource() == "endpointslices" {
                    lab.set_endpoints(&after);
                }
                objects.answer(asked)
            });
            let outcome = with(&server, "ls --cluster api,rules -o json").exits(0);
            let found = &outcome.json()["summary"]["cluster"]["disagreements"];
            assert_eq!(found["count"], 0, "{outcome:#?}");
            assert!(!outcome.stderr.contains("behind"), "{outcome:#?}");
        }
    });
}

#[test]
fn doctor_reports_kube_proxy_behind_the_api() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&BACKENDS);
        let of_check = |outcome: &Outcome| {
            let mut items = outcome.items();
            items.retain(|item| item["check"] == "rules-behind");
            items
        };
        let once = "doctor --cluster api --sample 0 -o json";
        let outcome = with(&server_of(&BACKENDS), once).exits(0);
        assert!(of_check(&outcome).is_empty(), "{outcome:#?}");
        // A single look cannot tell whether kube-proxy is about to write.
        let outcome = with(&server_of(&BACKENDS[1..]), once).exits(0);
        assert_eq!(of_check(&outcome)[0]["severity"], "info");
        let outcome = with(&server_of(&BACKENDS[1..]), "doctor --cluster api -o json").exits(5);
        let found = of_check(&outcome);
        assert_eq!(found.len(), 1, "{outcome:#?}");
        assert_eq!(found[0]["severity"], "warning");
        assert_eq!(found[0]["evidence"]["differences"], 1);
        let line = "rules still list 10.244.1.7 for kube-system/kube-dns";
        assert_eq!(found[0]["evidence"]["differing"], json!([line]));
    });
}

#[test]
fn rules_beside_the_objects_tell_whether_an_untranslated_entry_would_be_translated() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Nftables);
        insert(&[to_dns(17, 40_000, "10.96.0.10")]);
        let server = server_of(&BACKENDS);
        let args = "ls --cluster api,rules --udp 53 -o json";
        let of = |source: &str| with(&server, &args.replace("api,rules", source)).exits(0);
        for source in ["api", "api,rules"] {
            assert_eq!(
                verdicts(&of(source)),
                ["pending/no-dnat-no-rule"],
                "{source}"
            );
        }
        lab.set_endpoints(&BACKENDS);
        for source in ["api", "api,rules"] {
            assert_eq!(verdicts(&of(source)), ["stale/no-dnat"], "{source}");
        }
        let purge = "purge --cluster api,rules --stale --yes --settle 0 --verify 0 -o json";
        let outcome = with(&server, purge).exits(0);
        assert_eq!(outcome.json()["summary"]["deleted"], 1, "{outcome:#?}");
    });
}

#[test]
fn both_sources_are_needed_where_both_are_named() {
    private_netns(|| {
        add_node_address();
        let outcome = ctk(["ls", "--cluster", "api,rules"]);
        assert_error(&outcome, 1, &["no cluster is configured"]);
        // A table without kube-proxy's rules: no comparison, and no delay.
        let outcome = with(&server_of(&BACKENDS), "ls --cluster api,rules -o json").exits(0);
        assert_eq!(
            outcome.json()["summary"]["cluster"]["disagreements"]["count"],
            0
        );
    });
}

/// Answers of a server for some resources, in place of the objects.
type Special = Box<dyn Fn(&ApiRequest) -> Option<Answer> + Send + Sync>;

#[test]
fn auto_takes_the_rules_where_the_api_cannot_judge() {
    let slow = |asked: &ApiRequest, resource: &str| {
        let mut answer = Answer::ok("");
        answer.body = vec![BodyPart::Pause(Duration::from_secs(30))];
        (resource.is_empty() || asked.resource() == resource).then_some(answer)
    };
    let special: [(&str, Special, &str); 5] = [
        (
            "403 on all",
            Box::new(|_| Some(Answer::status(403))),
            "neither Services nor EndpointSlices could be read",
        ),
        (
            "403 on slices",
            Box::new(|asked| (asked.resource() == "endpointslices").then(|| Answer::status(403))),
            "not the API, which lacks endpointslices",
        ),
        (
            "slow from the start",
            Box::new(move |asked| slow(asked, "")),
            "not the API",
        ),
        (
            "slow slices",
            Box::new(move |asked| slow(asked, "endpointslices")),
            "not the API, which lacks endpointslices",
        ),
        (
            "services not served",
            Box::new(|asked| (asked.resource() == "services").then(|| Answer::status(404))),
            "not the API, which lacks services",
        ),
    ];
    private_netns(|| {
        let lab = Lab::new(Proxy::Iptables);
        lab.set_endpoints(&BACKENDS[1..]);
        insert(&[
            to_dns(17, 40_000, "10.244.1.7"),
            to_dns(17, 40_001, "10.244.2.33"),
            to_dns(17, 40_002, "10.96.0.10"),
        ]);
        for (what, answer, told) in special {
            let objects = objects();
            let server = ApiServer::start(move |asked| {
                answer(asked).unwrap_or_else(|| objects.answer(asked))
            });
            let args = "ls --request-timeout 1s --udp 53 -o json";
            let outcome = with(&server, args).exits(0);
            assert_eq!(
                outcome.json()["summary"]["cluster"]["source"],
                "rules",
                "{what}: {outcome:#?}"
            );
            assert_eq!(
                verdicts(&outcome),
                ["suspect/not-in-node-rules", "ok/endpoint", "stale/no-dnat"],
                "{what}"
            );
            assert!(outcome.stderr.contains(told), "{what}: {outcome:#?}");
            assert!(
                outcome.stderr.contains("cluster: this node's rules"),
                "{what}: {outcome:#?}"
            );
        }
    });
}

#[test]
fn auto_takes_the_rules_where_no_server_listens() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&BACKENDS);
        insert(&[to_dns(17, 40_000, "10.244.1.7")]);
        let server = server_of(&BACKENDS);
        let kubeconfig = server.kubeconfig_of(&json!({"token": "any"}), "ca.pem");
        // A server that refuses the login; then an absent one.
        let ls = |kubeconfig: &str| {
            ctk([
                "ls",
                "--udp",
                "53",
                "-o",
                "json",
                "--kubeconfig",
                kubeconfig,
            ])
            .exits(0)
        };
        let refused = ls(kubeconfig.to_str().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let copy = server.copy_login(&kubeconfig, folder.path());
        drop(server);
        for outcome in [refused, ls(copy.to_str().unwrap())] {
            let cluster = &outcome.json()["summary"]["cluster"];
            assert_eq!(cluster["source"], "rules");
            assert_eq!(cluster["rules"]["kube_proxy"], json!(["nftables"]));
            assert_eq!(verdicts(&outcome), ["ok/endpoint"]);
            assert!(
                outcome.stderr.contains("cluster: not the API"),
                "{outcome:#?}"
            );
        }
    });
}

#[test]
fn a_published_port_is_named_and_judged_by_its_rule_with_the_api() {
    private_netns(|| {
        add_node_address();
        nft(
            "table ip nat { chain prerouting { type nat hook prerouting priority dstnat; \
             ip daddr 192.0.2.11 udp dport 52897 dnat to 172.17.0.9:51820\n }\n }",
        );
        let entry = "-I -p udp -t 100 -s 198.51.100.61 --sport 40556 -d 192.0.2.11 --dport 52897 \
                     -r 172.17.0.9 --reply-port-src 51820 -q 198.51.100.61 --reply-port-dst 40556";
        run("conntrack", &entry.split_whitespace().collect::<Vec<_>>());
        let server = server_of(&BACKENDS);
        for source in ["api", "api,rules"] {
            // Translated to an address outside of every range: without the range nobody could tell.
            let args =
                format!("ls --cluster {source} --service-cidr 10.96.0.0/16 --udp 52897 -o json");
            let said = with(&server, &args).exits(0);
            assert_eq!(said.items()[0]["service"]["frontend"], "rule", "{said:#?}");
            assert_eq!(verdicts(&said), ["ok/endpoint"], "{source}");
        }
    });
}

#[test]
fn auto_keeps_the_names_of_an_api_that_cannot_judge_where_there_are_no_rules() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 40_000, "10.244.9.9")]);
        let objects = objects();
        let server = ApiServer::start(move |asked| match asked.resource() {
            "endpointslices" => Answer::status(403),
            _ => objects.answer(asked),
        });
        let outcome = with(&server, "ls -o json").exits(3);
        assert_eq!(outcome.json()["summary"]["cluster"]["source"], "api");
        assert_eq!(outcome.items()[0]["service"]["name"], "kube-dns");
        assert_eq!(verdicts(&outcome), ["unknown/source-incomplete"]);
        assert!(outcome.stderr.contains("cluster: the API"), "{outcome:#?}");
    });
}

#[test]
fn every_unreadable_resource_is_named_with_the_rule_that_allows_it() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 40_000, "10.244.9.9")]);
        for (resource, rule, judged) in [
            ("services", "list on services", false),
            (
                "endpointslices",
                "list on endpointslices.discovery.k8s.io",
                false,
            ),
            ("pods", "list on pods", true),
            ("nodes", "list on nodes", false),
            (
                "servicecidrs",
                "list on servicecidrs.networking.k8s.io",
                true,
            ),
        ] {
            for (status, state) in [(403, "forbidden"), (400, "failed"), (200, "partial")] {
                let objects = objects();
                let server = ApiServer::start(move |asked| match asked.resource() == resource {
                    false => objects.answer(asked),
                    true if status == 200 => {
                        Answer::ok(r#"{"metadata":{},"items":[{"metadata":{}}"#)
                    }
                    true => Answer::status(status),
                });
                let what = format!("{resource} {state}");
                let outcome = with(&server, "ls --cluster api -o json");
                let cluster = &outcome.json()["summary"]["cluster"];
                assert_eq!(cluster["lists"][resource], state, "{what}: {outcome:#?}");
                for other in [
                    "services",
                    "endpointslices",
                    "pods",
                    "nodes",
                    "servicecidrs",
                ] {
                    if other != resource {
                        assert_eq!(cluster["lists"][other], "complete", "{what}: {outcome:#?}");
                    }
                }
                let missing = cluster["missing"].as_array().unwrap();
                assert!(missing.contains(&json!(resource)), "{what}: {cluster}");
                assert_eq!(
                    outcome.stderr.contains(rule),
                    status == 403,
                    "{what}: {outcome:#?}"
                );
                let verdict = outcome.items()[0]["verdict"].clone();
                // Without Nodes this namespace cannot be identified as the node's.
                assert_eq!(verdict == "stale", judged, "{what}: {outcome:#?}");
            }
        }
    });
}

#[test]
fn nothing_is_stale_where_cilium_translates_and_no_rules_of_kube_proxy_are_seen() {
    private_netns(|| {
        add_node_address();
        insert(&[
            to_dns(17, 40_000, "10.96.0.10"),
            to_dns(17, 40_001, "10.244.9.9"),
            to_dns(17, 40_002, "10.244.1.7"),
        ]);
        let server = server_of(&BACKENDS);
        let args = "ls --cluster api --udp 53 -o json";
        let outcome = with(&server, args).exits(0);
        assert_eq!(
            verdicts(&outcome),
            ["stale/no-dnat", "stale/endpoint-gone", "ok/endpoint"]
        );
        assert_eq!(
            outcome.json()["summary"]["cluster"]["datapath"],
            Value::Null
        );
        for (device, name, word) in [
            ("cilium_host", "Cilium", "cilium"),
            ("bpfin.cali", "Calico eBPF", "calico-ebpf"),
        ] {
            run("ip", &["link", "add", device, "type", "bridge"]);
            let outcome = with(&server, args).exits(0);
            let unknown = "unknown/not-kube-proxy";
            assert_eq!(
                verdicts(&outcome),
                [unknown, unknown, "ok/endpoint"],
                "{device}"
            );
            let datapath = &outcome.json()["summary"]["cluster"]["datapath"];
            assert_eq!(datapath["name"], word);
            assert_eq!(datapath["replaces_kube_proxy"], true);
            let line = format!("{name} (its interface {device}) translates Services");
            assert!(outcome.stderr.contains(&line), "{outcome:#?}");
            let purge = "purge --cluster api --stale --yes --settle 0 --verify 0 -o json";
            assert_eq!(
                with(&server, purge).exits(0).json()["summary"]["deleted"],
                0
            );
            run("ip", &["link", "del", device]);
        }
        // With kube-proxy's rules, Cilium changes nothing.
        run("ip", &["link", "add", "cilium_host", "type", "bridge"]);
        let lab = Lab::without_node_address(Proxy::Iptables);
        lab.set_endpoints(&BACKENDS);
        let outcome = with(&server, args).exits(0);
        assert_eq!(
            verdicts(&outcome),
            ["stale/no-dnat", "stale/endpoint-gone", "ok/endpoint"]
        );
        assert_eq!(
            outcome.json()["summary"]["cluster"]["datapath"]["replaces_kube_proxy"],
            false
        );
        assert!(outcome.stderr.contains("beside kube-proxy"), "{outcome:#?}");
    });
}
