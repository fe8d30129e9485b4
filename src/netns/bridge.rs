//! Ports of bridges in the namespace that the calling thread is in, over route netlink: `/sys/class/net` shows the namespace
//! that sysfs was mounted in, whatever thread looks.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridgePort, InfoPortData, LinkAttribute, LinkInfo, LinkMessage,
};

use super::address::dump;

/// An interface that is enslaved to a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePort {
    pub interface: String,
    /// `hairpin_mode`: a packet may leave through the port that it came from.
    pub hairpin: bool,
}

pub(super) fn ports() -> io::Result<Vec<BridgePort>> {
    let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut found = Vec::new();
    dump(all, &mut |_, message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            found.extend(port(&link));
        }
    })?;
    Ok(found)
}

fn port(link: &LinkMessage) -> Option<BridgePort> {
    let name = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
    let infos = link
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
    let hairpin = infos.flatten().find_map(|info| match info {
        LinkInfo::PortData(InfoPortData::BridgePort(settings)) => {
            settings.iter().find_map(|setting| match setting {
                InfoBridgePort::HairpinMode(on) => Some(*on),
                _ => None,
            })
        }
        _ => None,
    })?;
    Some(BridgePort {
        interface: name.unwrap_or_else(|| format!("#{}", link.header.index)),
        hairpin,
    })
}
