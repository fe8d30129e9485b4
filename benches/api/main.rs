//! Cost of reading a large cluster over the API, compared with the same client that reads the same bytes and ignores them.
//!
//! `cargo bench --bench api [-- PODS]` (default 50,000, with a fifth as many Services and two fifths as many slices). A
//! server in this process makes the objects on request, several KB for each Pod. Each read is a process of its own, which
//! separates CPU time and peak. Both take turns, and the best of several rounds counts.

use std::fmt;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ctk_cluster::api::Api;
use ctk_cluster::connection::ConnectionOptions;
use ctk_cluster::lister::Server;
use ctk_cluster::live::load;
use ctk_cluster::read_scope::ReadScope;
use nix::sys::resource::{UsageWho, getrusage};
use serde::de::IgnoredAny;

mod objects;

use objects::World;
use testkit::api_server::ApiServer;
use testkit::bench::number_argument;

const ROUNDS: usize = 3;
const GOAL: f64 = 2.0;
const PEAK: u64 = 128 * 1024 * 1024;
/// Variable of the reading processes: mode, number of Pods, kubeconfig.
const CHILD: &str = "CTK_BENCH_API";

fn main() {
    if let Ok(told) = std::env::var(CHILD) {
        return child(&told);
    }
    let world = World::of(number_argument().map_or(50_000, |pods| pods as usize));
    println!("{world}");
    let server = ApiServer::start(move |asked| world.answer(asked));
    let kubeconfig = server.kubeconfig();
    let run = |how: &str| {
        let told = format!("{how} {} {}", world.pods, kubeconfig.display());
        let output = Command::new(std::env::current_exe().expect("a path"))
            .env(CHILD, told)
            .output()
            .expect("this program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Cost::parse(&text)
    };
    let (mut read, mut floor) = (Cost::WORST, Cost::WORST);
    for _ in 0..ROUNDS {
        floor = floor.min(run("ignore"));
        read = read.min(run("read"));
    }
    let ratio = read.cpu.as_secs_f64() / floor.cpu.as_secs_f64();
    println!("read into the index {read}");
    println!("read and ignored    {floor}");
    println!("{ratio:.2}x the CPU time (goal: at most {GOAL}x)");
    assert!(read.peak < PEAK, "the peak is above 128 MiB");
}

/// CPU time of all threads in both modes, wall time, and largest resident size.
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    wall: Duration,
    /// Bytes.
    peak: u64,
}

impl Cost {
    const WORST: Cost = Cost {
        cpu: Duration::MAX,
        wall: Duration::MAX,
        peak: 0,
    };

    /// Best times and worst peak.
    fn min(self, other: Self) -> Self {
        Cost {
            cpu: self.cpu.min(other.cpu),
            wall: self.wall.min(other.wall),
            peak: self.peak.max(other.peak),
        }
    }

    fn parse(text: &str) -> Self {
        let numbers: Vec<u64> = text
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let [cpu, wall, peak] = numbers[..] else {
            panic!("{text}")
        };
        Cost {
            cpu: Duration::from_micros(cpu),
            wall: Duration::from_micros(wall),
            peak,
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpu, wall) = (self.cpu.as_secs_f64(), self.wall.as_secs_f64());
        write!(
            f,
            "{cpu:.2} s of CPU, {wall:.2} s, peak {:.1} MiB",
            self.peak as f64 / 1048576.0
        )
    }
}

fn child(told: &str) {
    let mut words = told.splitn(3, ' ');
    let (how, pods, kubeconfig) = (words.next(), words.next(), words.next());
    let world = World::of(pods.and_then(|n| n.parse().ok()).expect("a number"));
    let options = ConnectionOptions {
        kubeconfig: Some(PathBuf::from(kubeconfig.expect("a path"))),
        context: None,
        connect_limit: Duration::from_secs(2),
        limit: Duration::from_secs(3600),
        consistent: false,
        may_ask: false,
    };
    let began = Instant::now();
    match how {
        Some("read") => {
            let loaded = load(&options, ReadScope::default(), &[]).expect("it is served");
            assert!(loaded.summary.complete, "{:?}", loaded.warnings);
            let counts = loaded.summary.counts;
            assert_eq!(
                (counts.pods, counts.services, counts.endpoint_slices),
                (world.pods, world.services, world.slices)
            );
        }
        _ => ignore(&options, world),
    }
    let wall = began.elapsed();
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("it is known");
    let time =
        |time: nix::sys::time::TimeVal| time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64;
    let cpu = time(usage.user_time()) + time(usage.system_time());
    println!(
        "{cpu} {} {}",
        wall.as_micros(),
        usage.max_rss() as u64 * 1024
    );
}

/// Sends the same requests over the same client and ignores the answers.
fn ignore(options: &ConnectionOptions, world: World) {
    let deadline = Instant::now() + options.limit;
    let mut api = Api::connect(options, deadline).expect("a client");
    for request in world.requests() {
        api.get(&request).expect("it is served");
        let body = BufReader::with_capacity(64 * 1024, &mut api);
        let _: IgnoredAny = serde_json::from_reader(body).expect("it is JSON");
    }
}
