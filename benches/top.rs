//! Cost of counting a large table by groups, compared with listing it: CPU time, wall time, and peak memory.
//!
//! `cargo bench --bench top [-- ENTRIES]` (default 200,000). Runs in a network namespace of its own, so it needs root or
//! user namespaces. More entries than `net.netfilter.nf_conntrack_max` allows need root in the initial namespace: the limit
//! is raised for the run and restored afterwards.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use ctnetlink::flow::{Flow, L4, Status, Tuple};
use serde_json::json;
use testkit::bench::{measure_silent, prepare};
use testkit::mixed::insert_range;
use testkit::usage::MIB;

/// Other processes disturb some rounds; the best round of each job counts.
const ROUNDS: usize = 5;
const SOURCES: u32 = 300;

fn main() {
    let Some((entries, limit)) = prepare(0) else {
        return;
    };
    // Without counters no sums would be computed.
    let _ = std::fs::write("/proc/sys/net/netfilter/nf_conntrack_acct", "1");
    insert_range(0..entries, flow);
    run(entries);
    drop(limit);
}

fn run(entries: u32) {
    let cluster = write_cluster();
    let file = cluster.path().display().to_string();
    let none = ["--cluster", "none"];
    let named = ["--cluster", &file];
    let jobs: [(&str, Vec<&str>); 7] = [
        ("ctk ls", [&["ls"][..], &none].concat()),
        ("ctk top, 300 sources", [&["top"][..], &none].concat()),
        (
            "ctk top --by src,dport,proto,state",
            [&["top", "--by", "src,dport,proto,state"][..], &none].concat(),
        ),
        (
            "ctk top --by src,dst, a group each",
            [&["top", "--by", "src,dst", "--limit", "20"][..], &none].concat(),
        ),
        (
            "ctk top --by src,dst -o json, all that are left",
            [&["top", "--by", "src,dst", "-o", "json"][..], &none].concat(),
        ),
        ("ctk ls, every row named", [&["ls"][..], &named].concat()),
        (
            "ctk top --by client,svc,verdict",
            [&["top", "--by", "client,svc,verdict"][..], &named].concat(),
        ),
    ];
    let mut best = vec![(Duration::MAX, Duration::MAX, 0u64); jobs.len()];
    for _ in 0..ROUNDS {
        for (best, (_, args)) in best.iter_mut().zip(&jobs) {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ctk"));
            let usage = measure_silent(command.args(args)).expect("ctk starts");
            *best = (
                best.0.min(usage.cpu()),
                best.1.min(usage.wall),
                best.2.max(usage.peak),
            );
        }
    }
    println!("{entries} entries, best of {ROUNDS}; 1.00 = ctk ls > /dev/null");
    let (cpu, elapsed, _) = best[0];
    for ((of_cpu, of_elapsed, memory), (name, _)) in best.iter().zip(&jobs) {
        println!(
            "{name:48} CPU {:5.2}x   elapsed {:5.2}x ({of_elapsed:.2?})   peak {:5.1} MiB",
            of_cpu.as_secs_f64() / cpu.as_secs_f64(),
            of_elapsed.as_secs_f64() / elapsed.as_secs_f64(),
            *memory as f64 / MIB as f64
        );
    }
}

/// Flow of one of 300 clients, each with its own Services, so that no two have both addresses in common.
fn flow(n: u32) -> Flow {
    let [_, high, middle, low] = (n / SOURCES).to_be_bytes();
    let client = IpAddr::from([
        10,
        244,
        (n % SOURCES / 250) as u8,
        (n % SOURCES % 250) as u8,
    ]);
    let service = IpAddr::from([10, 96 + high, middle, low]);
    // Ports repeat after 60,000 entries, with another endpoint, so that no two have a reply tuple in common.
    let endpoint = IpAddr::from([10, 245, (n % 4) as u8, 2 + (n / 60_000) as u8]);
    let port = 1024 + (n % 60_000) as u16;
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
        tuple(client, port, service, 53),
        tuple(endpoint, 53, client, port),
    );
    flow.status = flow.status.with(Status::SEEN_REPLY).with(Status::ASSURED);
    flow.timeout = Some(3600 + n % 600);
    flow
}

/// Cluster with a pod for each client, and 100 Services.
fn write_cluster() -> tempfile::NamedTempFile {
    let mut items = vec![
        json!({"kind": "Service", "metadata": {"namespace": "default", "name": "kubernetes"}, "spec": {"type": "ClusterIP",
            "clusterIP": "10.111.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]}}),
        json!({"kind": "EndpointSlice", "metadata": {"namespace": "default", "name": "kubernetes-1",
            "labels": {"kubernetes.io/service-name": "kubernetes"}}, "addressType": "IPv4",
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}], "endpoints": [{"addresses": ["192.0.2.1"]}]}),
        json!({"kind": "Node", "metadata": {"name": "node1"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}),
    ];
    for n in 0..SOURCES {
        let address = format!("10.244.{}.{}", n / 250, n % 250);
        items.push(
            json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": format!("web-7d9f8b6c5d-{n}")},
            "spec": {"nodeName": "node1"}, "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}),
        );
    }
    for n in 0..100 {
        let name = format!("svc-{n}");
        items.push(json!({"kind": "Service", "metadata": {"namespace": "ns", "name": name}, "spec": {"type": "ClusterIP",
            "clusterIP": format!("10.96.0.{n}"), "ports": [{"name": "p", "port": 53, "protocol": "UDP"}]}}));
        items.push(json!({"kind": "EndpointSlice", "metadata": {"namespace": "ns", "name": format!("{name}-1"),
            "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
            "ports": [{"name": "p", "port": 53, "protocol": "UDP"}],
            "endpoints": [{"addresses": [format!("10.245.{}.2", n % 4)]}]}));
    }
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    serde_json::to_writer(&file, &json!({"kind": "List", "items": items})).expect("written");
    file
}
