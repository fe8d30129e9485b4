//! Cost of deleting half of a large table, compared with `conntrack -D` with an equivalent filter.
//!
//! `cargo bench --bench purge [-- ENTRIES]` (default 100,000: 50,000 stale and 50,000 healthy). Runs in a network namespace
//! of its own, so it needs root. Both programs run in turn on equal tables, and the best of several rounds counts.

use ctk_cluster::testing as shorthand;
use std::fmt;
use std::fs::File;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::time::Duration;

use ctk::purge::plan::PlannedEntry;
use ctnetlink::flow::{Flow, L4, Status, Tuple};
use ctnetlink::netns::Netns;
use ctnetlink::{DumpFilter, Table, TableKind};
use testkit::bench::{enter_netns, number_argument};
use testkit::usage::measure;

const ROUNDS: usize = 5;
const NODE: &str = "192.0.2.11";
const SERVICE: [u8; 4] = [10, 96, 0, 10];
const GONE: [u8; 4] = [10, 244, 2, 9];
const ALIVE: [u8; 4] = [10, 244, 2, 30];
const CLUSTER: [&str; 4] = [
    "node node1 192.0.2.11",
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)->coredns-b",
    "pod kube-system/coredns-b 10.244.2.30 @node2",
];

/// Comparison: arguments of ctk and of conntrack.
struct Job {
    name: &'static str,
    purge: &'static str,
    conntrack: &'static str,
    /// Largest permitted share of conntrack's time.
    goal: f64,
}

const JOBS: [Job; 2] = [
    Job {
        name: "by verdict, one look",
        purge: "--stale",
        conntrack: "-D -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.244.2.9",
        goal: 1.0 / 1.5,
    },
    Job {
        name: "by status, a second look at each entry",
        purge: "--udp 53 --assured",
        conntrack: "-D -p udp --orig-port-dst 53 -u ASSURED",
        goal: 1.0,
    },
];

fn main() {
    let entries = number_argument().unwrap_or(100_000);
    if !enter_netns() {
        return;
    }
    let here = Netns::current();
    ctnetlink::rtnetlink::add_loopback_address(&here, NODE.parse().expect("an address"))
        .expect("lo takes addresses");
    let mut table = Table::open(&here).expect("a socket");
    println!(
        "{entries} entries, half of them to be deleted; a planned entry takes {} bytes",
        size_of::<PlannedEntry>()
    );
    for job in &JOBS {
        compare(&mut table, entries, job);
    }
}

fn compare(table: &mut Table, entries: u32, job: &Job) {
    let mut purged = (Cost::WORST, String::new());
    let mut conntrack = Cost::WORST;
    for _ in 0..ROUNDS {
        let file = fill(table, entries);
        let took = purge(job.purge, &file);
        assert_healthy(table, entries, job.name);
        purged = purged.min(took);
        fill(table, entries);
        conntrack = conntrack.min(tool(job.conntrack));
        assert_healthy(table, entries, job.conntrack);
    }
    let (took, steps) = purged;
    let ratio = conntrack.wall.as_secs_f64() / took.wall.as_secs_f64();
    let goal = 1.0 / job.goal;
    println!(
        "\n{}: ctk purge {}\n  total {took}, of which\n{steps}",
        job.name, job.purge
    );
    println!(
        "  conntrack {} {conntrack}\n  {ratio:.2}x less wall time (goal: at least {goal:.2}x)",
        job.conntrack
    );
}

/// Refills the table, and writes a cluster file that is younger than its entries.
fn fill(table: &mut Table, entries: u32) -> tempfile::NamedTempFile {
    let empty = table.count().expect("a count") == 0;
    let missing = (0..entries).filter(|n| empty || is_to_go(*n)).map(flow);
    let missing: Vec<Flow> = missing.collect();
    let failed = table.insert_all(&missing).into_iter().find_map(Result::err);
    assert_eq!(failed, None, "entries that could not be inserted");
    assert_eq!(table.count().expect("a count"), entries);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let lines: Vec<&str> = shorthand::API.iter().chain(&CLUSTER).copied().collect();
    std::fs::write(file.path(), shorthand::list(&lines)).expect("written");
    file
}

/// Wall time, and the lines of ctk about its steps.
fn purge(selector: &str, file: &tempfile::NamedTempFile) -> (Cost, String) {
    let errors = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().to_str().expect("a path of text");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ctk"));
    command.args(["-v", "purge", "--yes", "--settle", "0", "--verify", "0"]);
    command.args(["--max", "10000000", "--cluster", path, "-o", "jsonl"]);
    command.args(selector.split_whitespace());
    command
        .stdout(Stdio::null())
        .stderr(errors.reopen().expect("it is open"));
    let took = cost(&mut command);
    let said = std::fs::read_to_string(errors.path()).expect("text");
    let step = |line: &&str| line.contains("took=") || line.contains("deleting=");
    let steps: Vec<String> = said
        .lines()
        .filter(step)
        .map(|l| format!("  {l}"))
        .collect();
    (took, steps.join("\n"))
}

fn tool(args: &str) -> Cost {
    let mut command = Command::new("conntrack");
    command.args(args.split_whitespace());
    cost(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Cost of a run. On a busy machine CPU time is more meaningful than wall time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    wall: Duration,
    user: Duration,
    system: Duration,
}

impl Cost {
    const WORST: Cost = Cost {
        wall: Duration::MAX,
        user: Duration::MAX,
        system: Duration::MAX,
    };
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { wall, user, system } = self;
        write!(
            f,
            "{wall:.0?} ({user:.0?} in the program, {system:.0?} in the kernel)"
        )
    }
}

fn cost(command: &mut Command) -> Cost {
    command.stdin(Stdio::from(File::open("/dev/null").expect("it is there")));
    let usage = measure(command).expect("the program starts");
    assert!(usage.status.success(), "{command:?}: {}", usage.status);
    Cost {
        wall: usage.wall,
        user: usage.user,
        system: usage.system,
    }
}

/// Asserts that exactly the entries to delete are gone.
fn assert_healthy(table: &mut Table, entries: u32, after: &str) {
    let mut left = 0;
    table
        .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |flow| {
            assert_eq!(flow.reply.src, IpAddr::from(ALIVE), "left after {after}");
            left += 1;
            ControlFlow::Continue(())
        })
        .expect("a dump");
    assert_eq!(left, entries / 2, "left after {after}");
}

fn is_to_go(n: u32) -> bool {
    n.is_multiple_of(2)
}

/// DNS flow: assured and to the removed pod, or replied to once by the live one.
fn flow(n: u32) -> Flow {
    let port = 20_000 + (n % 50) as u16;
    let client = IpAddr::from([
        10,
        128 + ((n / 50) >> 16) as u8,
        ((n / 50) >> 8) as u8,
        (n / 50) as u8,
    ]);
    let endpoint = if is_to_go(n) { GONE } else { ALIVE };
    let tuple = |src, sport, dst, dport| Tuple {
        src,
        dst,
        protocol: 17,
        l4: L4::Ports {
            src: sport,
            dst: dport,
        },
    };
    let mut flow = Flow::new(
        tuple(client, port, SERVICE.into(), 53),
        tuple(endpoint.into(), 53, client, port),
    );
    flow.status = flow.status.with(Status::SEEN_REPLY);
    if is_to_go(n) {
        flow.status = flow.status.with(Status::ASSURED);
    }
    flow.timeout = Some(3600);
    flow
}
