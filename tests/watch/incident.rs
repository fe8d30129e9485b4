//! Records of a watch during the DNS incident.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use testkit::ctk_binary::ctk;
use testkit::lab::{self, BACKENDS, CLIENTS, Client, Lab, Proxy, cluster};
use testkit::private_netns::private_netns;
use testkit::tools::sysctl;
use testkit::watch_process::{record_types, start};

const PORT: u16 = 40_123;

/// Sends a question every 200 ms while `during` runs.
fn asking(client: &Client, during: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                client.send();
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let _stop = Stop(&over);
        during();
    });
}

fn goes_to(record: &Value, backend: Ipv4Addr) -> bool {
    record["entry"]["reply"]["src"] == backend.to_string()
}

fn is_refresh(record: &Value, backend: Ipv4Addr, replies: &str) -> bool {
    let entry = &record["entry"];
    let yes = record["type"] == "refresh" && entry["refreshing"] == "yes";
    yes && goes_to(record, backend) && entry["replies"] == replies
}

#[test]
fn the_dns_incident_is_recorded_from_the_first_packet_to_the_recovery() {
    private_netns(|| {
        sysctl("acct", "1");
        let (dying, living) = (BACKENDS[0], BACKENDS[1]);
        let mut lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&[dying]);
        let file = cluster(&BACKENDS);
        let args = ["--udp", "53", "--interval", "3s", "--cluster", file.path()];
        let watch = start(&args);
        let client = Client::bind(CLIENTS[0], PORT);
        let mut death = 0;
        asking(&client, || {
            watch.wait("answers", |records| {
                let well = records
                    .iter()
                    .any(|record| is_refresh(record, dying, "two-way"));
                // The entry is assured with the first answer after 2 s.
                well && record_types(records, PORT)
                    .iter()
                    .filter(|word| *word == "update")
                    .count()
                    == 2
            });
            lab.kill(dying);
            lab.set_endpoints(&[living]);
            death = watch.records().len();
            watch.wait("the silence", |records| {
                records
                    .iter()
                    .any(|record| is_refresh(record, dying, "stopped"))
            });
            // The cluster file has the death now.
            std::fs::write(
                file.path(),
                lab::cluster::list(&lab::cluster_objects(&[living])),
            )
            .unwrap();
            watch.wait("the verdict", |records| {
                records.iter().any(|record| record["type"] == "verdict")
            });
            let purge = [
                "purge",
                "--stale",
                "--yes",
                "--settle",
                "0",
                "--cluster",
                file.path(),
            ];
            ctk(purge).exits(0);
            watch.wait("the recovery", |records| {
                records
                    .iter()
                    .any(|record| is_refresh(record, living, "two-way"))
            });
        });
        let ended = watch.stop();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        told_in_order(&ended.records);
        told_in_time(&ended.records[death..], dying);
    });
}

/// Records except refreshes, with verdict and reason.
fn told_in_order(records: &[Value]) {
    let words: Vec<String> = record_types(records, PORT)
        .into_iter()
        .filter(|word| word != "refresh")
        .collect();
    let life = ["new", "update", "update"];
    // The node's rules change to the other backend before the file does.
    let rules = ["endpoint", "endpoint"];
    let expected = [
        &["synced"],
        &life[..],
        &rules,
        &["verdict", "destroy"],
        &life,
    ];
    assert_eq!(words, expected.concat());
    let mut changes: Vec<_> = records
        .iter()
        .filter(|record| record["type"] == "endpoint")
        .map(|record| {
            assert_eq!(record["seen_by"], "rules", "{record:#}");
            let address = record["endpoint"]["address"].as_str().unwrap();
            let address: Ipv4Addr = address.parse().unwrap();
            (record["change"].as_str().unwrap(), address)
        })
        .collect();
    changes.sort_unstable();
    assert_eq!(changes, [("added", BACKENDS[1]), ("gone", BACKENDS[0])]);
    let verdict = records.iter().find(|r| r["type"] == "verdict").unwrap();
    assert_eq!(
        (&verdict["before"], &verdict["after"]),
        (&"ok".into(), &"stale".into())
    );
    let entry = &verdict["entry"];
    assert_eq!(entry["reason"], "endpoint-gone");
    assert_eq!(
        (&entry["refreshing"], &entry["replies"]),
        (&"yes".into(), &"stopped".into())
    );
    assert_eq!(entry["client"]["name"], "web-1");
    assert_eq!(entry["service"]["name"], "kube-dns");
    let ends: Vec<&Value> = records.iter().filter(|r| r["type"] == "destroy").collect();
    assert!(goes_to(ends[0], BACKENDS[0]));
    assert!(
        ends[0]["entry"]["original"]["packets"].as_u64() > Some(10),
        "its counters"
    );
    let born: Vec<&Value> = records.iter().filter(|r| r["type"] == "new").collect();
    assert!(goes_to(born[0], BACKENDS[0]) && goes_to(born[1], BACKENDS[1]));
    assert_eq!(born[1]["entry"]["endpoint"]["name"], "coredns-b");
    for record in records.iter().filter(|record| record["type"] == "refresh") {
        let seconds = |key: &str| record[key].as_u64().unwrap();
        // At least 3 s passed, so without a refill the timer would be lower by that.
        assert!(
            seconds("timeout_after") + 2 > seconds("timeout_before"),
            "{record}"
        );
    }
}

/// Three looks decide: the first after the death may have seen the last answer, and two more have not.
fn told_in_time(after_death: &[Value], dying: Ipv4Addr) {
    let refreshes = after_death.iter().filter(|r| r["type"] == "refresh");
    let stopped = refreshes
        .take(3)
        .any(|record| is_refresh(record, dying, "stopped"));
    assert!(stopped, "{after_death:#?}");
}

#[test]
fn the_table_format_names_the_new_endpoint_of_a_flow() {
    private_netns(|| {
        let (dying, living) = (BACKENDS[0], BACKENDS[1]);
        let lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&[dying]);
        let file = cluster(&BACKENDS);
        let client = Client::bind(CLIENTS[0], PORT);
        client.ask().unwrap();
        let mut command = testkit::ctk_binary::ctk_command([
            "watch",
            "--udp",
            "53",
            "--interval",
            "1s",
            "--for",
            "9s",
            "--count",
            "4",
            "--cluster",
            file.path(),
        ]);
        let child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The first look is over long before the file changes.
        std::thread::sleep(Duration::from_millis(1500));
        std::fs::write(
            file.path(),
            lab::cluster::list(&lab::cluster_objects(&[living])),
        )
        .unwrap();
        lab.set_endpoints(&[living]);
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(crate::delete(|_| true), 1);
        // Only a look may find the end; the next packet comes after it.
        std::thread::sleep(Duration::from_millis(1500));
        client.ask().unwrap();
        let outcome = testkit::tools::Outcome::of(child.wait_with_output().unwrap()).exits(0);
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        assert!(
            lines[0].contains("  snapshot  udp  shop/web-1:40123  "),
            "{outcome:#?}"
        );
        assert!(
            lines[1].ends_with("synced    1 entry to begin with"),
            "{outcome:#?}"
        );
        let [verdict, destroy, moved, new] = lines[2..] else {
            panic!("{outcome:#?}")
        };
        assert!(verdict.contains("  verdict   udp  shop/web-1:40123  kube-system/kube-dns:dns  "));
        assert!(
            verdict.contains("(was ok): 10.244.1.7:53 is no endpoint of"),
            "{verdict}"
        );
        assert!(
            destroy.contains("  destroy   udp  shop/web-1:40123  "),
            "{destroy}"
        );
        assert!(
            moved.ends_with(
                "  move      udp  shop/web-1:40123  kube-system/kube-dns:dns: \
                 kube-system/coredns-a (gone) -> kube-system/coredns-b:53"
            ),
            "{moved}"
        );
        assert!(new.contains("  new       udp  shop/web-1:40123  "), "{new}");
    });
}
