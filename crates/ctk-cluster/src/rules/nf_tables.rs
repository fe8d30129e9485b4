//! Tables and generation of nf_tables in the network namespace of the calling thread, requested from the kernel over netlink
//! (`nf_tables_api.c`).
//!
//! `nft list tables` is not used: it loads every chain and rule before it prints the names, those of `iptables-nft` included.

use std::io;
use std::time::Duration;

use netlink_sys::constants::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};

/// `NFNL_SUBSYS_NFTABLES << 8`, and `NFT_MSG_*` in it.
const NEW_TABLE: u16 = 10 << 8;
const GET_TABLE: u16 = NEW_TABLE | 1;
const NEW_GENERATION: u16 = NEW_TABLE | 15;
const GET_GENERATION: u16 = NEW_TABLE | 16;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST`, `NLM_F_DUMP`, `NLM_F_DUMP_INTR`.
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const INTERRUPTED: u16 = 0x10;
/// `NFTA_TABLE_NAME` and `NFTA_GEN_ID`.
const FIRST_ATTRIBUTE: u16 = 1;
/// `NLA_TYPE_MASK`.
const TYPE_MASK: u16 = 0x3fff;
/// Lengths of a netlink header and of `struct nfgenmsg` behind it.
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;

/// Number of attempts at a dump, which is interrupted when a table is added or removed.
const MAX_ATTEMPTS: usize = 3;
/// Wait for a lost answer; the kernel answers at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Family of a table that can translate destinations of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFamily {
    Inet,
    Ip,
    Ip6,
}

impl TableFamily {
    /// `NFPROTO_*`.
    const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(TableFamily::Inet),
            2 => Some(TableFamily::Ip),
            10 => Some(TableFamily::Ip6),
            _ => None,
        }
    }

    /// Name of the family in `nft`.
    pub const fn name(self) -> &'static str {
        match self {
            TableFamily::Inet => "inet",
            TableFamily::Ip => "ip",
            TableFamily::Ip6 => "ip6",
        }
    }
}

/// A table of nf_tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTable {
    pub family: TableFamily,
    pub name: String,
}

/// Lists the tables of the families ip, ip6 and inet; none where the kernel has no nf_tables.
///
/// # Errors
/// No permission, or the tables change faster than they are listed.
pub fn tables() -> io::Result<Vec<KernelTable>> {
    for _ in 0..MAX_ATTEMPTS {
        let mut tables = Vec::new();
        let mut interrupted = false;
        let asked = ask(GET_TABLE, REQUEST | DUMP, |message| {
            interrupted |= message.flags & INTERRUPTED != 0;
            if message.kind == NEW_TABLE {
                tables.extend(table(message.body)?);
            }
            Ok(message.kind == DONE)
        });
        match asked {
            Ok(()) if interrupted => {}
            Ok(()) => return Ok(tables),
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(
        "they change faster than they can be listed",
    ))
}

/// Returns the generation, which every committed change of the namespace's rules raises; `None` where the kernel has no nf_tables.
///
/// # Errors
/// No permission.
pub fn generation() -> io::Result<Option<u32>> {
    let mut found = None;
    let asked = ask(GET_GENERATION, REQUEST, |message| {
        if message.kind == NEW_GENERATION {
            found = Some(number(message.body)?);
        }
        Ok(message.kind == NEW_GENERATION)
    });
    match asked {
        Ok(()) => Ok(found),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Error of nfnetlink where the module is neither loaded nor available.
fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// Sends one request and passes each answer to `each`, until it reports the last message.
fn ask(
    kind: u16,
    flags: u16,
    mut each: impl FnMut(&NftMessage<'_>) -> io::Result<bool>,
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    socket.send(&request(kind, flags), 0)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        if each_message(&bytes, &mut each)? {
            return Ok(());
        }
    }
}

/// Builds a netlink header (length, type, flags, sequence, port), followed by family and version.
fn request(kind: u16, flags: u16) -> Vec<u8> {
    let length = (HEADER + FAMILY_HEADER) as u32;
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8 + FAMILY_HEADER]);
    bytes
}

struct NftMessage<'b> {
    kind: u16,
    flags: u16,
    body: &'b [u8],
}

/// Passes on the messages of a datagram. Returns whether one of them was the last.
///
/// # Errors
/// Those of the kernel and of `each`, and `InvalidData` for a malformed message.
fn each_message(
    datagram: &[u8],
    each: &mut impl FnMut(&NftMessage<'_>) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut rest = datagram;
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let [a, b, c, d, e, f, g, h, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let body = rest.get(HEADER..length).ok_or_else(malformed)?;
        let message = NftMessage {
            kind: u16::from_ne_bytes([e, f]),
            flags: u16::from_ne_bytes([g, h]),
            body,
        };
        // A dump that fails midway ends with its error in NLMSG_DONE.
        if matches!(message.kind, ERROR | DONE) {
            refused(body)?;
        }
        if each(&message)? {
            return Ok(true);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Negative `errno` at the start of `NLMSG_ERROR` and `NLMSG_DONE`.
fn refused(body: &[u8]) -> io::Result<()> {
    let (code, _) = body.split_first_chunk::<4>().ok_or_else(malformed)?;
    match i32::from_ne_bytes(*code) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

/// Decodes the table of `NFT_MSG_NEWTABLE`; `None` for a family that is not listed.
fn table(body: &[u8]) -> io::Result<Option<KernelTable>> {
    let Some(family) = body.first().copied().and_then(TableFamily::of) else {
        return Ok(None);
    };
    let name = first_attribute(body)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Some(KernelTable {
        family,
        name: String::from_utf8_lossy(name).into_owned(),
    }))
}

/// Decodes `NFTA_GEN_ID`.
fn number(body: &[u8]) -> io::Result<u32> {
    let (bytes, _) = first_attribute(body)?
        .split_first_chunk::<4>()
        .ok_or_else(malformed)?;
    Ok(u32::from_be_bytes(*bytes))
}

/// Value of the attribute that holds the name of a table or the generation.
fn first_attribute(body: &[u8]) -> io::Result<&[u8]> {
    let mut rest = body.get(FAMILY_HEADER..).ok_or_else(malformed)?;
    while let Some(([a, b, c, d], _)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let value = rest.get(4..length).ok_or_else(malformed)?;
        if u16::from_ne_bytes([*c, *d]) & TYPE_MASK == FIRST_ATTRIBUTE {
            return Ok(value);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Err(malformed())
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = HEADER + body.len();
        let mut bytes = (length as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len();
        let mut bytes = (length as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    fn body(family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![family, 0, 0, 0];
        bytes.extend(attributes.concat());
        bytes
    }

    /// Kinds of the messages, and whether the last one was seen.
    fn kinds(datagram: &[u8]) -> io::Result<(Vec<u16>, bool)> {
        let mut kinds = Vec::new();
        let ended = each_message(datagram, &mut |message| {
            kinds.push(message.kind);
            Ok(message.kind == DONE)
        })?;
        Ok((kinds, ended))
    }

    #[test]
    fn a_table_is_named_with_its_family() {
        let named = |family| {
            let flags = attribute(2, &[0; 4]);
            table(&body(family, &[flags, attribute(1, b"kube-proxy\0")])).unwrap()
        };
        for (number, family) in [
            (1, TableFamily::Inet),
            (2, TableFamily::Ip),
            (10, TableFamily::Ip6),
        ] {
            let found = named(number).unwrap();
            assert_eq!((found.family, &*found.name), (family, "kube-proxy"));
        }
        assert_eq!(named(5), None, "netdev translates nothing");
        assert!(table(&body(2, &[])).is_err(), "a table has a name");
    }

    #[test]
    fn a_generation_is_in_network_order() {
        let generation = body(0, &[attribute(1, &[0, 0, 1, 2]), attribute(2, &[0; 4])]);
        assert_eq!(number(&generation).unwrap(), 258);
        assert!(number(&body(0, &[attribute(1, &[0, 1])])).is_err());
    }

    #[test]
    fn a_dump_ends_at_its_last_message_or_at_an_error_of_the_kernel() {
        let new = message(NEW_TABLE, &body(2, &[attribute(1, b"nat\0")]));
        let done = message(DONE, &[0; 4]);
        assert_eq!(kinds(&new).unwrap(), (vec![NEW_TABLE], false));
        let whole = kinds(&[new.clone(), done].concat()).unwrap();
        assert_eq!(whole, (vec![NEW_TABLE, DONE], true));
        let refused = |kind| kinds(&[new.clone(), message(kind, &(-1i32).to_ne_bytes())].concat());
        for kind in [ERROR, DONE] {
            let error = refused(kind).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{kind}");
        }
        let absent = kinds(&message(ERROR, &(-22i32).to_ne_bytes())).unwrap_err();
        assert!(is_absent(&absent));
        let mut cut = message(NEW_TABLE, &[0; 8]);
        cut.pop();
        assert!(kinds(&cut).is_err());
    }

    proptest! {
        #[test]
        fn any_datagram_is_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = each_message(&bytes, &mut |message| {
                let _ = (table(message.body), number(message.body));
                Ok(false)
            });
        }
    }
}
