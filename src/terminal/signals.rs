//! SIGINT, SIGTERM and SIGHUP as a flag, for commands that finish their work before they end, and signals that a write raises.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::CommandError;

/// Makes SIGINT, SIGTERM and SIGHUP set `stop` instead of ending the process. A SIGHUP that is ignored, as below nohup(1), stays
/// ignored.
///
/// # Errors
/// Signals cannot be caught.
pub fn set_on_signals(stop: &Arc<AtomicBool>) -> Result<(), CommandError> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        signal_hook::flag::register(signal, Arc::clone(stop))
            .map_err(|error| CommandError::failed("watching signals").with_source(error))?;
    }
    Ok(())
}

/// Makes a write beyond the limit of the file size (`ulimit -f`) fail with an error. The signal would end the process in the middle
/// of its work.
pub fn fail_large_writes() {
    let limit_is_hit = Arc::<AtomicBool>::default();
    // Without a handler the write ends the process, as before.
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), limit_is_hit);
}

/// Returns whether the process was started with the signal ignored; false if that is not known.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal - 1)
        .ok()
        .and_then(|bit| 1_u64.checked_shl(bit));
    mask.zip(bit).is_some_and(|(mask, bit)| mask & bit != 0)
}
