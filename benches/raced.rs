//! Deletes that race with new entries: clients replace their entries to a dead endpoint by entries to a live one, and back, as fast as
//! the kernel allows, while `ctk purge --stale` repeats. No entry to the live endpoint may be deleted.
//!
//! `cargo bench --bench raced [-- RACES]` (default 100,000 entries that were deleted or replaced under a purge; several minutes),
//! half of them with a cluster file, half over the API, where a third endpoint comes and goes each second. Runs in a network
//! namespace of its own, so it needs root.

use std::time::{Duration, Instant};

use ctk_cluster::testing as shorthand;
use ctnetlink::netns::Netns;
use serde_json::Value;
use testkit::alternating::{LIVE, race};
use testkit::api_server::{ApiServer, Objects};
use testkit::bench::{enter_netns, number_argument};
use testkit::lab::cluster::ClusterFile;
use testkit::tools::{run, sysctl};

const NODE: &str = "192.0.2.11";
/// Endpoint that comes and goes.
const THIRD: &str = "10.244.2.31";
/// Longest time of one half.
const TIMEOUT: Duration = Duration::from_secs(3600);

fn main() {
    let races = u64::from(number_argument().unwrap_or(100_000));
    if !enter_netns() {
        return;
    }
    ctnetlink::rtnetlink::add_loopback_address(
        &Netns::current(),
        NODE.parse().expect("an address"),
    )
    .expect("lo takes addresses");
    run("ip", &["link", "set", "lo", "up"]);
    // Without start times an entry may be older than the cluster file, so that its verdict is not open.
    sysctl("timestamp", "0");
    let file = ClusterFile::of_text(&cluster(false));
    by(&["--cluster", file.path()], races / 2);

    let states = [false, true].map(|third| objects(&cluster(third)));
    let began = Instant::now();
    let server = ApiServer::start(move |request| {
        let odd = began.elapsed().as_secs() % 2 == 1;
        states[usize::from(odd)].answer(request)
    });
    let kubeconfig = server.kubeconfig();
    let kubeconfig = kubeconfig.to_str().expect("a path of text");
    by(&["--cluster", "api", "--kubeconfig", kubeconfig], races / 2);
}

/// Text of the cluster, with or without the third endpoint.
fn cluster(third: bool) -> String {
    let more = match third {
        true => format!(" {THIRD}(ready)"),
        false => String::new(),
    };
    let slice = format!("slice kube-system/kube-dns dns:53/UDP {LIVE}(ready){more}");
    let cluster = [
        "node node1 192.0.2.11",
        "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
        &slice,
    ];
    let lines: Vec<&str> = shorthand::API.iter().chain(&cluster).copied().collect();
    shorthand::list(&lines)
}

fn objects(list: &str) -> Objects {
    let list: Value = serde_json::from_str(list).expect("JSON");
    Objects(list["items"].as_array().expect("items").clone())
}

fn by(source: &[&str], races: u64) {
    let began = Instant::now();
    let race = race(source, TIMEOUT, |race| {
        race.deleted + race.replaced >= races
    });
    println!(
        "{}: {} purges in {:.0?}: {} deleted, {} replaced before their delete and left, {} already gone",
        source[1],
        race.purges,
        began.elapsed(),
        race.deleted,
        race.replaced,
        race.already_gone
    );
    println!(
        "  {} entries to the dead endpoint and {} to the live one made; {} live ones deleted",
        race.clients.dead, race.clients.live, race.clients.live_lost
    );
    assert!(
        race.deleted + race.replaced >= races,
        "too few races in {TIMEOUT:?}"
    );
    assert_eq!(race.clients.live_lost, 0, "live entries were deleted");
}
