//! One netlink socket: sequence numbers, port id, one reused receive buffer, errors with names.

use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::{
    DoneBuffer, ErrorBuffer, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer,
};
use netlink_sys::{Socket as RawSocket, SocketAddr, protocols::NETLINK_NETFILTER};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{self, Timeout};

use crate::codec::attr::aligned;
use crate::error::NetlinkError;
use crate::netns::Netns;

/// The kernel never fills more of one datagram in a dump (`netlink_recvmsg` caps its buffers there).
const RECEIVE_BUFFER: usize = 32 * 1024;
const HEADER: usize = 16;
/// The kernel answers before `send` returns. This only keeps a lost answer from hanging the program.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket to ctnetlink in one namespace.
pub struct Socket {
    inner: RawSocket,
    buffer: Vec<u8>,
    port: u32,
    sequence: u32,
}

/// One message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// End of a dump, with the error that ended it.
    Done {
        sequence: u32,
        /// `NLM_F_*`.
        flags: u16,
        error: Option<Errno>,
    },
    /// Answer to a request: refused, or (no error) acknowledged.
    Answer { sequence: u32, error: Option<Errno> },
    Data {
        sequence: u32,
        /// `NLM_F_*`.
        flags: u16,
        /// Subsystem in the high byte, message in the low one.
        kind: u16,
        payload: &'a [u8],
    },
}

impl Message<'_> {
    pub fn sequence(&self) -> u32 {
        match self {
            Message::Done { sequence, .. }
            | Message::Answer { sequence, .. }
            | Message::Data { sequence, .. } => *sequence,
        }
    }
}

impl Socket {
    /// A socket in `netns`. Without CAP_NET_ADMIN this still succeeds; the first answer is the refusal.
    ///
    /// # Errors
    /// [`NetlinkError::NotAvailable`] when the kernel has no nfnetlink, [`NetlinkError::Namespace`] when `netns` cannot be
    /// entered.
    pub fn open(netns: &Netns) -> Result<Self, NetlinkError> {
        const DOING: &str = "opening a netfilter socket";
        let open = || -> std::io::Result<(RawSocket, u32)> {
            let mut inner = RawSocket::new(NETLINK_NETFILTER)?;
            let address = inner.bind_auto()?;
            // From here on the kernel drops what other processes send to this socket.
            inner.connect(&SocketAddr::new(0, 0))?;
            // Answers come without a copy of the request (Linux 4.3+), so that many fit into the receive buffer.
            let _ = inner.set_cap_ack(true);
            sockopt::set_socket_timeout(&inner, Timeout::Recv, Some(PATIENCE))?;
            Ok((inner, address.port_number()))
        };
        let (inner, port) = netns
            .run(open)?
            .map_err(|e| NetlinkError::answered(DOING, errno(&e)))?;
        Ok(Socket {
            inner,
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
            port,
            sequence: 0,
        })
    }

    /// Asks for a receive buffer of `bytes`: beyond `net.core.rmem_max` where permitted (CAP_NET_ADMIN in the initial user
    /// namespace), else as much as that allows. For events, of which the default buffer holds 166.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<(), NetlinkError> {
        sockopt::set_socket_recv_buffer_size_force(&self.inner, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&self.inner, bytes))
            .map_err(|e| NetlinkError::answered("setting the receive buffer", e))
    }

    /// Bytes of receive buffer that this socket really has, in the kernel's account: twice what was asked for at most, and
    /// each message costs its packet buffer (1280 bytes for an event), not its length.
    pub fn receive_buffer(&self) -> Result<usize, NetlinkError> {
        sockopt::socket_recv_buffer_size(&self.inner)
            .map_err(|e| NetlinkError::answered("reading the receive buffer", e))
    }

    /// Joins a multicast group (`NFNLGRP_*`).
    ///
    /// # Errors
    /// [`NetlinkError::NotPermitted`] without CAP_NET_ADMIN.
    pub fn subscribe(&self, doing: &'static str, group: u32) -> Result<(), NetlinkError> {
        self.inner
            .add_membership(group)
            .map_err(|e| NetlinkError::answered(doing, errno(&e)))
    }

    /// A number that no request of this socket has yet.
    pub fn next_sequence(&mut self) -> u32 {
        // 0 is what event messages carry.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        self.sequence
    }

    /// Sends one or more whole requests. The kernel has worked through them when this returns.
    pub fn send(&self, doing: &'static str, bytes: &[u8]) -> Result<(), NetlinkError> {
        loop {
            match self.inner.send(bytes, 0).map_err(|e| errno(&e)) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(NetlinkError::answered(doing, e)),
            }
        }
    }

    /// The next datagram's messages.
    ///
    /// # Errors
    /// [`NetlinkError::Overrun`] when messages were lost, [`NetlinkError::NoAnswer`] after 10 s of silence.
    pub fn receive(&mut self, doing: &'static str) -> Result<Messages<'_>, NetlinkError> {
        self.read(doing, RecvFlags::empty())?
            .ok_or(NetlinkError::NoAnswer(doing))
    }

    /// The messages of the datagram that is here already, if one is. Never waits.
    ///
    /// # Errors
    /// [`NetlinkError::Overrun`] when messages were lost: the kernel tells that before it gives out what it still has from
    /// before the loss.
    pub fn receive_now(
        &mut self,
        doing: &'static str,
    ) -> Result<Option<Messages<'_>>, NetlinkError> {
        self.read(doing, RecvFlags::DONTWAIT)
    }

    /// `None`: nothing came for as long as the socket waits.
    fn read(
        &mut self,
        doing: &'static str,
        flags: RecvFlags,
    ) -> Result<Option<Messages<'_>>, NetlinkError> {
        let came = fill(&self.inner, doing, &mut self.buffer, flags)?;
        Ok(came.then(|| self.messages(&self.buffer)))
    }

    /// [`Socket::receive`] into a buffer of the caller's.
    pub(crate) fn receive_into(
        &self,
        doing: &'static str,
        buffer: &mut Vec<u8>,
    ) -> Result<(), NetlinkError> {
        buffer.reserve_exact(RECEIVE_BUFFER.saturating_sub(buffer.len()));
        match fill(&self.inner, doing, buffer, RecvFlags::empty())? {
            true => Ok(()),
            false => Err(NetlinkError::NoAnswer(doing)),
        }
    }

    /// The messages of a datagram that this socket received.
    pub(crate) fn messages<'a>(&self, datagram: &'a [u8]) -> Messages<'a> {
        Messages {
            rest: datagram,
            port: self.port,
        }
    }
}

/// Receives one datagram; false when nothing came for as long as the socket waits.
fn fill(
    socket: &RawSocket,
    doing: &'static str,
    buffer: &mut Vec<u8>,
    flags: RecvFlags,
) -> Result<bool, NetlinkError> {
    // With TRUNC the kernel tells the length of a message that does not fit.
    let flags = flags.union(RecvFlags::TRUNC).bits().cast_signed();
    // Cleared, not zeroed: the kernel writes into the spare capacity.
    buffer.clear();
    let length = loop {
        match socket.recv(buffer, flags).map_err(|e| errno(&e)) {
            Ok(length) => break length,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(NetlinkError::answered(doing, e)),
        }
    };
    if length > buffer.len() {
        return Err(NetlinkError::Truncated(length));
    }
    Ok(true)
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// The messages of one datagram that are meant for this socket.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
    port: u32,
}

impl<'a> Messages<'a> {
    #[cfg(test)]
    pub(crate) fn over(rest: &'a [u8]) -> Self {
        Messages { rest, port: 0 }
    }

    /// Bytes not walked yet.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn message(&mut self) -> Result<Option<Message<'a>>, NetlinkError> {
        let rest = std::mem::take(&mut self.rest);
        let header = NetlinkBuffer::new_checked(rest).map_err(|_| NetlinkError::Malformed)?;
        let length = header.length() as usize;
        let payload = rest.get(HEADER..length).unwrap_or_default();
        self.rest = rest.get(aligned(length)..).unwrap_or_default();
        let (sequence, port) = (header.sequence_number(), header.port_number());
        // Multicast messages carry the port of whoever caused them, and sequence number 0.
        if port != self.port && sequence != 0 {
            return Ok(None);
        }
        Ok(Some(match header.message_type() {
            NLMSG_NOOP => return Ok(None),
            NLMSG_OVERRUN => return Err(NetlinkError::Overrun),
            NLMSG_DONE => Message::Done {
                sequence,
                flags: header.flags(),
                // Kernels that have no error to tell may send no code.
                error: DoneBuffer::new_checked(payload)
                    .ok()
                    .and_then(|done| raw(done.code())),
            },
            NLMSG_ERROR => Message::Answer {
                sequence,
                error: ErrorBuffer::new_checked(payload)
                    .map_err(|_| NetlinkError::Malformed)?
                    .code()
                    .and_then(|code| raw(code.get())),
            },
            kind => Message::Data {
                sequence,
                flags: header.flags(),
                kind,
                payload,
            },
        }))
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, NetlinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            if let Some(message) = self.message().transpose() {
                return Some(message);
            }
        }
        None
    }
}

/// Netlink carries errors as negative numbers.
fn raw(code: i32) -> Option<Errno> {
    (code != 0).then(|| Errno::from_raw_os_error(code.saturating_abs()))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
