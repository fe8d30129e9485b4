//! Interfaces, addresses and bridge ports of a network namespace, over route netlink.
//!
//! sysfs shows the namespace that it was mounted in, whatever thread reads it. Route netlink shows the namespace of the socket.

mod address;
mod bridge;
mod link;
mod route;
mod routes;

use std::fmt;
use std::io;
use std::net::IpAddr;

pub use address::LocalAddress;
pub use bridge::BridgePort;
pub use routes::{Route, Routes};

use crate::netns::{Netns, NetnsError, NetnsName};

/// Request that a [`RtnetlinkError`] is about. Displayed as a phrase: "local addresses".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Request {
    /// [`devices`].
    Devices,
    /// [`local_addresses`].
    LocalAddresses,
    /// [`bridge_ports`].
    BridgePorts,
    /// [`routes()`].
    Routes,
    /// [`add_loopback_address`] with this address.
    AddLoopbackAddress(IpAddr),
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Devices => f.write_str("interfaces"),
            Request::LocalAddresses => f.write_str("local addresses"),
            Request::BridgePorts => f.write_str("bridge ports"),
            Request::Routes => f.write_str("routes"),
            Request::AddLoopbackAddress(address) => {
                write!(f, "adding {address} to the loopback interface")
            }
        }
    }
}

/// Error of a request to route netlink. The text does not repeat [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RtnetlinkError {
    /// The network namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The kernel refused the request, or its answer is malformed.
    #[error("{request} of {netns}")]
    Failed {
        /// Request that failed.
        request: Request,
        /// Namespace of the request.
        netns: NetnsName,
        /// Error of the system.
        source: io::Error,
    },
}

/// Adds an address (with the prefix length 32 or 128) to the loopback interface of `netns` and brings the interface up. For
/// namespaces that the program created. Needs CAP_NET_ADMIN.
///
/// # Errors
/// [`RtnetlinkError`] when the namespace cannot be entered or the kernel refuses.
pub fn add_loopback_address(netns: &Netns, address: IpAddr) -> Result<(), RtnetlinkError> {
    request(netns, Request::AddLoopbackAddress(address), || {
        address::add_to_loopback(address)
    })
}

/// Names of the Ethernet interfaces of physical or virtual hardware. Interfaces with a kind of the kernel (veth, bridge, vlan,
/// tunnels, `IFLA_INFO_KIND`) and the loopback interface are left out. Needs no capability.
///
/// # Errors
/// [`RtnetlinkError`] when the namespace cannot be entered or the kernel does not answer.
pub fn devices(netns: &Netns) -> Result<Vec<String>, RtnetlinkError> {
    request(netns, Request::Devices, link::devices)
}

/// Addresses of all interfaces, in the kernel's order. Needs no capability.
///
/// # Errors
/// [`RtnetlinkError`] when the namespace cannot be entered or the kernel does not answer.
pub fn local_addresses(netns: &Netns) -> Result<Vec<LocalAddress>, RtnetlinkError> {
    request(netns, Request::LocalAddresses, address::local)
}

/// Interfaces that are a port of a bridge, in the kernel's order. Needs no capability.
///
/// # Errors
/// [`RtnetlinkError`] when the namespace cannot be entered or the kernel does not answer.
pub fn bridge_ports(netns: &Netns) -> Result<Vec<BridgePort>, RtnetlinkError> {
    request(netns, Request::BridgePorts, bridge::ports)
}

/// Routes of the main table, and whether rules choose other tables. Needs no capability.
///
/// # Errors
/// [`RtnetlinkError`] when the namespace cannot be entered or the kernel does not answer.
pub fn routes(netns: &Netns) -> Result<Routes, RtnetlinkError> {
    request(netns, Request::Routes, routes::routes)
}

fn request<T: Send>(
    netns: &Netns,
    request: Request,
    body: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, RtnetlinkError> {
    netns.run(body)?.map_err(|source| RtnetlinkError::Failed {
        request,
        netns: netns.name().clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_local_addresses() {
        let all = local_addresses(&Netns::current()).unwrap();
        let loopback = all.iter().filter(|a| a.address().is_loopback());
        assert!(loopback.clone().count() > 0 || all.is_empty(), "{all:?}");
        for address in loopback {
            assert_eq!(address.interface, "lo");
        }
    }
}
