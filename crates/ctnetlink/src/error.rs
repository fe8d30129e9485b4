//! What can go wrong between this process and ctnetlink.

use rustix::io::Errno;

use crate::codec::insert::Incomplete;
use crate::netns::NetnsError;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A capability is missing.
    NotPermitted,
    /// This kernel has no connection tracking, no ctnetlink, or not this table.
    NotAvailable,
    Other,
}

#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    #[error("{0} is not permitted: it needs CAP_NET_ADMIN in the network namespace")]
    NotPermitted(&'static str),
    #[error(
        "{0} is not available: no nf_conntrack, or no nf_conntrack_netlink, in this kernel ({1})"
    )]
    NotAvailable(&'static str, Errno),
    /// ENOBUFS: the receive buffer was full and messages are lost.
    #[error("messages of the kernel were lost: the receive buffer overran")]
    Overrun,
    /// A message longer than the receive buffer.
    #[error("a message of the kernel was cut: {0} bytes")]
    Truncated(usize),
    /// The framing of a datagram, not of one entry.
    #[error("the kernel's answer is not understood")]
    Malformed,
    #[error("the kernel gave no answer to {0}")]
    NoAnswer(&'static str),
    #[error("{0} failed: {1}")]
    Failed(&'static str, Errno),
    #[error(transparent)]
    Namespace(#[from] NetnsError),
}

impl NetlinkError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            NetlinkError::NotPermitted(_) => ErrorKind::NotPermitted,
            NetlinkError::NotAvailable(..) => ErrorKind::NotAvailable,
            NetlinkError::Namespace(e) if e.is_permission() => ErrorKind::NotPermitted,
            _ => ErrorKind::Other,
        }
    }

    /// The error of a request `doing` something that the kernel answered with `errno`.
    pub(crate) fn answered(doing: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => NetlinkError::NotPermitted(doing),
            Errno::NOBUFS => NetlinkError::Overrun,
            Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => NetlinkError::NotAvailable(doing, errno),
            _ => NetlinkError::Failed(doing, errno),
        }
    }

    /// The same for a request without anything in it that could be wrong: nfnetlink answers EINVAL when the subsystem or
    /// the message type does not exist (`nfnetlink_rcv_msg`).
    pub(crate) fn answered_plain(doing: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::INVAL | Errno::OPNOTSUPP | Errno::NOENT => {
                NetlinkError::NotAvailable(doing, errno)
            }
            _ => Self::answered(doing, errno),
        }
    }
}

/// Why one entry was not put into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    /// `EXIST`: one of its tuples is taken. `NOMEM`: the table is full. `OPNOTSUPP`: no such helper.
    #[error("{0}")]
    Kernel(Errno),
}
