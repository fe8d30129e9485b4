//! Memory of a listing does not depend on the size of the table.

use std::process::Stdio;

use ctnetlink::Table;
use ctnetlink::netns::Netns;
use testkit::ctk_binary::ctk_command;
use testkit::lab::cluster::{ClusterFile, minimal, service, slice};
use testkit::lab::{self, add_node_address};
use testkit::mixed::{self, insert_range};
use testkit::private_netns::private_netns;
use testkit::usage::{MIB, measure};

const ENTRIES: u32 = 200_000;

/// Flow of one of many clients to one of 100 Services and its endpoint; one in ten leads to a removed endpoint.
fn flow(n: u32) -> ctnetlink::flow::Flow {
    use mixed::{ASSURED, ports, translated, tuple};
    let service = n % 100;
    let client = format!("10.{}.{}.{}", 128 + (n >> 16), n >> 8 & 255, n & 255);
    let vip = format!("10.96.1.{service}");
    let endpoint = format!("10.244.{}.{service}", if n % 1000 < 100 { 9 } else { 1 });
    let mut flow = translated(
        tuple(17, &client, &vip, ports(40_000, 53)),
        tuple(17, &endpoint, &client, ports(53, 40_000)),
        ASSURED,
    );
    flow.timeout = Some(100_000);
    flow
}

fn hundred_services() -> ClusterFile {
    let mut objects = minimal(lab::NODE);
    let dns = &[("dns", 53, "UDP")];
    for n in 0..100 {
        let (name, ip) = (format!("dns-{n}"), format!("10.96.1.{n}"));
        objects.push(service("team", &name, &ip, dns));
        objects.push(slice("team", &name, dns, &[(&format!("10.244.1.{n}"), "")]));
    }
    ClusterFile::of(&objects)
}

#[test]
fn listing_a_large_table_stays_below_32_mib() {
    private_netns(|| {
        add_node_address();
        insert_range(0..ENTRIES, flow);
        let mut table = Table::open(&Netns::current()).unwrap();
        assert_eq!(table.count().unwrap(), ENTRIES);
        let file = hundred_services();
        let cluster = file.path();
        for args in [
            &["ls"][..],
            &["ls", "-o", "json", "--cluster", "none"],
            &["ls", "--cluster", cluster, "--svc", "dns-7"],
            &["svc", "dns-7", "--cluster", cluster],
            &[
                "ls",
                "--cluster",
                "none",
                "--sort",
                "-timeout,original.src",
                "--limit",
                "100",
            ],
        ] {
            let peak = peak(args);
            println!("{args:?}: {:.1} MiB", peak as f64 / MIB as f64);
            assert!(peak < 32 * MIB, "{args:?}: {} MiB", peak / MIB);
        }
    });
}

/// Peak bytes of a `ctk` that runs to its end and succeeds.
fn peak(args: &[&str]) -> u64 {
    let mut command = ctk_command(args);
    let usage = measure(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    assert!(usage.status.success(), "{args:?}: {}", usage.status);
    usage.peak
}
