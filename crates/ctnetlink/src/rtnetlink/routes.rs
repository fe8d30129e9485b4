//! Routes of the main table, in the namespace of the calling thread.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use rustix::io::Errno;
use rustix::net::{AddressFamily, netdevice};

use super::address::ip;
use super::route::{self, RouteHeader};
use crate::codec::attr::Attribute;

/// `include/uapi/linux/rtnetlink.h`.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RT_TABLE_DEFAULT: u8 = 253;
const RT_TABLE_MAIN: u8 = 254;
const RTN_UNICAST: u8 = 1;
/// `include/uapi/linux/fib_rules.h`.
const FR_ACT_TO_TBL: u8 = 1;

/// Most routes that are kept.
pub const MAX_ROUTES: usize = 10_000;

/// Routes of the main table, as far as they tell the interface of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// Routes in the kernel's order.
    pub routes: Vec<Route>,
    /// The routes tell nothing: rules choose other tables for some packets (`ip rule`, VRF), or the table has more than
    /// `MAX_ROUTES` routes.
    pub undecided: bool,
}

/// Route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination; `0.0.0.0/0` or `::/0` for a default route.
    pub destination: IpNet,
    /// Interface; `None` for a route of several next hops, of a next hop object, or that refuses packets.
    pub interface: Option<String>,
}

impl Routes {
    /// Names the interfaces of the most specific routes to an address, whatever their metrics. Empty without a route. `None`
    /// when the routes do not tell.
    pub fn interfaces_to(&self, address: IpAddr) -> Option<BTreeSet<&str>> {
        if self.undecided {
            return None;
        }
        let routes = self.routes.iter();
        let covering: Vec<&Route> = routes
            .filter(|route| route.destination.contains(&address))
            .collect();
        let longest = covering.iter().map(|r| r.destination.prefix_len()).max();
        let best = covering
            .iter()
            .filter(|route| Some(route.destination.prefix_len()) == longest);
        best.map(|route| route.interface.as_deref()).collect()
    }
}

pub(super) fn routes() -> io::Result<Routes> {
    let all = RouteHeader::default().bytes();
    let mut found = Routes::default();
    route::dump(
        route::RTM_GETROUTE,
        &all,
        route::RTM_NEWROUTE,
        &mut |socket, message| {
            if let Some((destination, index)) = main(message) {
                if found.routes.len() == MAX_ROUTES {
                    found.undecided = true;
                    return;
                }
                let interface = index.and_then(|i| netdevice::index_to_name(socket, i).ok());
                found.routes.push(Route {
                    destination,
                    interface,
                });
            }
        },
    )?;
    let rules = route::dump(
        route::RTM_GETRULE,
        &all,
        route::RTM_NEWRULE,
        &mut |_, message| found.undecided |= chooses(message),
    );
    match rules {
        // A kernel without CONFIG_IP_MULTIPLE_TABLES has no rules.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {}
        other => other?,
    }
    Ok(found)
}

/// Destination of a route of the main table, and the index of its interface.
fn main(message: &[u8]) -> Option<(IpNet, Option<u32>)> {
    let (header, attributes) = RouteHeader::split(message)?;
    if header.table != RT_TABLE_MAIN {
        return None;
    }
    let (mut destination, mut index) = (any(header.family)?, None);
    for attribute in attributes {
        match attribute.kind {
            RTA_DST => destination = ip(attribute)?,
            RTA_OIF => index = number(attribute),
            _ => {}
        }
    }
    // A route for some sources or services only decides nothing for the others.
    let plain = header.kind == RTN_UNICAST && header.source_prefix == 0 && header.tos == 0;
    let destination = IpNet::new(destination, header.prefix).ok()?.trunc();
    Some((destination, index.filter(|_| plain)))
}

fn any(family: u8) -> Option<IpAddr> {
    match AddressFamily::from_raw(family.into()) {
        AddressFamily::INET => Some(IpAddr::from([0_u8; 4])),
        AddressFamily::INET6 => Some(IpAddr::from([0_u8; 16])),
        _ => None,
    }
}

fn number(attribute: Attribute<'_>) -> Option<u32> {
    let bytes = <[u8; 4]>::try_from(attribute.value).ok()?;
    Some(u32::from_ne_bytes(bytes))
}

/// Whether a rule chooses another table than those of every namespace. The header of a rule (`struct fib_rule_hdr`) has the
/// layout of a route's, with the action at the place of the type.
fn chooses(message: &[u8]) -> bool {
    let Some((header, _)) = RouteHeader::split(message) else {
        return true;
    };
    let usual = header.table >= RT_TABLE_DEFAULT && header.kind == FR_ACT_TO_TBL;
    any(header.family).is_some() && !usual
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::attr::Writer;

    fn message(header: RouteHeader, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = header.bytes().to_vec();
        for (kind, value) in attributes {
            Writer::new(&mut message).put(*kind, value);
        }
        message
    }

    #[test]
    fn routes_of_the_main_table_are_read() {
        let index = 7_u32.to_ne_bytes();
        let route = RouteHeader {
            family: 2,
            prefix: 24,
            table: RT_TABLE_MAIN,
            kind: RTN_UNICAST,
            ..RouteHeader::default()
        };
        let to: (u16, &[u8]) = (RTA_DST, &[192, 0, 2, 0]);
        let by: (u16, &[u8]) = (RTA_OIF, &index);
        let default = RouteHeader { prefix: 0, ..route };
        let v6 = RouteHeader {
            family: 10,
            ..default
        };
        for (header, attributes, expected) in [
            (route, &[to, by][..], Some(("192.0.2.0/24", Some(7)))),
            (route, &[to], Some(("192.0.2.0/24", None))),
            (default, &[by], Some(("0.0.0.0/0", Some(7)))),
            (v6, &[by], Some(("::/0", Some(7)))),
            (
                RouteHeader {
                    table: 255,
                    ..route
                },
                &[to, by],
                None,
            ),
            (
                RouteHeader { kind: 6, ..route },
                &[to, by],
                Some(("192.0.2.0/24", None)),
            ),
            (
                RouteHeader { tos: 8, ..route },
                &[to, by],
                Some(("192.0.2.0/24", None)),
            ),
            (
                RouteHeader {
                    family: 128,
                    ..route
                },
                &[to, by],
                None,
            ),
        ] {
            let expected = expected.map(|(net, index)| (net.parse().unwrap(), index));
            assert_eq!(main(&message(header, attributes)), expected, "{header:?}");
        }
        assert_eq!(main(&[0; 11]), None);
    }

    #[test]
    fn a_rule_to_another_table_makes_the_main_table_undecided() {
        for (family, table, kind, expected) in [
            (2, 255, FR_ACT_TO_TBL, false),
            (2, 254, FR_ACT_TO_TBL, false),
            (10, 253, FR_ACT_TO_TBL, false),
            (2, 100, FR_ACT_TO_TBL, true),
            // l3mdev has no table of its own.
            (2, 0, FR_ACT_TO_TBL, true),
            (2, 254, 6, true),
            (128, 0, FR_ACT_TO_TBL, false),
        ] {
            let header = RouteHeader {
                family,
                table,
                kind,
                ..RouteHeader::default()
            };
            assert_eq!(chooses(&message(header, &[])), expected, "{header:?}");
        }
        assert!(chooses(&[]));
    }

    #[test]
    fn the_most_specific_routes_tell_the_interface() {
        let route = |(to, by): (&str, &str)| Route {
            destination: to.parse().unwrap(),
            interface: (!by.is_empty()).then(|| by.to_owned()),
        };
        let all = [
            ("0.0.0.0/0", "wan"),
            ("192.168.50.0/24", "br-lan"),
            ("10.0.0.0/8", "wan"),
            ("10.0.0.0/8", "lte"),
            ("10.9.0.0/16", ""),
            ("2001:db8::/32", "br-lan"),
        ];
        let mut routes = Routes {
            routes: all.map(route).into(),
            undecided: false,
        };
        for (address, expected) in [
            ("198.51.100.1", Some(&["wan"][..])),
            ("192.168.50.9", Some(&["br-lan"])),
            ("10.1.1.1", Some(&["lte", "wan"])),
            ("10.9.1.1", None),
            ("2001:db8::9", Some(&["br-lan"])),
            ("fd00::1", Some(&[])),
        ] {
            let expected = expected.map(|names| names.iter().copied().collect());
            let found = routes.interfaces_to(address.parse().unwrap());
            assert_eq!(found, expected, "{address}");
        }
        routes.undecided = true;
        assert_eq!(routes.interfaces_to("192.168.50.9".parse().unwrap()), None);
    }
}
