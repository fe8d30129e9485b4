//! Refused purges delete nothing.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::{NODES, cluster, new_node, shorthand};
use testkit::ctk_binary::{ctk, ctk_command, ctk_path};
use testkit::lab::cluster::ClusterFile;
use testkit::private_netns::private_netns;
use testkit::rows::Rows;
use testkit::tools::{Outcome, clean};

/// Two stale entries, a healthy one, and one of no Service.
const ROWS: &[&str] = &[
    "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40001 dport=53 src=10.244.2.9 dst=10.244.1.5 sport=53 dport=40001 [ASSURED]",
    "udp 17 29 src=10.244.1.6 dst=10.96.0.10 sport=40002 dport=53 [UNREPLIED] src=10.244.2.9 dst=10.244.1.6 sport=53 dport=40002",
    "udp 17 29 src=10.244.1.7 dst=10.96.0.10 sport=40003 dport=53 src=10.244.2.30 dst=10.244.1.7 sport=53 dport=40003 [ASSURED]",
    "udp 17 29 src=10.244.1.7 dst=203.0.113.9 sport=40004 dport=53 [UNREPLIED] src=203.0.113.9 dst=192.0.2.11 sport=53 dport=40004",
];
const DNS: &[&str] = &[
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)->coredns-b",
    "svc shop/web 10.96.0.20 http:80/TCP",
    "svc stage/web 10.96.0.21 http:80/TCP",
    "pod kube-system/coredns-b 10.244.2.30 @node2",
    "pod shop/same 10.244.1.5 @node1",
    "pod stage/same 10.244.1.6 @node1",
];

/// Arguments, exit status, and words on stderr of each refusal. `FILE` is a good source, `OLD` the same and
/// two minutes old, `LACKING` one without slices, `CUT` the first half of it.
const REFUSED: &[(&str, i32, &[&str])] = &[
    ("", 2, &["needs a selector", "hint: ", "--all"]),
    ("--yes", 2, &["needs a selector"]),
    ("--yes --cluster FILE", 2, &["needs a selector"]),
    ("--dry-run", 2, &["needs a selector"]),
    ("--all", 2, &["no confirmation is possible", "--yes"]),
    ("--all --udp --yes", 2, &["--all"]),
    (
        "--udp",
        2,
        &["no confirmation is possible", "--yes", "--dry-run"],
    ),
    ("--proto udp", 2, &["no confirmation is possible"]),
    (
        "--stale --cluster FILE",
        2,
        &["no confirmation is possible"],
    ),
    ("--stale --cluster -", 2, &["standard input holds the data"]),
    (
        "--udp --cluster - -o json",
        2,
        &["standard input holds the data"],
    ),
    (
        "--udp --yes --max 3",
        2,
        &["4 entries match", "--max 3", "hint: "],
    ),
    (
        "--stale --cluster FILE --yes --max 1",
        2,
        &["2 entries match", "--max 1"],
    ),
    (
        "--stale --cluster LACKING --yes",
        3,
        &["incomplete", "endpointslices", "hint: fetch it with"],
    ),
    (
        "--verdict stale --cluster LACKING --yes",
        3,
        &["incomplete"],
    ),
    (
        "--reason endpoint-gone --cluster LACKING --yes --dry-run",
        3,
        &["incomplete"],
    ),
    ("--stale --cluster CUT --yes", 3, &["cut short"]),
    (
        "--stale --cluster OLD --yes",
        3,
        &[
            "2m",
            "--max-age is 1m",
            "nothing was deleted",
            "hint: fetch it with",
        ],
    ),
    (
        "--stale --cluster OLD --yes --max-age 90s",
        3,
        &["--max-age is 1m 30s"],
    ),
    // A Pod or Service of the same address may be another one by now.
    (
        "--svc kube-dns --cluster OLD --yes",
        3,
        &["--max-age is 1m"],
    ),
    (
        "--client kube-system/coredns-b --cluster OLD --yes",
        3,
        &["--max-age is 1m"],
    ),
    (
        "--stale --cluster FILE --yes --max-age 0",
        3,
        &["--max-age is 0s"],
    ),
    (
        "--svc no-such --cluster FILE --yes",
        2,
        &["--svc", "no-such"],
    ),
    (
        "--stale --svc kube-system/no-such --cluster FILE --yes",
        2,
        &["no-such"],
    ),
    ("--svc no-such --cluster LACKING --yes", 3, &["incomplete"]),
    ("--svc kube-dns --cluster LACKING --yes", 3, &["incomplete"]),
    (
        "--svc web --cluster FILE --yes",
        2,
        &["--svc", "shop/web", "stage/web"],
    ),
    (
        "--stale --svc web --cluster FILE --yes",
        2,
        &["shop/web", "stage/web"],
    ),
    (
        "--pod same --cluster FILE --yes",
        2,
        &["--pod", "shop/same", "stage/same"],
    ),
    ("--pod no-such --cluster FILE --yes", 2, &["no-such"]),
    ("--verdict unknown --cluster FILE --yes", 2, &["unknown"]),
    (
        "--verdict unrelated --cluster FILE --yes",
        2,
        &["unrelated"],
    ),
    (
        "--verdict stale,unknown --cluster FILE --yes",
        2,
        &["unknown"],
    ),
    (
        "--reason no-frontend --cluster FILE --yes",
        2,
        &["no-frontend"],
    ),
    (
        "--reason foreign-zone --cluster FILE --yes",
        2,
        &["foreign-zone"],
    ),
    ("--udp --include draining --yes", 2, &["--include"]),
    ("--include draining --yes", 2, &[]),
    (
        "--stale --include unknown --cluster FILE --yes",
        2,
        &["--include", "unknown"],
    ),
    (
        "--stale --include stale --cluster FILE --yes",
        2,
        &["--include", "stale"],
    ),
    ("--stale --from FILE --cluster FILE --yes", 2, &["--from"]),
    ("--stale --cluster none --yes", 2, &["--cluster none"]),
    (
        "--svc kube-dns --cluster none --yes",
        2,
        &["--cluster none"],
    ),
    ("--stale --yes", 3, &["no cluster source", "hint: "]),
    ("--udp= --yes", 2, &["--udp"]),
    ("--udp 99999 --yes", 2, &["--udp"]),
    ("--dport 90-80 --yes", 2, &["--dport"]),
    ("--src 10.0.0.0/33 --yes", 2, &["--src"]),
    ("--label= --yes", 2, &["--label"]),
    ("-4 --dst fd00::1 --yes", 2, &["--dst"]),
    ("--udp --limit 1 --yes", 2, &["--limit"]),
    ("--udp --sort timeout --yes", 2, &["--sort"]),
    ("--udp --yes 10.244.1.5", 2, &["10.244.1.5"]),
];

#[test]
fn a_refused_purge_deletes_nothing() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert_without_start(ROWS);
        let file = cluster(DNS);
        let old = cluster(DNS);
        age(&old, 120);
        let services: Vec<&str> = DNS
            .iter()
            .chain(&NODES)
            .chain(&shorthand::API)
            .filter(|line| !line.starts_with("slice"))
            .copied()
            .collect();
        let lacking = ClusterFile::of_text(&shorthand::list(&services));
        let whole = std::fs::read_to_string(file.path()).unwrap();
        let cut = ClusterFile::of_text(&whole[..whole.len() / 2]);
        for (line, status, words) in REFUSED {
            let args = line.split_whitespace().map(|word| match word {
                "FILE" => file.path(),
                "OLD" => old.path(),
                "LACKING" => lacking.path(),
                "CUT" => cut.path(),
                word => word,
            });
            let args: Vec<&str> = ["purge", "--settle", "0", "--verify", "0"]
                .into_iter()
                .chain(args)
                .collect();
            let said = ctk(&args);
            rows.assert_untouched((line, &said));
            assert_eq!(said.status, Some(*status), "{line}: {said:#?}");
            assert!(
                said.stderr.contains("ctk: error: "),
                "{line}: {}",
                said.stderr
            );
            assert_eq!(said.stdout, "", "{line}");
            for word in *words {
                assert!(said.stderr.contains(word), "{line}: {word} in {said:#?}");
            }
        }
        // The same with what was missing.
        for (line, deleted) in [
            ("--stale --max-age 5m --dry-run", 0),
            ("--stale --max-age 5m --yes", 2),
        ] {
            let mut args = vec!["purge", "--settle", "0", "--verify", "0", "-o", "json"];
            args.extend(["--cluster", old.path()]);
            args.extend(line.split_whitespace());
            let said = ctk(&args).exits(0);
            assert_eq!(said.json()["summary"]["matched"], 2, "{line}");
            assert_eq!(said.json()["summary"]["deleted"], deleted, "{line}");
        }
        assert_eq!(rows.left(), [3, 4]);
    });
}

fn age(file: &ClusterFile, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    let opened = std::fs::File::options().write(true).open(file.path());
    opened.unwrap().set_modified(then).unwrap();
}

#[test]
fn a_file_that_grows_too_old_while_waiting_deletes_nothing() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert_without_start(ROWS);
        let file = cluster(DNS);
        age(&file, 58);
        let args = ["purge", "--stale", "--yes", "--cluster", file.path()];
        let said = ctk(args.into_iter().chain(["--settle", "3s"])).exits(3);
        assert!(said.stderr.contains("--max-age is 1m"), "{said:?}");
        rows.assert_untouched(said);
    });
}

#[test]
fn an_old_file_that_is_redirected_to_stdin_deletes_nothing() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert_without_start(ROWS);
        let file = cluster(DNS);
        age(&file, 120);
        let mut command = ctk_command("purge --stale --yes --cluster -".split_whitespace());
        command.stdin(std::fs::File::open(file.path()).unwrap());
        let said = Outcome::of(command.output().unwrap()).exits(3);
        assert!(said.stderr.contains("--max-age is 1m"), "{said:?}");
        rows.assert_untouched(said);
    });
}

#[test]
fn a_cluster_on_stdin_purges_with_yes_and_is_not_read_again() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let file = cluster(DNS);
        let mut args = vec!["purge", "--stale", "--cluster", "-", "--yes", "-o", "json"];
        args.extend(["--settle", "0", "--verify", "0"]);
        let mut command = ctk_command(&args);
        command.stdin(Stdio::from(std::fs::File::open(file.path()).unwrap()));
        let said = Outcome::of(command.output().unwrap()).exits(0);
        let summary = &said.json()["summary"];
        assert_eq!(summary["deleted"], 2);
        // A file on stdin is no pipe, and still cannot be read twice.
        assert_eq!(summary["cluster"]["read_again"], false);
        assert_eq!(rows.left(), [3, 4]);
    });
}

#[test]
fn without_the_capability_nothing_is_attempted() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let file = cluster(DNS);
        for line in [
            "--udp --yes",
            "--stale --yes",
            "--all --yes",
            "--udp --dry-run",
        ] {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set=-all", "--inh-caps=-all", ctk_path()]);
            let mut args = vec!["purge", "--cluster", file.path()];
            args.extend(line.split_whitespace());
            let said = Outcome::of(clean(command, args).output().expect("setpriv starts"));
            let said = said.exits(4);
            assert!(said.stderr.contains("CAP_NET_ADMIN"), "{line}: {said:?}");
            assert!(said.stderr.contains("ctk: error: "), "{line}: {said:?}");
            assert!(!said.stderr.contains("deleting"), "{line}: {said:?}");
            assert_eq!(said.stdout, "", "{line}");
            rows.assert_untouched(line);
        }
    });
}
