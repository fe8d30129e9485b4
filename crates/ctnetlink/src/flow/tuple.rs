//! One direction of an entry: addresses, protocol, and what tells flows of that protocol apart.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Family::Ipv4
        } else {
            Family::Ipv6
        }
    }

    /// `ipv4` or `ipv6`, the words of the JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    Original,
    Reply,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Direction::Original => "original",
            Direction::Reply => "reply",
        }
    }
}

/// What tells flows of one protocol between two addresses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum L4 {
    /// TCP, UDP, UDP-Lite, SCTP, DCCP.
    Ports { src: u16, dst: u16 },
    /// ICMP and ICMPv6.
    Icmp { kind: u8, code: u8, id: u16 },
    /// GRE; the kernel sends the keys in the port attributes (`nf_conntrack_proto_gre.c`).
    Gre { src: u16, dst: u16 },
    /// Protocols that the kernel tracks by address alone.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    pub src: IpAddr,
    pub dst: IpAddr,
    /// IANA protocol number.
    pub protocol: u8,
    pub l4: L4,
}

impl Tuple {
    pub fn family(&self) -> Family {
        Family::of(self.src)
    }

    pub fn sport(&self) -> Option<u16> {
        match self.l4 {
            L4::Ports { src, .. } => Some(src),
            _ => None,
        }
    }

    pub fn dport(&self) -> Option<u16> {
        match self.l4 {
            L4::Ports { dst, .. } => Some(dst),
            _ => None,
        }
    }

    /// Source as `address:port`, or the bare address where the protocol has no ports.
    pub fn source(&self) -> Place {
        Place {
            address: self.src,
            port: self.sport(),
        }
    }

    /// Destination as `address:port`, or the bare address where the protocol has no ports.
    pub fn destination(&self) -> Place {
        Place {
            address: self.dst,
            port: self.dport(),
        }
    }
}

/// An address with a port where there is one; prints as `10.0.0.1:53`, `[fd00::1]:53`, `10.0.0.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub address: IpAddr,
    pub port: Option<u16>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}
