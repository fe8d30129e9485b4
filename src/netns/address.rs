//! Addresses on the interfaces of the namespace that the calling thread is in, over route netlink.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// An address on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalAddress {
    /// `eth0`; `#7` when the interface went away meanwhile.
    pub interface: String,
    /// The address with its prefix length, host bits kept.
    pub network: IpNet,
}

impl LocalAddress {
    pub fn address(&self) -> IpAddr {
        self.network.addr()
    }
}

pub(super) fn local() -> io::Result<Vec<LocalAddress>> {
    let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let mut found = Vec::new();
    dump(all, &mut |socket, message| {
        if let RouteNetlinkMessage::NewAddress(message) = message
            && let Some(network) = own(&message)
        {
            let index = message.header.index;
            let interface = rustix::net::netdevice::index_to_name(socket, index)
                .unwrap_or_else(|_| format!("#{index}"));
            found.push(LocalAddress { interface, network });
        }
    })?;
    Ok(found)
}

/// Gives every message of the answer to `each`, with the socket that it came on.
pub(super) fn dump(
    request: RouteNetlinkMessage,
    each: &mut dyn FnMut(&Socket, RouteNetlinkMessage),
) -> io::Result<()> {
    let socket = ask(request, NLM_F_DUMP)?;
    let mut buffer = Vec::with_capacity(32 * 1024);
    loop {
        buffer.clear();
        match socket.recv(&mut buffer, 0) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if datagram(&socket, &buffer, each)? {
            return Ok(());
        }
    }
}

/// Gives the loopback interface an address of its own and brings it up, in the namespace of the calling thread.
pub(super) fn add_to_loopback(address: IpAddr) -> io::Result<()> {
    // The loopback device is the first of every namespace (`loopback_net_init`).
    const LOOPBACK: u32 = 1;
    let mut message = AddressMessage::default();
    message.header.index = LOOPBACK;
    message.header.prefix_len = IpNet::from(address).prefix_len();
    message.header.family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ];
    change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE)?;
    let mut link = LinkMessage::default();
    link.header.index = LOOPBACK;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    change(RouteNetlinkMessage::SetLink(link), 0)
}

/// Sends a request to change something and waits for its acknowledgement.
fn change(request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let socket = ask(request, NLM_F_ACK | flags)?;
    let (bytes, _) = socket.recv_from_full()?;
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes);
    match message.map_err(io::Error::other)?.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Ok(()),
    }
}

/// A socket on which the answer to `request` comes.
fn ask(request: RouteNetlinkMessage, flags: u16) -> io::Result<Socket> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    Ok(socket)
}

/// Whether the dump is over.
fn datagram(
    socket: &Socket,
    mut bytes: &[u8],
    each: &mut dyn FnMut(&Socket, RouteNetlinkMessage),
) -> io::Result<bool> {
    while !bytes.is_empty() {
        let header = NetlinkBuffer::new_checked(bytes).map_err(io::Error::other)?;
        let length = (header.length() as usize).next_multiple_of(4);
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
        match message.map_err(io::Error::other)?.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(message) => each(socket, message),
            _ => {}
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// `IFA_LOCAL` is this side of a point-to-point link, where `IFA_ADDRESS` is the other; IPv6 sends the latter only.
fn own(message: &AddressMessage) -> Option<IpNet> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => {
                address = Some(*local);
                break;
            }
            AddressAttribute::Address(a) => address = Some(*a),
            _ => {}
        }
    }
    IpNet::new(address?, message.header.prefix_len).ok()
}
