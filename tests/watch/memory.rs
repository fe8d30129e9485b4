//! A watch keeps what matches, and nothing of the rest.

use ctnetlink::Table;
use ctnetlink::netns::Netns;

use crate::child::start;
use crate::mixed::{ASSURED, plain, ports, tuple};
use crate::private_netns::private_netns;

const ENTRIES: u32 = 200_000;

/// Three of the clients of all these flows are 10.0.0.1.
fn flow(n: u32) -> ctnetlink::flow::Flow {
    let client = match n % (ENTRIES / 3) {
        7 => "10.0.0.1".to_owned(),
        _ => format!("10.{}.{}.{}", 128 + (n >> 16), n >> 8 & 255, n & 255),
    };
    let port = 1 + (n / (ENTRIES / 3)) as u16;
    let mut flow = plain(tuple(17, &client, "10.64.0.1", ports(port, 53)), ASSURED);
    flow.timeout = Some(100_000);
    flow
}

#[test]
fn an_idle_watch_of_three_flows_in_a_large_table_stays_below_32_mib() {
    private_netns(|| {
        let mut table = Table::open(&Netns::current()).unwrap();
        for first in (0..ENTRIES).step_by(1000) {
            let results = table.insert_all((first..first + 1000).map(flow));
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
        // The kernel filters; and where it cannot, every entry is looked at and let go.
        for selector in [["--src", "10.0.0.1"], ["--src", "10.0.0.0/30"]] {
            let watch =
                start(&[&selector[..], &["--cluster", "none", "--interval", "1s"]].concat());
            assert_eq!(watch.records().len(), 4, "three snapshots and synced");
            std::thread::sleep(std::time::Duration::from_secs(3));
            let status = std::fs::read_to_string(format!("/proc/{}/status", watch.pid())).unwrap();
            let peak = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))
                .unwrap();
            let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
            println!("{selector:?}: {:.1} MiB", peak as f64 / 1024.0);
            assert!(peak < 32 << 10, "{selector:?}: {peak} KiB");
            assert_eq!(watch.stop().status, Some(0));
        }
    });
}
