//! `ctk stat` against `conntrack -S`, `conntrack -C` and the files of /proc, in private namespaces.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ctnetlink::netns::Netns;
use ctnetlink::{InsertError, Table};
use serde_json::Value;
use testkit::ctk_binary::{ctk, ctk_command, ctk_line, ctk_path};
use testkit::mixed::{insert, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, assert_error, clean, nft, run, sysctl};

/// Counters of `conntrack -S`, by CPU.
fn conntrack_s() -> BTreeMap<u64, BTreeMap<String, u64>> {
    let outcome = run("conntrack", &["-S"]);
    let line = |line: &str| {
        let fields = line.split_whitespace();
        let mut counters: BTreeMap<String, u64> = fields
            .filter_map(|field| field.split_once('='))
            .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
            .collect();
        (counters.remove("cpu").expect("the CPU"), counters)
    };
    outcome.stdout.lines().map(line).collect()
}

/// Open, tracked connection over `lo`.
struct Connection {
    client: TcpStream,
    _server: TcpStream,
}

impl Connection {
    fn open() -> Self {
        run("ip", &["link", "set", "lo", "up"]);
        nft(
            "table ip t {\n chain in {\n type filter hook input priority 0;\n ct state new accept\n }\n}\n",
        );
        sysctl("tcp_loose", "0");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (server, _) = listener.accept().unwrap();
        Connection {
            client,
            _server: server,
        }
    }

    /// Removes the entry, so that the connection's next packets are invalid: the kernel does not know the connection.
    fn make_invalid(&mut self) {
        run("conntrack", &["-F"]);
        self.client.write_all(b"x").unwrap();
    }
}

fn stat_json(args: &str) -> Value {
    ctk_line(&format!("stat -o json {args}")).exits(0).json()
}

#[test]
fn sysctls_are_those_of_the_named_namespace() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let there = Netns::current();
        testkit::private_netns::enter_new_netns();
        for (netns, count) in [(there, 1), (Netns::current(), 0)] {
            let sysctls = ctk::sysctl::conntrack(&netns).unwrap();
            assert_eq!(sysctls.count, Some(count));
            assert!(sysctls.max.is_some() && sysctls.events.is_some());
        }
    });
}

#[test]
fn counters_and_count_are_those_of_conntrack() {
    private_netns(|| {
        let mut connection = Connection::open();
        for _ in 0..3 {
            connection.make_invalid();
        }
        // An entry with a used reply tuple: a failed insertion.
        let mut table = Table::open(&Netns::current()).unwrap();
        let (first, mut second) = (udp("10.0.0.1", 1), udp("10.0.0.2", 1));
        second.reply = first.reply;
        assert_eq!(table.insert(&first), Ok(()));
        let refused = table.insert(&second);
        assert!(
            matches!(refused, Err(InsertError::Kernel(_))),
            "{refused:?}"
        );
        // Retransmissions continue: the counters stand still between two equal looks.
        let (document, wanted) = loop {
            let before = conntrack_s();
            let document = stat_json("--per-cpu");
            if conntrack_s() == before {
                break (document, before);
            }
        };
        assert_eq!(document["type"], "absolute");
        assert_eq!(document["counters_from"], "netlink");
        let count = run("conntrack", &["-C"]).stdout;
        assert_eq!(document["count"].to_string(), count.trim());
        let mut sums = BTreeMap::new();
        for cpu in document["cpus"].as_array().unwrap() {
            let wanted = &wanted[&cpu["cpu"].as_u64().unwrap()];
            for (name, count) in wanted {
                assert_eq!(cpu["counters"][name], *count, "{name}: {cpu}");
                *sums.entry(name).or_insert(0) += count;
            }
        }
        assert_eq!(document["cpus"].as_array().unwrap().len(), wanted.len());
        for (name, sum) in &sums {
            assert_eq!(document["counters"][name], *sum, "{name}");
        }
        assert!(sums[&"invalid".to_owned()] >= 3, "{sums:?}");
        // Each line of /proc has the same `entries`: the value is not summed, and not a counter.
        assert!(document["counters"].get("entries").is_none());
        // Kernels do not count this any more.
        assert!(document["counters"].get("new").is_none(), "{document}");
        assert_eq!(document["counters"]["expect_new"], 0);
        assert_eq!(document["expect_count"], 0);
        assert_eq!(document["initial_netns"], false);
    });
}

#[test]
fn sizes_settings_and_every_timeout_are_those_of_proc() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1), udp("10.0.0.1", 2)]);
        for (name, value) in [
            ("udp_timeout", "77"),
            ("tcp_timeout_close_wait", "3600"),
            ("acct", "1"),
            ("timestamp", "1"),
            ("events", "2"),
            ("tcp_be_liberal", "1"),
            ("tcp_loose", "0"),
        ] {
            sysctl(name, value);
        }
        let folder = "/proc/sys/net/netfilter";
        let mut files = BTreeMap::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            if let Some(short) = name.strip_prefix("nf_conntrack_") {
                let text = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
                files.insert(short.to_owned(), text.trim().to_owned());
            }
        }
        let document = stat_json("");
        for name in ["count", "max", "buckets", "expect_max"] {
            assert_eq!(document[name].to_string(), files[name], "{name}");
        }
        for name in ["acct", "timestamp", "events", "tcp_be_liberal", "tcp_loose"] {
            assert_eq!(
                document["settings"][name].to_string(),
                files[name],
                "{name}"
            );
        }
        let timeouts = document["timeouts"].as_object().unwrap();
        let wanted: BTreeMap<_, _> = files
            .iter()
            .filter(|(name, _)| name.contains("timeout"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let found: BTreeMap<_, _> = timeouts
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect();
        assert_eq!(found, wanted);
        assert_eq!(found["udp_timeout"], "77");
        let (max, buckets) = (files["max"].parse(), files["buckets"].parse());
        let (max, buckets): (f64, f64) = (max.unwrap(), buckets.unwrap());
        assert_eq!(document["used_percent"], 200.0 / max);
        assert_eq!(document["mean_chain_length"], 4.0 / buckets);

        let table = ctk_line("stat --per-cpu").exits(0);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = table.stdout.lines().map(words).collect();
        for line in [
            "count 2 <0.1 % of max",
            "tcp_timeout_close_wait 3600 1h",
            "no drops",
        ] {
            assert!(lines.iter().any(|l| l == line), "{line}: {}", table.stdout);
        }
        assert!(table.stdout.starts_with("TABLE"), "{}", table.stdout);
        assert!(table.stderr.contains("alone, not the node's"), "{table:#?}");
        let bare = ctk_line("stat --no-header --color always").exits(0).stdout;
        assert!(bare.starts_with("count"), "{bare}");
        for header in ["TABLE", "COUNTER", "TIMEOUT"] {
            assert!(table.stdout.contains(header) && !bare.contains(header));
        }
    });
}

#[test]
fn without_the_capability_counters_come_from_proc_with_a_note() {
    private_netns(|| {
        let mut connection = Connection::open();
        connection.make_invalid();
        insert(&[udp("10.0.0.1", 1)]);
        let stat = || {
            let mut command = Command::new("setpriv");
            command.args([
                "--bounding-set=-net_admin",
                "--inh-caps=-net_admin",
                ctk_path(),
            ]);
            Outcome::of(
                clean(command, ["stat", "-o", "json", "--per-cpu"])
                    .output()
                    .unwrap(),
            )
            .exits(0)
        };
        let (outcome, wanted) = loop {
            let before = conntrack_s();
            let outcome = stat();
            if conntrack_s() == before {
                break (outcome, before);
            }
        };
        assert!(
            outcome.stderr.contains("/proc/net/stat/nf_conntrack"),
            "{outcome:#?}"
        );
        assert!(outcome.stderr.contains("CAP_NET_ADMIN"), "{outcome:#?}");
        let document = outcome.json();
        assert_eq!(document["counters_from"], "proc");
        for (cpu, counters) in wanted {
            for (name, count) in counters {
                let found = &document["cpus"][cpu as usize]["counters"][&name];
                assert_eq!(*found, count, "cpu {cpu} {name}");
            }
        }
        assert!(document["counters"]["invalid"].as_u64() > Some(0));
        assert!(document["counters"].get("ignore").is_none(), "{document}");
        // The connection's last entry may have expired; the test's own has not.
        assert!(document["count"].as_u64() > Some(0), "{document}");
        assert_eq!(document["expect_count"], Value::Null);
    });
}

#[test]
fn without_any_readable_source_the_command_fails() {
    private_netns(|| {
        let script = format!(
            "mount -t tmpfs none /proc/sys/net/netfilter && \
             exec setpriv --bounding-set=-net_admin --inh-caps=-net_admin {} stat -o json",
            ctk_path()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]);
        let outcome = Outcome::of(clean(command, [""; 0]).output().unwrap());
        assert_error(&outcome, 4, &["not permitted", "CAP_NET_ADMIN"]);
        assert_eq!(outcome.stdout, "");
    });
}

#[test]
fn an_interval_reports_the_counts_within_it() {
    private_netns(|| {
        let mut connection = Connection::open();
        let mut child = ctk_command(["stat", "--interval", "300ms", "-o", "jsonl", "--per-cpu"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next =
            || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
        let first = next();
        assert_eq!(first["type"], "absolute");
        let before = first["counters"]["invalid"].as_u64().unwrap();
        connection.make_invalid();
        insert(
            &(1..=5)
                .map(|port| udp("10.0.0.1", port))
                .collect::<Vec<_>>(),
        );
        let (mut change, mut invalid) = (0, 0);
        let count = first["count"].as_i64().unwrap();
        let last = loop {
            let record = next();
            assert_eq!(record["type"], "delta");
            assert_eq!(record["schema"], "ctk/v1");
            assert!(record["seconds"].as_f64() > Some(0.0), "{record}");
            change += record["count_change"].as_i64().unwrap();
            invalid += record["counters"]["invalid"].as_u64().unwrap();
            assert_eq!(
                record["count"].as_i64().unwrap(),
                count + change,
                "{record}"
            );
            let cpus = record["cpus"].as_array().unwrap().iter();
            let sum: u64 = cpus
                .map(|cpu| cpu["counters"]["invalid"].as_u64().unwrap())
                .sum();
            assert_eq!(record["counters"]["invalid"], sum);
            if change >= 4 && invalid > 0 {
                break record;
            }
        };
        assert!(last.get("timeouts").is_none(), "{last}");
        run("kill", &["-INT", &child.id().to_string()]);
        // Deltas are of the same counters as the first look.
        let rest: u64 = lines
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
            .map(|record| record["counters"]["invalid"].as_u64().unwrap())
            .sum();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let now: u64 = conntrack_s().values().map(|cpu| cpu["invalid"]).sum();
        assert!(
            before + invalid + rest <= now,
            "{before} {invalid} {rest} {now}"
        );
    });
}

#[test]
fn a_line_of_an_interval_names_the_counters_that_moved() {
    private_netns(|| {
        let mut connection = Connection::open();
        let mut child = ctk_command(["stat", "--interval", "300ms", "--no-header"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut find = |words: &str| {
            let mut all = lines.by_ref().map(Result::unwrap);
            all.find(|line| line.contains(words)).unwrap()
        };
        // The first look is over when the first interval is.
        find("s  count ");
        connection.make_invalid();
        let line = find("  invalid +");
        assert!(
            line.contains("s  count ") && line.ends_with("  no drops"),
            "{line}"
        );
        // A closed pipe ends it.
        drop(lines);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn another_namespace_has_its_own_count_and_timeouts() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let mut other = Command::new("unshare")
            .args([
                "-n",
                "sh",
                "-c",
                "echo 99 > /proc/sys/net/netfilter/nf_conntrack_udp_timeout; echo ready; cat",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut stdout = BufReader::new(other.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        let pid = other.id().to_string();
        let mut table = Table::open(&Netns::named(&pid).unwrap()).unwrap();
        let results = table.insert_all((1..=3).map(|port| udp("10.0.0.2", port)));
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        let theirs = stat_json(&format!("--netns {pid}"));
        assert_eq!(
            (&theirs["count"], &theirs["timeouts"]["udp_timeout"]),
            (&3.into(), &99.into())
        );
        let ours = stat_json("");
        assert_eq!(ours["count"], 1);
        assert_ne!(ours["timeouts"]["udp_timeout"], 99);
        drop(other.stdin.take());
        other.wait().unwrap();
    });
}

#[test]
fn statistics_of_a_driver_equal_those_of_ethtool() {
    if ctk_cluster::tool::find("ethtool").is_none() {
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"));
        eprintln!("skipped: ethtool is not installed");
        return;
    }
    private_netns(|| {
        run(
            "ip",
            &["link", "add", "v0", "type", "veth", "peer", "name", "v1"],
        );
        let shown = run("ip", &["-o", "link", "show", "v1"]).stdout;
        let index = shown.split(':').next().unwrap().parse::<u64>().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let all = ctk::ethtool::statistics("v0", until).unwrap();
        assert!(all.contains(&("peer_ifindex".to_owned(), index)), "{all:?}");
        assert_eq!(ctk::ethtool::statistics("lo", until), Ok(Vec::new()));
        assert!(ctk::ethtool::statistics("no-such-one", until).is_err());
        // A veth has no counters of a cloud's allowance, and is not asked for them.
        assert_eq!(stat_json("")["interfaces"], serde_json::json!([]));
    });
}

#[test]
fn contradictory_flags_are_refused() {
    for (args, flag) in [
        ("--interval 10s -o json", "--interval"),
        ("--interval 10ms", "--interval"),
        ("--interval soon", "--interval"),
        ("-o csv", "--output"),
        ("--udp 53", "--udp"),
        ("--cluster none", "--cluster"),
        ("kube-dns", "kube-dns"),
    ] {
        let outcome = ctk_line(&format!("stat {args}"));
        assert_error(&outcome, 2, &[flag]);
    }
    assert_error_netns();
}

fn assert_error_netns() {
    let outcome = ctk(["stat", "--netns", "no-such-namespace"]);
    assert_eq!(outcome.status, Some(1), "{outcome:#?}");
    assert!(
        outcome.stderr.starts_with("ctk: error: --netns: "),
        "{outcome:#?}"
    );
    assert_eq!(outcome.stdout, "");
}
