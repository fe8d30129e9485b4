//! One direction of an entry: addresses, protocol, ports or their equivalent.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 (`AF_INET`).
    Ipv4,
    /// IPv6 (`AF_INET6`).
    Ipv6,
}

impl Family {
    /// Family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Family::Ipv4
        } else {
            Family::Ipv6
        }
    }

    /// Name in lower case: `ipv4` or `ipv6`.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        }
    }
}

/// Direction of a flow (`enum ip_conntrack_dir`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the initiator.
    Original,
    /// To the initiator.
    Reply,
}

impl Direction {
    /// Name in lower case: `original` or `reply`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Original => "original",
            Direction::Reply => "reply",
        }
    }
}

/// Layer 4 part of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum L4 {
    /// Ports of TCP, UDP, UDP-Lite, SCTP and DCCP.
    Ports {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// ICMP and ICMPv6.
    Icmp {
        /// Type of the message.
        kind: u8,
        /// Code of the message.
        code: u8,
        /// Identifier of the query.
        id: u16,
    },
    /// Keys of GRE version 1 (PPTP); 0 for version 0. The kernel sends them in the port attributes
    /// (`gre_tuple_to_nlattr` in `nf_conntrack_proto_gre.c`).
    Gre {
        /// Source key.
        src: u16,
        /// Destination key.
        dst: u16,
    },
    /// Protocol that the kernel tracks by addresses alone (`nf_conntrack_proto_generic.c`).
    None,
}

/// Addresses, protocol and layer 4 part of one direction (`struct nf_conntrack_tuple`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IANA protocol number.
    pub protocol: u8,
    /// Layer 4 part.
    pub l4: L4,
}

impl Tuple {
    /// Address family of the source.
    pub fn family(&self) -> Family {
        Family::of(self.src)
    }

    /// Source port. `None` where the protocol has no ports.
    pub fn sport(&self) -> Option<u16> {
        match self.l4 {
            L4::Ports { src, .. } => Some(src),
            _ => None,
        }
    }

    /// Destination port. `None` where the protocol has no ports.
    pub fn dport(&self) -> Option<u16> {
        match self.l4 {
            L4::Ports { dst, .. } => Some(dst),
            _ => None,
        }
    }

    /// Source address, with the port where the protocol has ports.
    pub fn source(&self) -> AddressPort {
        AddressPort {
            address: self.src,
            port: self.sport(),
        }
    }

    /// Destination address, with the port where the protocol has ports.
    pub fn destination(&self) -> AddressPort {
        AddressPort {
            address: self.dst,
            port: self.dport(),
        }
    }
}

/// Address with an optional port. Displayed as `192.0.2.1:53`, `[2001:db8::1]:53` or `192.0.2.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressPort {
    /// Address.
    pub address: IpAddr,
    /// Port. `None` where the protocol has no ports.
    pub port: Option<u16>,
}

impl fmt::Display for AddressPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}
