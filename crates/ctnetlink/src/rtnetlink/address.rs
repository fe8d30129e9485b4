//! Addresses of the interfaces, in the namespace of the calling thread.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::NLM_F_CREATE;
use rustix::net::AddressFamily;

use super::route::{self, AddressHeader, LinkHeader};
use crate::codec::attr::{Attribute, Writer};

/// `include/uapi/linux/if_addr.h`.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;

/// Address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalAddress {
    /// Name of the interface; `#7`, its index, when it was removed meanwhile.
    pub interface: String,
    /// Address with its prefix length. The host bits are kept: 192.0.2.7/24.
    pub network: IpNet,
}

impl LocalAddress {
    /// Address without the prefix length.
    pub fn address(&self) -> IpAddr {
        self.network.addr()
    }
}

pub(super) fn local() -> io::Result<Vec<LocalAddress>> {
    let all = AddressHeader::default().bytes();
    let mut found = Vec::new();
    route::dump(
        route::RTM_GETADDR,
        &all,
        route::RTM_NEWADDR,
        &mut |socket, message| {
            if let Some((index, network)) = own(message) {
                let interface = rustix::net::netdevice::index_to_name(socket, index)
                    .unwrap_or_else(|_| format!("#{index}"));
                found.push(LocalAddress { interface, network });
            }
        },
    )?;
    Ok(found)
}

/// Adds an address to the loopback interface and brings the interface up.
pub(super) fn add_to_loopback(address: IpAddr) -> io::Result<()> {
    // The loopback device is the first of every namespace (`loopback_net_init` in `drivers/net/loopback.c`).
    const LOOPBACK: u32 = 1;
    let (family, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let header = AddressHeader {
        family: u8::try_from(family.as_raw()).map_err(io::Error::other)?,
        prefix: IpNet::from(address).prefix_len(),
        index: LOOPBACK,
    };
    let mut message = header.bytes().to_vec();
    let mut attributes = Writer::new(&mut message);
    attributes.put(IFA_LOCAL, &octets);
    attributes.put(IFA_ADDRESS, &octets);
    route::change(route::RTM_NEWADDR, NLM_F_CREATE, &message)?;
    let up = LinkHeader {
        index: LOOPBACK,
        flags: IFF_UP,
        change: IFF_UP,
        ..LinkHeader::default()
    };
    route::change(route::RTM_SETLINK, 0, &up.bytes())
}

/// Index of the interface, and its address. On a point-to-point link `IFA_LOCAL` is the own address and `IFA_ADDRESS` the
/// peer's. IPv6 sends only the latter.
fn own(message: &[u8]) -> Option<(u32, IpNet)> {
    let (header, attributes) = AddressHeader::split(message)?;
    let (mut local, mut address) = (None, None);
    for attribute in attributes {
        match attribute.kind {
            IFA_LOCAL => local = ip(attribute),
            IFA_ADDRESS => address = ip(attribute),
            _ => {}
        }
    }
    let network = IpNet::new(local.or(address)?, header.prefix).ok()?;
    Some((header.index, network))
}

/// Address of either family, by its length.
pub(super) fn ip(attribute: Attribute<'_>) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(attribute.value).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(attribute.value).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_address_of_a_tunnel_is_used_and_ipv6_has_only_one() {
        let v6: IpAddr = "fd00::1".parse().unwrap();
        let IpAddr::V6(octets) = v6 else { panic!() };
        for (prefix, attributes, expected) in [
            (
                24,
                vec![(IFA_ADDRESS, vec![10, 0, 0, 2])],
                Some("10.0.0.2/24"),
            ),
            (
                32,
                vec![
                    (IFA_LOCAL, vec![10, 0, 0, 1]),
                    (IFA_ADDRESS, vec![10, 0, 0, 9]),
                ],
                Some("10.0.0.1/32"),
            ),
            (
                32,
                vec![
                    (IFA_ADDRESS, vec![10, 0, 0, 9]),
                    (IFA_LOCAL, vec![10, 0, 0, 1]),
                ],
                Some("10.0.0.1/32"),
            ),
            (
                64,
                vec![(IFA_ADDRESS, octets.octets().to_vec())],
                Some("fd00::1/64"),
            ),
            (24, vec![(IFA_ADDRESS, vec![10, 0, 0])], None),
            (33, vec![(IFA_ADDRESS, vec![10, 0, 0, 2])], None),
            (24, vec![], None),
        ] {
            let header = AddressHeader {
                family: 2,
                prefix,
                index: 7,
            };
            let mut message = header.bytes().to_vec();
            for (kind, value) in &attributes {
                Writer::new(&mut message).put(*kind, value);
            }
            let expected = expected.map(|network| (7, network.parse().unwrap()));
            assert_eq!(own(&message), expected, "{attributes:?}/{prefix}");
        }
    }
}
