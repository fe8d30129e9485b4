//! Interfaces, addresses and bridge ports of a network namespace, over route netlink.
//!
//! sysfs shows the namespace that it was mounted in, whatever thread looks; route netlink shows the one that is meant.

mod address;
mod bridge;
mod link;
mod route;

use std::io;
use std::net::IpAddr;

pub use address::LocalAddress;
pub use bridge::BridgePort;

use crate::netns::{Netns, NetnsError};

/// Gives the loopback interface of `netns` an address of its own (/32 or /128) and brings it up. For namespaces that the
/// program made.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered or the kernel refuses.
pub fn add_loopback_address(netns: &Netns, address: IpAddr) -> Result<(), NetnsError> {
    let what = format!(
        "adding {address} to the loopback interface of {}",
        netns.label()
    );
    within(netns, what, || address::add_to_loopback(address))
}

/// Names of the interfaces that are a device of their own, not one that the kernel made (veth, bridge, vlan, tunnel,
/// loopback).
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered or the kernel does not answer.
pub fn devices(netns: &Netns) -> Result<Vec<String>, NetnsError> {
    within(
        netns,
        format!("interfaces of {}", netns.label()),
        link::devices,
    )
}

/// Every address on an interface, in the kernel's order.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered or the kernel does not answer.
pub fn local_addresses(netns: &Netns) -> Result<Vec<LocalAddress>, NetnsError> {
    within(
        netns,
        format!("local addresses of {}", netns.label()),
        address::local,
    )
}

/// Every interface that is a port of a bridge.
///
/// # Errors
/// [`NetnsError`] when the namespace cannot be entered or the kernel does not answer.
pub fn bridge_ports(netns: &Netns) -> Result<Vec<BridgePort>, NetnsError> {
    within(
        netns,
        format!("bridge ports of {}", netns.label()),
        bridge::ports,
    )
}

fn within<T: Send>(
    netns: &Netns,
    what: String,
    body: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, NetnsError> {
    netns
        .run(body)?
        .map_err(|error| NetnsError::Failed { what, error })
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
