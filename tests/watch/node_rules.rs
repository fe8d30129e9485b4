//! Number of runs of the tools that print this node's rules.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::open;
use testkit::lab::{BACKENDS, Lab, Proxy, VIP, cluster};
use testkit::mixed::{REPLIED, plain, ports, tuple};
use testkit::private_netns::private_netns;
use testkit::tools::{LoggedTools, nft, sysctl};
use testkit::watch_process::{has, start, start_in};

fn is_by_rules(record: &Value, change: &str) -> bool {
    record["type"] == "endpoint" && record["seen_by"] == "rules" && record["change"] == change
}

/// Counts runs of a tool by the start of its command line: first during `quiet`, twice the pause between two looks, without
/// any change, then with one.
fn watched(proxy: Proxy, source: &str, listing: &str, quiet: Duration) {
    let tools = LoggedTools::new();
    let lab = Lab::new(proxy);
    lab.set_endpoints(&BACKENDS[..1]);
    let args = ["--interval", "5s", "--cluster", source];
    let watch = start_in(&[("PATH", &tools.path())], &args).read();
    watch.wait("the first synced", |records| has(records, "synced"));
    let listings = || {
        let runs = tools.runs().into_iter();
        runs.filter(|run| run.starts_with(listing)).count()
    };
    let began = Instant::now();
    while listings() == 0 {
        assert!(began.elapsed() < quiet, "{:?}", tools.runs());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(quiet);
    assert_eq!(listings(), 1, "{proxy:?} {source}: {:?}", tools.runs());
    nft("table inet other { }");
    lab.set_endpoints(&BACKENDS);
    watch.wait("the new endpoint", |records| {
        records.iter().any(|record| is_by_rules(record, "added"))
    });
    lab.set_endpoints(&BACKENDS[1..]);
    watch.wait("the lost endpoint", |records| {
        records.iter().any(|record| is_by_rules(record, "gone"))
    });
    assert_eq!(watch.stop().status, Some(0));
}

#[test]
fn rules_used_with_a_file_are_read_again_only_after_a_change() {
    private_netns(|| {
        let (file, quiet) = (cluster(&BACKENDS), Duration::from_secs(11));
        watched(Proxy::Iptables, file.path(), "iptables-nft-save", quiet);
    });
}

#[test]
fn rules_as_the_source_are_read_again_only_after_a_change() {
    private_netns(|| {
        let quiet = Duration::from_secs(21);
        watched(Proxy::Nftables, "rules", "nft -j list table", quiet);
    });
}

#[test]
fn an_entry_created_after_the_only_read_of_the_rules_is_judged_by_them() {
    private_netns(|| {
        sysctl("timestamp", "1");
        let lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&BACKENDS[..1]);
        let watch = start(&["--cluster", "rules"]);
        std::thread::sleep(Duration::from_millis(1500));
        let (vip, port) = (VIP.ip().to_string(), VIP.port());
        let untranslated = plain(tuple(17, "10.244.0.9", &vip, ports(40_200, port)), REPLIED);
        open().insert(&untranslated).unwrap();
        watch.wait("the verdict", |records| {
            let verdict = |record: &Value| record["entry"]["verdict"].clone();
            let mut before = records.iter().map(verdict);
            before.any(|verdict| verdict == "unknown")
                && records.iter().any(|record| {
                    record["type"] == "verdict" && record["entry"]["reason"] == "no-dnat"
                })
        });
        assert_eq!(watch.stop().status, Some(0));
    });
}
