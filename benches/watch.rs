//! Cost of following a table, and events lost.
//!
//! `cargo bench --bench watch [-- ENTRIES]` (default 200,000):
//! * an idle `ctk watch` at its default interval on a table of that many entries, of which a selector matches 3: per cent of
//!   a core for the looks, and peak memory;
//! * 200,000 flows (or ENTRIES, if less) created as fast as one thread can: the share of them that each reader of events
//!   received.
//!
//! Runs in network namespaces of its own, so it needs root or user namespaces. More entries than
//! `net.netfilter.nf_conntrack_max` allows need root in the initial namespace: the limit is raised for the run and restored
//! afterwards.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ctnetlink::flow::{Flow, L4, Status, Tuple};
use testkit::bench::prepare;
use testkit::mixed::insert_range;
use testkit::private_netns::enter_new_netns;
use testkit::tools::interrupt;
use testkit::usage::{MIB, peak_of};

/// Number of looks at the default interval over which the idle cost is measured.
const LOOKS: u32 = 4;
/// Number of flows for the measurement of losses.
const MAX_FLOWS: u32 = 200_000;
const INTERVAL: Duration = Duration::from_secs(5);
/// Receive buffer of a socket without a request (`net.core.rmem_default`), as the value to request.
const KERNELS: &str = "106496";
const FORCED: &str = "8388608";

fn main() {
    let Some((entries, limit)) = prepare(MAX_FLOWS) else {
        return;
    };
    idle(entries);
    enter_new_netns();
    loss(entries.min(MAX_FLOWS));
    drop(limit);
}

fn idle(entries: u32) {
    insert_range(0..entries, flow);
    println!("idle, {entries} entries, 3 of them match, looked at every {INTERVAL:?}:");
    let host = address(10, entries / 2).to_string();
    let pattern = format!("{host}:");
    let jobs: [(&str, Vec<&str>); 4] = [
        ("filtered by the kernel (--src)", vec!["--src", &host]),
        (
            "as well (--udp, --src, --dst)",
            vec!["--udp", "--src", &host, "--dst", "10.96.0.10"],
        ),
        ("filtered here (--ip)", vec!["--ip", &host]),
        ("filtered here (--match)", vec!["--match", &pattern]),
    ];
    for (name, selectors) in jobs {
        let (share, peak, matches) = idle_cost(&selectors);
        println!("  {name:35} {share:5.1}% of a core   peak {peak:5.1} MiB   {matches} match");
    }
}

/// Per cent of a core between the first look and the last, peak MiB, and number of matching entries.
fn idle_cost(selectors: &[&str]) -> (f64, f64, usize) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ctk"))
        .args(["watch", "--cluster", "none", "-o", "jsonl"])
        .args(selectors)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("ctk starts");
    let stdout = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines();
    let mut matches = 0;
    for line in lines.by_ref() {
        if line.expect("a line").contains("\"type\":\"synced\"") {
            break;
        }
        matches += 1;
    }
    let (before, began) = (cpu_of(&child), Instant::now());
    // The last look is over, and the next one is far.
    std::thread::sleep(INTERVAL * LOOKS + INTERVAL / 2);
    let time = INTERVAL * LOOKS;
    let share = 100.0 * (cpu_of(&child) - before) / time.as_secs_f64();
    assert!(
        began.elapsed() < INTERVAL * (LOOKS + 1),
        "too slow to count looks"
    );
    let peak = peak_of(child.id()) as f64 / MIB as f64;
    end(child);
    (share, peak, matches)
}

/// CPU time of a process so far, in seconds.
fn cpu_of(child: &Child) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it runs");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    // utime and stime are fields 14 and 15; the first after the name is field 3. In ticks of 10 ms.
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().expect("ticks"))
        .sum::<f64>()
        / 100.0
}

fn loss(flows: u32) {
    println!("loss, {flows} flows made as fast as one thread can; NEW events heard:");
    let ctk = |buffer: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ctk"));
        let args = [
            "watch",
            "--cluster",
            "none",
            "-o",
            "jsonl",
            "--interval",
            "0",
        ];
        command.args(args).args(["--buffer-size", buffer]);
        command
    };
    let conntrack = |args: &[&str]| {
        let mut command = Command::new("conntrack");
        command.arg("-E").args(args);
        command
    };
    let readers = [
        ("ctk watch, the kernel's buffer", ctk(KERNELS)),
        ("ctk watch", ctk(FORCED)),
        ("conntrack -E", conntrack(&[])),
        ("conntrack -E -b 8388608", conntrack(&["-b", FORCED])),
    ];
    for (name, command) in readers {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(heard) = hear(command, folder.path(), flows) else {
            println!("  {name:35} is not installed");
            continue;
        };
        let share = 100.0 * f64::from(heard.new) / f64::from(flows);
        let rate = f64::from(flows) / heard.time.as_secs_f64();
        println!(
            "  {name:35} {:7} of {flows} ({share:5.1}%) at {:3.0}k flows/s, {}",
            heard.new,
            rate / 1000.0,
            heard.end
        );
    }
}

struct Heard {
    new: u32,
    /// Time for the creation of the flows.
    time: Duration,
    end: String,
}

/// Runs a reader that writes to a file, creates flows in a namespace of its own, and counts.
fn hear(mut command: Command, folder: &Path, flows: u32) -> Option<Heard> {
    enter_new_netns();
    let path = folder.join("out");
    let out = File::create(&path).expect("a file");
    let errors = File::create(folder.join("err")).expect("a file");
    let child = command.stdout(out).stderr(errors).spawn().ok()?;
    // Waits until the reader listens.
    while !is_heard() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    insert_range(0..flows, flow);
    let time = began.elapsed();
    let size = || std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    loop {
        let before = size();
        std::thread::sleep(Duration::from_secs(2));
        if size() == before {
            break;
        }
    }
    let status = end(child);
    let (mut new, mut gaps, mut found, mut synced) = (0, 0, 0, false);
    for line in BufReader::new(File::open(&path).expect("the file")).lines() {
        let line = line.expect("a line");
        let is = |what: &str| line.contains(what);
        // Events have no use count; every dump has it.
        if is("\"type\":\"new\"") && !is("\"use\":null") {
            found += 1;
        } else if is("\"type\":\"new\"") || is("[NEW]") {
            new += 1;
        } else if is("\"type\":\"gap\"") {
            (gaps, synced) = (gaps + 1, false);
        } else if is("\"type\":\"synced\"") {
            synced = true;
        }
    }
    let errors = std::fs::read_to_string(folder.join("err")).unwrap_or_default();
    let end = if path.exists() && synced {
        format!("{gaps} gaps, {found} found by the dumps after them, synced, status {status}")
    } else {
        let said = errors.lines().find(|line| line.contains("ENOBUFS"));
        let said = said.unwrap_or("no word of a loss");
        format!("status {status}: {said}")
    };
    Some(Heard { new, time, end })
}

/// Reports whether a socket listens to the three groups of conntrack events in this namespace.
fn is_heard() -> bool {
    let netlink = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap_or_default();
    netlink.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Protocol 12 is NETLINK_NETFILTER.
        words.get(1) == Some(&"12") && words.get(3) == Some(&"00000007")
    })
}

/// Interrupts a child. Returns its exit status.
fn end(mut child: Child) -> String {
    interrupt(&child);
    let status = child.wait().expect("it ends");
    status
        .code()
        .map_or("none".to_owned(), |code| code.to_string())
}

fn address(first: u8, n: u32) -> IpAddr {
    let group = n / 3;
    IpAddr::from([
        first,
        128 + (group >> 16 & 63) as u8,
        (group >> 8) as u8,
        group as u8,
    ])
}

/// Flow number `n`; each client has three.
fn flow(n: u32) -> Flow {
    let tuple = |src, sport, dst, dport| Tuple {
        src,
        dst,
        protocol: 17,
        l4: L4::Ports {
            src: sport,
            dst: dport,
        },
    };
    let (client, port) = (address(10, n), 10_000 + (n % 50_000) as u16);
    let vip = IpAddr::from([10, 96, 0, 10]);
    let endpoint = IpAddr::from([10, 244, (n % 4) as u8, 2]);
    let mut flow = Flow::new(
        tuple(client, port, vip, 53),
        tuple(endpoint, 53, client, port),
    );
    flow.status = flow.status.with(Status::SEEN_REPLY).with(Status::ASSURED);
    flow.timeout = Some(3600);
    flow
}
