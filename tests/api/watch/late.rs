//! Late or missing events of a watch over the API: it reports only known facts, and recovers.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::login::{credential, plugin};
use super::*;
use testkit::api_server::{ApiRequest, TOKEN};

/// Number of opened streams of slices.
fn streams_of(server: &ApiServer) -> usize {
    let asked = server.requests();
    let of = |a: &&ApiRequest| a.resource() == "endpointslices" && a.value("watch").is_some();
    asked.iter().filter(of).count()
}

fn silent_node() -> (Living, ApiServer, Watch) {
    add_node_address();
    insert(&[to_dns(17, PORT, &DYING.to_string())]);
    let living = living();
    living.never_end("endpointslices");
    let server = living.serve();
    let watch = follow(&server, "--interval 1s");
    (living, server, watch)
}

#[test]
fn a_silent_connection_is_detected() {
    private_netns(|| {
        let (living, server, watch) = silent_node();
        watch.wait("a stream", |_| streams_of(&server) == 1);
        watch.wait("another one", |_| streams_of(&server) == 2);
        living.put(&slice_of(&[(LIVING, READY)]));
        wait(&watch, "stale");
        watch.wait_for_quiet(Duration::from_millis(100));
        watch.stop();
    });
}

#[test]
fn while_a_stream_is_silent_a_new_entry_is_not_stale() {
    private_netns(|| {
        let (_living, server, watch) = silent_node();
        watch.wait("a stream", |_| streams_of(&server) == 1);
        insert(&[to_dns(17, PORT + 1, "10.244.9.9")]);
        wait(&watch, "new unknown");
        watch.wait("a verdict", |records| {
            let told = story(records).contains(&"stale".to_owned());
            if told {
                assert!(streams_of(&server) > 1, "nothing had proven it");
            }
            told
        });
        watch.stop();
    });
}

#[test]
fn the_first_look_does_not_call_entries_stale_that_were_created_since_the_start() {
    private_netns(|| {
        add_node_address();
        let old = PORT + 1;
        insert(&[to_dns(17, old, "10.244.9.9")]);
        let living = living();
        living.put(&slice_of(&[(LIVING, READY)]));
        let server = living.serve();
        living.delay_lists("nodes", Duration::from_secs(2));
        let kubeconfig = server.kubeconfig();
        let kubeconfig = kubeconfig.to_str().unwrap();
        let args = ["--cluster", "api", "--kubeconfig", kubeconfig];
        let watch = start_unread(&[&args[..], &["--interval", "1s"]].concat()).read();
        watch.wait("the list of slices", |_| {
            lists_of(&server, "endpointslices") == 1
        });
        std::thread::sleep(Duration::from_millis(500));
        // To an endpoint created after the list.
        insert(&[to_dns(17, PORT, &DYING.to_string())]);
        watch.wait("the first look", |records| {
            records.iter().any(|r| r["type"] == "synced")
        });
        living.put(&slice_of(&[(DYING, READY), (LIVING, READY)]));
        wait(&watch, "ok");
        let ended = watch.stop();
        let of = |port: u16| {
            let of = move |r: &&Value| r["entry"]["original"]["sport"] == port;
            let records: Vec<Value> = ended.records.iter().filter(of).cloned().collect();
            records
        };
        assert_eq!(of(PORT)[0]["type"], "snapshot");
        never_stale(&of(PORT));
        assert_eq!(of(old)[0]["entry"]["verdict"], "stale", "it was there");
    });
}

/// Verdicts in turn of a flow whose endpoint is removed while a list of Pods is delayed.
fn verdicts_with_slow_pods(delay: Duration) -> Vec<String> {
    let (living, server, watch) = quiet_node("--interval 1s");
    living.delay_lists("pods", delay);
    living.put(&slice_of(&[(LIVING, READY)]));
    wait(&watch, "stale");
    let ended = watch.stop();
    assert_eq!(ended.status, Some(0), "{ended:#?}");
    let asked = server.requests();
    let selector = Some("status.podIP=10.244.1.7");
    let of_address = |a: &&ApiRequest| a.value("fieldSelector") == selector;
    assert!(asked.iter().any(|a| of_address(&a)), "{asked:#?}");
    let verdicts = ended.records.iter().filter(|r| r["type"] == "verdict");
    verdicts
        .map(|r| r["after"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_verdict_changes_once_where_the_owner_of_an_address_is_known_soon() {
    private_netns(|| {
        let told = verdicts_with_slow_pods(Duration::from_millis(400));
        assert_eq!(told, ["stale"]);
    });
}

#[test]
fn a_verdict_is_unknown_where_the_owner_of_an_address_is_known_late() {
    private_netns(|| {
        let told = verdicts_with_slow_pods(Duration::from_secs(4));
        assert_eq!(told, ["unknown", "stale"]);
    });
}

#[test]
fn a_stale_entry_is_selected_once_it_is_old_enough_to_judge() {
    private_netns(|| {
        let (_living, _server, watch) = quiet_node("--stale --interval 0 --until stale");
        insert(&[to_dns(17, PORT + 1, "10.244.9.9")]);
        let ended = watch.wait_for_exit();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        let told = story(&ended.records);
        assert_eq!(
            told.first().map(String::as_str),
            Some("new stale"),
            "{told:?}"
        );
    });
}

#[test]
fn a_plugin_is_run_again_for_a_new_token_after_expiry() {
    static RUNS: OnceLock<PathBuf> = OnceLock::new();
    static EXPIRED: AtomicBool = AtomicBool::new(false);
    fn runs() -> usize {
        let runs = RUNS.get().map(std::fs::read_to_string);
        runs.map_or(0, |text| text.unwrap_or_default().lines().count())
    }
    private_netns(|| {
        add_node_address();
        insert(&[to_dns(17, PORT, &DYING.to_string())]);
        let living = living();
        let cluster = living.clone();
        let server =
            ApiServer::start(
                move |asked| match EXPIRED.load(Ordering::Relaxed) && runs() < 2 {
                    true => testkit::api_server::Answer::status(401),
                    false => cluster.answer(asked),
                },
            );
        let path = RUNS.get_or_init(|| server.path("runs"));
        let script = format!("echo run >> {}; {}", path.display(), credential(TOKEN));
        let kubeconfig = server.kubeconfig_of(&plugin(&server, &script), "ca.pem");
        let kubeconfig = kubeconfig.to_str().unwrap();
        let watch = start(&[
            "--cluster",
            "api",
            "--interval",
            "1s",
            "--kubeconfig",
            kubeconfig,
        ]);
        assert_eq!(runs(), 1);
        EXPIRED.store(true, Ordering::Relaxed);
        living.end("services");
        living.end("endpointslices");
        watch.wait("another login", |_| runs() == 2);
        living.put(&slice_of(&[(LIVING, READY)]));
        wait(&watch, "stale");
        let ended = watch.stop();
        assert_eq!(ended.status, Some(0), "{ended:#?}");
        assert_eq!(runs(), 2, "one login for all streams");
    });
}

#[test]
fn without_the_right_to_watch_the_nodes_rules_judge() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Nftables);
        lab.set_endpoints(&[DYING]);
        let living = living();
        living.refuse_watches("endpointslices", Some(403));
        let server = living.serve();
        let kubeconfig = server.kubeconfig();
        let watch = start(&[
            "--interval",
            "1s",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ]);
        insert(&[to_dns(17, PORT, &LIVING.to_string())]);
        // The rules tell no more than that.
        wait(&watch, "new suspect");
        let ended = watch.stop();
        let outcome = "not the API, which lacks endpointslices";
        assert!(ended.stderr.contains(outcome), "{ended:#?}");
    });
}
