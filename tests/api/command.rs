//! `ctk ls` and `ctk purge` with the API as their source: verdicts, exit statuses, and notes about missing data.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::objects;
use testkit::api_server::{Answer, ApiRequest, ApiServer, BodyPart, Objects};
use testkit::ctk_binary::{ctk, ctk_command};
use testkit::lab::{self, add_node_address};
use testkit::mixed::{insert, to_dns};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error};

/// Address that is no endpoint of kube-dns.
const GONE: &str = "10.244.9.9";

/// Namespace of node1 with one entry to a removed endpoint.
fn node_with_a_stale_entry() {
    add_node_address();
    insert(&[to_dns(17, 40_000, GONE)]);
}

/// Server that forbids these resources.
fn forbidding(resources: &'static [&'static str]) -> ApiServer {
    let objects = objects();
    ApiServer::start(move |asked| match resources.contains(&asked.resource()) {
        true => Answer::status(403),
        false => objects.answer(asked),
    })
}

/// Runs `ctk` with `args` and this server as its cluster.
fn with(server: &ApiServer, args: &str) -> Outcome {
    let kubeconfig = server.kubeconfig();
    let mut all: Vec<&str> = args.split_whitespace().collect();
    all.extend(["--kubeconfig", kubeconfig.to_str().unwrap()]);
    ctk(all)
}

fn entries() -> usize {
    ctk(["ls", "--cluster", "none", "-o", "jsonl"])
        .jsonl()
        .len()
}

#[test]
fn a_listing_judges_by_the_api() {
    private_netns(|| {
        node_with_a_stale_entry();
        let server = forbidding(&[]);
        for source in ["api", "auto"] {
            let outcome = with(&server, &format!("ls --cluster {source} --stale -o json")).exits(0);
            assert_eq!(outcome.items()[0]["reason"], "endpoint-gone");
            let cluster = &outcome.json()["summary"]["cluster"];
            assert_eq!(cluster["source"], "api");
            assert_eq!(cluster["complete"], true);
            assert_eq!(cluster["lists"]["pods"], "complete");
            assert_eq!(
                outcome.stderr.contains("cluster: the API"),
                source == "auto",
                "{outcome:#?}"
            );
        }
    });
}

#[test]
fn without_slices_nothing_is_stale_and_nothing_is_deleted() {
    private_netns(|| {
        node_with_a_stale_entry();
        let server = forbidding(&["endpointslices"]);
        let rule = "list on endpointslices.discovery.k8s.io";
        let outcome = with(&server, "ls --cluster api -o json").exits(3);
        assert_eq!(outcome.items()[0]["reason"], "source-incomplete");
        assert_eq!(
            outcome.items()[0]["service"]["name"],
            "kube-dns",
            "the name is known all the same"
        );
        assert_eq!(outcome.json()["summary"]["cluster"]["complete"], false);
        assert_eq!(
            outcome.json()["summary"]["cluster"]["lists"]["endpointslices"],
            "forbidden"
        );
        assert!(outcome.stderr.contains(rule), "{outcome:#?}");
        let outcome = with(&server, "purge --cluster api --stale --yes");
        assert_error(&outcome, 3, &["incomplete", rule]);
        assert_eq!(entries(), 1);
    });
}

#[test]
fn without_the_right_to_read_services_and_slices_the_status_is_an_error() {
    private_netns(|| {
        node_with_a_stale_entry();
        let server = forbidding(&[
            "services",
            "endpointslices",
            "pods",
            "nodes",
            "servicecidrs",
        ]);
        let outcome = with(&server, "ls --cluster api --stale");
        assert_error(
            &outcome,
            4,
            &[
                "list on services, endpointslices.discovery.k8s.io",
                "ClusterRole",
            ],
        );
        let outcome = with(&server, "purge --cluster api --stale --yes");
        assert_error(&outcome, 4, &["list on services"]);
        assert_eq!(entries(), 1);
        // A listing without a selector by name or verdict has entries to show.
        let outcome = with(&server, "ls --cluster api -o json").exits(3);
        assert_eq!(outcome.items().len(), 1);
        // auto takes the next source.
        let outcome = with(&server, "ls --cluster auto -o json").exits(0);
        assert_eq!(outcome.json()["summary"]["cluster"]["source"], "none");
        assert!(outcome.stderr.contains("not the API"), "{outcome:#?}");
        with(&server, "ls --cluster auto --stale").exits(3);
    });
}

#[test]
fn no_request_is_sent_when_neither_names_nor_verdicts_are_needed() {
    private_netns(|| {
        node_with_a_stale_entry();
        let server = forbidding(&[]);
        for args in [
            "ls --cluster api -o conntrack",
            "ls --cluster none",
            "purge --cluster api --udp 99 --yes -o conntrack",
        ] {
            with(&server, args).exits(0);
            assert_eq!(server.requests().len(), 0, "{args}");
        }
    });
}

#[test]
fn a_purge_reads_the_newest_state_twice_and_deletes_entries_stale_in_both() {
    private_netns(|| {
        node_with_a_stale_entry();
        insert(&[to_dns(17, 40_001, "10.244.1.7")]);
        let server = forbidding(&[]);
        let outcome = with(
            &server,
            "purge --cluster api --stale --yes --settle 0 --verify 0 -o json",
        );
        let outcome = outcome.exits(0);
        assert_eq!(outcome.json()["summary"]["deleted"], 1);
        assert_eq!(outcome.json()["summary"]["cluster"]["read_again"], true);
        assert_eq!(entries(), 1);
        let asked = server.requests();
        assert!(
            asked
                .iter()
                .all(|asked| asked.value("resourceVersion").is_none())
        );
        let slices = |asked: &&ApiRequest| asked.resource() == "endpointslices";
        assert_eq!(asked.iter().filter(slices).count(), 2);
    });
}

#[test]
fn an_endpoint_recreated_between_the_two_looks_keeps_its_entry() {
    private_netns(|| {
        node_with_a_stale_entry();
        let first = objects();
        let mut backends = lab::BACKENDS.to_vec();
        let mut second = objects();
        backends.truncate(1);
        for object in &mut second.0 {
            if object["kind"] == "EndpointSlice" && object["metadata"]["namespace"] == "kube-system"
            {
                object["endpoints"] = json!([{"addresses": [GONE], "conditions": {"ready": true}}]);
            }
        }
        let looks = AtomicUsize::new(0);
        let server = ApiServer::start(move |asked| {
            let look = match asked.resource() {
                "services" => looks.fetch_add(1, Ordering::SeqCst),
                _ => looks.load(Ordering::SeqCst) - 1,
            };
            let now: &Objects = if look == 0 { &first } else { &second };
            now.answer(asked)
        });
        let args = "purge --cluster api --stale --yes --settle 0 --verify 0 -o json";
        let outcome = with(&server, args).exits(0);
        assert_eq!(outcome.json()["summary"]["changed"], 1, "{outcome:#?}");
        assert_eq!(entries(), 1);
    });
}

#[test]
fn a_second_look_that_fails_deletes_nothing() {
    private_netns(|| {
        node_with_a_stale_entry();
        let objects = objects();
        let looks = AtomicUsize::new(0);
        let server = ApiServer::start(move |asked: &ApiRequest| {
            let slices = asked.resource() == "endpointslices";
            if slices && looks.fetch_add(1, Ordering::SeqCst) > 0 {
                let mut answer = objects.answer(asked);
                answer.body.insert(0, BodyPart::Text("{".to_owned()));
                return answer;
            }
            objects.answer(asked)
        });
        let outcome = with(
            &server,
            "purge --cluster api --stale --yes --settle 0 --verify 0",
        );
        assert_error(&outcome, 3, &["endpointslices", "nothing is deleted"]);
        assert_eq!(entries(), 1);
    });
}

#[test]
fn an_unreachable_api_is_an_error_and_with_auto_a_note() {
    private_netns(|| {
        node_with_a_stale_entry();
        let server = forbidding(&[]);
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::copy(server.kubeconfig(), &kubeconfig).unwrap();
        fs::copy(server.path("ca.pem"), folder.path().join("ca.pem")).unwrap();
        drop(server);
        let kubeconfig = kubeconfig.to_str().unwrap();
        let ls = |more: &[&str]| {
            let all = ["ls", "--kubeconfig", kubeconfig];
            ctk(all.iter().chain(more))
        };
        assert_error(&ls(&["--cluster", "api"]), 1, &["--cluster api", "refused"]);
        let outcome = ls(&["-o", "json"]).exits(0);
        assert_eq!(outcome.items().len(), 1);
        assert!(
            outcome.stderr.contains("cluster: not the API"),
            "{outcome:#?}"
        );
        ls(&["--stale"]).exits(3);
        assert_error(
            &ctk(["ls", "--cluster", "api"]),
            1,
            &["no cluster is configured", "--kubeconfig"],
        );
        let typo = ls(&["--cluster", "api", "--context", "typo"]);
        assert_error(&typo, 1, &["typo", "get-contexts"]);
    });
}

/// kubectl that answers `get --raw` from files, as the real one does with this cluster; 403 for `forbidden`.
fn fake_kubectl(folder: &std::path::Path, forbidden: &str) {
    let objects = objects();
    for path in [
        "/api/v1/services",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/api/v1/nodes",
        "/api/v1/pods",
    ] {
        let asked = ApiRequest {
            path: path.to_owned(),
            query: Vec::new(),
            authorization: None,
            certificate: false,
        };
        let [BodyPart::Text(text)] = &objects.answer(&asked).body[..] else {
            panic!("{path}")
        };
        let file = path.rsplit('/').next().unwrap();
        fs::write(folder.join(file), text).unwrap();
    }
    let script = format!(
        r#"#!/bin/sh
for last; do :; done
name=${{last%%\?*}}; name=${{name##*/}}
echo "$*" >> {folder}/calls
if [ "$name" = "{forbidden}" ]; then
    echo "Error from server (Forbidden): $name is forbidden: User \"u\" cannot list resource" >&2; exit 1
fi
if [ ! -f {folder}/$name ]; then
    echo "Error from server (NotFound): the server could not find the requested resource" >&2; exit 1
fi
cat {folder}/$name
"#,
        folder = folder.display()
    );
    let path = folder.join("kubectl");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn kubectl_is_run_when_only_it_can_log_in() {
    private_netns(|| {
        node_with_a_stale_entry();
        let server = forbidding(&[]);
        let exotic: Value = json!({"auth-provider": {"name": "azure", "config": {}}});
        let kubeconfig = server.kubeconfig_of(&exotic, "ca.pem");
        let ls = |folder: &std::path::Path, path: &str| {
            let path = format!("{}:{path}", folder.display());
            let kubeconfig = kubeconfig.to_str().unwrap();
            let args = [
                "ls",
                "--cluster",
                "api",
                "--kubeconfig",
                kubeconfig,
                "-o",
                "json",
            ];
            Outcome::of(ctk_command(args).env("PATH", path).output().unwrap())
        };
        let folder = tempfile::tempdir().unwrap();
        fake_kubectl(folder.path(), "nothing");
        let outcome = ls(folder.path(), "/usr/bin:/bin").exits(0);
        assert_eq!(
            outcome.items()[0]["reason"],
            "endpoint-gone",
            "{outcome:#?}"
        );
        assert_eq!(
            outcome.json()["summary"]["cluster"]["lists"]["servicecidrs"],
            "not-served"
        );
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
        assert!(
            calls.contains("--kubeconfig") && calls.contains("get --raw /api/v1/services?"),
            "{calls}"
        );
        assert_eq!(server.requests().len(), 0);
        fake_kubectl(folder.path(), "endpointslices");
        let outcome = ls(folder.path(), "/usr/bin:/bin").exits(3);
        assert_eq!(outcome.items()[0]["reason"], "source-incomplete");
        assert!(
            outcome
                .stderr
                .contains("list on endpointslices.discovery.k8s.io"),
            "{outcome:#?}"
        );
        // It prints a list and ends, so it cannot watch.
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let args = ["watch", "--cluster", "api", "--kubeconfig"];
        let args = args.iter().copied().chain(kubeconfig.to_str());
        let outcome = Outcome::of(ctk_command(args).env("PATH", path).output().unwrap());
        assert_error(
            &outcome,
            1,
            &[
                "cannot log in",
                "cannot follow a cluster",
                "--cluster cluster.json",
            ],
        );
        let empty = tempfile::tempdir().unwrap();
        assert_error(&ls(empty.path(), ""), 1, &["cannot log in", "kubectl"]);
    });
}
