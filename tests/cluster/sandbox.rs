//! Mount, PID and network namespaces around the whole run.
//!
//! The program starts itself again as the first process of a new PID namespace. When that process or the one that waits for
//! it ends, every process of the run ends; the network namespaces end with the last process, and so do the files in `/run`,
//! which is a file system of the run. Nothing is left to remove, and two runs cannot meet.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use nix::sched::{CloneFlags, unshare};
use rustix::process::{Signal, set_parent_process_death_signal};

use testkit::tools::run;

/// Variable of the inner process, with a number that is unique to the run.
const INSIDE: &str = "CTK_CLUSTER_INSIDE";

/// Outside: runs this program inside and returns its exit status. Inside: `None`.
///
/// # Errors
/// The reason why the namespaces cannot be made.
pub fn enter() -> Result<Option<ExitCode>, String> {
    if std::env::var_os(INSIDE).is_some() {
        prepare();
        return Ok(None);
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("network namespaces and mounts need root".to_owned());
    }
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID)
        .map_err(|error| format!("no new namespaces: {error}"))?;
    let program = std::env::current_exe().expect("the path of this program");
    let status = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, std::process::id().to_string())
        .status()
        .expect("this program starts");
    if let Some(signal) = status.signal() {
        eprintln!("the run ended by signal {signal}");
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(ExitCode::from(code.unwrap_or(1))))
}

/// Number of this run.
pub fn number() -> String {
    std::env::var(INSIDE).unwrap_or_default()
}

fn prepare() {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("prctl knows it");
    run("mount", &["--make-rprivate", "/"]);
    run("mount", &["-t", "proc", "proc", "/proc"]);
    run("mount", &["-t", "tmpfs", "ctk-cluster", "/run"]);
    run("ip", &["link", "set", "lo", "up"]);
}
