//! Refusals of `ctk ls`: permissions, namespaces, impossible values, names, cluster files. stdout stays empty.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use testkit::lab;

use ctnetlink::Table;
use ctnetlink::netns::Netns;
use testkit::ctk_binary::{ctk, ctk_line, ctk_path, readable_binary};
use testkit::lab::cluster::{ClusterFile, list, minimal, service};
use testkit::mixed::{insert, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, as_nobody, assert_error, clean};

#[test]
fn a_missing_capability_is_named() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        for format in ["table", "json", "jsonl", "conntrack", "csv"] {
            let mut command = Command::new("setpriv");
            command.args([
                "--bounding-set=-net_admin",
                "--inh-caps=-net_admin",
                ctk_path(),
            ]);
            let args = ["ls", "--cluster", "none", "-o", format, "--sort", "id"];
            let outcome = Outcome::of(clean(command, args).output().unwrap());
            assert_error(&outcome, 4, &["CAP_NET_ADMIN"]);
        }
        let mut streamed = Command::new("setpriv");
        streamed.args([
            "--bounding-set=-net_admin",
            "--inh-caps=-net_admin",
            ctk_path(),
        ]);
        let outcome = Outcome::of(clean(streamed, ["ls", "-o", "json"]).output().unwrap());
        assert_error(&outcome, 4, &["CAP_NET_ADMIN"]);
    });
}

#[test]
fn an_ordinary_user_gets_an_error_that_names_the_capability() {
    if !nix::unistd::geteuid().is_root() {
        let outcome = ctk_line("ls --cluster none");
        assert_error(&outcome, 4, &["CAP_NET_ADMIN"]);
        return;
    }
    private_netns(|| {
        let (_folder, binary) = readable_binary();
        let outcome = Outcome::of(
            as_nobody(&binary, &["ls", "--cluster", "none"])
                .output()
                .unwrap(),
        );
        assert_error(&outcome, 4, &["CAP_NET_ADMIN"]);
    });
}

#[test]
fn another_namespace_is_read_by_name_path_and_pid() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        // Process in its own namespace, which ends with its stdin.
        let mut other = Command::new("unshare")
            .args(["-n", "sh", "-c", "echo ready; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut stdout = BufReader::new(other.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        let pid = other.id().to_string();
        let netns = Netns::named(&pid).unwrap();
        let results = Table::open(&netns)
            .unwrap()
            .insert_all([udp("10.0.0.2", 2)]);
        assert_eq!(results, [Ok(())]);
        let source = |args: &[&str]| {
            let all = ["ls", "--cluster", "none", "-o", "jsonl"]
                .iter()
                .chain(args);
            let items = ctk(all).exits(0).jsonl();
            let sources = items
                .iter()
                .map(|i| i["original"]["src"].as_str().unwrap().to_owned());
            sources.collect::<Vec<_>>()
        };
        assert_eq!(source(&[]), ["10.0.0.1"]);
        assert_eq!(source(&["--netns", &pid]), ["10.0.0.2"]);
        assert_eq!(
            source(&["--netns", &format!("/proc/{pid}/ns/net")]),
            ["10.0.0.2"]
        );
        // `ip netns` keeps names in /run/netns; this one belongs to a private mount namespace.
        let script = "mount -t tmpfs none /run && ip netns attach blue \"$1\" && ip netns attach 1234 \"$1\" &&
            \"$0\" ls --cluster none -o jsonl --netns blue && \"$0\" ls --cluster none -o jsonl --netns name:1234 &&
            ! \"$0\" ls --cluster none --netns green";
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", script, ctk_path(), &pid])
            .output();
        let outcome = Outcome::of(output.unwrap()).exits(0);
        let named = outcome.jsonl();
        assert_eq!(named.len(), 2);
        assert!(
            named
                .iter()
                .all(|item| item["original"]["src"] == "10.0.0.2"),
            "{named:?}"
        );
        let known = "no network namespace is named \"green\"; known: 1234, blue";
        assert!(outcome.stderr.contains(known), "{outcome:?}");
        drop(other.stdin.take());
        other.wait().unwrap();
    });
}

#[test]
fn a_missing_namespace_is_an_error_that_names_the_flag() {
    for (typed, status) in [
        ("no-such-namespace", 1),
        ("/no/such/file", 1),
        ("/etc/hostname", 1),
        ("4294967295", 1),
        ("name:4294967295", 1),
        ("", 1),
    ] {
        let outcome = ctk(["ls", "--cluster", "none", "--netns", typed]);
        // Without privilege the kernel may refuse before it examines the file.
        let refused = outcome.status == Some(4) && !nix::unistd::geteuid().is_root();
        assert!(
            outcome.status == Some(status) || refused,
            "{typed:?}: {outcome:#?}"
        );
        assert!(
            outcome.stderr.starts_with("ctk: error: --netns: "),
            "{outcome:#?}"
        );
        assert_eq!(outcome.stdout, "");
    }
}

#[test]
fn an_impossible_value_is_a_usage_error_that_names_its_flag() {
    for (args, flag) in [
        ("--udp 99999", "--udp"),
        ("--udp=", "--udp"),
        ("--tcp 9000-8000", "--tcp"),
        ("--tcp !", "--tcp"),
        ("--sctp 1,,2", "--sctp"),
        ("--dport=-1", "--dport"),
        ("--sport no-such-service", "--sport"),
        ("--reply-sport 0x35", "--reply-sport"),
        ("--reply-dport 1-2-3", "--reply-dport"),
        ("--port 65536", "--port"),
        ("--src 10.0.0.0/33", "--src"),
        ("--src 10.0.0", "--src"),
        ("--dst fd00::/129", "--dst"),
        ("--reply-src 10.0.0.256", "--reply-src"),
        ("--reply-dst example.org", "--reply-dst"),
        ("--ip !!10.0.0.1", "--ip"),
        ("-4 --src fd00::1", "--src"),
        ("-4 -6", "-4"),
        ("-p 256", "--proto"),
        ("-p tpc", "--proto"),
        ("--status asured", "--status"),
        ("--state open-sesame", "--state"),
        ("--ttl 30s", "--ttl"),
        ("--ttl <30x", "--ttl"),
        ("--age >", "--age"),
        ("--packets >=-1", "--packets"),
        ("--bytes >1Q", "--bytes"),
        ("--mark 0x1ffffffff", "--mark"),
        ("--mark 1/0", "--mark"),
        ("--zone 65536", "--zone"),
        ("--label=", "--label"),
        ("--label 128", "--label"),
        ("--helper=", "--helper"),
        ("--id 4294967296", "--id"),
        ("--match (", "--match"),
        ("--svc a/b/c", "--svc"),
        ("--svc=", "--svc"),
        ("--pod /", "--pod"),
        ("--client 10.0.0.1:0x", "--client"),
        ("--endpoint=", "--endpoint"),
        ("-n a/b", "--namespace"),
        ("--verdict rotten", "--verdict"),
        ("--reason because", "--reason"),
        ("--service-cidr 10.96.0.0/40", "--service-cidr"),
        ("-o yaml", "--output"),
        ("--columns no_such", "--columns"),
        ("--columns original.src -o json", "--columns"),
        ("--sort -no_such", "--sort"),
        ("--limit=-1", "--limit"),
        ("--limit many", "--limit"),
        ("--color sometimes", "--color"),
        ("--table routes", "--table"),
        ("--sample 1y2z", "--sample"),
        ("--no-such-flag", "--no-such-flag"),
        ("kube-dns", "kube-dns"),
        ("--stale --cluster none", "--cluster"),
    ] {
        let outcome = ctk_line(&format!("ls {args}"));
        assert_error(&outcome, 2, &[flag]);
        assert!(
            outcome.stderr.starts_with("ctk: error: "),
            "{args}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn an_unknown_or_ambiguous_service_is_an_error() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let mut objects = lab::cluster_objects(&lab::BACKENDS);
        objects.push(service("shop", "api", "10.96.0.20", &[("http", 80, "TCP")]));
        objects.push(service("test", "api", "10.96.0.21", &[("http", 80, "TCP")]));
        let file = ClusterFile::of(&objects);
        let ls = |cluster: &ClusterFile, args: &[&str]| {
            let all = ["ls", "--cluster", cluster.path()].into_iter();
            ctk(all.chain(args.iter().copied()))
        };
        assert_error(
            &ls(&file, &["--svc", "kube-dsn"]),
            2,
            &["--svc", "kube-dsn", "kube-dns"],
        );
        assert_error(
            &ls(&file, &["--svc", "kube-dns:htpt"]),
            2,
            &["htpt", "dns (53)"],
        );
        assert_error(
            &ls(&file, &["--svc", "shop/kube-dns"]),
            2,
            &["shop/kube-dns"],
        );
        assert_error(&ls(&file, &["--svc", "api"]), 2, &["shop/api", "test/api"]);
        assert_error(&ls(&file, &["--pod", "web-9"]), 2, &["--pod", "web-9"]);
        for wanted in [
            "shop/api",
            "test/api:http",
            "test/api:80",
            "kube-dns",
            "!kube-dns",
        ] {
            ls(&file, &["--svc", wanted]).exits(0);
        }
        // A Service that the file lacks may exist all the same.
        let incomplete = ClusterFile::of(&minimal(lab::NODE)[..2]);
        assert_error(
            &ls(&incomplete, &["--svc", "kube-dns"]),
            3,
            &["kube-dns", "not complete"],
        );
        // No source of names.
        assert_error(
            &ctk_line("ls --svc kube-dns"),
            3,
            &["no cluster source", "--cluster FILE"],
        );
        assert_error(&ctk_line("ls --stale"), 3, &["no cluster source"]);
        assert_error(
            &ctk_line("ls --svc kube-dns --cluster none"),
            2,
            &["--cluster none"],
        );
    });
}

#[test]
fn a_cluster_file_that_cannot_be_read_is_an_error_with_the_place() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let whole = list(&lab::cluster_objects(&lab::BACKENDS));
        let cut = ClusterFile::of_text(&whole[..whole.len() * 2 / 3]);
        let broken = ClusterFile::of_text(&format!("{whole}\n]"));
        let text = ClusterFile::of_text("error: You must be logged in to the server\n");
        let empty = ClusterFile::of_text("");
        for format in ["table", "json", "jsonl", "csv"] {
            let read = |file: &ClusterFile| ctk(["ls", "--cluster", file.path(), "-o", format]);
            assert_error(&read(&cut), 3, &["--cluster", cut.path(), "line 1, column"]);
            assert_error(
                &read(&broken),
                3,
                &["--cluster", broken.path(), "line 2, column"],
            );
            assert_error(
                &read(&text),
                3,
                &["--cluster", text.path(), "line 1, column"],
            );
            assert_error(&read(&empty), 3, &["--cluster", empty.path()]);
        }
        let missing = ctk_line("ls --cluster /no/such/file");
        assert_error(&missing, 1, &["--cluster", "/no/such/file"]);
    });
}
