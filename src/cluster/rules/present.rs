//! Whether this network namespace can hold rules at all, asked of the kernel: running the tools takes ten times as long as
//! a small listing, and most machines that are no node have nothing to show.

use std::fs;
use std::io;

use netlink_sys::constants::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

/// `NFNL_SUBSYS_NFTABLES << 8`, and `NFT_MSG_GETTABLE` in it; `NFT_MSG_NEWTABLE` is 0.
const NEW_TABLE: u16 = 10 << 8;
const GET_TABLE: u16 = NEW_TABLE | 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// inet, ip, ip6.
const FAMILIES: [u8; 3] = [1, 2, 10];

/// False only where it is certain that there are neither tables of nftables (iptables-nft's among them), nor a nat table of
/// iptables-legacy, nor IPVS. Of the calling thread's namespace.
pub fn can_be() -> bool {
    let file = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let legacy = |name: &str| match file(name) {
        Ok(text) => text.lines().any(|table| table == "nat"),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    let balanced = || match file("ip_vs") {
        // The title is there without any server.
        Ok(text) => text.lines().nth(3).is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    legacy("ip_tables_names")
        || legacy("ip6_tables_names")
        || balanced()
        || has_tables().unwrap_or(true)
}

/// nf_tables has a table that can translate.
fn has_tables() -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(), 0)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        if let Some(answer) = answer(&bytes)? {
            return Ok(answer);
        }
    }
}

/// A dump of all tables of all families: a netlink header (length, type, flags, sequence, port), and the family with the
/// version behind it.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20);
    bytes.extend(20u32.to_ne_bytes());
    bytes.extend(GET_TABLE.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend([0; 12]);
    bytes
}

/// What a datagram of the dump tells; `None` when the next one has to.
fn answer(datagram: &[u8]) -> io::Result<Option<bool>> {
    let mut rest = datagram;
    while let Some((header, _)) = rest.split_first_chunk::<16>() {
        let [a, b, c, d, e, f, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let Some(body) = rest.get(16..length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match (u16::from_ne_bytes([e, f]), body.first()) {
            (DONE, _) => return Ok(Some(false)),
            // Not permitted, or no nf_tables in this kernel: the tools know.
            (ERROR, _) => return Err(io::ErrorKind::Other.into()),
            (NEW_TABLE, Some(family)) if FAMILIES.contains(family) => return Ok(Some(true)),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn only_the_end_of_the_dump_shows_that_there_is_no_table() {
        let (netdev, ip6) = (
            message(NEW_TABLE, &[5, 0, 0, 0]),
            message(NEW_TABLE, &[10, 0, 0, 0]),
        );
        let done = message(DONE, &[0; 4]);
        assert_eq!(answer(&netdev).unwrap(), None);
        assert_eq!(
            answer(&[netdev.clone(), done.clone()].concat()).unwrap(),
            Some(false)
        );
        assert_eq!(answer(&[netdev, ip6, done].concat()).unwrap(), Some(true));
        assert!(answer(&message(ERROR, &[0xff; 4])).is_err());
        assert!(answer(&[200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn any_datagram_is_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = answer(&bytes);
        }
    }
}
