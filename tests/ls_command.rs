//! `ctk ls` as scripts meet it: exit statuses, what goes to stdout and what to stderr, formats, order, closed pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use testkit::{lab, mixed, tools};

use ctnetlink::Table;
use ctnetlink::flow::{Flow, L4};
use ctnetlink::netns::Netns;
use serde_json::{Value, json};
use testkit::ctk_binary::{ctk, ctk_command, ctk_line};
use testkit::lab::be_the_node;
use testkit::lab::cluster::{ClusterFile, list, minimal, node, service, slice};
use testkit::mixed::{ASSURED, insert, plain, to_dns, tuple, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error, run};

#[test]
fn found_is_told_by_the_exit_status_only_when_asked() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        for (args, status) in [
            ("--udp", 0),
            ("--udp --exit-code", 5),
            ("--udp --exit-code -o json", 5),
            ("--tcp --exit-code", 0),
            ("--tcp --exit-code --limit 5", 0),
        ] {
            ctk_line(&format!("ls --cluster none {args}")).exits(status);
        }
        be_the_node();
        insert(&[to_dns(17, 40_000, "10.244.9.9")]);
        let file = lab::cluster(&lab::BACKENDS);
        let stale = ["ls", "--cluster", file.path(), "--stale", "--exit-code"];
        assert!(ctk(stale).exits(5).stdout.contains("endpoint-gone"));
        let ok = [
            "ls",
            "--cluster",
            file.path(),
            "--verdict",
            "ok",
            "--exit-code",
        ];
        ctk(ok).exits(0);
        // Partial wins over found.
        let mut partial = lab::cluster_objects(&lab::BACKENDS);
        partial.retain(|object| object["kind"] != "EndpointSlice");
        let partial = ClusterFile::of(&partial);
        let args = [
            "ls",
            "--cluster",
            partial.path(),
            "--svc",
            "kube-dns",
            "--exit-code",
        ];
        let said = ctk(args).exits(3);
        assert!(said.stderr.contains("endpointslices"), "{said:#?}");
        assert!(said.stdout.contains("source-incomplete"), "{said:#?}");
    });
}

#[test]
fn a_cluster_comes_on_standard_input_too() {
    private_netns(|| {
        be_the_node();
        insert(&[to_dns(17, 40_000, "10.244.9.9")]);
        let piped = |text: &str| {
            let mut child =
                ctk_command(["ls", "--cluster", "-", "--svc", "kube-dns", "-o", "json"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
            // A reader that stops early is tested by its status.
            let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
            Outcome::of(child.wait_with_output().unwrap())
        };
        let whole = list(&lab::cluster_objects(&lab::BACKENDS));
        let said = piped(&whole).exits(0);
        assert_eq!(said.items()[0]["reason"], "endpoint-gone");
        assert_eq!(said.json()["summary"]["cluster"]["source"], "file");
        assert_error(&piped(&whole[..200]), 3, &["--cluster", "line 1, column"]);
    });
}

#[test]
fn stale_leaves_tcp_out_and_says_how_many() {
    private_netns(|| {
        be_the_node();
        let gone = "10.244.9.9";
        let mut flows = vec![to_dns(17, 40_000, gone), to_dns(17, 40_001, "10.244.1.7")];
        flows.extend((0..3).map(|n| {
            let mut flow = to_dns(6, 41_000 + n, gone);
            flow.state = Some(mixed::tcp(7));
            flow
        }));
        insert(&flows);
        let file = lab::cluster(&lab::BACKENDS);
        let held = "3 stale entries of other protocols than UDP are left out";
        for (args, shown, said_so) in [
            (&["--stale"][..], 1, true),
            // A listing by verdict or reason is of every protocol: nothing is deleted here.
            (&["--verdict", "stale"], 4, false),
            (&["--reason", "endpoint-gone"], 4, false),
            (&["--stale", "--tcp"], 3, false),
            (&["--stale", "--udp", "--tcp"], 4, false),
            (&["--stale", "-p", "6"], 3, false),
            (&["--svc", "kube-dns"], 5, false),
            (&["--svc", "kube-dns:dns"], 2, false),
            (&["--stale", "--svc", "kube-dns:dns-tcp"], 0, true),
        ] {
            let all = ["ls", "--cluster", file.path(), "-o", "jsonl"]
                .into_iter()
                .chain(args.iter().copied());
            let said = ctk(all).exits(0);
            assert_eq!(said.jsonl().len(), shown, "{args:?}: {said:#?}");
            assert_eq!(
                said.stderr.contains(held),
                said_so,
                "{args:?}: {}",
                said.stderr
            );
        }
    });
}

#[test]
fn rows_are_limited_and_sorted_with_what_is_not_known_last() {
    private_netns(|| {
        let mut flows: Vec<Flow> = (1..=9).map(|n| udp("10.0.0.1", n)).collect();
        for (n, flow) in flows.iter_mut().enumerate() {
            flow.timeout = Some(3600 + 1000 * (n as u32 * 7 % 9));
        }
        flows.push(plain(tuple(89, "10.0.0.1", "10.64.0.1", L4::None), ASSURED));
        insert(&flows);
        let column = |args: &str, pointer: &str| -> Vec<Value> {
            let line = format!("ls --cluster none -o jsonl {args}");
            let items = ctk_line(&line).exits(0).jsonl();
            items
                .iter()
                .map(|item| item.pointer(pointer).unwrap().clone())
                .collect()
        };
        let ports = |ports: &[u16], null| {
            let mut all: Vec<Value> = ports.iter().map(|port| json!(port)).collect();
            all.extend(null);
            all
        };
        let up: Vec<u16> = (1..=9).collect();
        let down: Vec<u16> = (1..=9).rev().collect();
        let sport = "/original/sport";
        assert_eq!(
            column("--sort original.sport", sport),
            ports(&up, Some(Value::Null))
        );
        assert_eq!(
            column("--sort -original.sport", sport),
            ports(&down, Some(Value::Null))
        );
        assert_eq!(
            column("--sort -original.sport --limit 2", sport),
            ports(&down[..2], None)
        );
        assert_eq!(column("--udp --limit 4", sport).len(), 4);
        assert_eq!(column("--limit 0", sport).len(), 0);
        let timers = column("--udp --sort -timeout", "/timeout");
        assert!(
            timers.is_sorted_by_key(|t| std::cmp::Reverse(t.as_u64())),
            "{timers:?}"
        );
        assert_eq!(timers.len(), 9);
        let document = ctk_line("ls --cluster none -o json --limit 2 --udp")
            .exits(0)
            .json();
        assert_eq!(document["summary"]["shown"], 2);
        assert_eq!(document["items"].as_array().unwrap().len(), 2);
    });
}

#[test]
fn columns_and_headers_are_as_asked() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 4000)]);
        let out = |args: &str| {
            ctk_line(&format!("ls --cluster none {args}"))
                .exits(0)
                .stdout
        };
        let columns = "--columns original.src,original.sport,protocol";
        assert_eq!(
            out(&format!("-o csv {columns}")),
            "original.src,original.sport,protocol\r\n10.0.0.1,4000,udp\r\n"
        );
        assert_eq!(
            out(&format!("-o csv {columns} --no-header")),
            "10.0.0.1,4000,udp\r\n"
        );
        let table = out(columns);
        let words: Vec<Vec<&str>> = table
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(words[1], ["10.0.0.1", "4000", "udp"], "{table}");
        assert_eq!(out(&format!("{columns} --no-header")).lines().count(), 1);
        assert!(out("").starts_with("PROTO  STATE"), "{}", out(""));
        assert!(!out("--no-header").contains("PROTO"));
        let csv = out("-o csv");
        let (header, rest) = csv.split_once('\n').unwrap();
        assert!(header.starts_with("family,protocol,"), "{header}");
        assert_eq!(rest.lines().count(), 1);
        // Piped output is never coloured unless told so.
        assert!(!out("").contains('\u{1b}'));
    });
}

#[test]
fn an_empty_table_is_a_valid_answer_in_every_format() {
    private_netns(|| {
        for table in ["conntrack", "dying", "unconfirmed"] {
            let line = format!("ls --cluster none --table {table} -o json");
            let document = ctk_line(&line).exits(0).json();
            assert_eq!(document["items"], json!([]), "{table}");
            assert_eq!(document["summary"]["shown"], 0);
            assert_eq!(document["summary"]["consistent"], true);
        }
        for format in ["jsonl", "conntrack"] {
            let said = ctk_line(&format!("ls --cluster none -o {format}")).exits(0);
            assert_eq!(said.stdout, "", "{format}");
            // It may be the wrong namespace: that is said, and not on stdout.
            assert!(said.stderr.contains("has no entries"), "{said:?}");
        }
        let csv = ctk_line("ls --cluster none -o csv").exits(0).stdout;
        assert_eq!(csv.lines().count(), 1);
    });
}

#[test]
fn without_a_cluster_it_says_so_once_and_goes_on() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let said = ctk_line("ls -o jsonl").exits(0);
        assert_eq!(said.jsonl()[0]["verdict"], Value::Null);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
        assert!(said.stderr.contains("cluster: none"), "{}", said.stderr);
    });
}

#[test]
fn a_reader_who_goes_away_ends_it_quietly() {
    private_netns(|| {
        let mut table = Table::open(&Netns::current()).unwrap();
        let flows = (0..5000).map(|n| udp(&format!("10.1.{}.{}", n / 250, n % 250), 1));
        assert!(table.insert_all(flows).iter().all(Result::is_ok));
        for args in [
            "-o table",
            "-o wide",
            "-o json",
            "-o jsonl",
            "-o conntrack",
            "-o csv",
            "--sort id",
        ] {
            let mut child = ctk_command(format!("ls --cluster none {args}").split(' '))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // As `head -1` does.
            let mut lines = BufReader::new(child.stdout.take().unwrap());
            let mut first = String::new();
            lines.read_line(&mut first).unwrap();
            drop(lines);
            assert!(!first.is_empty(), "{args}");
            let mut stderr = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut stderr)
                .unwrap();
            let status = child.wait().unwrap();
            assert_eq!((status.code(), &*stderr), (Some(0), ""), "{args}");
        }
        // A disk that is full is no reader who left.
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = ctk_command(["ls", "--cluster", "none"])
            .stdout(full)
            .output()
            .unwrap();
        let said = Outcome::of(output).exits(1);
        assert!(said.stderr.contains("writing the output"), "{said:?}");
    });
}

#[test]
fn explain_says_what_ran_where() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let said = ctk_line(
            "ls --cluster none -4 --udp 53 --src 10.0.0.1 --sport 1-9 --match udp --explain -o jsonl",
        )
        .exits(0);
        assert_eq!(said.jsonl().len(), 1);
        for (selector, place) in [
            ("-4", "kernel, and again in user space"),
            ("--udp 53", "kernel, and again in user space"),
            ("--src 10.0.0.1", "kernel, and again in user space"),
            ("--sport 1-9", "user space"),
            ("--match udp", "user space, on the printed line"),
        ] {
            let line = format!("ctk: {selector}: {place}");
            assert!(
                said.stderr.lines().any(|said| said == line),
                "{line}\n{}",
                said.stderr
            );
        }
    });
}

#[test]
fn names_of_the_cluster_cannot_steer_a_terminal() {
    private_netns(|| {
        be_the_node();
        insert(&[
            to_dns(17, 40_000, "10.244.1.7"),
            to_dns(17, 40_001, "10.244.9.9"),
        ]);
        let evil = "dns\u{1b}[2J\u{7}\u{9b}31m\u{202e}\n\rx";
        let mut objects = minimal(lab::NODE);
        let dns = &[(evil, 53, "UDP")];
        objects.push(service(evil, evil, "10.96.0.10", dns));
        objects.push(slice(evil, evil, dns, &[("10.244.1.7", evil)]));
        objects.push(service("b", evil, "10.96.0.11", dns));
        objects.push(node(evil, "192.0.2.99"));
        objects.push(lab::cluster::pod(evil, evil, "10.244.1.5", evil));
        let file = ClusterFile::of(&objects);
        for args in [
            &["-o", "table"][..],
            &["-o", "wide"],
            &["-o", "table", "--color", "never", "--sort", "service.name"],
            &["-o", "csv"],
            &["-o", "json"],
            &["-o", "jsonl"],
            &["-v"],
            // Errors name names, too.
            &["--svc", evil],
            &["--svc", "dns"],
            &["--svc", "b/dns\u{1b}[2J"],
            &["--pod", "dns"],
            &["-n", "dns"],
            &["--node", evil],
        ] {
            let all = ["ls", "--cluster", file.path()].into_iter();
            let all = all.chain(args.iter().copied());
            let said = ctk(all);
            assert!(said.status.is_some_and(|status| status <= 3), "{said:?}");
            for (stream, text) in [("stdout", &said.stdout), ("stderr", &said.stderr)] {
                let harmful = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
                let found = text.lines().find(|line| line.contains(harmful));
                assert_eq!(found, None, "{args:?} {stream}");
            }
        }
        let items = ctk(["ls", "--cluster", file.path(), "-o", "json"])
            .exits(0)
            .items();
        assert!(
            items.iter().any(|item| item["service"]["name"] == evil),
            "{items:?}"
        );
        assert_eq!(items.len(), 2);
    });
}

#[test]
fn expectations_are_listed_from_their_own_table() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let listed = || ctk_line("ls --table expect -o json").exits(0).items();
        assert_eq!(listed(), Vec::<Value>::new());
        if Table::open(&Netns::current())
            .unwrap()
            .insert(&mixed::helped())
            .is_err()
        {
            tools::skipped("this kernel has no FTP helper, so nothing is expected");
            return;
        }
        let expectation = "-I expect -p tcp -t 100 --orig-src 10.133.0.1 --orig-dst 10.64.0.1 --sport 4000 --dport 21 \
            --tuple-src 10.64.0.1 --tuple-dst 10.133.0.1 --tuple-port-src 20 --tuple-port-dst 5000 \
            --mask-src 255.255.255.255 --mask-dst 255.255.255.255 --mask-port-src 0 --mask-port-dst 65535";
        let args: Vec<&str> = expectation.split_whitespace().collect();
        run("conntrack", &args);
        let items = listed();
        assert_eq!(items.len(), 1, "{items:?}");
        // The tool gives it an odd protocol without ports; everything else is as it was asked for.
        assert_eq!(items[0]["expected"]["src"], "10.64.0.1", "{items:?}");
        assert_eq!(items[0]["mask"]["dst"], "255.255.255.255", "{items:?}");
        assert_eq!(items[0]["master"]["dport"], 21, "{items:?}");
        assert_eq!(items[0]["helper"], "ftp", "{items:?}");
        let tool = run("conntrack", &["-L", "expect"]).stdout;
        let ours = ctk_line("ls --table expect -o conntrack").exits(0).stdout;
        assert_eq!(timeless(&ours), timeless(&tool));
    });
}

/// Lines without their first word, the timer.
fn timeless(lines: &str) -> Vec<String> {
    let words = |line: &str| {
        let words = line.split_whitespace().enumerate();
        let kept = words.filter(|(place, _)| *place != 0).map(|(_, w)| w);
        kept.collect::<Vec<_>>().join(" ")
    };
    lines.lines().map(words).collect()
}
