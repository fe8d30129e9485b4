//! Reason of the end of a watch, and its exit status.

use std::io;

use crate::error::{CommandError, ExitStatus};
use crate::output;
use crate::plural::count;
use crate::session::table_access;
use crate::terminal::messages::{self, note};
use ctnetlink::NetlinkError;

/// Reason of the end.
pub(super) enum WatchEnd {
    /// The requested end, a signal or a key.
    Done,
    /// `--for` passed before the condition of `--until` was met.
    TimedOut,
    /// The reader of the output went away.
    Closed,
    /// The reader had not taken all output at the end.
    Unread,
    Failed(CommandError),
}

/// Gaps in what the watch saw.
pub(super) struct Gaps {
    /// Number of overruns.
    pub overruns: u64,
    /// The table was not read completely since the start or the last gap.
    pub unsynced: bool,
    /// The cluster source is incomplete, so that nothing is judged.
    pub incomplete: bool,
}

impl WatchEnd {
    /// Prints notes on the gaps, and returns the exit status.
    ///
    /// # Errors
    /// The error that ended the watch.
    pub fn status(self, gaps: &Gaps) -> Result<ExitStatus, CommandError> {
        if gaps.overruns > 0 {
            note(format!(
                "{}; after each one the table was read again",
                count(gaps.overruns, "overrun", "overruns")
            ));
        }
        if gaps.unsynced && matches!(self, WatchEnd::Done | WatchEnd::TimedOut) {
            note(
                "the table was not read completely: entries may be missing, or shown that have ended",
            );
        }
        match self {
            WatchEnd::Failed(error) => Err(error),
            WatchEnd::Closed => Ok(ExitStatus::Done),
            WatchEnd::Unread => {
                note("the reader did not take all output");
                Ok(ExitStatus::Partial)
            }
            WatchEnd::TimedOut => {
                let open = match gaps.incomplete {
                    true => ", as far as known: the cluster source is incomplete",
                    false => "",
                };
                note(format!(
                    "--for passed before the condition of --until was met{open}"
                ));
                match gaps.overruns > 0 || gaps.unsynced {
                    true => Ok(ExitStatus::Partial),
                    false => Ok(ExitStatus::Failed),
                }
            }
            WatchEnd::Done if gaps.overruns > 0 || gaps.unsynced || gaps.incomplete => {
                Ok(ExitStatus::Partial)
            }
            WatchEnd::Done => Ok(ExitStatus::Done),
        }
    }
}

impl From<io::Error> for WatchEnd {
    fn from(error: io::Error) -> Self {
        if output::is_closed(&error) {
            WatchEnd::Closed
        } else if error.kind() == io::ErrorKind::TimedOut {
            WatchEnd::Unread
        } else {
            WatchEnd::Failed(messages::writing(error))
        }
    }
}

impl From<NetlinkError> for WatchEnd {
    fn from(error: NetlinkError) -> Self {
        WatchEnd::Failed(table_access::netlink_error(error))
    }
}

impl From<CommandError> for WatchEnd {
    fn from(error: CommandError) -> Self {
        WatchEnd::Failed(error)
    }
}
