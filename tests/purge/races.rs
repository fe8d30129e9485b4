//! The table changes between the plan and the deletes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use ctk::entry::Entry;
use ctk::purge::execute::{DeleteError, DeleteOutcome, DeleteReport, Executor, OutcomeSink};
use ctk::purge::guard::{EntryJudge, Guard, SecondLookScope};
use ctk::purge::plan::{PlanBuilder, PurgePlan};
use ctk::purge::policy::VerdictPolicy;
use ctk::purge::verify::verify;
use ctk::verdict::Activity;
use ctnetlink::flow::{Direction, Flow, L4, Status};
use ctnetlink::{DeleteTarget, MAX_BATCH, Table};
use rustix::io::Errno;

use crate::started::{Seated, Started};
use crate::{cluster, new_node};
use testkit::private_netns::private_netns;
use testkit::rows::{Rows, dump, flow, identity, table};
use testkit::tools::run;

const ROUNDS: usize = 1_000;

fn dns(port: u16, endpoint: &str, status: &str) -> Flow {
    flow(&format!(
        "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport={port} dport=53 {status} src={endpoint} dst=10.244.1.5 sport=53 dport={port}"
    ))
}

/// An untranslated entry with a source address of its own, by which `conntrack -U` changes it.
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

/// The entry as the kernel has it.
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

fn plan(flows: &[Flow]) -> PurgePlan {
    let policy = VerdictPolicy::default();
    let mut builder = PlanBuilder::new(&policy);
    for flow in flows {
        builder.add(Entry::bare(flow.clone()), None);
    }
    builder.finish(false)
}

/// Selects the flows that a function selects; gives no names and no verdicts.
struct SelectBy<F>(F);

impl<'c, F: FnMut(&Flow) -> bool> EntryJudge<'c> for SelectBy<F> {
    fn select(&mut self, flow: &Flow, seen: Option<Activity>) -> Option<Entry<'c>> {
        (self.0)(flow).then(|| self.judge(flow, seen))
    }

    fn judge(&self, flow: &Flow, _: Option<Activity>) -> Entry<'c> {
        Entry::bare(flow.clone())
    }
}

/// Keeps the outcomes in the order of the plan. Both functions may fail or stop the execution.
struct Outcomes<W, B> {
    all: Vec<DeleteOutcome>,
    write: W,
    batch_end: B,
}

impl<W: FnMut() -> io::Result<()>, B: FnMut()> OutcomeSink for Outcomes<W, B> {
    fn outcome(&mut self, _: &Entry<'_>, outcome: DeleteOutcome) -> io::Result<()> {
        self.all.push(outcome);
        (self.write)()
    }

    fn batch_end(&mut self, _: usize) -> io::Result<()> {
        (self.batch_end)();
        Ok(())
    }
}

fn scope(lookups: bool) -> SecondLookScope {
    SecondLookScope {
        uses_changing_values: lookups,
        cluster_decides: false,
        cluster_read_again: false,
    }
}

/// Executes to the end, and gives the outcomes in the order of the plan.
fn execute_all(
    table: &mut Table,
    plan: &PurgePlan,
    lookups: bool,
    is_selected: impl FnMut(&Flow) -> bool,
) -> (DeleteReport, Vec<DeleteOutcome>) {
    let policy = VerdictPolicy::default();
    let mut executor = Executor {
        table,
        guard: &mut Guard::new(&policy, None),
        judge: &mut SelectBy(is_selected),
        scope: scope(lookups),
        stop: &AtomicBool::new(false),
    };
    let mut sink = Outcomes {
        all: Vec::new(),
        write: || Ok(()),
        batch_end: || {},
    };
    let report = executor.run(plan, &mut sink);
    (report, sink.all)
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
            let (report, outcomes) = execute_all(&mut table, &plan, round % 2 == 0, |_| true);
            assert_eq!(outcomes, [DeleteOutcome::Replaced], "round {round}");
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
        // The second one becomes assured, the third one ends.
        assure(1);
        delete(&mut table, &flows[2]);
        let unreplied = |flow: &Flow| flow.status.is_unreplied();
        let (report, outcomes) = execute_all(&mut table, &plan, true, unreplied);
        use DeleteOutcome::{AlreadyGone, Changed, Deleted};
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
fn an_entry_that_is_not_selected_any_more_is_left_without_a_lookup() {
    private_netns(|| {
        new_node();
        let mut table = table();
        let flow = put(&mut table, &dns(40_000, "10.244.2.9", "[ASSURED]"));
        let plan = plan(&[flow]);
        let (report, outcomes) = execute_all(&mut table, &plan, false, |_| false);
        assert_eq!(outcomes, [DeleteOutcome::Changed]);
        assert_eq!((report.changed, report.tried), (1, 0));
        assert_eq!(table.count().unwrap(), 1);
    });
}

#[test]
fn one_failure_does_not_keep_the_others() {
    // One that fails among others.
    private_netns(|| {
        new_node();
        let mut table = table();
        let mut flows: Vec<Flow> = (0..3)
            .map(|n| put(&mut table, &dns(40_000 + n, "10.244.2.9", "[ASSURED]")))
            .collect();
        // A UDP tuple without ports: EINVAL.
        flows[1].reply.l4 = L4::None;
        let (report, outcomes) = execute_all(&mut table, &plan(&flows), false, |_| true);
        let invalid = DeleteError::Kernel(Errno::INVAL);
        assert_eq!(invalid.to_string(), "EINVAL: Invalid argument");
        use DeleteOutcome::{Deleted, Failed};
        assert_eq!(outcomes, [Deleted, Failed(invalid), Deleted]);
        let counts = (report.deleted, report.failed, report.tried, report.refused);
        assert_eq!(counts, (2, 1, 3, 0));
        assert_eq!(dump().len(), 1);
    });
}

#[test]
fn a_capability_that_is_lost_after_the_scan_is_reported_for_every_entry() {
    private_netns(|| {
        new_node();
        let mut first = table();
        let many = (0..300).map(|n| dns(40_000 + n, "10.244.2.9", "[UNREPLIED]"));
        assert!(first.insert_all(many).iter().all(Result::is_ok));
        let before: Vec<String> = dump().iter().map(identity).collect();
        for lookups in [false, true] {
            // Capabilities are a thread's own, and this one ends.
            std::thread::scope(|scope| {
                let refused = scope.spawn(|| {
                    let mut table = table();
                    let plan = plan(&dump());
                    drop_capabilities();
                    execute_all(&mut table, &plan, lookups, |_| true)
                });
                let (report, outcomes) = refused.join().unwrap();
                assert_eq!(
                    (report.failed, report.tried, report.refused),
                    (300, 300, 300)
                );
                for outcome in outcomes {
                    let DeleteOutcome::Failed(error) = outcome else {
                        panic!("{outcome:?}")
                    };
                    assert_eq!(error.to_string(), "EPERM: Operation not permitted");
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
        let policy = VerdictPolicy::default();
        let stop = AtomicBool::new(false);
        let mut guard = Guard::new(&policy, None);
        let mut executor = Executor {
            table: &mut table,
            guard: &mut guard,
            judge: &mut SelectBy(|_: &Flow| true),
            scope: scope(false),
            stop: &stop,
        };
        let mut stopping = Outcomes {
            all: Vec::new(),
            write: || Ok(()),
            batch_end: || stop.store(true, Ordering::Relaxed),
        };
        let report = executor.run(&first, &mut stopping);
        assert!(report.stopped);
        assert_eq!(report.deleted, MAX_BATCH as u64);
        assert_eq!(dump().len(), MAX_BATCH * 2);

        let second = many(&mut table);
        let mut executor = Executor {
            table: &mut table,
            guard: &mut guard,
            judge: &mut SelectBy(|_: &Flow| true),
            scope: scope(false),
            stop: &AtomicBool::new(false),
        };
        let mut failing = Outcomes {
            all: Vec::new(),
            write: || Err(io::Error::other("the disk is full")),
            batch_end: || {},
        };
        let report = executor.run(&second, &mut failing);
        let error = report.write_error.expect("writing failed");
        assert_eq!(error.to_string(), "the disk is full");
        assert_eq!(dump().len(), MAX_BATCH * 2, "one batch was sent");
    });
}

#[test]
fn flows_that_have_an_entry_again_are_found_afterwards() {
    private_netns(|| {
        new_node();
        let mut table = table();
        let flows: Vec<Flow> = (0..4)
            .map(|n| put(&mut table, &dns(40_000 + n, "10.244.2.9", "[ASSURED]")))
            .collect();
        let plan = plan(&flows);
        // Deleted by another program before, and back at the same endpoint under another id.
        delete(&mut table, &flows[3]);
        let (report, outcomes) = execute_all(&mut table, &plan, false, |_| true);
        use DeleteOutcome::{AlreadyGone, Deleted};
        assert_eq!(outcomes, [Deleted, Deleted, Deleted, AlreadyGone]);
        put(&mut table, &dns(40_000, "10.244.2.9", "[UNREPLIED]"));
        put(&mut table, &dns(40_002, "10.244.2.30", "[UNREPLIED]"));
        put(&mut table, &dns(40_003, "10.244.2.9", "[UNREPLIED]"));
        let mut back = Vec::new();
        verify(&mut table, &plan, &report, &mut |b| {
            back.push((b.before.flow.original.sport(), b.now.reply.src.to_string()));
        })
        .unwrap();
        let expected = [
            (Some(40_000), "10.244.2.9".to_owned()),
            (Some(40_002), "10.244.2.30".to_owned()),
            (Some(40_003), "10.244.2.9".to_owned()),
        ];
        assert_eq!(back, expected);
    });
}

const DNS: &[&str] = &[
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
];

#[test]
fn the_command_tells_replaced_and_gone_entries_from_deleted_ones() {
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
fn a_connection_that_is_made_while_waiting_survives() {
    private_netns(|| {
        new_node();
        let mut table = table();
        // The pod lives and has left the Service: nothing is lost while its connection is only being tried.
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
