//! Findings of `ctk doctor` about counters, limits and settings, in private namespaces.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::tools;

use ctnetlink::flow::Status;
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketType, bind, sendto, socket};
use serde_json::Value;
use testkit::ctk_binary::ctk_line;
use testkit::mixed::{insert, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, nft, run, sysctl};

fn doctor(args: &str) -> Outcome {
    ctk_line(&format!("doctor --cluster none --sample 0 -o json {args}"))
}

/// The same with a sample of 6 s, which alone shows growth.
fn sampled(args: &str) -> Outcome {
    ctk_line(&format!("doctor --cluster none -o json {args}"))
}

/// Findings of one check.
fn of(outcome: &Outcome, check: &str) -> Vec<Value> {
    let items = outcome.items().into_iter();
    items.filter(|item| item["check"] == check).collect()
}

/// Entries of which those selected by `assured` are ASSURED.
fn fill(count: u64, assured: impl Fn(u64) -> bool) {
    let flows: Vec<_> = (0..count)
        .map(|n| {
            let client = format!("10.1.{}.{}", n >> 8 & 255, n & 255);
            let mut flow = udp(&client, 1000 + (n >> 16) as u16);
            flow.status = match assured(n) {
                true => flow.status.with(Status::SEEN_REPLY).with(Status::ASSURED),
                false => flow.status.without(Status::ASSURED),
            };
            flow
        })
        .collect();
    insert(&flows);
}

fn limit() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn a_table_near_its_limit_is_found_with_its_numbers_and_its_removable_entries() {
    private_netns(|| {
        let max = limit();
        if !(100..2_000_000).contains(&max) {
            tools::skipped(&format!("the limit of this machine is {max}"));
            return;
        }
        // One per cent is enough with a threshold of one.
        let count = (max / 100 + 4) / 4 * 4;
        fill(count, |n| n % 4 == 0);
        let outcome = doctor("--table-used 1").exits(5);
        let found = of(&outcome, "table-full");
        assert_eq!(found.len(), 1, "{found:?}");
        let (finding, evidence) = (&found[0], &found[0]["evidence"]);
        assert_eq!(finding["severity"], "warning");
        for (name, expected) in [
            ("count", count),
            ("max", max),
            ("entries", count),
            ("evictable", count * 3 / 4),
        ] {
            assert_eq!(evidence[name], expected, "{name}: {evidence}");
        }
        let used = count as f64 * 100.0 / max as f64;
        assert_eq!(evidence["used_percent"], used, "{evidence}");
        let message = finding["message"].as_str().unwrap();
        let start =
            format!("the table is {used:.1} % full ({count} of {max}); 75.0 % of its entries");
        assert!(message.starts_with(&start), "{message}");
        assert_eq!(of(&doctor(""), "table-full"), Vec::<Value>::new());
    });
}

/// Finding about a full table while new flows begin, taken when `told` accepts the output.
fn full(assured: impl Fn(u64) -> bool, told: &str) -> Option<Value> {
    let max = limit();
    if !(100..2_000_000).contains(&max) {
        tools::skipped(&format!("the limit of this machine is {max}"));
        return None;
    }
    run("ip", &["link", "set", "lo", "up"]);
    nft("table inet t { chain c { type filter hook output priority 0; ct state new accept; }; }");
    fill(max, assured);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // Each flow has its own source port. The kernel refuses flows that the full table cannot hold.
                let flow = UdpSocket::bind("127.0.0.1:0").unwrap();
                let _ = flow.send_to(b"x", "127.0.0.1:9");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let found = std::iter::repeat_with(|| of(&sampled("").exits(5), "table-full"))
            .take(3)
            .map(|found| found[0].clone())
            .find(|finding| finding["evidence"][told].as_u64() > Some(0));
        ended.store(true, Ordering::Relaxed);
        Some(found.unwrap_or_else(|| panic!("{told} does not rise")))
    })
}

#[test]
fn a_full_table_with_early_drops_names_the_evicted_entries() {
    private_netns(|| {
        let Some(finding) = full(|n| n % 4 == 0, "early_drop") else {
            return;
        };
        let evidence = &finding["evidence"];
        assert_eq!(finding["severity"], "critical", "{finding}");
        assert!(
            evidence["used_percent"].as_f64() >= Some(99.0),
            "{evidence}"
        );
        // One look knows the totals, and not how they grow.
        let once = of(&doctor("").exits(5), "table-full");
        let evidence = &once[0]["evidence"];
        assert_eq!(evidence["early_drop"], Value::Null, "{once:?}");
        assert_eq!(evidence["dropped"], Value::Null, "{once:?}");
        assert_eq!(evidence["early_drop_total"], counter("early_drop"));
        let message = finding["message"].as_str().unwrap();
        assert!(message.contains("pushed out"), "{message}");
    });
}

#[test]
fn a_full_table_without_evictable_entries_names_the_dropped_packets() {
    private_netns(|| {
        let Some(finding) = full(|_| true, "dropped") else {
            return;
        };
        let evidence = &finding["evidence"];
        assert_eq!(finding["severity"], "critical", "{finding}");
        assert_eq!(evidence["evictable"], 0);
        assert_eq!(evidence["early_drop"], 0);
        let message = finding["message"].as_str().unwrap();
        assert!(message.contains("all are ASSURED"), "{message}");
        assert!(message.contains("dropped in"), "{message}");
    });
}

/// Socket whose packets all need an entry that cannot exist, because its reply tuple belongs to another entry. In a race of
/// two packets the other entry came first; here the other entry is permanent, and the protocol has no ports to change.
fn clashing() -> OwnedFd {
    run("ip", &["link", "set", "lo", "up"]);
    for n in [1, 2, 3, 9] {
        run(
            "ip",
            &["addr", "add", &format!("10.0.0.{n}/32"), "dev", "lo"],
        );
    }
    nft("table ip t {
        chain translate {
            type nat hook postrouting priority 100
            ip saddr { 10.0.0.2, 10.0.0.3 } snat to 10.0.0.1
        }
    }
");
    let protocol = Protocol::from_raw(253.try_into().unwrap());
    let from = |n| {
        let sender = socket(AddressFamily::INET, SocketType::RAW, Some(protocol)).unwrap();
        bind(&sender, &SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, n), 0)).unwrap();
        sender
    };
    send(&from(2)).unwrap();
    from(3)
}

fn send(sender: &OwnedFd) -> rustix::io::Result<usize> {
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 0);
    sendto(sender, b"x", SendFlags::empty(), &to)
}

#[test]
fn failed_insertions_during_the_look_are_a_race_and_not_a_full_table() {
    private_netns(|| {
        let sender = clashing();
        let ended = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    assert_eq!(send(&sender), Err(rustix::io::Errno::PERM));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let found = of(&sampled("--failed-insertions 2"), "insert-failed");
            ended.store(true, Ordering::Relaxed);
            found
        });
        let counted: u64 = counter("insert_failed");
        let evidence = &found[0]["evidence"];
        assert_eq!(found[0]["severity"], "warning", "{found:?}");
        let more = evidence["insert_failed"].as_u64().unwrap();
        assert!(more >= 2 && more <= counted, "{evidence} {counted}");
        assert!(evidence["insert_failed_total"].as_u64().unwrap() <= counted);
        // Afterwards it is a finding of level info only. One look does not tell whether the counter grows.
        let outcome = doctor("").exits(0);
        let later = of(&outcome, "insert-failed");
        assert_eq!(later[0]["severity"], "info", "{later:?}");
        assert_eq!(later[0]["evidence"]["insert_failed"], Value::Null);
        assert_eq!(later[0]["evidence"]["lost"], Value::Null);
        assert_eq!(later[0]["evidence"]["insert_failed_total"], counted);
    });
}

/// Sum over the CPUs, as `conntrack -S` prints it.
fn counter(name: &str) -> u64 {
    let outcome = run("conntrack", &["-S"]).stdout;
    let fields = outcome
        .split_whitespace()
        .filter_map(|field| field.split_once('='));
    fields
        .filter(|(field, _)| *field == name)
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn settings_that_hide_evidence_are_findings_of_level_info() {
    private_netns(|| {
        for (name, value) in [("acct", "0"), ("timestamp", "0"), ("events", "2")] {
            sysctl(name, value);
        }
        let outcome = doctor("").exits(0);
        let found = of(&outcome, "settings");
        let names: Vec<_> = found
            .iter()
            .map(|f| f["evidence"]["setting"].as_str().unwrap())
            .collect();
        let folder = "net.netfilter.nf_conntrack_";
        assert_eq!(
            names,
            ["acct", "timestamp", "events"].map(|name| format!("{folder}{name}"))
        );
        assert!(found.iter().all(|finding| finding["severity"] == "info"));
        // The advice of the finding works.
        for finding in &found {
            let help = finding["help"].as_str().unwrap();
            let (name, value) = help
                .split_once("nf_conntrack_")
                .unwrap()
                .1
                .split_once('=')
                .unwrap();
            sysctl(name, value);
        }
        let outcome = doctor("").exits(0);
        assert_eq!(of(&outcome, "settings"), Vec::<Value>::new());
    });
}

/// Neighbour in its own namespace, at the other end of a veth. It ends with its standard input.
struct Neighbour {
    shell: Child,
    stdin: Option<ChildStdin>,
}

impl Neighbour {
    fn new() -> Self {
        let mut shell = Command::new("unshare")
            .args([
                "-n",
                "sh",
                "-c",
                "while read -r line; do eval \"$line\"; done",
            ])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = shell.stdin.take();
        let pid = shell.id();
        run(
            "ip",
            &["link", "add", "v0", "type", "veth", "peer", "name", "v1"],
        );
        // It has moved when its namespace differs from that of this thread.
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        while std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap() == own {
            std::thread::yield_now();
        }
        run("ip", &["link", "set", "v1", "netns", &pid.to_string()]);
        Neighbour { shell, stdin }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.shell.wait().unwrap();
    }
}

/// `IPReversePathFilter` of this network namespace.
fn filtered_by_reverse_path() -> u64 {
    let netstat = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next().unwrap().split_whitespace();
    let mut columns = names.zip(lines.next().unwrap().split_whitespace());
    let (_, total) = columns
        .find(|(name, _)| *name == "IPReversePathFilter")
        .unwrap();
    total.parse().unwrap()
}

#[test]
fn drops_of_the_reverse_path_filter_are_found_while_they_happen() {
    private_netns(|| {
        let mut neighbour = Neighbour::new();
        run("ip", &["link", "set", "lo", "up"]);
        run(
            "ip",
            &["link", "set", "v0", "address", "02:00:00:00:00:01", "up"],
        );
        run("ip", &["addr", "add", "10.0.0.1/24", "dev", "v0"]);
        for name in ["all", "v0"] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "1").unwrap();
        }
        assert_eq!(
            of(&doctor("").exits(0), "reverse-path"),
            Vec::<Value>::new()
        );
        // Answers to 10.9.9.9 have no route.
        neighbour.say("ip link set v1 up");
        neighbour.say("ip addr add 10.9.9.9/32 dev v1");
        neighbour.say("ip route add 10.0.0.0/24 dev v1");
        neighbour.say("ip neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev v1 nud permanent");
        // Lives as long as the shell.
        neighbour.say(
            "(while kill -0 $$; do bash -c 'echo x > /dev/udp/10.0.0.1/9'; sleep 0.01; done) >/dev/null 2>&1 &",
        );
        let finding = loop {
            let found = of(&sampled("--filtered-packets 1"), "reverse-path");
            match found.into_iter().next() {
                Some(finding) if finding["severity"] == "warning" => break finding,
                _ => {}
            }
        };
        let evidence = &finding["evidence"];
        assert!(evidence["filtered"].as_u64() >= Some(1), "{evidence}");
        assert_eq!(evidence["strict_interfaces"], 1);
        assert_eq!(
            evidence["interfaces"],
            serde_json::json!([{"interface": "v0", "rp_filter": 1, "has_ipv4": true}])
        );
        drop(neighbour);
        // The drops are over, and their sender has ended; its last packets may still be on their way.
        let before = filtered_by_reverse_path();
        let later = of(&doctor("").exits(0), "reverse-path");
        assert_eq!(later[0]["severity"], "info");
        let told = later[0]["evidence"]["filtered_total"].as_u64().unwrap();
        assert!(
            (before..=filtered_by_reverse_path()).contains(&told),
            "{told}"
        );
    });
}

/// Sends a datagram from port 7000 to port 9999 of this host, with this zone for the original direction only.
fn send_in_zone(zone: u16) -> std::io::Result<usize> {
    nft(&format!(
        "table ip z {{
            chain out {{
                type filter hook output priority raw
                udp dport 9999 ct original zone set {zone}
            }}
        }}
"
    ));
    let sender = UdpSocket::bind("127.0.0.1:7000")?;
    let sent = sender.send_to(b"x", "127.0.0.1:9999");
    run("nft", &["delete", "table", "ip", "z"]);
    sent
}

#[test]
fn entries_of_a_one_way_zone_are_named_as_those_in_the_way() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        nft("table ip t {
            chain in {
                type filter hook input priority 0
                ct state new accept
            }
        }
");
        send_in_zone(5).unwrap();
        assert_eq!(counter("insert_failed"), 0);
        // The reply tuple is in zone 0 again, where it is taken.
        let _refused = send_in_zone(6);
        assert!(counter("insert_failed") > 0);
        let found = of(&doctor("").exits(0), "insert-failed");
        let (message, evidence) = (found[0]["message"].as_str().unwrap(), &found[0]["evidence"]);
        assert_eq!(evidence["zones"], serde_json::json!([5]), "{evidence}");
        assert!(
            message.contains("a possible cause: 1 entry has a zone"),
            "{message}"
        );
        assert!(!message.contains("DNS"), "{message}");
        let examples = evidence["examples"].to_string();
        assert!(examples.contains("127.0.0.1:7000"), "{examples}");
        let sentences = ctk_line("stat -o json").exits(0).json()["explanation"].to_string();
        assert!(
            sentences.contains("another zone") && !sentences.contains("DNS"),
            "{sentences}"
        );
    });
}

#[test]
fn invalid_packets_are_found_with_the_causes_that_settings_leave() {
    private_netns(|| {
        run("ip", &["link", "set", "lo", "up"]);
        nft("table ip t {
            chain in {
                type filter hook input priority 0
                ct state new accept
            }
        }
");
        sysctl("tcp_loose", "0");
        sysctl("tcp_be_liberal", "1");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(of(&doctor(""), "invalid"), Vec::<Value>::new());
        run("conntrack", &["-F"]);
        client.write_all(b"x").unwrap();
        let found = of(&doctor("").exits(0), "invalid");
        let (message, evidence) = (found[0]["message"].as_str().unwrap(), &found[0]["evidence"]);
        assert!(
            evidence["invalid_total"]
                .as_u64()
                .is_some_and(|total| total > 0),
            "{evidence}"
        );
        for part in [
            "as tcp_loose is 0",
            "it is not the TCP window",
            "bad checksums",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    });
}
