//! How a watch ends, and with which status.

use std::io;

use crate::error::{CommandError, Status};
use crate::output;
use crate::session::table_access;
use crate::terminal::messages::{self, note};
use ctnetlink::NetlinkError;

/// Why the loop was left.
pub(super) enum Ended {
    /// As it was asked to, or by a signal or a key.
    Done,
    /// `--for` was over before what `--until` waits for.
    TimedOut,
    /// Nobody reads on.
    Closed,
    /// The reader had not taken everything when it was time to end.
    Unread,
    Failed(CommandError),
}

/// What was missing on the way.
pub(super) struct Lacks {
    pub gaps: u64,
    /// The table was not read whole since.
    pub unsynced: bool,
    /// Nothing is judged, for want of parts of the cluster.
    pub incomplete: bool,
}

impl Ended {
    /// # Errors
    /// What made it fail.
    pub fn status(self, lacks: &Lacks) -> Result<Status, CommandError> {
        if lacks.gaps > 0 {
            note(format!(
                "{} overruns; after each one the table was read again",
                lacks.gaps
            ));
        }
        if lacks.unsynced && matches!(self, Ended::Done | Ended::TimedOut) {
            note("the table was not read whole since: entries may be missing or over");
        }
        match self {
            Ended::Failed(error) => Err(error),
            Ended::Closed => Ok(Status::Done),
            Ended::Unread => {
                note("the output was not read to its end");
                Ok(Status::Partial)
            }
            Ended::TimedOut => {
                let open = match lacks.incomplete {
                    true => ", as far as is known: the cluster source is incomplete",
                    false => "",
                };
                note(format!(
                    "--for was over before what --until waits for{open}"
                ));
                match lacks.gaps > 0 || lacks.unsynced {
                    true => Ok(Status::Partial),
                    false => Ok(Status::Failed),
                }
            }
            Ended::Done if lacks.gaps > 0 || lacks.unsynced || lacks.incomplete => {
                Ok(Status::Partial)
            }
            Ended::Done => Ok(Status::Done),
        }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        if output::is_closed(&error) {
            Ended::Closed
        } else if error.kind() == io::ErrorKind::TimedOut {
            Ended::Unread
        } else {
            Ended::Failed(messages::writing(error))
        }
    }
}

impl From<NetlinkError> for Ended {
    fn from(error: NetlinkError) -> Self {
        Ended::Failed(table_access::netlink_error(error))
    }
}

impl From<CommandError> for Ended {
    fn from(error: CommandError) -> Self {
        Ended::Failed(error)
    }
}
