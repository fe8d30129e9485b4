//! Requests of route netlink about addresses and interfaces.
//!
//! Decoded here instead of by a library for all of route netlink: eight of its hundreds of attributes are read, and the
//! library adds 0.3 MB to a binary.

use std::io;

use netlink_packet_core::{
    DoneBuffer, ErrorBuffer, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::codec::attr::Attributes;

/// Message types (`include/uapi/linux/rtnetlink.h`).
pub const RTM_NEWLINK: u16 = 16;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_SETLINK: u16 = 19;
pub const RTM_NEWADDR: u16 = 20;
pub const RTM_GETADDR: u16 = 22;
pub const RTM_NEWROUTE: u16 = 24;
pub const RTM_GETROUTE: u16 = 26;
pub const RTM_NEWRULE: u16 = 32;
pub const RTM_GETRULE: u16 = 34;

const NETLINK_HEADER: usize = 16;
/// Largest datagram of a dump (`netlink_recvmsg` in `net/netlink/af_netlink.c`).
const RECEIVE_BUFFER: usize = 32 * 1024;

/// `struct ifinfomsg`: first part of every message about an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkHeader {
    /// Type of the link layer (`ARPHRD_*`).
    pub layer: u16,
    pub index: u32,
    /// `IFF_*`.
    pub flags: u32,
    /// Flags that a request changes.
    pub change: u32,
}

impl LinkHeader {
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[2..4].copy_from_slice(&self.layer.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.index.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.change.to_ne_bytes());
        bytes
    }

    /// Header and attributes of a message. `None` when it is too short.
    pub fn split(message: &[u8]) -> Option<(Self, Attributes<'_>)> {
        let (header, attributes) = message.split_first_chunk::<16>()?;
        let [_, _, l0, l1, i0, i1, i2, i3, f0, f1, f2, f3, c0, c1, c2, c3] = *header;
        let header = LinkHeader {
            layer: u16::from_ne_bytes([l0, l1]),
            index: u32::from_ne_bytes([i0, i1, i2, i3]),
            flags: u32::from_ne_bytes([f0, f1, f2, f3]),
            change: u32::from_ne_bytes([c0, c1, c2, c3]),
        };
        Some((header, Attributes::new(attributes)))
    }
}

/// `struct ifaddrmsg`: first part of every message about an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressHeader {
    /// `AF_*`.
    pub family: u8,
    /// Prefix length in bits.
    pub prefix: u8,
    pub index: u32,
}

impl AddressHeader {
    pub fn bytes(self) -> [u8; 8] {
        let [i0, i1, i2, i3] = self.index.to_ne_bytes();
        [self.family, self.prefix, 0, 0, i0, i1, i2, i3]
    }

    /// Header and attributes of a message. `None` when it is too short.
    pub fn split(message: &[u8]) -> Option<(Self, Attributes<'_>)> {
        let (header, attributes) = message.split_first_chunk::<8>()?;
        let [family, prefix, _, _, i0, i1, i2, i3] = *header;
        let index = u32::from_ne_bytes([i0, i1, i2, i3]);
        let header = AddressHeader {
            family,
            prefix,
            index,
        };
        Some((header, Attributes::new(attributes)))
    }
}

/// `struct rtmsg`: first part of every message about a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteHeader {
    /// `AF_*`.
    pub family: u8,
    /// Prefix length of the destination in bits.
    pub prefix: u8,
    /// Prefix length of the source in bits.
    pub source_prefix: u8,
    pub tos: u8,
    /// `RT_TABLE_*`.
    pub table: u8,
    /// `RTN_*`.
    pub kind: u8,
}

impl RouteHeader {
    pub fn bytes(self) -> [u8; 12] {
        let (family, prefix, source) = (self.family, self.prefix, self.source_prefix);
        [
            family, prefix, source, self.tos, self.table, 0, 0, self.kind, 0, 0, 0, 0,
        ]
    }

    /// Header and attributes of a message. `None` when it is too short.
    pub fn split(message: &[u8]) -> Option<(Self, Attributes<'_>)> {
        let (header, attributes) = message.split_first_chunk::<12>()?;
        let [family, prefix, source_prefix, tos, table, _, _, kind, ..] = *header;
        let header = RouteHeader {
            family,
            prefix,
            source_prefix,
            tos,
            table,
            kind,
        };
        Some((header, Attributes::new(attributes)))
    }
}

/// Dumps all objects of a type (`body` is an empty header). Passes the payload of every message of type `expected` to `each`,
/// with the socket.
pub fn dump(
    kind: u16,
    body: &[u8],
    expected: u16,
    each: &mut dyn FnMut(&Socket, &[u8]),
) -> io::Result<()> {
    let socket = ask(kind, NLM_F_DUMP, body)?;
    let mut buffer = Vec::with_capacity(RECEIVE_BUFFER);
    loop {
        buffer.clear();
        match socket.recv(&mut buffer, 0) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let over = messages(&buffer, &mut |kind, payload| {
            if kind == expected {
                each(&socket, payload);
            }
        })?;
        if over {
            return Ok(());
        }
    }
}

/// Sends a change and waits for its acknowledgement.
pub fn change(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let socket = ask(kind, NLM_F_ACK | flags, body)?;
    let (bytes, _) = socket.recv_from_full()?;
    messages(&bytes, &mut |_, _| {}).map(|_| ())
}

/// Sends a request. Returns the socket that receives the answer.
fn ask(kind: u16, flags: u16, body: &[u8]) -> io::Result<Socket> {
    let mut bytes = vec![0; NETLINK_HEADER];
    bytes.extend_from_slice(body);
    let mut header = NetlinkBuffer::new(&mut bytes);
    header.set_length(u32::try_from(NETLINK_HEADER + body.len()).map_err(io::Error::other)?);
    header.set_message_type(kind);
    header.set_flags(NLM_F_REQUEST | flags);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    Ok(socket)
}

/// Passes type and payload of every message of a datagram to `each`. Returns whether the datagram has the end of a dump.
///
/// # Errors
/// Error of the kernel, in an answer or at the end of a dump, or a wrong length.
fn messages(mut bytes: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<bool> {
    while !bytes.is_empty() {
        let message = NetlinkBuffer::new_checked(bytes).map_err(io::Error::other)?;
        match message.message_type() {
            NLMSG_DONE => {
                let done = DoneBuffer::new_checked(message.payload()).map_err(io::Error::other)?;
                return match done.code() {
                    0 => Ok(true),
                    code => Err(refused(code)),
                };
            }
            NLMSG_ERROR => {
                let answer =
                    ErrorBuffer::new_checked(message.payload()).map_err(io::Error::other)?;
                if let Some(code) = answer.code() {
                    return Err(refused(code.get()));
                }
            }
            kind => each(kind, message.payload()),
        }
        let length = (message.length() as usize).next_multiple_of(4);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// Error of the kernel, which sends negative numbers.
fn refused(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code.saturating_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; NETLINK_HEADER];
        bytes.extend_from_slice(payload);
        let mut header = NetlinkBuffer::new(&mut bytes);
        header.set_length((NETLINK_HEADER + payload.len()) as u32);
        header.set_message_type(kind);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn kinds(bytes: &[u8]) -> (Vec<(u16, usize)>, io::Result<bool>) {
        let mut seen = Vec::new();
        let over = messages(bytes, &mut |kind, payload| seen.push((kind, payload.len())));
        (seen, over)
    }

    #[test]
    fn messages_of_a_datagram_are_read_in_order() {
        let two = [message(RTM_NEWLINK, &[0; 17]), message(RTM_NEWADDR, &[])].concat();
        let (seen, over) = kinds(&two);
        assert_eq!(seen, [(RTM_NEWLINK, 17), (RTM_NEWADDR, 0)]);
        assert!(!over.unwrap());
        let (seen, over) = kinds(&[two, message(NLMSG_DONE, &[0; 4])].concat());
        assert_eq!(seen.len(), 2);
        assert!(over.unwrap());
    }

    #[test]
    fn error_of_the_kernel_is_reported_in_an_answer_and_at_the_end() {
        let refused = (-1_i32).to_ne_bytes();
        let answer = message(NLMSG_ERROR, &[&refused[..], &[0; 16]].concat());
        assert_eq!(kinds(&answer).1.unwrap_err().raw_os_error(), Some(1));
        let end = message(NLMSG_DONE, &refused);
        assert_eq!(kinds(&end).1.unwrap_err().raw_os_error(), Some(1));
        let acknowledged = message(NLMSG_ERROR, &[0; 20]);
        assert!(!kinds(&acknowledged).1.unwrap());
    }

    #[test]
    fn malformed_bytes_are_an_error_and_no_panic() {
        let whole = message(RTM_NEWLINK, &[7; 20]);
        for length in 1..whole.len() {
            assert!(kinds(&whole[..length]).1.is_err(), "{length}");
        }
        for kind in [NLMSG_DONE, NLMSG_ERROR] {
            assert!(kinds(&message(kind, &[])).1.is_err(), "{kind}");
        }
        assert_eq!(LinkHeader::split(&[0; 15]).map(|_| ()), None);
        assert_eq!(AddressHeader::split(&[0; 7]).map(|_| ()), None);
    }

    #[test]
    fn headers_are_read_as_they_were_written() {
        let link = LinkHeader {
            layer: 772,
            index: 0x0102_0304,
            flags: 1,
            change: 0xffff_ffff,
        };
        assert_eq!(LinkHeader::split(&link.bytes()).unwrap().0, link);
        let address = AddressHeader {
            family: 10,
            prefix: 128,
            index: 0x0102_0304,
        };
        assert_eq!(AddressHeader::split(&address.bytes()).unwrap().0, address);
    }
}
