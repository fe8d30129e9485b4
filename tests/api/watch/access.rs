//! Watch whose access is revoked, and granted again.

use std::time::Instant;

use super::*;

const ALL: [&str; 5] = [
    "services",
    "endpointslices",
    "pods",
    "nodes",
    "servicecidrs",
];
/// From the grant until everything is current: 5 s, plus the delay of a busy machine.
const RECOVERY: Duration = Duration::from_secs(7);

/// Answers every request with this status from now on, or normally again.
fn refuse(living: &Living, status: Option<u16>) {
    for resource in ALL {
        living.refuse_lists(resource, status);
        living.refuse_watches(resource, status);
        if status.is_some() {
            living.end(resource);
        }
    }
}

/// Asserts that lines of stderr with this text name every kind.
fn all_are_said(stderr: &str, text: &str) -> bool {
    let lines: Vec<&str> = stderr.lines().filter(|l| l.contains(text)).collect();
    ALL.iter()
        .all(|kind| lines.iter().any(|line| line.contains(kind)))
}

fn revoked_and_granted(status: u16) {
    let (living, _server, watch) = quiet_node("--interval 1s");
    watch.wait("streams of all kinds", |_| {
        ALL.iter().all(|kind| living.streams(kind) > 0)
    });
    refuse(&living, Some(status));
    watch.wait("the loss of each kind", |_| {
        all_are_said(&watch.stderr(), "may be out of date")
    });
    // Long enough for the pauses between attempts to grow.
    std::thread::sleep(Duration::from_secs(4));
    living.put(&slice_of(&[(LIVING, READY)]));
    never_stale(&watch.records());
    refuse(&living, None);
    let granted = Instant::now();
    wait(&watch, "stale");
    watch.wait("the recovery of each kind", |_| {
        all_are_said(&watch.stderr(), "up to date again")
    });
    let took = granted.elapsed();
    let ended = watch.stop();
    assert!(took < RECOVERY, "{took:?}: {}", ended.stderr);
    assert_eq!(ended.status, Some(0), "{ended:#?}");
}

#[test]
fn kinds_forbidden_for_a_while_are_current_within_seconds_of_the_grant() {
    private_netns(|| revoked_and_granted(403));
}

#[test]
fn kinds_with_refused_credentials_are_current_within_seconds_of_their_acceptance() {
    private_netns(|| revoked_and_granted(401));
}

/// Watch until no stale entry is left, with one stale entry.
fn until_gone(time: &str) -> (Living, ApiServer, Watch) {
    add_node_address();
    insert(&[to_dns(17, PORT, &DYING.to_string())]);
    let living = living();
    living.put(&slice_of(&[(LIVING, READY)]));
    let server = living.serve();
    let watch = follow(&server, &format!("--interval 1s --until gone --for {time}"));
    assert_eq!(watch.records()[0]["entry"]["verdict"], "stale");
    (living, server, watch)
}

#[test]
fn until_gone_runs_out_of_time_with_status_1_while_the_server_does_not_answer() {
    private_netns(|| {
        let (living, _server, watch) = until_gone("6s");
        refuse(&living, Some(503));
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(1), "{ended:#?}");
        for text in ["may be out of date", "--for passed", "is incomplete"] {
            assert!(ended.stderr.contains(text), "{ended:#?}");
        }
        assert!(story(&ended.records).contains(&"unknown".to_owned()));
    });
}

#[test]
fn until_gone_waits_for_undecided_entries_and_ends_when_they_are_decided() {
    private_netns(|| {
        let (living, _server, watch) = until_gone("60s");
        refuse(&living, Some(503));
        wait(&watch, "unknown");
        std::thread::sleep(Duration::from_secs(2));
        // The flow is fine again, which no source shows yet.
        living.put(&slice_of(&[(DYING, READY), (LIVING, READY)]));
        refuse(&living, None);
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert_eq!(story(&ended.records).last().unwrap(), "ok");
    });
}
