//! The second look is by the source of the first and no less of it, or nothing is deleted; a dry run takes the same look.

use std::fs;
use std::time::{Duration, SystemTime};

use ctnetlink::DeleteTarget;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use crate::started::{Seated, Started};
use testkit::ctk_binary::ctk;
use testkit::lab::cluster::{ClusterFile, list};
use testkit::lab::{self, BACKENDS, CLIENTS, Client, Lab, Proxy, cluster_objects};
use testkit::private_netns::private_netns;
use testkit::rows::{Rows, dump, identity, table};
use testkit::tools::{Outcome, nft, run, sysctl};

/// A stale entry of each of three kinds: by endpoints, by the Service range, by a Pod that has the address now.
const ROWS: &[&str] = &[
    "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40001 dport=53 src=10.244.2.9 dst=10.244.1.5 sport=53 dport=40001 [ASSURED]",
    "udp 17 29 src=10.244.1.5 dst=10.96.0.99 sport=40002 dport=514 src=10.244.2.9 dst=10.244.1.5 sport=514 dport=40002 [ASSURED]",
    "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40003 dport=53 src=10.244.2.8 dst=10.244.1.5 sport=53 dport=40003 [ASSURED]",
];

/// The objects of a cluster in which all of [`ROWS`] are stale, as kubectl prints them.
fn objects() -> Vec<Value> {
    let mut objects = cluster_objects(&BACKENDS[1..]);
    objects.push(lab::cluster::pod("shop", "reused", "10.244.2.8", "node2"));
    objects.push(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/12"]},
    }));
    for object in &mut objects {
        object["metadata"]["uid"] = json!(format!("uid-{}", object["metadata"]["name"]));
    }
    objects
}

fn without(kind: &str) -> Vec<Value> {
    let mut objects = objects();
    objects.retain(|object| object["kind"] != kind);
    objects
}

/// Replaces a file's text at once, as `mv` does, so that no reader meets half of it.
fn replace(file: &ClusterFile, objects: &[Value]) {
    let new = format!("{}.new", file.path());
    fs::write(&new, list(objects)).unwrap();
    fs::rename(&new, file.path()).unwrap();
}

/// Purges by a file, with `meanwhile` between the two looks; `matched` begins what is said after the first.
fn purge(source: &str, more: &[&str], matched: &str, meanwhile: impl FnOnce()) -> Outcome {
    let args = ["purge", "--stale", "--yes", "--cluster", source];
    let waits = ["--settle", "700ms", "--verify", "0"];
    let mut purge = Started::new(&[&args[..], &waits, more].concat());
    purge.wait_for(matched);
    meanwhile();
    purge.finish()
}

#[test]
fn a_file_that_became_less_or_another_one_deletes_nothing() {
    type Change = fn(&ClusterFile);
    let changes: [(&str, Change, &str); 9] = [
        (
            "gone",
            |file| fs::remove_file(file.path()).unwrap(),
            "cannot open",
        ),
        (
            "empty",
            |file| fs::write(file.path(), "").unwrap(),
            "the second look",
        ),
        (
            "a pipe",
            |file| {
                fs::remove_file(file.path()).unwrap();
                run("mkfifo", &[file.path()]);
                let path = file.path().to_owned();
                std::thread::spawn(move || fs::write(path, list(&objects())).unwrap());
            },
            "another kind",
        ),
        (
            "older",
            |file| {
                replace(file, &objects());
                let opened = fs::File::options().write(true).open(file.path());
                let then = SystemTime::now() - Duration::from_secs(20);
                opened.unwrap().set_modified(then).unwrap();
            },
            "older than at the first look",
        ),
        (
            "of another cluster",
            |file| {
                let mut objects = objects();
                for object in &mut objects {
                    object["metadata"]["uid"] = json!("another");
                }
                replace(file, &objects);
            },
            "another cluster",
        ),
        (
            "without ServiceCIDRs",
            |file| replace(file, &without("ServiceCIDR")),
            "lacks servicecidrs",
        ),
        (
            "without Pods",
            |file| replace(file, &without("Pod")),
            "lacks pods",
        ),
        (
            "without Nodes",
            |file| replace(file, &without("Node")),
            "lacks nodes",
        ),
        (
            "without slices",
            |file| replace(file, &without("EndpointSlice")),
            "endpointslices",
        ),
    ];
    private_netns(|| {
        for (what, change, words) in changes {
            crate::new_node();
            let rows = Rows::insert(ROWS);
            let file = ClusterFile::of(&objects());
            let said = purge(file.path(), &[], "3 entries match", || change(&file)).exits(3);
            assert!(said.stderr.contains(words), "{what}: {said:?}");
            assert!(said.stderr.contains("deleted"), "{what}: {said:?}");
            assert_eq!(said.stdout, "", "{what}");
            rows.assert_untouched(what);
            // The file's end wants to remove a file of that name.
            let _ = fs::remove_file(file.path());
            fs::write(file.path(), "").unwrap();
        }
        // The same, written anew with nothing less in it.
        crate::new_node();
        let rows = Rows::insert(ROWS);
        let file = ClusterFile::of(&objects());
        let same = || replace(&file, &objects());
        purge(file.path(), &[], "3 entries match", same).exits(0);
        assert_eq!(rows.left(), [0; 0]);
    });
}

/// A node on which a client sent before there were rules: its entry is stale by the rules alone.
fn node_with_an_untranslated_entry(proxy: Proxy) -> (Lab, Client) {
    unshare(CloneFlags::CLONE_NEWNET).expect("one could be made a moment ago");
    let lab = Lab::new(proxy);
    let early = Client::bind(CLIENTS[1], 5353);
    early.send();
    lab.set_endpoints(&BACKENDS);
    (lab, early)
}

#[test]
fn rules_that_are_gone_at_the_second_look_delete_nothing() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            for source in ["rules", "auto"] {
                let (lab, _early) = node_with_an_untranslated_entry(proxy);
                let before = dump().iter().map(identity).collect::<Vec<_>>();
                let flush = || nft("flush ruleset");
                let said = purge(source, &[], "1 entry matches", flush).exits(3);
                assert!(
                    said.stderr.contains("nothing was deleted"),
                    "{proxy:?} {source}: {said:?}"
                );
                assert_eq!(dump().iter().map(identity).collect::<Vec<_>>(), before);
                drop(lab);
            }
        }
    });
}

#[test]
fn a_service_that_is_gone_at_the_second_look_deletes_nothing_by_its_name() {
    private_netns(|| {
        crate::new_node();
        let rows = Rows::insert(ROWS);
        let file = ClusterFile::of(&objects());
        let mut less = objects();
        less.retain(|object| object["metadata"]["name"] != "kube-dns");
        let by_name = ["--svc", "kube-dns"];
        let meanwhile = || replace(&file, &less);
        let said = purge(file.path(), &by_name, "2 entries match", meanwhile).exits(3);
        assert!(said.stderr.contains("nothing was deleted"), "{said:?}");
        rows.assert_untouched(said);
    });
}

/// Result, verdict's reason and source port of each item.
fn results(items: &[Value]) -> Vec<(String, String, u64)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let mut all: Vec<_> = items
        .iter()
        .map(|item| {
            let port = item["original"]["sport"].as_u64().unwrap();
            (word(&item["result"]), word(&item["reason"]), port)
        })
        .collect();
    all.sort();
    all
}

/// A node whose kube-proxy stopped before the first backend came: the file has both, rules lead to the second only. The
/// first entry was never translated, and no rule translates its destination; the second leads to a backend that the file
/// does not have, and nothing tells which of the two is older.
fn node_behind(proxy: Proxy) -> (Lab, ClusterFile, [Client; 2]) {
    unshare(CloneFlags::CLONE_NEWNET).expect("one could be made a moment ago");
    sysctl("timestamp", "0");
    let lab = Lab::new(proxy);
    let mut objects = cluster_objects(&BACKENDS[1..]);
    objects.push(lab::cluster::service(
        "net",
        "late",
        "10.96.0.77",
        &[("p", 514, "UDP")],
    ));
    objects.push(lab::cluster::slice(
        "net",
        "late",
        &[("p", 514, "UDP")],
        &[("10.244.2.40", "late-1")],
    ));
    let file = ClusterFile::of(&objects);
    lab.set_endpoints(&BACKENDS);
    let [young, other] = lab.client_of_each();
    let ports = [young.port(), other.port()];
    let others = dump().into_iter().filter(|flow| {
        flow.original
            .sport()
            .is_none_or(|port| !ports.contains(&port))
    });
    let others: Vec<_> = others.filter_map(|flow| DeleteTarget::of(&flow)).collect();
    assert!(table().delete(&others).iter().all(Result::is_ok));
    let socket = std::net::UdpSocket::bind((CLIENTS[1], 5353)).unwrap();
    socket.send_to(b"log", "10.96.0.77:514").unwrap();
    (lab, file, [young, other])
}

#[test]
fn a_dry_run_shows_as_left_what_the_purge_leaves() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            let (lab, file, [young, _]) = node_behind(proxy);
            let args = ["purge", "--stale", "--cluster", file.path(), "-o", "json"];
            let dry = ctk([&args[..], &["--dry-run"]].concat()).exits(0);
            let port = u64::from(young.port());
            let left = |result: &str| vec![(result.to_owned(), "endpoint-gone".to_owned(), port)];
            let expected = left("changed");
            assert_eq!(results(&dry.items()), expected, "{proxy:?}: {dry:?}");
            let summary = &dry.json()["summary"];
            assert_eq!(
                (&summary["matched"], &summary["changed"]),
                (&json!(1), &json!(1))
            );
            for words in [
                "0 entries would be deleted",
                "1 entry held back (pending)",
                "this node's rules lead to its endpoint",
            ] {
                assert!(dry.stderr.contains(words), "{proxy:?}: {words}: {dry:?}");
            }
            let more = ["--yes", "--settle", "0", "--verify", "0"];
            let done = ctk([&args[..], &more].concat()).exits(0);
            assert_eq!(results(&done.items()), expected, "{proxy:?}: {done:?}");
            // Rules that lead elsewhere leave nothing against the delete.
            lab.set_endpoints(&BACKENDS[1..]);
            let dry = ctk([&args[..], &["--dry-run"]].concat()).exits(0);
            assert_eq!(
                results(&dry.items()),
                left("would-delete"),
                "{proxy:?}: {dry:?}"
            );
            assert!(dry.stderr.contains("1 entry would be deleted"), "{dry:?}");
        }
    });
}

#[test]
fn the_question_shows_what_would_be_left() {
    private_netns(|| {
        let (_lab, file, _clients) = node_behind(Proxy::Nftables);
        let args = ["purge", "--stale", "--cluster", file.path(), "-o", "jsonl"];
        let mut purge = Seated::new(&[&args[..], &["--settle", "0", "--verify", "0"]].concat());
        let shown = purge.wait_for("? [y/N] ");
        for words in ["held back (pending)", "RESULT", "1 entry is left"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let rows = |result| shown.lines().filter(|line| line.ends_with(result)).count();
        let found = (rows("changed"), shown.contains("would-delete"));
        assert_eq!(found, (1, false), "{shown}");
        purge.answer("y\n");
        let said = purge.finish().exits(0);
        let results = said.jsonl();
        assert!(
            results.iter().all(|item| item["result"] == "changed"),
            "{said:?}"
        );
    });
}
