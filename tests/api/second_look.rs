//! Second look of a purge over the API: it must find the cluster of the first look, complete.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use testkit::api_server::{Answer, ApiRequest, ApiServer, Objects, TOKEN};
use testkit::ctk_binary::{ctk, ctk_command};
use testkit::lab::{self, BACKENDS, Lab, Proxy, add_node_address};
use testkit::mixed::{insert, to_dns};
use testkit::private_netns::private_netns;
use testkit::tools::Outcome;

/// Cluster in which the first backend is gone, with the uids that every object has.
fn objects(uid: &str) -> Objects {
    let mut objects = lab::cluster_objects(&BACKENDS[1..]);
    objects.push(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/12"]},
    }));
    for object in &mut objects {
        object["metadata"]["uid"] = json!(uid);
    }
    Objects(objects)
}

/// Node whose rules still lead to the first backend, and an entry to it.
fn node_with_old_rules() -> Lab {
    let lab = Lab::new(Proxy::Nftables);
    lab.set_endpoints(&BACKENDS);
    insert(&[to_dns(17, 40_000, "10.244.1.7")]);
    lab
}

fn left() -> usize {
    let outcome = ctk(["ls", "--cluster", "none", "--udp", "53", "-o", "jsonl"]);
    outcome.exits(0).jsonl().len()
}

/// Purges with this kubeconfig. `meanwhile` runs after the first look.
fn purge(
    source: &[&str],
    kubeconfig: &str,
    asked: impl Fn() -> bool,
    meanwhile: impl FnOnce(),
) -> Outcome {
    let args = [
        "purge",
        "--stale",
        "--yes",
        "--verify",
        "0",
        "--kubeconfig",
        kubeconfig,
    ];
    let mut command = ctk_command([&args[..], &["--settle", "1500ms"], source].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("ctk starts");
    let patience = Instant::now() + Duration::from_secs(30);
    while !asked() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    // The plan is complete.
    std::thread::sleep(Duration::from_millis(500));
    meanwhile();
    Outcome::of(child.wait_with_output().expect("it ends"))
}

#[test]
fn an_api_absent_at_the_second_look_is_not_replaced_by_the_nodes_rules() {
    private_netns(|| {
        let _lab = node_with_old_rules();
        // The server's folder, which has the kubeconfig unless that was copied, is removed with the server.
        for is_copied in [true, false] {
            for source in [&[][..], &["--cluster", "api"], &["--cluster", "api,rules"]] {
                let objects = objects("a");
                let server = ApiServer::start(move |asked| objects.answer(asked));
                let kubeconfig = server.kubeconfig();
                let folder = tempfile::tempdir().unwrap();
                let copy = server.copy_login(&kubeconfig, folder.path());
                let chosen = if is_copied { &copy } else { &kubeconfig };
                let chosen = chosen.to_str().unwrap().to_owned();
                let server = RefCell::new(Some(server));
                let asked = || {
                    let server = server.borrow();
                    let asked = server.as_ref().map(ApiServer::requests).unwrap_or_default();
                    asked.iter().any(|asked| asked.resource() == "pods")
                };
                let outcome = purge(source, &chosen, asked, || drop(server.take()));
                let outcome = outcome.exits(3);
                for words in ["the second look at the cluster", "nothing was deleted"] {
                    assert!(outcome.stderr.contains(words), "{source:?}: {outcome:#?}");
                }
                assert_eq!((left(), outcome.stdout.as_str()), (1, ""), "{outcome:#?}");
            }
        }
    });
}

/// Server whose answers change with the second look, which begins with the second list of Services.
fn changing(second: impl Fn(&ApiRequest) -> Option<Answer> + Send + Sync + 'static) -> ApiServer {
    let objects = objects("a");
    let looks = AtomicUsize::new(0);
    ApiServer::start(move |asked| {
        let is_services = asked.resource() == "services";
        let look = match is_services {
            true => looks.fetch_add(1, Ordering::SeqCst) + 1,
            false => looks.load(Ordering::SeqCst),
        };
        let second = (look > 1).then(|| second(asked)).flatten();
        second.unwrap_or_else(|| objects.answer(asked))
    })
}

#[test]
fn a_less_complete_or_different_cluster_at_the_second_look_deletes_nothing() {
    type Second = fn(&ApiRequest) -> Option<Answer>;
    fn refusing(asked: &ApiRequest, resource: &str, status: u16) -> Option<Answer> {
        (asked.resource() == resource).then(|| Answer::status(status))
    }
    let by_name = "--client shop/web-1";
    let seconds: [(&str, &str, Second, &str); 8] = [
        (
            "401",
            "",
            |_| Some(Answer::status(401)),
            "nothing was deleted",
        ),
        (
            "503",
            "",
            |_| Some(Answer::status(503)),
            "nothing is deleted",
        ),
        (
            "services",
            "",
            |a| refusing(a, "services", 403),
            "nothing is deleted",
        ),
        (
            "slices",
            "",
            |a| refusing(a, "endpointslices", 403),
            "nothing is deleted",
        ),
        (
            "nodes",
            by_name,
            |a| refusing(a, "nodes", 403),
            "lacks nodes",
        ),
        (
            "ranges",
            by_name,
            |a| refusing(a, "servicecidrs", 404),
            "lacks servicecidrs",
        ),
        (
            "pods",
            by_name,
            |a| refusing(a, "pods", 403),
            "nothing was deleted",
        ),
        (
            "cluster",
            "",
            |a| Some(objects("b").answer(a)),
            "another cluster",
        ),
    ];
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 40_000, "10.244.9.9")]);
        for (what, more, second, words) in seconds {
            for source in ["api", "auto"] {
                // A dry run takes the same look.
                for dry in ["--dry-run", ""] {
                    let server = changing(second);
                    let kubeconfig = server.kubeconfig();
                    let line = format!(
                        "purge --stale --yes --settle 0 --verify 0 {more} {dry} --cluster {source} --request-timeout 3s"
                    );
                    let mut args: Vec<&str> = line.split_whitespace().collect();
                    args.extend(["--kubeconfig", kubeconfig.to_str().unwrap()]);
                    let outcome = ctk(&args).exits(3);
                    assert!(
                        outcome.stderr.contains(words),
                        "{what} {line}: {outcome:#?}"
                    );
                    assert_eq!(
                        (left(), outcome.stdout.as_str()),
                        (1, ""),
                        "{what}: {outcome:#?}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_purge_by_the_nodes_rules_stays_with_them_when_the_api_answers_again() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Nftables);
        let early = lab::Client::bind(lab::CLIENTS[1], 5353);
        early.send();
        lab.set_endpoints(&BACKENDS);
        let (objects, is_up) = (objects("a"), Arc::new(AtomicBool::new(false)));
        let up = Arc::clone(&is_up);
        let server = ApiServer::start(move |asked| match up.load(Ordering::SeqCst) {
            true => objects.answer(asked),
            false => Answer::status(401),
        });
        let kubeconfig = server.kubeconfig_of(&json!({"token": TOKEN}), "ca.pem");
        let asked = || !server.requests().is_empty();
        let up = || is_up.store(true, Ordering::SeqCst);
        let outcome = purge(&["-o", "json"], kubeconfig.to_str().unwrap(), asked, up).exits(0);
        let summary: &Value = &outcome.json()["summary"];
        assert_eq!(
            (&summary["deleted"], &summary["cluster"]["source"]),
            (&json!(1), &json!("rules"))
        );
        assert!(
            server
                .requests()
                .iter()
                .all(|asked| asked.resource() != "endpointslices"),
            "{outcome:#?}"
        );
    });
}

#[test]
fn a_dry_run_by_the_api_asks_the_nodes_rules() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Iptables);
        let early = lab::Client::bind(lab::CLIENTS[1], 5353);
        early.send();
        insert(&[to_dns(17, 40_000, "10.244.1.7")]);
        let objects = objects("a");
        let server = ApiServer::start(move |asked| objects.answer(asked));
        let kubeconfig = server.kubeconfig();
        let dry = |endpoints: &[Ipv4Addr]| {
            if !endpoints.is_empty() {
                lab.set_endpoints(endpoints);
            }
            let args = [
                "purge",
                "--stale",
                "--dry-run",
                "-o",
                "json",
                "--kubeconfig",
                kubeconfig.to_str().unwrap(),
            ];
            let outcome = ctk(args).exits(0);
            let mut results: Vec<(u64, String)> = outcome
                .items()
                .iter()
                .map(|item| {
                    (
                        item["original"]["sport"].as_u64().unwrap(),
                        item["result"].as_str().unwrap().to_owned(),
                    )
                })
                .collect();
            results.sort();
            let is_behind = outcome
                .stderr
                .contains("its rules still lead to 10.244.1.7:53");
            (results, is_behind)
        };
        let found = |ports: &[u64]| -> Vec<(u64, String)> {
            let ports = ports.iter();
            ports
                .map(|port| (*port, "would-delete".to_owned()))
                .collect()
        };
        // kube-proxy has not heard of the Service, so the early entry is pending; then not of the backend that died.
        assert_eq!(dry(&[]), (found(&[40_000]), false));
        assert_eq!(dry(&BACKENDS), (found(&[5353, 40_000]), true));
        assert_eq!(dry(&BACKENDS[1..]), (found(&[5353, 40_000]), false));
    });
}
