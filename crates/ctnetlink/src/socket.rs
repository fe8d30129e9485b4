//! Netlink socket: sequence numbers, port id, one reused receive buffer, typed errors.

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
use crate::error::{NetlinkError, Operation};
use crate::netns::Netns;

/// Largest datagram of a dump in bytes (`netlink_recvmsg` in `net/netlink/af_netlink.c`).
const RECEIVE_BUFFER: usize = 32 * 1024;
const HEADER: usize = 16;
/// Time to wait for an answer. The kernel answers before `send` returns, so only a lost answer takes so long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Socket of the netfilter family in one namespace.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: RawSocket,
    buffer: Vec<u8>,
    port: u32,
    sequence: u32,
}

/// Message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// End of a dump, and the error that ended it.
    Done {
        sequence: u32,
        /// `NLM_F_*`.
        flags: u16,
        error: Option<Errno>,
    },
    /// Answer to a request: an error, or (`None`) an acknowledgement.
    Answer { sequence: u32, error: Option<Errno> },
    Data {
        sequence: u32,
        /// `NLM_F_*`.
        flags: u16,
        /// Subsystem in the high byte, message type in the low one.
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
    /// Opens a socket in `netns`. Succeeds without CAP_NET_ADMIN; the answer to the first request is the refusal.
    ///
    /// # Errors
    /// [`NetlinkError::NotAvailable`] when the kernel has no nfnetlink, [`NetlinkError::Namespace`] when `netns` cannot be
    /// entered.
    pub fn open(netns: &Netns) -> Result<Self, NetlinkError> {
        let open = || -> std::io::Result<(RawSocket, u32)> {
            let mut inner = RawSocket::new(NETLINK_NETFILTER)?;
            let address = inner.bind_auto()?;
            // Now the kernel drops messages of other processes to this socket.
            inner.connect(&SocketAddr::new(0, 0))?;
            // Answers have no copy of the request (Linux 4.3 and later), so that more fit into the receive buffer.
            let _ = inner.set_cap_ack(true);
            sockopt::set_socket_timeout(&inner, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
            Ok((inner, address.port_number()))
        };
        let (inner, port) = netns
            .run(open)?
            .map_err(|e| NetlinkError::answered(Operation::OpenSocket, errno(&e)))?;
        Ok(Socket {
            inner,
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
            port,
            sequence: 0,
        })
    }

    /// Requests a receive buffer of `bytes`: beyond `net.core.rmem_max` where permitted (CAP_NET_ADMIN in the initial user
    /// namespace), else up to that. The default buffer holds 166 events.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<(), NetlinkError> {
        sockopt::set_socket_recv_buffer_size_force(&self.inner, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&self.inner, bytes))
            .map_err(|e| NetlinkError::answered(Operation::SetReceiveBuffer, e))
    }

    /// Size of the receive buffer in bytes, as the kernel accounts it: up to twice the requested size. Each message takes its
    /// packet buffer (1280 bytes for an event), not its length.
    pub fn receive_buffer(&self) -> Result<usize, NetlinkError> {
        sockopt::socket_recv_buffer_size(&self.inner)
            .map_err(|e| NetlinkError::answered(Operation::ReadReceiveBuffer, e))
    }

    /// Joins a multicast group (`NFNLGRP_*`).
    ///
    /// # Errors
    /// [`NetlinkError::NotPermitted`] without CAP_NET_ADMIN.
    pub fn subscribe(&self, group: u32) -> Result<(), NetlinkError> {
        self.inner
            .add_membership(group)
            .map_err(|e| NetlinkError::answered(Operation::ListenToEvents, errno(&e)))
    }

    /// Unused sequence number.
    pub fn next_sequence(&mut self) -> u32 {
        // Event messages have the number 0.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        self.sequence
    }

    /// Sends one or more whole requests. The kernel has handled them when this returns.
    pub fn send(&self, operation: Operation, bytes: &[u8]) -> Result<(), NetlinkError> {
        loop {
            match self.inner.send(bytes, 0).map_err(|e| errno(&e)) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(NetlinkError::answered(operation, e)),
            }
        }
    }

    /// Waits for the next datagram and returns its messages.
    ///
    /// # Errors
    /// [`NetlinkError::Overrun`] when messages were lost, [`NetlinkError::NoAnswer`] after 10 s.
    pub fn receive(&mut self, operation: Operation) -> Result<Messages<'_>, NetlinkError> {
        self.read(operation, RecvFlags::empty())?
            .ok_or(NetlinkError::NoAnswer(operation))
    }

    /// Messages of a datagram that has arrived already. Never waits.
    ///
    /// # Errors
    /// [`NetlinkError::Overrun`] when messages were lost. The kernel reports that before it delivers the messages from before
    /// the loss.
    pub fn receive_now(
        &mut self,
        operation: Operation,
    ) -> Result<Option<Messages<'_>>, NetlinkError> {
        self.read(operation, RecvFlags::DONTWAIT)
    }

    /// `None`: nothing arrived within the time that the socket waits.
    fn read(
        &mut self,
        operation: Operation,
        flags: RecvFlags,
    ) -> Result<Option<Messages<'_>>, NetlinkError> {
        let arrived = fill(&self.inner, operation, &mut self.buffer, flags)?;
        Ok(arrived.then(|| self.messages(&self.buffer)))
    }

    /// Waits for the next datagram and stores it in `buffer`.
    pub(crate) fn receive_into(
        &self,
        operation: Operation,
        buffer: &mut Vec<u8>,
    ) -> Result<(), NetlinkError> {
        buffer.reserve_exact(RECEIVE_BUFFER.saturating_sub(buffer.len()));
        match fill(&self.inner, operation, buffer, RecvFlags::empty())? {
            true => Ok(()),
            false => Err(NetlinkError::NoAnswer(operation)),
        }
    }

    /// Messages of a datagram that this socket received.
    pub(crate) fn messages<'a>(&self, datagram: &'a [u8]) -> Messages<'a> {
        Messages {
            rest: datagram,
            port: self.port,
        }
    }
}

/// Receives one datagram. False when nothing arrived within the time that the socket waits.
fn fill(
    socket: &RawSocket,
    operation: Operation,
    buffer: &mut Vec<u8>,
    flags: RecvFlags,
) -> Result<bool, NetlinkError> {
    // With TRUNC the kernel reports the length of a datagram that does not fit.
    let flags = flags.union(RecvFlags::TRUNC).bits().cast_signed();
    // Cleared, not zeroed: the kernel writes into the spare capacity.
    buffer.clear();
    let length = loop {
        match socket.recv(buffer, flags).map_err(|e| errno(&e)) {
            Ok(length) => break length,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(NetlinkError::answered(operation, e)),
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

/// Messages of one datagram that are addressed to this socket.
#[derive(Clone, Debug)]
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
    port: u32,
}

impl<'a> Messages<'a> {
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn over(rest: &'a [u8]) -> Self {
        Messages { rest, port: 0 }
    }

    fn message(&mut self) -> Result<Option<Message<'a>>, NetlinkError> {
        let rest = std::mem::take(&mut self.rest);
        let header = NetlinkBuffer::new_checked(rest).map_err(|_| NetlinkError::Malformed)?;
        let length = header.length() as usize;
        let payload = rest.get(HEADER..length).unwrap_or_default();
        self.rest = rest.get(aligned(length)..).unwrap_or_default();
        let (sequence, port) = (header.sequence_number(), header.port_number());
        // Multicast messages have the port of the originator, and sequence number 0.
        if port != self.port && sequence != 0 {
            return Ok(None);
        }
        Ok(Some(match header.message_type() {
            NLMSG_NOOP => return Ok(None),
            NLMSG_OVERRUN => return Err(NetlinkError::Overrun),
            NLMSG_DONE => Message::Done {
                sequence,
                flags: header.flags(),
                // Without an error, kernels may send no code.
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

/// Netlink sends errors as negative numbers. A number beyond those of Linux counts as [`Errno::IO`].
fn raw(code: i32) -> Option<Errno> {
    (code != 0).then(|| errno(&std::io::Error::from_raw_os_error(code.saturating_abs())))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram with one message.
    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = (HEADER + payload.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn error_number_beyond_those_of_linux_is_an_input_output_error() {
        for (code, expected) in [
            (0, None),
            (-1, Some(Errno::PERM)),
            (-4095, Some(Errno::from_raw_os_error(4095))),
            (-4096, Some(Errno::IO)),
            (-65_537, Some(Errno::IO)),
            (i32::MIN, Some(Errno::IO)),
        ] {
            let mut payload = code.to_ne_bytes().to_vec();
            payload.extend([0; HEADER]);
            for kind in [NLMSG_ERROR, NLMSG_DONE] {
                let datagram = message(kind, &payload);
                let read: Vec<_> = Messages::over(&datagram).collect();
                let error = match &read[..] {
                    [Ok(Message::Answer { error, .. } | Message::Done { error, .. })] => error,
                    other => panic!("{other:?}"),
                };
                assert_eq!(*error, expected, "{code} in a message of kind {kind}");
            }
        }
    }
}
