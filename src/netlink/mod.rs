//! The kernel's table over ctnetlink.

use std::net::IpAddr;

use crate::flow::Family;

/// A 32-bit value compared under a mask, as the kernel compares marks and status bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masked {
    pub value: u32,
    pub mask: u32,
}

/// Exact values that a tuple must have (`CTA_FILTER`, Linux 5.8+). Ports need `protocol`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TupleMatch {
    pub src: Option<IpAddr>,
    pub dst: Option<IpAddr>,
    pub protocol: Option<u8>,
    pub sport: Option<u16>,
    pub dport: Option<u16>,
}

/// What the kernel is asked to leave out of a dump. Older kernels ignore parts of it silently, so whoever asks must test
/// every entry again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpFilter {
    /// `None` = both families, in one dump; a tuple match needs one.
    pub family: Option<Family>,
    pub mark: Option<Masked>,
    pub status: Option<Masked>,
    /// Linux 6.8+.
    pub zone: Option<u16>,
    pub original: TupleMatch,
    pub reply: TupleMatch,
}
