//! Interfaces, in the namespace of the calling thread.

use std::io;

use super::route::{self, LinkHeader};

/// `include/uapi/linux/if_link.h`.
pub(super) const IFLA_IFNAME: u16 = 3;
pub(super) const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
/// `include/uapi/linux/if_arp.h`.
const ARPHRD_ETHER: u16 = 1;

/// Results of `read` for the message of each interface.
pub(super) fn of_all<T>(read: impl Fn(&[u8]) -> Option<T>) -> io::Result<Vec<T>> {
    let all = LinkHeader::default().bytes();
    let mut found = Vec::new();
    route::dump(
        route::RTM_GETLINK,
        &all,
        route::RTM_NEWLINK,
        &mut |_, message| found.extend(read(message)),
    )?;
    Ok(found)
}

/// Names of the interfaces without a kind: drivers of hardware, physical or virtual, create them.
pub(super) fn devices() -> io::Result<Vec<String>> {
    of_all(device)
}

fn device(message: &[u8]) -> Option<String> {
    let (header, attributes) = LinkHeader::split(message)?;
    if header.layer != ARPHRD_ETHER {
        return None;
    }
    let mut name = None;
    for attribute in attributes {
        match attribute.kind {
            IFLA_IFNAME => name = Some(attribute.text().into()),
            // The slave of a bond has this attribute, too, and no kind of its own.
            IFLA_LINKINFO if attribute.nested().any(|info| info.kind == IFLA_INFO_KIND) => {
                return None;
            }
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::attr::Writer;

    #[test]
    fn interface_with_a_kind_is_no_device() {
        const LOOPBACK: u16 = 772;
        const IFLA_INFO_SLAVE_KIND: u16 = 4;
        let name: fn(&mut Writer) = |writer| writer.text(IFLA_IFNAME, "eth0");
        let kind: fn(&mut Writer) =
            |writer| writer.nested(IFLA_LINKINFO, |infos| infos.text(IFLA_INFO_KIND, "veth"));
        let slave: fn(&mut Writer) = |writer| {
            writer.nested(IFLA_LINKINFO, |infos| {
                infos.text(IFLA_INFO_SLAVE_KIND, "bond")
            })
        };
        let eth0 = Some("eth0".to_owned());
        for (case, layer, attributes, expected) in [
            ("a device", ARPHRD_ETHER, vec![name], eth0.clone()),
            ("in a bond", ARPHRD_ETHER, vec![name, slave], eth0),
            ("a veth", ARPHRD_ETHER, vec![name, kind], None),
            ("its kind first", ARPHRD_ETHER, vec![kind, name], None),
            ("loopback", LOOPBACK, vec![name], None),
        ] {
            let header = LinkHeader {
                layer,
                ..LinkHeader::default()
            };
            let mut message = header.bytes().to_vec();
            for write in attributes {
                write(&mut Writer::new(&mut message));
            }
            assert_eq!(device(&message), expected, "{case}");
        }
    }
}
