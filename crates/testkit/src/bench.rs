//! Network namespace and number of entries of a bench.

use std::io;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};

use crate::conntrack_max::ConntrackMax;
use crate::usage::{Usage, measure};

/// Number of entries where the command line has none.
const DEFAULT_ENTRIES: u32 = 200_000;

/// First number on the command line, where digits may be grouped by `_`.
pub fn number_argument() -> Option<u32> {
    std::env::args()
        .skip(1)
        .find_map(|arg| arg.replace('_', "").parse().ok())
}

/// Runs a command without its output. `None` when the program is not installed. The command must succeed or report a partial
/// answer (status 3).
pub fn measure_silent(command: &mut Command) -> Option<Usage> {
    match measure(command.stdout(Stdio::null()).stderr(Stdio::null())) {
        Ok(usage) => {
            let status = usage.status;
            assert!(
                matches!(status.code(), Some(0 | 3)),
                "{command:?}: {status}"
            );
            Some(usage)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Moves the calling thread into a network namespace of its own. False, with a message, where that is not permitted; with `CI`
/// set that is a failure.
pub fn enter_netns() -> bool {
    if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return true;
    }
    eprintln!("skipped: no permission to make a network namespace; run as root");
    assert!(std::env::var_os("CI").is_none(), "skipped in CI");
    false
}

/// Prepares a bench: reads the number of entries from the command line, raises the limit of entries to that number or
/// `least`, and enters a network namespace of its own. `None` where that is not permitted.
pub fn prepare(least: u32) -> Option<(u32, ConntrackMax)> {
    let entries = number_argument().unwrap_or(DEFAULT_ENTRIES);
    let limit = ConntrackMax::raise(entries.max(least) + 1000);
    enter_netns().then_some((entries, limit))
}
