//! Time of listing a small table, compared with `conntrack -L`. Cost of listing a large one: CPU time as a multiple of a
//! loop that only receives the same dump, and peak memory. Then the cost of its parts.
//!
//! `cargo bench --bench table [-- ENTRIES]` (default 200,000). Runs in a network namespace of its own, so it needs root or
//! user namespaces. More entries than `net.netfilter.nf_conntrack_max` allows need root in the initial namespace: the limit
//! is raised for the run and restored afterwards.

mod parts;

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::process::Command;
use std::time::{Duration, Instant};

use ctnetlink::flow::{Flow, L4, ProtocolState, Status, TcpDirection, Tuple};
use ctnetlink::netns::Netns;
use ctnetlink::{DumpFilter, Table};
use nix::sys::resource::{UsageWho, getrusage};
use testkit::bench::{measure_silent, prepare};
use testkit::mixed::insert_range;
use testkit::usage::MIB;

/// Other processes disturb some rounds; the best round of each job counts.
const ROUNDS: usize = 8;
/// Entries of the small table, and number of its listings.
const SMALL: u32 = 50;
const SMALL_ROUNDS: usize = 50;

fn main() {
    let Some((entries, limit)) = prepare(0) else {
        return;
    };
    for (name, value) in [("acct", "1"), ("timestamp", "1")] {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        let _ = std::fs::write(path, value);
    }
    let mut table = Table::open(&Netns::current()).expect("a socket");
    small(&mut table);
    insert_range(SMALL..entries, flow);
    let cluster = write_cluster();
    run(&mut table, entries, &cluster);
    parts::run();
    drop(limit);
}

/// Time that an operator waits on a quiet node: the start of the programs, and the walk over the hash.
fn small(table: &mut Table) {
    let results = table.insert_all((0..SMALL).map(flow));
    assert!(results.iter().all(Result::is_ok));
    let mut took = [Duration::MAX; 2];
    for _ in 0..SMALL_ROUNDS {
        let mut ctk = Command::new(env!("CARGO_BIN_EXE_ctk"));
        ctk.args(["ls", "--cluster", "none"]);
        let mut conntrack = Command::new("conntrack");
        conntrack.arg("-L");
        for (best, command) in took.iter_mut().zip([&mut ctk, &mut conntrack]) {
            let began = Instant::now();
            measure_silent(command);
            *best = (*best).min(began.elapsed());
        }
    }
    let [ctk, conntrack] = took;
    println!(
        "{SMALL} entries; wall time, best of {SMALL_ROUNDS}: ctk ls --cluster none {:.2}x of conntrack -L ({conntrack:.1?})\n",
        ctk.as_secs_f64() / conntrack.as_secs_f64()
    );
}

fn run(table: &mut Table, entries: u32, cluster: &tempfile::NamedTempFile) {
    let file = cluster.path().display().to_string();
    let jobs: [(&str, Vec<&str>); 7] = [
        ("ctk ls --cluster none", vec!["--cluster", "none"]),
        ("ctk ls -o conntrack", vec!["-o", "conntrack"]),
        ("ctk ls -o jsonl", vec!["--cluster", "none", "-o", "jsonl"]),
        ("ctk ls -o json", vec!["--cluster", "none", "-o", "json"]),
        (
            "ctk ls --svc ns/svc-7 (100 Services)",
            vec!["--cluster", &file, "--svc", "ns/svc-7"],
        ),
        (
            "ctk ls, every row named (100 Services)",
            vec!["--cluster", &file],
        ),
        (
            "ctk ls --src, filtered by the kernel",
            vec!["--cluster", "none", "--src", "10.128.0.1"],
        ),
    ];
    let mut floor = Duration::MAX;
    let mut times = vec![(Duration::MAX, 0u64); jobs.len()];
    let mut conntrack = Duration::MAX;
    for round in 0..ROUNDS {
        let before = own_cpu();
        let everything = DumpFilter::default();
        let received = table.dump_raw(&everything, &mut |_| ControlFlow::Continue(()));
        let messages = received.expect("a dump").received;
        floor = floor.min(own_cpu() - before);
        assert!(
            messages >= u64::from(entries),
            "the whole table was received"
        );
        for (best, (_, args)) in times.iter_mut().zip(&jobs) {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ctk"));
            let usage = measure_silent(command.arg("ls").args(args)).expect("ctk starts");
            *best = (best.0.min(usage.cpu()), best.1.max(usage.peak));
        }
        // Only for comparison, and slower than all others together.
        if round < 2 {
            let usage = measure_silent(Command::new("conntrack").arg("-L"));
            conntrack = usage.map_or(conntrack, |usage| conntrack.min(usage.cpu()));
        }
    }
    let ratio = |time: Duration| time.as_secs_f64() / floor.as_secs_f64();
    println!("{entries} entries; CPU time, best of {ROUNDS}; 1.00 = receive only = {floor:.3?}");
    for ((best, memory), (name, _)) in times.iter().zip(&jobs) {
        println!(
            "{name:45} {:5.2}x   peak {:6.1} MiB",
            ratio(*best),
            *memory as f64 / MIB as f64
        );
    }
    println!("{:45} {:5.2}x", "conntrack -L", ratio(conntrack));
    println!();
}

/// CPU time of this process so far, in user mode and in the kernel.
fn own_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage");
    let duration = |time: nix::sys::time::TimeVal| {
        Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000)
    };
    duration(usage.user_time()) + duration(usage.system_time())
}

/// Mostly DNS through a ClusterIP, as on a busy node; some plain TCP and UDP.
fn flow(n: u32) -> Flow {
    let host = |first: u8, n: u32| {
        IpAddr::from([first, 128 + (n >> 16 & 63) as u8, (n >> 8) as u8, n as u8])
    };
    let (client, port) = (host(10, n / 50), 20_000 + (n % 50) as u16);
    let (protocol, dst, dport, endpoint, eport) = match n % 10 {
        0..=5 => (
            17,
            IpAddr::from([10, 96, (n % 100) as u8, 10]),
            53,
            IpAddr::from([10, 244, (n % 4) as u8, 2]),
            53,
        ),
        6 | 7 => (
            17,
            IpAddr::from([203, 0, 113, 9]),
            123,
            IpAddr::from([203, 0, 113, 9]),
            123,
        ),
        _ => (
            6,
            IpAddr::from([10, 96, (n % 100) as u8, 20]),
            443,
            IpAddr::from([10, 244, 5, 2]),
            8443,
        ),
    };
    let tuple = |src, sport, dst, dport| Tuple {
        src,
        dst,
        protocol,
        l4: L4::Ports {
            src: sport,
            dst: dport,
        },
    };
    let mut flow = Flow::new(
        tuple(client, port, dst, dport),
        tuple(endpoint, eport, client, port),
    );
    flow.status = flow.status.with(Status::SEEN_REPLY).with(Status::ASSURED);
    flow.timeout = Some(3600 + n % 600);
    flow.mark = (n % 5 == 1).then_some(0x10 + n % 4);
    if protocol == 6 {
        let (original, reply) = (TcpDirection::default(), TcpDirection::default());
        flow.state = Some(ProtocolState::Tcp {
            state: 3,
            original,
            reply,
        });
    }
    flow
}

/// 100 Services `ns/svc-N` on the addresses that the flows use.
fn write_cluster() -> tempfile::NamedTempFile {
    use serde_json::json;
    let slice = |namespace: &str, service: &str, address: &str, port: u16, protocol: &str| {
        json!({"kind": "EndpointSlice", "metadata": {"namespace": namespace, "name": format!("{service}-1"),
            "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
            "ports": [{"name": "p", "port": port, "protocol": protocol}], "endpoints": [{"addresses": [address]}]})
    };
    let service = |namespace: &str, name: &str, address: &str, port: u16, protocol: &str| {
        json!({"kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": {"type": "ClusterIP",
            "clusterIP": address, "ports": [{"name": "p", "port": port, "protocol": protocol}]}})
    };
    let mut items = vec![
        service("default", "kubernetes", "10.96.255.1", 443, "TCP"),
        slice("default", "kubernetes", "192.0.2.1", 6443, "TCP"),
        json!({"kind": "Node", "metadata": {"name": "node1"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}),
    ];
    for n in 0..100 {
        let name = format!("svc-{n}");
        items.push(service("ns", &name, &format!("10.96.{n}.10"), 53, "UDP"));
        items.push(slice(
            "ns",
            &name,
            &format!("10.244.{}.2", n % 4),
            53,
            "UDP",
        ));
    }
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    serde_json::to_writer(&file, &json!({"kind": "List", "items": items})).expect("written");
    file
}
