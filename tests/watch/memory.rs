//! Memory of a watch depends on the selected entries only.

use testkit::mixed::{ASSURED, insert_range, plain, ports, tuple};
use testkit::private_netns::private_netns;
use testkit::usage::{MIB, peak_of};
use testkit::watch_process::start;

const ENTRIES: u32 = 200_000;

/// Flow of a large table; three have the client 10.0.0.1.
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
        insert_range(0..ENTRIES, flow);
        // The kernel filters; and where it cannot, every entry is looked at and let go.
        for selector in [["--src", "10.0.0.1"], ["--src", "10.0.0.0/30"]] {
            let watch =
                start(&[&selector[..], &["--cluster", "none", "--interval", "1s"]].concat());
            assert_eq!(watch.records().len(), 4, "three snapshots and synced");
            std::thread::sleep(std::time::Duration::from_secs(3));
            let peak = peak_of(watch.pid());
            println!("{selector:?}: {:.1} MiB", peak as f64 / MIB as f64);
            assert!(peak < 32 * MIB, "{selector:?}: {} MiB", peak / MIB);
            assert_eq!(watch.stop().status, Some(0));
        }
    });
}
