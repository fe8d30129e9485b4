//! Flows without events of the kernel: those older than the watch, and all of them where events are off.

use testkit::mixed::{insert, udp};
use testkit::private_netns::private_netns;
use testkit::tools::{run, sysctl};
use testkit::watch_process::{has, record_types, start};

fn watched(events: &'static str, interval: &str) -> (Vec<String>, String) {
    sysctl("events", events);
    insert(&[udp("10.0.0.1", 1001), udp("10.0.0.2", 1002)]);
    let watch = start(&["--cluster", "none", "--interval", interval]);
    assert_eq!(record_types(&watch.records(), 1001), ["snapshot", "synced"]);
    assert_eq!(crate::delete(|flow| flow.original.sport() == Some(1001)), 1);
    watch.wait("the end", |records| has(records, "destroy"));
    insert(&[udp("10.0.0.1", 1001)]);
    watch.wait("the new one", |records| has(records, "new"));
    let ended = watch.stop();
    assert_eq!(ended.status, Some(0), "{ended:#?}");
    assert_eq!(record_types(&ended.records, 1002), ["snapshot", "synced"]);
    (record_types(&ended.records, 1001), ended.stderr)
}

#[test]
fn the_end_of_a_flow_older_than_the_watch_is_recorded_with_any_setting_of_events() {
    let notices = [
        ("0", Some("the kernel sends no events here")),
        ("1", None),
        ("2", Some("flows older than this watch send no events")),
    ];
    for (events, notice) in notices {
        private_netns(|| {
            // Where the kernel reports every end, no look is needed.
            let interval = if events == "1" { "0" } else { "1s" };
            let (words, stderr) = watched(events, interval);
            assert_eq!(words, ["snapshot", "synced", "destroy", "new"], "{events}");
            let outcome = stderr
                .matches("net.netfilter.nf_conntrack_events is")
                .count();
            assert_eq!(outcome, usize::from(notice.is_some()), "{events}: {stderr}");
            if let Some(notice) = notice {
                assert!(stderr.contains(notice), "{stderr}");
                assert!(stderr.contains("polled every 1s"), "{stderr}");
            }
        });
    }
}

#[test]
fn without_an_interval_a_note_says_that_the_table_is_not_read_again() {
    private_netns(|| {
        sysctl("events", "0");
        insert(&[udp("10.0.0.1", 1001)]);
        let watch = start(&["--cluster", "none", "--interval", "0", "--for", "3s"]);
        assert_eq!(crate::delete(|_| true), 1);
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert_eq!(record_types(&ended.records, 1001), ["snapshot", "synced"]);
        assert!(ended.stderr.contains("never polled"), "{}", ended.stderr);
    });
}

/// The kernel's filter omits an entry whose status changed, as it omits a deleted one.
#[test]
fn a_silent_flow_that_leaves_the_selection_is_not_recorded_as_destroyed() {
    private_netns(|| {
        sysctl("events", "0");
        let mut flow = udp("10.0.0.1", 1001);
        flow.status = ctnetlink::flow::Status::CONFIRMED;
        insert(&[flow]);
        let watch = start(&["--cluster", "none", "--interval", "1s", "--unreplied"]);
        let line = "-U -p udp --orig-src 10.0.0.1 --status SEEN_REPLY";
        run("conntrack", &line.split(' ').collect::<Vec<_>>());
        watch.wait("its last word", |records| has(records, "update"));
        let ended = watch.stop();
        assert_eq!(
            record_types(&ended.records, 1001),
            ["snapshot", "synced", "update"]
        );
        let last = &ended.records[2]["entry"]["status"];
        assert_eq!(*last, serde_json::json!(["seen-reply", "confirmed"]));
    });
}
