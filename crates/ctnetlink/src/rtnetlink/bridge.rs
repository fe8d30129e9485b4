//! Ports of bridges, in the namespace of the calling thread.

use std::io;

use super::link::{self, IFLA_IFNAME, IFLA_LINKINFO};
use super::route::LinkHeader;

/// `include/uapi/linux/if_link.h`.
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_MODE: u16 = 4;

/// Interface that is a port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePort {
    /// Name of the interface; `#7`, its index, when the kernel sends none.
    pub interface: String,
    /// `hairpin_mode` (`IFLA_BRPORT_MODE`): a packet may leave through the port that it arrived on.
    pub hairpin: bool,
}

pub(super) fn ports() -> io::Result<Vec<BridgePort>> {
    link::of_all(port)
}

fn port(message: &[u8]) -> Option<BridgePort> {
    let (header, attributes) = LinkHeader::split(message)?;
    let (mut name, mut bridge, mut hairpin) = (None, false, None);
    for attribute in attributes {
        match attribute.kind {
            IFLA_IFNAME => name = Some(attribute.text().into()),
            IFLA_LINKINFO => {
                for info in attribute.nested() {
                    match info.kind {
                        IFLA_INFO_SLAVE_KIND => bridge = &*info.text() == "bridge",
                        IFLA_INFO_SLAVE_DATA => {
                            let mode = info.nested().find(|a| a.kind == IFLA_BRPORT_MODE);
                            hairpin = mode.and_then(|mode| mode.u8()).map(|mode| mode != 0);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(BridgePort {
        interface: name.unwrap_or_else(|| format!("#{}", header.index)),
        hairpin: hairpin.filter(|_| bridge)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::attr::Writer;

    #[test]
    fn bridge_slave_is_a_port_and_bond_slave_is_not() {
        for (slave_of, mode, expected) in [
            ("bridge", Some(1), Some(true)),
            ("bridge", Some(0), Some(false)),
            ("bridge", None, None),
            ("bond", Some(1), None),
        ] {
            let mut message = LinkHeader::default().bytes().to_vec();
            let mut writer = Writer::new(&mut message);
            writer.text(IFLA_IFNAME, "veth0");
            writer.nested(IFLA_LINKINFO, |infos| {
                infos.text(IFLA_INFO_SLAVE_KIND, slave_of);
                infos.nested(IFLA_INFO_SLAVE_DATA, |data| {
                    data.u8(1, 3);
                    if let Some(mode) = mode {
                        data.u8(IFLA_BRPORT_MODE, mode);
                    }
                });
            });
            let expected = expected.map(|hairpin| BridgePort {
                interface: "veth0".to_owned(),
                hairpin,
            });
            assert_eq!(port(&message), expected, "{slave_of} {mode:?}");
        }
    }
}
