//! ctk with a real API server and a real kube-proxy: a small cluster in network namespaces.
//!
//! `tests/cluster/run` builds the programs of the cluster and starts this; CONTRIBUTING.md names what it needs. One set-up
//! ([`lab`]) serves all cases ([`cases`]), one after the other, for each version and mode of kube-proxy.

mod account;
mod api;
mod cases;
mod differences;
mod frontends;
mod lab;
mod labels;
mod network;
mod pki;
mod plane;
mod process;
mod proxy;
mod sandbox;
mod table;
mod traffic;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use testkit::tools;

use libtest_mimic::{Arguments, Failed, Trial};

use lab::Lab;
use proxy::Mode;

/// Time for one case, including the set-up before the first.
const LIMIT: Duration = Duration::from_secs(300);

/// Options of the run; `tests/cluster/run` sets these variables.
struct Options {
    versions: Vec<String>,
    modes: Vec<Mode>,
    worlds: u64,
    seed: u64,
    binaries: PathBuf,
}

impl Options {
    fn from_environment() -> Self {
        let variable = |name: &str, default: &str| {
            std::env::var(format!("CTK_CLUSTER_{name}")).unwrap_or_else(|_| default.to_owned())
        };
        let number = |name: &str, default: &str| {
            let text = variable(name, default);
            let number = text.parse();
            number.unwrap_or_else(|error| panic!("CTK_CLUSTER_{name}={text}: {error}"))
        };
        let mode = |name: &str| match name {
            "iptables" => Mode::Iptables,
            "nftables" => Mode::Nftables,
            other => panic!("kube-proxy has no mode {other:?} that is tested here"),
        };
        let versions = variable("PROXY", "v1.36.3");
        let modes = variable("MODE", "iptables,nftables");
        Options {
            versions: versions.split(',').map(str::to_owned).collect(),
            modes: modes.split(',').map(mode).collect(),
            worlds: number("WORLDS", "6"),
            seed: number("SEED", "1"),
            binaries: PathBuf::from(variable("BINARIES", "/nonexistent")),
        }
    }
}

/// Cluster of the run: created when a case first needs it, and not retried after a failure.
#[derive(Default)]
struct Shared {
    tried: bool,
    lab: Option<Lab>,
}

impl Shared {
    fn lab(&mut self, binaries: &Path, logs: &Path) -> Result<&mut Lab, Failed> {
        if !std::mem::replace(&mut self.tried, true) {
            let began = Instant::now();
            std::fs::create_dir_all(logs).unwrap();
            self.lab = Some(Lab::start(binaries, logs));
            eprintln!("set-up: {:.1} s", began.elapsed().as_secs_f64());
        }
        let failed = || "the cluster could not be set up".into();
        self.lab.as_mut().ok_or_else(failed)
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases share one cluster.
    arguments.test_threads = Some(1);
    let options = Options::from_environment();
    if !arguments.list {
        match sandbox::enter() {
            Ok(None) => {}
            Ok(Some(code)) => return code,
            Err(why) => {
                tools::skipped(&format!("cluster tests: {why}"));
                return ExitCode::SUCCESS;
            }
        }
    }
    let logs =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{}", sandbox::number()));
    // The report has the message, but not the location.
    std::panic::set_hook(Box::new(|panic| {
        if let Some(place) = panic.location() {
            eprintln!("panicked at {place}");
        }
    }));
    let conclusion = libtest_mimic::run(&arguments, trials(options, &logs));
    if conclusion.has_failed() {
        eprintln!("logs of the cluster: {}", logs.display());
    } else {
        let _ = std::fs::remove_dir_all(&logs);
    }
    conclusion.exit_code()
}

/// Ends the run when the case hangs. Dropping the result in time prevents that.
fn watched(name: String) -> mpsc::Sender<()> {
    let (ended, wait) = mpsc::channel();
    std::thread::spawn(move || {
        if wait.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} does not end within {LIMIT:?}; the run ends here");
            std::process::exit(1);
        }
    });
    ended
}

fn trials(options: Options, logs: &Path) -> Vec<Trial> {
    let shared = Arc::new(Mutex::new(Shared::default()));
    let mut trials = Vec::new();
    for version in &options.versions {
        for &mode in &options.modes {
            for case in cases::all(options.seed, options.worlds) {
                let name = format!("{version}::{}::{}", mode.name(), case.name);
                let (shared, version) = (Arc::clone(&shared), version.clone());
                let (binaries, logs) = (options.binaries.clone(), logs.to_owned());
                trials.push(Trial::test(name.clone(), move || {
                    let began = Instant::now();
                    let _watched = watched(name.clone());
                    // A failed case leaves the cluster to the next one, which begins with a reset.
                    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let lab = shared.lab(&binaries, &logs)?;
                    lab.begin(&version, mode);
                    (case.run)(lab);
                    eprint!("{:.1} s, ", began.elapsed().as_secs_f64());
                    Ok(())
                }));
            }
        }
    }
    trials
}
