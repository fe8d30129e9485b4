//! The memory that a listing takes does not depend on the size of the table.

mod lab;
mod mixed;
mod private_netns;
mod tools;

use std::process::Stdio;

use ctnetlink::Table;
use ctnetlink::netns::Netns;
use lab::be_the_node;
use lab::cluster::{ClusterFile, minimal, service, slice};
use private_netns::private_netns;
use tools::ctk_command;

const ENTRIES: u32 = 200_000;
const MIB: i64 = 1 << 20;

/// A fixed number of clients' flows to one of 100 Services, each to its endpoint, one in ten to one that is gone.
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
        be_the_node();
        let mut table = Table::open(&Netns::current()).unwrap();
        // In portions: a child's peak begins with that of the process that starts it.
        for first in (0..ENTRIES).step_by(1000) {
            let results = table.insert_all((first..first + 1000).map(flow));
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
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
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
fn peak(args: &[&str]) -> i64 {
    let child = ctk_command(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    let mut status = 0;
    // SAFETY: zeros are a valid rusage, and both places outlive the call.
    let (waited, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid, &mut status, 0, &mut usage), usage)
    };
    assert_eq!((waited, status), (pid, 0), "{args:?}");
    usage.ru_maxrss * 1024
}
