//! Random changes and lost events: the view that a script rebuilds from the records equals the table in the end.

use std::net::UdpSocket;
use std::ops::Range;
use std::time::{Duration, Instant};

use ctnetlink::flow::{Direction, Flow};
use ctnetlink::{DeleteTarget, Table};
use serde_json::Value;

use crate::{delete, open};
use testkit::ctk_binary::ctk_line;
use testkit::mixed::{REPLIED, plain, ports, tuple};
use testkit::private_netns::private_netns;
use testkit::tools::{nft, run};
use testkit::watch_process::{
    Watch, WatchOutcome, has, rebuild_view, start, start_unread, view_of_listing,
};

/// Longer than an event needs to be printed.
const QUIET: Duration = Duration::from_millis(800);

/// Pseudo-random sequence of a seed (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Turns tracking on, with another mark for each packet of an entry.
fn tracked_loopback() {
    run("ip", &["link", "set", "lo", "up"]);
    nft(
        "table ip t { chain c { type filter hook output priority 0; ct mark set numgen inc mod 7; }; }",
    );
}

/// Flow number `n` of those that netlink inserts, to one of three endpoints.
fn inserted(n: u64, endpoint: u64) -> Flow {
    let client = format!("10.1.{}.{}", n >> 8, n & 255);
    let mut flow = plain(tuple(17, &client, "10.96.0.10", ports(40_000, 53)), REPLIED);
    flow.reply.src = format!("10.244.0.{}", 1 + endpoint % 3).parse().unwrap();
    flow
}

/// Deletes the existing entries of these flows.
fn end<'f>(table: &mut Table, flows: impl IntoIterator<Item = &'f Flow>) {
    let mut targets = Vec::new();
    for flow in flows {
        let found = table.get(&flow.original, Direction::Original, flow.zone);
        targets.extend(found.unwrap().as_ref().and_then(DeleteTarget::of));
    }
    table.delete(&targets);
}

/// Creates, changes and deletes entries at random, by netlink and by packets.
fn churn(seed: u64, steps: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut table = open();
    let server = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let address = server.local_addr().unwrap();
    let mut clients: Vec<(UdpSocket, Flow)> = Vec::new();
    for _ in 0..steps {
        let first = random.below(2000);
        let some = || (first..).map(|n| inserted(n, n % 3));
        match random.below(10) {
            // Batch of new entries; inserts of existing ones fail.
            0..=3 => {
                let flows: Vec<Flow> = some().take(1 + random.below(40) as usize).collect();
                table.insert_all(&flows);
            }
            4 => {
                let flows: Vec<Flow> = some().take(1 + random.below(60) as usize).collect();
                end(&mut table, &flows);
            }
            // Deletes an entry and inserts it again at once, perhaps to another endpoint.
            5 | 6 => {
                end(&mut table, some().take(1).collect::<Vec<_>>().iter());
                let _ = table.insert(&inserted(first, first + random.below(2)));
            }
            7 => {
                let client = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
                client.send_to(&[0], address).unwrap();
                let port = client.local_addr().unwrap().port();
                let ports = ports(port, address.port());
                let flow = plain(tuple(17, "127.0.0.1", "127.0.0.1", ports), REPLIED);
                clients.push((client, flow));
            }
            // An old client sends again; sometimes its entry is deleted first.
            _ if !clients.is_empty() => {
                let (client, flow) = &clients[random.below(clients.len() as u64) as usize];
                if random.below(4) == 0 {
                    end(&mut table, [flow]);
                }
                client.send_to(&[0], address).unwrap();
                server.send_to(&[0], client.local_addr().unwrap()).unwrap();
            }
            _ => {}
        }
    }
}

fn table() -> Vec<Value> {
    ctk_line("ls --cluster none -o jsonl").exits(0).jsonl()
}

/// Waits until nothing changes, then compares: the records rebuild the table, and gaps are reported and followed by a new
/// look.
fn settle(watch: Watch) -> WatchOutcome {
    watch.wait_for_quiet(QUIET);
    watch.wait("the end of the last gap", is_synced);
    let table = table();
    let ended = watch.stop();
    let (view, table) = (rebuild_view(&ended.records), view_of_listing(&table));
    for (name, entry) in &table {
        assert_eq!(view.get(name), Some(entry), "{name}");
    }
    assert_eq!(
        view.len(),
        table.len(),
        "some are over and were not told so"
    );
    let gap = has(&ended.records, "gap");
    assert_eq!(
        ended.status,
        Some(if gap { 3 } else { 0 }),
        "{}",
        ended.stderr
    );
    assert_eq!(
        ended
            .stderr
            .contains("; after each one the table was read again"),
        gap,
        "{}",
        ended.stderr
    );
    ended
}

/// Asserts that the last gap is followed by a `synced`.
fn is_synced(records: &[Value]) -> bool {
    let mut states = records
        .iter()
        .rev()
        .filter_map(|record| match record["type"].as_str() {
            Some("synced") => Some(true),
            Some("gap") => Some(false),
            _ => None,
        });
    states.next().unwrap_or(false)
}

#[test]
fn the_records_of_random_churn_make_the_table() {
    for seed in [1, 2] {
        private_netns(|| {
            tracked_loopback();
            // Events alone.
            let watch = start(&["--interval", "0"]);
            churn(seed, 1500);
            let ended = settle(watch);
            assert!(
                ended.records.len() > 2000,
                "{} records",
                ended.records.len()
            );
            // Without root the kernel gives a buffer that is too small for a guarantee.
            if nix::unistd::geteuid().is_root()
                && std::env::var_os("CTK_TEST_INSIDE_UNSHARE").is_none()
            {
                assert!(!has(&ended.records, "gap"), "seed {seed}");
            }
        });
    }
}

#[test]
fn records_make_the_table_however_often_the_buffer_overruns() {
    for seed in [3, 4] {
        private_netns(|| {
            tracked_loopback();
            // Buffer for some ten events.
            let watch = start(&["--interval", "1s", "--buffer-size", "6000"]);
            for part in 0..2 {
                churn(seed * 10 + part, 200);
                // More at once than any reader can take.
                let burst = (0..2000).map(|n| inserted(10_000 + n, part));
                open().insert_all(burst.collect::<Vec<_>>());
            }
            let ended = settle(watch);
            assert!(has(&ended.records, "gap"), "no overrun");
            for record in &ended.records {
                if record["type"] == "gap" {
                    assert!(record["overruns"].as_u64() > Some(0), "{record}");
                    assert_eq!(record["entry"], Value::Null);
                }
            }
        });
    }
}

/// Reader that pauses: events that cannot be printed in time make a gap, and Ctrl-C works.
#[test]
fn a_paused_reader_makes_a_gap_and_no_wrong_record() {
    private_netns(|| {
        let selected = [
            "--interval",
            "0",
            "--cluster",
            "none",
            "--dst",
            "10.96.0.10",
        ];
        let unread = start_unread(&selected);
        let flows = |range: Range<u64>| range.map(|n| inserted(n, 0)).collect::<Vec<_>>();
        let others = flows(0..35_000).into_iter().map(|mut flow| {
            (flow.original.dst, flow.reply.src) = ([10, 64, 0, 1].into(), [10, 64, 0, 1].into());
            flow
        });
        let mut table = open();
        wait_until_heard(&mut table);
        let insert = |table: &mut Table, flows: Vec<Flow>| {
            assert!(table.insert_all(&flows).iter().all(Result::is_ok));
        };
        // More than a pipe holds.
        insert(&mut table, flows(0..2000));
        std::thread::sleep(QUIET);
        // More than the queue holds while its consumer waits for the pipe.
        insert(&mut table, others.collect());
        let ended = delete(|flow| flow.original.dst.to_string() == "10.64.0.1");
        assert_eq!(ended, 35_000);
        insert(&mut table, flows(2000..22_000));
        let watch = unread.read();
        watch.wait("the gap", |records| has(records, "gap"));
        let ended = settle(watch);
        assert_eq!(ended.status, Some(3));
        assert_eq!(rebuild_view(&ended.records).len(), 22_000);
    });
}

#[test]
fn ctrl_c_ends_a_watch_whose_reader_pauses() {
    private_netns(|| {
        let unread = start_unread(&["--interval", "0", "--cluster", "none"]);
        let mut table = open();
        wait_until_heard(&mut table);
        // More than a pipe holds.
        table.insert_all((0..2000).map(|n| inserted(n, 0)).collect::<Vec<_>>());
        std::thread::sleep(QUIET);
        unread.interrupt();
        assert_eq!(unread.wait_for_exit(), Some(3), "something was not printed");
    });
}

/// Waits until the watch listens, from outside, because its output is not read.
fn wait_until_heard(table: &mut Table) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let netlink = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
        // Protocol 12 is NETLINK_NETFILTER; groups 1 to 3 are the bits 0 to 2.
        let listens = netlink.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(1) == Some(&"12") && words.get(3) == Some(&"00000007")
        });
        if listens && table.count().is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "no socket listens: {netlink}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
