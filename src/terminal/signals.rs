//! Ctrl-C and SIGTERM for commands that have something to finish first: they look at a flag now and then.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::CommandError;

/// From here on a signal only sets `stop`.
///
/// # Errors
/// Signals cannot be caught.
pub fn on_signals(stop: &Arc<AtomicBool>) -> Result<(), CommandError> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(stop))
            .map_err(|error| CommandError::failed(format!("watching signals: {error}")))?;
    }
    Ok(())
}
