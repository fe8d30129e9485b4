//! What a dump asks the kernel to leave out, and the part of it that kernels get right.

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

/// Which list of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableKind {
    #[default]
    Conntrack,
    /// Deleted, and kept until listeners got the event of it.
    Dying,
    /// Empty since Linux 6.1.
    Unconfirmed,
}

impl DumpFilter {
    /// The part of this that is worth asking the kernel for: what it would refuse or get wrong is left out. A dump asks for
    /// no more than this, whatever it is given.
    ///
    /// * IPv6 addresses are never asked for: `ctnetlink_filter_match_tuple` compares them the wrong way round and leaves out
    ///   exactly the entries that are wanted (Linux 5.8 to 6.18 at least).
    /// * Tuples need a family (else EOPNOTSUPP), an address needs to be of that family, ports need a protocol (else EINVAL).
    ///   Ports of protocols besides TCP and UDP are taken and not compared.
    /// * A status mask of 0 gives EINVAL.
    /// * A zone is compared with the entry's zone id whatever direction that holds for (`nf_ct_zone_equal_any`): zone 5 finds
    ///   entries whose zone 5 holds for one direction only, and zone 0 does not find these. That is how [`crate::flow::Zone`]
    ///   has it, so a zone may be asked for. Kernels before 6.8 ignore it.
    #[must_use]
    pub fn kernel_part(&self) -> DumpFilter {
        DumpFilter {
            family: self.family,
            mark: self.mark,
            status: self.status.filter(|status| status.mask != 0),
            zone: self.zone,
            original: self.original.kernel_part(self.family),
            reply: self.reply.kernel_part(self.family),
        }
    }

    /// This without everything but the family.
    #[must_use]
    pub fn family_only(&self) -> DumpFilter {
        DumpFilter {
            family: self.family,
            ..DumpFilter::default()
        }
    }
}

impl TupleMatch {
    fn kernel_part(self, family: Option<Family>) -> TupleMatch {
        let Some(family) = family else {
            return TupleMatch::default();
        };
        let address =
            |wanted: Option<IpAddr>| wanted.filter(|a| a.is_ipv4() && family == Family::Ipv4);
        let port = |wanted: Option<u16>| wanted.filter(|_| self.protocol.is_some());
        TupleMatch {
            src: address(self.src),
            dst: address(self.dst),
            protocol: self.protocol,
            sport: port(self.sport),
            dport: port(self.dport),
        }
    }
}
