//! Interfaces of the namespace that the calling thread is in. sysfs would show those of whoever mounted it.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkLayerType, LinkMessage};

use super::address;

/// A link without a kind was made by a driver of hardware, or of a hypervisor's.
pub(super) fn devices() -> io::Result<Vec<String>> {
    let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut found = Vec::new();
    address::dump(all, &mut |_, message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            found.extend(device(link));
        }
    })?;
    Ok(found)
}

fn device(link: LinkMessage) -> Option<String> {
    if link.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let mut name = None;
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(own) => name = Some(own),
            // The slave of a bond has infos, too, and no kind of its own.
            LinkAttribute::LinkInfo(infos) if infos.iter().any(is_kind) => return None,
            _ => {}
        }
    }
    name
}

fn is_kind(info: &LinkInfo) -> bool {
    matches!(info, LinkInfo::Kind(_))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::InfoKind;

    use super::*;

    fn link(layer: LinkLayerType, attributes: Vec<LinkAttribute>) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.link_layer_type = layer;
        link.attributes = attributes;
        link
    }

    #[test]
    fn what_the_kernel_made_out_of_nothing_is_no_device() {
        let name = || LinkAttribute::IfName("eth0".to_owned());
        let kind = |kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        let slave = LinkAttribute::LinkInfo(Vec::new());
        let eth0 = Some("eth0".to_owned());
        for (layer, attributes, expected) in [
            (LinkLayerType::Ether, vec![name()], eth0.clone()),
            (LinkLayerType::Ether, vec![name(), slave], eth0),
            (
                LinkLayerType::Ether,
                vec![name(), kind(InfoKind::Veth)],
                None,
            ),
            (
                LinkLayerType::Ether,
                vec![kind(InfoKind::Vlan), name()],
                None,
            ),
            (LinkLayerType::Loopback, vec![name()], None),
        ] {
            let case = format!("{attributes:?}");
            assert_eq!(device(link(layer, attributes)), expected, "{case}");
        }
    }
}
