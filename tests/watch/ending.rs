//! End of a watch, and its exit status.

use std::time::{Duration, Instant};

use testkit::ctk_binary::{ctk, ctk_line, readable_binary};
use testkit::lab::cluster::{ClusterFile, node};
use testkit::lab::{BACKENDS, add_node_address, cluster};
use testkit::mixed::{insert, to_dns, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{as_nobody, assert_error, sysctl};
use testkit::watch_process::{has, rebuild_view, start, start_unread};

#[test]
fn contradictory_flags_are_refused_before_the_watch_starts() {
    private_netns(|| {
        for (line, says) in [
            ("watch --interval 500ms", "--interval: at least 1s"),
            ("watch -o csv", "possible values: table, jsonl, conntrack"),
            ("watch --type move -o jsonl", "no such record"),
            ("watch --type refresh -o conntrack", "no such record"),
            ("watch --type gap", "possible values: snapshot"),
            (
                "watch --until quiet --interval 0",
                "--until quiet needs an --interval",
            ),
            ("watch --sort timeout", "unexpected argument"),
            ("watch --live", "--live needs a terminal"),
            ("watch --live -o jsonl", "does not go with another -o"),
            (
                "watch --until gone --cluster none",
                "cannot be selected with --cluster none",
            ),
            ("watch --udp 99999", "99999"),
        ] {
            let outcome = ctk_line(line);
            assert_eq!(
                (outcome.status, outcome.stdout.as_str()),
                (Some(2), ""),
                "{line}: {outcome:#?}"
            );
            assert!(outcome.stderr.contains(says), "{line}: {outcome:#?}");
        }
    });
}

#[test]
fn a_missing_capability_to_listen_is_named() {
    private_netns(|| {
        let (_folder, binary) = readable_binary();
        let outcome = testkit::tools::Outcome::of(as_nobody(&binary, &["watch"]).output().unwrap());
        if std::env::var_os("CTK_TEST_INSIDE_UNSHARE").is_none() {
            assert_error(&outcome, 4, &["CAP_NET_ADMIN"]);
        }
    });
}

#[test]
fn a_watch_ends_after_its_duration_and_after_its_number_of_records() {
    private_netns(|| {
        insert(&[udp("10.0.0.1", 1)]);
        let outcome = ctk_line("watch --cluster none -o jsonl --for 300ms").exits(0);
        assert_eq!(
            outcome.jsonl().len(),
            2,
            "snapshot and synced: {outcome:#?}"
        );
        let watch = start(&["--cluster", "none", "--count", "5"]);
        // All at once: no additional record is printed.
        insert(
            &(2..102)
                .map(|port| udp("10.0.0.1", port))
                .collect::<Vec<_>>(),
        );
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        let names: Vec<&str> = ended
            .records
            .iter()
            .map(|r| r["type"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["snapshot", "synced", "new", "new", "new", "new", "new"]
        );
    });
}

#[test]
fn a_script_can_wait_for_the_first_stale_flow_and_for_the_last() {
    private_netns(|| {
        add_node_address();
        let file = cluster(&BACKENDS[1..]);
        let (stale, fine) = (to_dns(17, 1, "10.244.1.7"), to_dns(17, 2, "10.244.2.33"));
        let until = |what: &'static str, time: &'static str| {
            [
                "--until",
                what,
                "--for",
                time,
                "--cluster",
                file.path(),
                "--interval",
                "1s",
            ]
        };
        let status = |what, time| {
            let args = ["watch"].into_iter().chain(until(what, time));
            ctk(args).status
        };
        insert(&[fine]);
        assert_eq!(
            status("gone", "10s"),
            Some(0),
            "there is none to begin with"
        );
        assert_eq!(status("stale", "500ms"), Some(1), "its time was over");
        let watch = start(&until("stale", "60s"));
        insert(&[stale]);
        // The entry is younger than the file.
        file.touch();
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert_eq!(status("stale", "10s"), Some(0));
        assert_eq!(status("gone", "500ms"), Some(1));
        let watch = start(&until("gone", "60s"));
        crate::delete(|flow| flow.original.sport() == Some(1));
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert!(has(&ended.records, "destroy"));
    });
}

#[test]
fn an_entry_that_is_younger_than_the_file_is_not_stale_before_the_file_is_written_anew() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 1, "10.244.1.7")]);
        let file = cluster(&BACKENDS[1..]);
        let watch = start(&["--cluster", file.path(), "--interval", "1s"]);
        let first = |port: u16, kind: &'static str| {
            move |records: &[serde_json::Value]| {
                let of = |r: &&serde_json::Value| r["entry"]["original"]["sport"] == port;
                let mut of_kind = records.iter().filter(of).filter(|r| r["type"] == kind);
                of_kind.next().map(|r| r["entry"]["verdict"].clone())
            }
        };
        let told = watch.records();
        let old = first(1, "snapshot")(&told);
        assert_eq!(old, Some("stale".into()), "it was there before");
        insert(&[to_dns(17, 2, "10.244.1.7")]);
        watch.wait("the new one", |r| first(2, "new")(r).is_some());
        // Looks at the table do not change that.
        std::thread::sleep(Duration::from_millis(2500));
        let told = watch.records();
        assert_eq!(first(2, "new")(&told), Some("unknown".into()));
        assert_eq!(first(2, "verdict")(&told), None);
        file.touch();
        watch.wait("a verdict", |r| first(2, "verdict")(r).is_some());
        let ended = watch.stop();
        assert_eq!(first(2, "verdict")(&ended.records), Some("stale".into()));
        assert_eq!(ended.status, Some(0), "{ended:#?}");
    });
}

#[test]
fn a_duration_that_ends_after_a_gap_ends_with_the_status_of_a_gap() {
    private_netns(|| {
        add_node_address();
        let file = cluster(&BACKENDS[1..]);
        let watch = start(&[
            "--until",
            "stale",
            "--for",
            "3s",
            "--cluster",
            file.path(),
            "--buffer-size",
            "1",
        ]);
        insert(
            &(1..2000)
                .map(|port| udp("10.0.0.1", port))
                .collect::<Vec<_>>(),
        );
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(3), "{:#?}", ended.stderr);
        assert_eq!(rebuild_view(&ended.records).len(), 1999);
    });
}

#[test]
fn a_wait_for_an_undecidable_condition_is_refused() {
    private_netns(|| {
        insert(&[to_dns(17, 1, "10.244.1.7")]);
        // Not the node's namespace: whether no flow is stale is unknown, so it is not reported.
        let file = cluster(&BACKENDS[1..]);
        let line = format!("watch --until gone --for 1s --cluster {}", file.path());
        let outcome = ctk_line(&line).exits(1);
        assert!(
            outcome.stderr.contains("1 entry is not judged"),
            "{outcome:#?}"
        );
        // Incomplete cluster.
        let half = ClusterFile::of(&[node("node1", "192.0.2.11")]);
        for until in ["stale", "gone"] {
            let line = format!("watch --until {until} --for 30s --cluster {}", half.path());
            assert_error(
                &ctk_line(&line),
                3,
                &["nothing can be judged", "is incomplete"],
            );
        }
        let line = format!("watch --for 500ms --cluster {}", half.path());
        let outcome = ctk_line(&line).exits(3);
        assert!(outcome.stderr.contains("is incomplete"), "{outcome:#?}");
    });
}

#[test]
fn quiet_needs_an_interval_without_activity_and_a_look() {
    private_netns(|| {
        testkit::tools::run("ip", &["link", "set", "lo", "up"]);
        testkit::tools::nft(
            "table ip t { chain c { type filter hook output priority 0; ct state new accept; }; }",
        );
        insert(&[udp("10.0.0.1", 1)]);
        let args = [
            "--cluster",
            "none",
            "--until",
            "quiet",
            "--interval",
            "1s",
            "--for",
            "50s",
        ];
        let watch = start(&args);
        // Refills alone are activity, although no event reports them and a look shows them only after 3 s.
        let [a, b] = [(); 2].map(|()| std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(6) {
            a.send_to(&[0], b.local_addr().unwrap()).unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
        let told = watch.records();
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        let refreshes = ended
            .records
            .iter()
            .filter(|r| r["type"] == "refresh")
            .count();
        assert!(
            refreshes >= 1,
            "it ended while the timer was refilled: {ended:#?}"
        );
        let unheard = &ended.records[told.len()..];
        assert!(
            unheard.iter().all(|r| r["type"] == "refresh"),
            "{unheard:#?}"
        );
    });
}

#[test]
fn ctrl_c_ends_a_watch_with_status_0() {
    private_netns(|| {
        let ended = start(&["--cluster", "none"]).stop();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert!(!ended.stderr.contains("error"), "{ended:#?}");
    });
}

#[test]
fn a_closed_pipe_ends_it_quietly_even_when_there_is_nothing_to_print() {
    private_netns(|| {
        sysctl("events", "1");
        let outcome = start_unread(&["--cluster", "none"]).close();
        assert_eq!(
            (outcome.status, outcome.stderr.as_str()),
            (Some(0), ""),
            "{outcome:#?}"
        );
    });
}

#[test]
fn a_half_written_cluster_file_is_not_used_and_the_whole_one_is() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 1, "10.244.1.7")]);
        let file = cluster(&BACKENDS);
        let watch = start(&["--cluster", file.path(), "--interval", "0"]);
        let whole = testkit::lab::cluster::list(&testkit::lab::cluster_objects(&BACKENDS[1..]));
        std::fs::write(file.path(), &whole[..whole.len() / 2]).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        assert!(!has(&watch.records(), "verdict"));
        std::fs::write(file.path(), &whole).unwrap();
        watch.wait("the verdict", |records| has(records, "verdict"));
        let ended = watch.stop();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert!(
            ended.stderr.contains("the new cluster file is not used"),
            "{ended:#?}"
        );
    });
}

#[test]
fn a_flow_that_becomes_stale_enters_a_selection_of_stale_ones() {
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, 1, "10.244.1.7"), to_dns(17, 2, "10.244.2.33")]);
        let file = cluster(&BACKENDS);
        let write = |endpoints: &[std::net::Ipv4Addr]| {
            let objects = testkit::lab::cluster_objects(endpoints);
            std::fs::write(file.path(), testkit::lab::cluster::list(&objects)).unwrap();
        };
        let watch = start(&["--cluster", file.path(), "--interval", "0", "--stale"]);
        assert_eq!(watch.records().len(), 1, "none is stale yet");
        write(&BACKENDS[1..]);
        watch.wait("the stale one", |records| has(records, "new"));
        write(&BACKENDS);
        watch.wait("its recovery", |records| has(records, "update"));
        let ended = watch.stop();
        assert_eq!(ended.status, Some(0));
        let names: Vec<&str> = ended
            .records
            .iter()
            .map(|r| r["type"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["synced", "new", "verdict", "update"],
            "{:#?}",
            ended.records
        );
        assert_eq!(ended.records[2]["after"], "ok");
    });
}
