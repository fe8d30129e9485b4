//! Addresses on the interfaces of the namespace that the calling thread is in, over route netlink.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// An address on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalAddress {
    /// `eth0`; `#7` when the interface went away meanwhile.
    pub interface: String,
    pub address: IpAddr,
}

pub(super) fn local() -> io::Result<Vec<LocalAddress>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(), 0)?;
    let mut found = Vec::new();
    let mut buffer = Vec::with_capacity(32 * 1024);
    loop {
        buffer.clear();
        match socket.recv(&mut buffer, 0) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if datagram(&socket, &buffer, &mut found)? {
            return Ok(found);
        }
    }
}

fn request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(all));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Whether the dump is over.
fn datagram(socket: &Socket, mut bytes: &[u8], found: &mut Vec<LocalAddress>) -> io::Result<bool> {
    while !bytes.is_empty() {
        let header = NetlinkBuffer::new_checked(bytes).map_err(io::Error::other)?;
        let length = (header.length() as usize).next_multiple_of(4);
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
        match message.map_err(io::Error::other)?.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(message)) => {
                if let Some(address) = own(&message) {
                    let index = message.header.index;
                    let interface = rustix::net::netdevice::index_to_name(socket, index)
                        .unwrap_or_else(|_| format!("#{index}"));
                    found.push(LocalAddress { interface, address });
                }
            }
            _ => {}
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// `IFA_LOCAL` is this side of a point-to-point link, where `IFA_ADDRESS` is the other; IPv6 sends the latter only.
fn own(message: &AddressMessage) -> Option<IpAddr> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => return Some(*local),
            AddressAttribute::Address(a) => address = Some(*a),
            _ => {}
        }
    }
    address
}
