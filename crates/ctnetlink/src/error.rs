//! Errors of requests, and the operations that they name.

use std::fmt;

use rustix::io::Errno;

use crate::codec::DecodeError;
use crate::codec::insert::Incomplete;
use crate::netns::NetnsError;

/// Class of a [`NetlinkError`], as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A capability is missing: CAP_NET_ADMIN for requests, CAP_SYS_ADMIN for entering another namespace.
    NotPermitted,
    /// The kernel has no connection tracking, no ctnetlink, or does not know the request. Loading the modules
    /// `nf_conntrack` and `nf_conntrack_netlink` may help.
    NotAvailable,
    /// Every other error.
    Other,
}

/// Operation that a [`NetlinkError`] is about. Displayed as a phrase: "reading the conntrack table".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening a socket of the netfilter family.
    OpenSocket,
    /// Setting the size of a socket's receive buffer.
    SetReceiveBuffer,
    /// Reading the size of a socket's receive buffer.
    ReadReceiveBuffer,
    /// Joining the event groups, and receiving from them.
    ListenToEvents,
    /// Starting the thread of an [`EventQueue`](crate::EventQueue).
    StartEventThread,
    /// Dumping entries.
    DumpEntries,
    /// Dumping expectations.
    DumpExpectations,
    /// Looking up one entry.
    GetEntry,
    /// Looking up several entries.
    GetEntries,
    /// Reading the number of entries.
    CountEntries,
    /// Reading the counters of each CPU.
    ReadCpuStats,
    /// Inserting entries.
    InsertEntries,
    /// Deleting entries.
    DeleteEntries,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::OpenSocket => "opening a netfilter socket",
            Operation::SetReceiveBuffer => "setting the receive buffer",
            Operation::ReadReceiveBuffer => "reading the receive buffer",
            Operation::ListenToEvents => "listening to conntrack events",
            Operation::StartEventThread => "starting a thread for events",
            Operation::DumpEntries => "reading the conntrack table",
            Operation::DumpExpectations => "reading the expectations",
            Operation::GetEntry => "looking up an entry",
            Operation::GetEntries => "looking up entries",
            Operation::CountEntries => "counting the entries",
            Operation::ReadCpuStats => "reading the counters",
            Operation::InsertEntries => "inserting entries",
            Operation::DeleteEntries => "deleting entries",
        })
    }
}

/// Error of a request to ctnetlink. The text does not repeat [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// EPERM or EACCES: CAP_NET_ADMIN is missing in the user namespace that owns the network namespace.
    #[error("{0} is not permitted: it needs CAP_NET_ADMIN in the network namespace")]
    NotPermitted(Operation),
    /// The kernel has no netfilter netlink, no ctnetlink, or does not know the message type.
    #[error(
        "{operation} is not available: no nf_conntrack, or no nf_conntrack_netlink, in this kernel"
    )]
    NotAvailable {
        /// Operation that the kernel does not offer.
        operation: Operation,
        /// Answer of the kernel.
        source: Errno,
    },
    /// ENOBUFS: the receive buffer was full, and messages are lost.
    #[error("messages of the kernel were lost: the receive buffer overran")]
    Overrun,
    /// A datagram is longer than the receive buffer of 32 KiB. The field is its length in bytes.
    #[error("a message of the kernel was cut: {0} bytes")]
    Truncated(usize),
    /// The framing of a datagram is wrong, or the expected attribute is missing.
    #[error("the kernel's answer is not understood")]
    Malformed,
    /// The answer to a request for one entry is no entry.
    #[error("the kernel's answer is not understood")]
    Decode(#[from] DecodeError),
    /// No answer came within 10 s.
    #[error("the kernel gave no answer to {0}")]
    NoAnswer(Operation),
    /// Every other errno.
    #[error("{operation} failed")]
    Failed {
        /// Operation that failed.
        operation: Operation,
        /// Answer of the kernel.
        source: Errno,
    },
    /// The network namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
}

impl NetlinkError {
    /// Class of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            NetlinkError::NotPermitted(_) => ErrorKind::NotPermitted,
            NetlinkError::NotAvailable { .. } => ErrorKind::NotAvailable,
            NetlinkError::Namespace(e) if e.is_permission() => ErrorKind::NotPermitted,
            _ => ErrorKind::Other,
        }
    }

    /// Error of an operation that the kernel answered with `errno`.
    pub(crate) fn answered(operation: Operation, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => NetlinkError::NotPermitted(operation),
            Errno::NOBUFS => NetlinkError::Overrun,
            Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => NetlinkError::NotAvailable {
                operation,
                source: errno,
            },
            _ => NetlinkError::Failed {
                operation,
                source: errno,
            },
        }
    }

    /// The same for a request whose content cannot be wrong: nfnetlink answers EINVAL when the subsystem or the message
    /// type does not exist (`nfnetlink_rcv_msg` in `net/netfilter/nfnetlink.c`).
    pub(crate) fn answered_plain(operation: Operation, errno: Errno) -> Self {
        match errno {
            Errno::INVAL | Errno::OPNOTSUPP | Errno::NOENT => NetlinkError::NotAvailable {
                operation,
                source: errno,
            },
            _ => Self::answered(operation, errno),
        }
    }

    /// Errno for one request of a batch whose answers could not be received.
    pub(crate) fn errno(self) -> Errno {
        match self {
            NetlinkError::NotPermitted(_) => Errno::PERM,
            NetlinkError::Failed { source, .. } | NetlinkError::NotAvailable { source, .. } => {
                source
            }
            NetlinkError::NoAnswer(_) => Errno::TIMEDOUT,
            NetlinkError::Namespace(e) if e.is_permission() => Errno::PERM,
            NetlinkError::Overrun => Errno::NOBUFS,
            _ => Errno::IO,
        }
    }
}

/// Reason why one entry was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The entry lacks something that the kernel requires. No request was sent.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    /// Answer of the kernel. `EXIST`: one of the tuples is taken. `NOMEM`: the table is full. `OPNOTSUPP`: no such helper.
    /// `NOBUFS`: the answer was lost, and the entry may have been inserted.
    #[error(transparent)]
    Kernel(Errno),
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn text_and_source_do_not_repeat_each_other() {
        let error = NetlinkError::answered(Operation::DumpEntries, Errno::INVAL);
        assert_eq!(error.to_string(), "reading the conntrack table failed");
        let source = error.source().unwrap().to_string();
        assert_eq!(source, Errno::INVAL.to_string());
    }

    #[test]
    fn invalid_plain_request_is_a_missing_subsystem() {
        for (errno, kind) in [
            (Errno::INVAL, ErrorKind::NotAvailable),
            (Errno::AFNOSUPPORT, ErrorKind::NotAvailable),
            (Errno::PERM, ErrorKind::NotPermitted),
            (Errno::NOMEM, ErrorKind::Other),
        ] {
            let error = NetlinkError::answered_plain(Operation::CountEntries, errno);
            assert_eq!(error.kind(), kind, "{errno}");
        }
        let error = NetlinkError::answered(Operation::DumpEntries, Errno::INVAL);
        assert_eq!(error.kind(), ErrorKind::Other);
    }
}
