//! `--sample` and `--refreshing` with real packets: refreshed entries and answering endpoints.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ctnetlink::netns::Netns;
use ctnetlink::{DumpFilter, Table, TableKind};
use serde_json::Value;
use testkit::ctk_binary::{ctk_command, ctk_line};
use testkit::lab::{BACKENDS, CLIENTS, Client, Lab, Proxy, cluster};
use testkit::mixed::{insert, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error, sysctl};

#[test]
fn three_looks_distinguish_refreshed_entries_and_answering_endpoints() {
    private_netns(|| {
        let mut lab = Lab::new(Proxy::Nftables);
        let [dying, living] = BACKENDS;
        // Only entries created with accounting have counters.
        sysctl("acct", "0");
        lab.set_endpoints(&[living]);
        let uncounted = Client::bind(CLIENTS[1], 5350);
        assert_eq!(uncounted.ask(), Some(living));
        sysctl("acct", "1");
        lab.set_endpoints(&BACKENDS);
        let [pinned, healthy] = lab.client_of_each();
        let idle = Client::bind(CLIENTS[1], 5351);
        lab.kill(dying);
        lab.set_endpoints(&[living]);
        assert_eq!(idle.ask(), Some(living));
        let one_way = std::net::UdpSocket::bind((CLIENTS[1], 5352)).unwrap();

        let file = cluster(&[living]);
        let start = |line: &str| {
            let args = line.split_whitespace().chain(["--cluster", file.path()]);
            let command = &mut ctk_command(args);
            let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            piped.spawn().expect("ctk starts")
        };
        let done = AtomicBool::new(false);
        let [listed, refreshing, table, purged] = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for client in [&pinned, &healthy, &uncounted] {
                        client.send();
                    }
                    // No process listens on this address, and no ICMP error says so.
                    let _ = one_way.send_to(b"log line", (dying, 514));
                    std::thread::sleep(Duration::from_millis(400));
                }
            });
            std::thread::sleep(Duration::from_millis(500));
            let children = [
                start("ls --sample 6s -o json"),
                start("ls --refreshing -o jsonl --sort original.sport"),
                start("ls --refreshing --svc kube-dns"),
                // The deletion follows the last look of the others.
                start("purge --refreshing --stale --yes --settle 3s --verify 0s -o json"),
            ];
            let ended = children.map(ended);
            done.store(true, Ordering::Relaxed);
            ended
        });

        let items = listed.exits(0).items();
        for (port, expected) in [
            (pinned.port(), "stale yes stopped"),
            (healthy.port(), "ok yes two-way"),
            (idle.port(), "ok no unknown"),
            (uncounted.port(), "ok yes unknown"),
            (5352, "unrelated yes one-way"),
        ] {
            let item = of_port(&items, port);
            let [verdict, refreshing, replies] =
                ["verdict", "refreshing", "replies"].map(|key| item[key].as_str().unwrap());
            let outcome = format!("{verdict} {refreshing} {replies}");
            assert_eq!(outcome, expected, "{item}");
        }
        assert_evidence(
            of_port(&items, pinned.port()),
            "10.244.1.7:53 is no endpoint of kube-system/kube-dns, which has 1; timer refilled within the last ",
            " packets sent, no answer",
        );
        assert_evidence(
            of_port(&items, idle.port()),
            "10.244.2.33:53 is a serving endpoint of kube-system/kube-dns; no refill in ",
            " s",
        );
        let uncounted_says = of_port(&items, uncounted.port());
        assert_eq!(uncounted_says["original"]["packets"], Value::Null);
        assert_evidence(
            uncounted_says,
            "10.244.2.33:53 is a serving endpoint of kube-system/kube-dns; timer refilled within the last ",
            " s",
        );

        let kept_alive = [pinned.port(), healthy.port(), uncounted.port(), 5352];
        assert_eq!(
            ports(&refreshing.exits(0).jsonl()),
            BTreeSet::from(kept_alive)
        );
        let table = table.exits(0);
        let stale = format!("shop/web-1:{} ", pinned.port());
        let row = table.stdout.lines().find(|row| row.contains(&stale));
        let row = row.unwrap_or_else(|| panic!("{table:#?}"));
        assert!(row.ends_with("stale  endpoint-gone, refreshing"), "{row}");

        let purged = purged.exits(0);
        let items = purged.items();
        assert_eq!(ports(&items), BTreeSet::from([pinned.port()]));
        let item = of_port(&items, pinned.port());
        assert_eq!(
            (&item["result"], &item["refreshing"]),
            (&"deleted".into(), &"yes".into()),
            "{purged:#?}"
        );
        assert_eq!(item["replies"], "stopped");
    });
}

#[test]
fn a_slow_reader_of_a_dump_is_not_taken_for_a_refill() {
    private_netns(|| {
        let began = Instant::now();
        insert(
            &(0..600)
                .map(|port| udp("10.0.0.1", port))
                .collect::<Vec<_>>(),
        );
        let full = f64::from(udp("10.0.0.1", 0).timeout.unwrap());
        let mut table = Table::open(&Netns::current()).unwrap();
        let (mut before, mut after) = (0, 0);
        let dump = table.dump_timed(
            TableKind::Conntrack,
            &DumpFilter::default(),
            &mut |flow, at| {
                if before + after == 0 {
                    // The kernel wrote the next datagram before this one was read.
                    std::thread::sleep(Duration::from_secs(2));
                }
                let passed = at.duration_since(began).as_secs_f64();
                *if passed < 2.0 {
                    &mut before
                } else {
                    &mut after
                } += 1;
                let rounded_down = full - passed - f64::from(flow.timeout.unwrap());
                assert!((-0.5..1.5).contains(&rounded_down), "{passed} {flow:?}");
                ControlFlow::Continue(())
            },
        );
        assert_eq!(dump.unwrap().received, 600);
        assert!(before > 0 && after > 0, "{before} {after}");
    });
}

#[test]
fn a_sample_that_is_too_short_or_of_another_list_is_refused() {
    for line in [
        "ls --sample 3s",
        "ls --sample 5999ms",
        "ls --refreshing --sample 1s",
        "purge --stale --sample 5",
        "purge --all --sample 0s --yes",
    ] {
        assert_error(&ctk_line(line), 2, &["--sample", "at least 6s"]);
    }
    for table in ["dying", "unconfirmed", "expect"] {
        for flag in ["--sample 6s", "--refreshing"] {
            let outcome = ctk_line(&format!("ls {flag} --table {table}"));
            let flag = flag.split(' ').next().unwrap();
            assert_error(&outcome, 2, &[flag, "--table"]);
        }
    }
}

fn ended(child: Child) -> Outcome {
    Outcome::of(child.wait_with_output().expect("ctk ends"))
}

fn ports(items: &[Value]) -> BTreeSet<u16> {
    let port = |item: &Value| item["original"]["sport"].as_u64().unwrap() as u16;
    items.iter().map(port).collect()
}

#[track_caller]
fn of_port(items: &[Value], port: u16) -> &Value {
    let found = items.iter().find(|item| item["original"]["sport"] == port);
    found.unwrap_or_else(|| panic!("no entry of port {port}: {items:#?}"))
}

/// Values between these bounds depend on the speed of this machine.
#[track_caller]
fn assert_evidence(item: &Value, begins: &str, ends: &str) {
    let evidence = item["evidence"].as_str().unwrap();
    assert!(
        evidence.starts_with(begins) && evidence.ends_with(ends),
        "{evidence}"
    );
}
