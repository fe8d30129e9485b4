//! `ctk ls` for scripts: exit statuses, stdout and stderr, formats, order, closed pipes.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use testkit::{lab, mixed, tools};

use ctnetlink::Table;
use ctnetlink::flow::{Flow, L4};
use ctnetlink::netns::Netns;
use serde_json::{Value, json};
use testkit::ctk_binary::{ctk, ctk_command, ctk_line, ctk_with_input};
use testkit::lab::add_node_address;
use testkit::lab::cluster::{ClusterFile, list, minimal, node, service, slice};
use testkit::mixed::{ASSURED, insert, plain, to_dns, tuple, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error, run};

#[test]
fn the_exit_status_tells_whether_entries_were_found_only_with_the_flag() {
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
        add_node_address();
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
        // Partial takes precedence over found.
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
        let outcome = ctk(args).exits(3);
        assert!(outcome.stderr.contains("endpointslices"), "{outcome:#?}");
        assert!(outcome.stdout.contains("source-incomplete"), "{outcome:#?}");
    });
}

#[test]
fn a_cluster_comes_on_standard_input_too() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 40_000, "10.244.9.9")]);
        let args = ["ls", "--cluster", "-", "--svc", "kube-dns", "-o", "json"];
        let piped = |text: &str| ctk_with_input(args, text);
        let whole = list(&lab::cluster_objects(&lab::BACKENDS));
        let outcome = piped(&whole).exits(0);
        assert_eq!(outcome.items()[0]["reason"], "endpoint-gone");
        assert_eq!(outcome.json()["summary"]["cluster"]["source"], "file");
        assert_error(&piped(&whole[..200]), 3, &["--cluster", "line 1, column"]);
    });
}

#[test]
fn stale_leaves_tcp_out_and_counts_it() {
    private_netns(|| {
        add_node_address();
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
            // A listing by verdict or reason includes every protocol, because it deletes nothing.
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
            let outcome = ctk(all).exits(0);
            assert_eq!(outcome.jsonl().len(), shown, "{args:?}: {outcome:#?}");
            assert_eq!(
                outcome.stderr.contains(held),
                said_so,
                "{args:?}: {}",
                outcome.stderr
            );
        }
    });
}

#[test]
fn rows_are_limited_and_sorted_with_unknown_values_last() {
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
fn columns_and_headers_follow_the_flags() {
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
        // Piped output is coloured only by a flag.
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
            let outcome = ctk_line(&format!("ls --cluster none -o {format}")).exits(0);
            assert_eq!(outcome.stdout, "", "{format}");
            // The namespace may be the wrong one: a note on stderr says so.
            assert!(outcome.stderr.contains("has no entries"), "{outcome:?}");
        }
        let csv = ctk_line("ls --cluster none -o csv").exits(0).stdout;
        assert_eq!(csv.lines().count(), 1);
    });
}

#[test]
fn a_missing_cluster_is_noted_once_and_entries_are_listed() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let outcome = ctk_line("ls -o jsonl").exits(0);
        assert_eq!(outcome.jsonl()[0]["verdict"], Value::Null);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("cluster: none"),
            "{}",
            outcome.stderr
        );
    });
}

#[test]
fn a_closed_pipe_ends_the_listing_without_an_error() {
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
        // A full disk is an error, unlike a closed pipe.
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = ctk_command(["ls", "--cluster", "none"])
            .stdout(full)
            .output()
            .unwrap();
        let outcome = Outcome::of(output).exits(1);
        assert!(outcome.stderr.contains("writing the output"), "{outcome:?}");
    });
}

#[test]
fn explain_names_the_filters_of_the_kernel_and_of_ctk() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let outcome = ctk_line(
            "ls --cluster none -4 --udp 53 --src 10.0.0.1 --sport 1-9 --match udp --explain -o jsonl",
        )
        .exits(0);
        assert_eq!(outcome.jsonl().len(), 1);
        for (selector, place) in [
            ("-4", "kernel, and again in user space"),
            ("--udp 53", "kernel, and again in user space"),
            ("--src 10.0.0.1", "kernel, and again in user space"),
            ("--sport 1-9", "user space"),
            ("--match udp", "user space, on the printed line"),
        ] {
            let line = format!("ctk: {selector}: {place}");
            assert!(
                outcome.stderr.lines().any(|outcome| outcome == line),
                "{line}\n{}",
                outcome.stderr
            );
        }
    });
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    private_netns(|| {
        add_node_address();
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
            // Errors contain names, too.
            &["--svc", evil],
            &["--svc", "dns"],
            &["--svc", "b/dns\u{1b}[2J"],
            &["--pod", "dns"],
            &["-n", "dns"],
            &["--node", evil],
        ] {
            let all = ["ls", "--cluster", file.path()].into_iter();
            let all = all.chain(args.iter().copied());
            let outcome = ctk(all);
            assert!(
                outcome.status.is_some_and(|status| status <= 3),
                "{outcome:?}"
            );
            for (stream, text) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
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
        // The tool gives the expectation a protocol without ports; all other fields are as requested.
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
