//! Changes of the table between plan and delete.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use ctk::purge::execute::{Outcome, Report, Steps, execute};
use ctk::purge::plan::{Fate, Plan, PlanBuilder, Planned};
use ctk::purge::verify::verify;
use ctnetlink::flow::{Direction, Flow, L4, Status};
use ctnetlink::{DeleteTarget, MAX_BATCH, Table};

use crate::started::{Seated, Started};
use crate::{cluster, new_node};
use testkit::private_netns::private_netns;
use testkit::rows::{Rows, dump, flow, identity, table};
use testkit::tools::run;

const ROUNDS: usize = 250;

fn dns(port: u16, endpoint: &str, status: &str) -> Flow {
    flow(&format!(
        "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport={port} dport=53 {status} src={endpoint} dst=10.244.1.5 sport=53 dport={port}"
    ))
}

/// Entry without translation and with its own source address, so that `conntrack -U` can select it.
fn unreplied(host: u8) -> Flow {
    flow(&format!(
        "udp 17 29 src=10.244.5.{host} dst=203.0.113.9 sport=5353 dport=53 [UNREPLIED] src=203.0.113.9 dst=10.244.5.{host} sport=53 dport=5353"
    ))
}

fn assure(host: u8) {
    let source = format!("10.244.5.{host}");
    let status = ["-u", "SEEN_REPLY,ASSURED"];
    run(
        "conntrack",
        &[&["-U", "-p", "udp", "-s", &source], &status[..]].concat(),
    );
}

/// Entry as the kernel has it.
fn seen(table: &mut Table, flow: &Flow) -> Flow {
    let found = table.get(&flow.original, Direction::Original, flow.zone);
    found.unwrap().expect("it is there")
}

fn put(table: &mut Table, flow: &Flow) -> Flow {
    table.insert(flow).unwrap();
    seen(table, flow)
}

fn delete(table: &mut Table, flow: &Flow) {
    let target = DeleteTarget::of(flow).unwrap();
    assert_eq!(table.delete(&[target]), [Ok(())]);
}

fn plan(flows: &[Flow]) -> Plan {
    let mut plan = PlanBuilder::default();
    for flow in flows {
        let planned = Planned {
            flow: flow.clone(),
            reason: None,
            seen: None,
        };
        plan.add(planned, Fate::Planned);
    }
    plan.finish(false)
}

/// Executes to the end and returns the outcomes in the order of the plan.
fn execute_all(
    table: &mut Table,
    plan: &Plan,
    look_again: bool,
    still_wanted: &mut dyn FnMut(&Flow) -> bool,
) -> (Report, Vec<Outcome>) {
    let mut outcomes = Vec::new();
    let steps = Steps {
        still_wanted: &mut |_, flow| still_wanted(flow),
        look_again,
        on_outcome: &mut |_, outcome| {
            outcomes.push(outcome.clone());
            Ok(())
        },
        after_batch: &mut |_| Ok(()),
        stop: &AtomicBool::new(false),
    };
    let report = execute(table, plan, steps);
    (report, outcomes)
}

#[test]
fn a_healthy_successor_survives_every_time() {
    private_netns(|| {
        new_node();
        let mut table = table();
        let mut same_id = 0;
        for round in 0..ROUNDS {
            let stale = put(&mut table, &dns(40_000, "10.244.2.9", "[ASSURED]"));
            let plan = plan(std::slice::from_ref(&stale));
            delete(&mut table, &stale);
            let healthy = put(&mut table, &dns(40_000, "10.244.2.30", "[UNREPLIED]"));
            same_id += usize::from(healthy.id == stale.id);
            let (report, outcomes) = execute_all(&mut table, &plan, round % 2 == 0, &mut |_| true);
            assert_eq!(outcomes, [Outcome::Replaced], "round {round}");
            assert_eq!((report.replaced, report.deleted), (1, 0));
            let now = seen(&mut table, &healthy);
            assert_eq!(identity(&now), identity(&healthy), "round {round}");
            delete(&mut table, &healthy);
        }
        assert!(
            same_id > 0,
            "no successor ever had the id of its predecessor: the race was not run"
        );
    });
}

#[test]
fn an_entry_that_changed_between_the_looks_survives() {
    private_netns(|| {
        new_node();
        let mut table = table();
        let flows: Vec<Flow> = (0..3).map(|n| put(&mut table, &unreplied(n))).collect();
        let plan = plan(&flows);
        // The second entry becomes assured, the third one ends.
        assure(1);
        delete(&mut table, &flows[2]);
        let mut wanted = |flow: &Flow| flow.status.is_unreplied();
        let (report, outcomes) = execute_all(&mut table, &plan, true, &mut wanted);
        use Outcome::{AlreadyGone, Changed, Deleted};
        assert_eq!(outcomes, [Deleted, Changed, AlreadyGone]);
        assert_eq!(report.tried, 1);
        let left = dump();
        let [assured] = &left[..] else {
            panic!("{left:?}")
        };
        assert_eq!(assured.original, flows[1].original);
        assert!(assured.status.contains(Status::ASSURED));
    });
}

#[test]
fn an_entry_outside_the_selection_at_the_second_look_is_left() {
    private_netns(|| {
        new_node();
        let mut table = table();
        let flow = put(&mut table, &dns(40_000, "10.244.2.9", "[ASSURED]"));
        let plan = plan(&[flow]);
        let (report, outcomes) = execute_all(&mut table, &plan, false, &mut |_| false);
        assert_eq!(outcomes, [Outcome::Changed]);
        assert_eq!((report.changed, report.tried), (1, 0));
        assert_eq!(table.count().unwrap(), 1);
    });
}

#[test]
fn one_failed_delete_does_not_prevent_the_others() {
    // One failure among successes.
    private_netns(|| {
        new_node();
        let mut table = table();
        let mut flows: Vec<Flow> = (0..3)
            .map(|n| put(&mut table, &dns(40_000 + n, "10.244.2.9", "[ASSURED]")))
            .collect();
        // A UDP tuple without ports: EINVAL.
        flows[1].reply.l4 = L4::None;
        let (report, outcomes) = execute_all(&mut table, &plan(&flows), false, &mut |_| true);
        let failed = Outcome::Failed("EINVAL: Invalid argument".to_owned());
        assert_eq!(outcomes, [Outcome::Deleted, failed, Outcome::Deleted]);
        let counts = (report.deleted, report.failed, report.tried, report.refused);
        assert_eq!(counts, (2, 1, 3, 0));
        assert_eq!(dump().len(), 1);
    });
}

#[test]
fn a_capability_lost_after_the_scan_is_reported_for_every_entry() {
    private_netns(|| {
        new_node();
        let mut first = table();
        let many = (0..300).map(|n| dns(40_000 + n, "10.244.2.9", "[UNREPLIED]"));
        assert!(first.insert_all(many).iter().all(Result::is_ok));
        let before: Vec<String> = dump().iter().map(identity).collect();
        for look_again in [false, true] {
            // Capabilities belong to a thread, and this thread ends.
            std::thread::scope(|scope| {
                let refused = scope.spawn(|| {
                    let mut table = table();
                    let plan = plan(&dump());
                    drop_capabilities();
                    execute_all(&mut table, &plan, look_again, &mut |_| true)
                });
                let (report, outcomes) = refused.join().unwrap();
                assert_eq!(
                    (report.failed, report.tried, report.refused),
                    (300, 300, 300)
                );
                for outcome in outcomes {
                    let Outcome::Failed(error) = outcome else {
                        panic!("{outcome:?}")
                    };
                    assert_eq!(error, "EPERM: Operation not permitted");
                }
            });
            let after: Vec<String> = dump().iter().map(identity).collect();
            assert_eq!(after, before);
        }
    });
}

fn drop_capabilities() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).unwrap();
}

#[test]
fn no_batch_is_sent_after_a_stop_or_a_failed_write() {
    private_netns(|| {
        new_node();
        let mut table = table();
        let many = |table: &mut Table| {
            let all =
                (0..MAX_BATCH as u16 * 3).map(|n| dns(40_000 + n, "10.244.2.9", "[UNREPLIED]"));
            table.insert_all(all);
            plan(&dump())
        };
        let first = many(&mut table);
        let stop = AtomicBool::new(false);
        let steps = Steps {
            still_wanted: &mut |_, _| true,
            look_again: false,
            on_outcome: &mut |_, _| Ok(()),
            after_batch: &mut |_| {
                stop.store(true, Ordering::Relaxed);
                Ok(())
            },
            stop: &stop,
        };
        let report = execute(&mut table, &first, steps);
        assert!(report.stopped);
        assert_eq!(report.deleted, MAX_BATCH as u64);
        assert_eq!(dump().len(), MAX_BATCH * 2);

        let second = many(&mut table);
        let steps = Steps {
            still_wanted: &mut |_, _| true,
            look_again: false,
            on_outcome: &mut |_, _| Err(io::Error::other("the disk is full")),
            after_batch: &mut |_| Ok(()),
            stop: &AtomicBool::new(false),
        };
        let report = execute(&mut table, &second, steps);
        let error = report.unwritten.expect("writing failed");
        assert_eq!(error.to_string(), "the disk is full");
        assert_eq!(dump().len(), MAX_BATCH * 2, "one batch was sent");
    });
}

#[test]
fn recreated_entries_are_found_by_the_verification() {
    private_netns(|| {
        new_node();
        let mut table = table();
        let flows: Vec<Flow> = (0..4)
            .map(|n| put(&mut table, &dns(40_000 + n, "10.244.2.9", "[ASSURED]")))
            .collect();
        let plan = plan(&flows);
        // Deleted by another process before, and back at the same endpoint with another id.
        delete(&mut table, &flows[3]);
        let (report, outcomes) = execute_all(&mut table, &plan, false, &mut |_| true);
        use Outcome::{AlreadyGone, Deleted};
        assert_eq!(outcomes, [Deleted, Deleted, Deleted, AlreadyGone]);
        put(&mut table, &dns(40_000, "10.244.2.9", "[UNREPLIED]"));
        put(&mut table, &dns(40_002, "10.244.2.30", "[UNREPLIED]"));
        put(&mut table, &dns(40_003, "10.244.2.9", "[UNREPLIED]"));
        let mut back = Vec::new();
        verify(&mut table, &plan, &report, &mut |b| {
            back.push((b.before.flow.original.sport(), b.now.reply.src.to_string()));
        })
        .unwrap();
        let wanted = [
            (Some(40_000), "10.244.2.9".to_owned()),
            (Some(40_002), "10.244.2.30".to_owned()),
            (Some(40_003), "10.244.2.9".to_owned()),
        ];
        assert_eq!(back, wanted);
    });
}

const DNS: &[&str] = &[
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
];

#[test]
fn replaced_and_gone_entries_are_not_reported_as_deleted() {
    private_netns(|| {
        new_node();
        let mut table = table();
        let flows: Vec<Flow> = (0..3)
            .map(|n| put(&mut table, &dns(40_000 + n, "10.244.2.9", "[ASSURED]")))
            .collect();
        let file = cluster(DNS);
        let mut args = vec!["purge", "--stale", "--yes", "--cluster", file.path()];
        args.extend(["--settle", "2s", "--verify", "0", "-o", "json"]);
        let mut purge = Started::new(&args);
        purge.wait_for("3 entries match");
        delete(&mut table, &flows[0]);
        let healthy = put(&mut table, &dns(40_000, "10.244.2.30", "[UNREPLIED]"));
        delete(&mut table, &flows[1]);
        let said = purge.finish().exits(0);
        let mut results: Vec<String> = said
            .items()
            .iter()
            .map(|item| format!("{} {}", item["original"]["sport"], item["result"]))
            .collect();
        results.sort();
        assert_eq!(
            results,
            [
                "40000 \"replaced\"",
                "40001 \"already-gone\"",
                "40002 \"deleted\""
            ]
        );
        let document = said.json();
        let count = |key: &str| document["summary"][key].as_u64();
        let keys = ["deleted", "already_gone", "replaced", "changed", "failed"];
        assert_eq!(
            keys.map(count),
            [Some(1), Some(1), Some(1), Some(0), Some(0)]
        );
        let left = dump();
        let [now] = &left[..] else { panic!("{left:?}") };
        assert_eq!(identity(now), identity(&healthy));
    });
}

#[test]
fn an_endpoint_that_comes_back_while_waiting_keeps_its_flows() {
    private_netns(|| {
        new_node();
        let rows = Rows::of(&[dns(40_000, "10.244.2.9", "[ASSURED]")]);
        let file = cluster(DNS);
        let mut purge = Seated::new(&[
            "purge",
            "--stale",
            "--cluster",
            file.path(),
            "--settle",
            "0",
            "--verify",
            "0",
            "-o",
            "jsonl",
        ]);
        purge.wait_for("Delete this entry? [y/N] ");
        let both = DNS[1].to_owned() + " 10.244.2.9(ready)";
        let newer = cluster(&[DNS[0], &both]);
        std::fs::copy(newer.path(), file.path()).unwrap();
        purge.answer("y\n");
        let said = purge.finish().exits(0);
        assert_eq!(said.jsonl()[0]["result"], "changed");
        rows.assert_untouched(said);
    });
}

#[test]
fn the_command_leaves_an_entry_that_became_assured() {
    private_netns(|| {
        new_node();
        let mut table = table();
        put(&mut table, &unreplied(0));
        put(&mut table, &unreplied(1));
        let mut purge = Seated::new(&[
            "purge",
            "--udp",
            "--unreplied",
            "--cluster",
            "none",
            "--verify",
            "0",
            "-o",
            "json",
        ]);
        purge.wait_for("Delete these 2 entries? [y/N] ");
        assure(0);
        purge.answer("y\n");
        let said = purge.finish().exits(0);
        let mut results: Vec<String> = said
            .items()
            .iter()
            .map(|item| format!("{} {}", item["original"]["src"], item["result"]))
            .collect();
        results.sort();
        assert_eq!(
            results,
            ["\"10.244.5.0\" \"changed\"", "\"10.244.5.1\" \"deleted\""]
        );
        let left = dump();
        assert_eq!(left.len(), 1);
        assert!(left[0].status.contains(Status::ASSURED), "{left:?}");
    });
}

#[test]
fn a_connection_attempt_during_the_wait_survives() {
    private_netns(|| {
        new_node();
        let mut table = table();
        // The pod lives and has left the Service: a connection attempt under way must not be deleted.
        let trying = |client: u8, endpoint: &str| {
            flow(&format!(
                "tcp 6 119 SYN_SENT src=198.51.100.{client} dst=10.96.10.10 sport=61000 dport=80 [UNREPLIED] src={endpoint} dst=192.0.2.11 sport=80 dport=4500{client}"
            ))
        };
        for flow in [trying(1, "10.244.2.5"), trying(2, "10.244.2.5")] {
            put(&mut table, &flow);
        }
        let file = cluster(&[
            "svc w/web 10.96.10.10 h:80/TCP",
            "slice w/web h:80/TCP 10.244.2.9(ready)",
            "pod w/web-old 10.244.2.5 @node1",
        ]);
        let mut args = vec![
            "purge",
            "--stale",
            "--tcp",
            "--yes",
            "--cluster",
            file.path(),
        ];
        args.extend(["--settle", "3s", "--verify", "0", "-o", "json"]);
        let mut purge = Started::new(&args);
        purge.wait_for("2 entries match");
        let made = "-U -p tcp -s 198.51.100.1 --state ESTABLISHED -u SEEN_REPLY,ASSURED";
        run("conntrack", &made.split_whitespace().collect::<Vec<_>>());
        let said = purge.finish().exits(0);
        let mut results: Vec<String> = said
            .items()
            .iter()
            .map(|item| format!("{} {}", item["original"]["src"], item["result"]))
            .collect();
        results.sort();
        assert_eq!(
            results,
            [
                "\"198.51.100.1\" \"changed\"",
                "\"198.51.100.2\" \"deleted\""
            ],
            "{said:#?}"
        );
        let left = dump();
        assert_eq!(left.len(), 1);
        assert!(left[0].status.contains(Status::ASSURED), "{left:?}");
    });
}
