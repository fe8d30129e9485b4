//! SIGINT and SIGTERM as a flag, for commands that finish their work before they end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::CommandError;

/// Makes SIGINT and SIGTERM set `stop` instead of ending the process.
///
/// # Errors
/// Signals cannot be caught.
pub fn set_on_signals(stop: &Arc<AtomicBool>) -> Result<(), CommandError> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(stop))
            .map_err(|error| CommandError::failed("watching signals").with_source(error))?;
    }
    Ok(())
}
