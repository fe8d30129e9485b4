//! Filters of a dump, and the part of them that kernels apply correctly.

use std::net::IpAddr;

use crate::flow::Family;

/// Value that is compared under a mask: `have & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masked {
    /// Expected value. Bits outside the mask make the filter match nothing.
    pub value: u32,
    /// Bits that are compared.
    pub mask: u32,
}

/// Exact values of a tuple (`CTA_FILTER`, Linux 5.8 and later). Ports need `protocol`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TupleMatch {
    /// Source address.
    pub src: Option<IpAddr>,
    /// Destination address.
    pub dst: Option<IpAddr>,
    /// IANA protocol number.
    pub protocol: Option<u8>,
    /// Source port.
    pub sport: Option<u16>,
    /// Destination port.
    pub dport: Option<u16>,
}

/// Conditions that the kernel is asked to apply in a dump. `None` and [`TupleMatch::default`]: no condition.
///
/// Kernels ignore conditions that they do not know, and report that only by [`DumpReport::kernel_filtered`]
/// (`NLM_F_DUMP_FILTERED`). So the caller must test every entry again: the filter saves time and is no guarantee. Kernels
/// that know a condition:
///
/// | condition | since Linux |
/// |---|---|
/// | `family` | every version |
/// | `mark` | 3.4 |
/// | `original`, `reply` | 5.8 |
/// | `status` | 5.15 |
/// | `zone` | 6.8 |
///
/// ```
/// use ctnetlink::flow::Family;
/// use ctnetlink::{DumpFilter, TupleMatch};
///
/// let dns = TupleMatch { protocol: Some(17), dport: Some(53), ..TupleMatch::default() };
/// let filter = DumpFilter { family: Some(Family::Ipv4), original: dns, ..DumpFilter::default() };
/// assert_eq!(filter.kernel_part(), filter);
/// // A tuple needs a family.
/// let both = DumpFilter { family: None, ..filter };
/// assert_eq!(both.kernel_part(), DumpFilter::default());
/// ```
///
/// [`DumpReport::kernel_filtered`]: crate::DumpReport::kernel_filtered
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpFilter {
    /// Address family. `None`: both, in one dump.
    pub family: Option<Family>,
    /// Connection mark. An entry without a mark has the mark 0.
    pub mark: Option<Masked>,
    /// Status bits, see [`Status`](crate::flow::Status).
    pub status: Option<Masked>,
    /// Number of the zone.
    pub zone: Option<u16>,
    /// Original tuple. Needs `family`.
    pub original: TupleMatch,
    /// Reply tuple. Needs `family`.
    pub reply: TupleMatch,
}

/// List of entries to dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableKind {
    /// Confirmed entries.
    #[default]
    Conntrack,
    /// Deleted entries whose DESTROY event is not delivered yet.
    Dying,
    /// Entries of packets that have not left the host. Empty since Linux 6.1.
    Unconfirmed,
}

impl DumpFilter {
    /// Part of the filter that is sent to the kernel: conditions that it would refuse or apply wrongly are removed. A dump
    /// applies this itself.
    ///
    /// * IPv6 addresses are removed: `ctnetlink_filter_match_tuple` (`nf_conntrack_netlink.c`) compares them inverted and
    ///   leaves out exactly the matching entries (Linux 5.8 to 6.18 at least).
    /// * A tuple without a family is removed (EOPNOTSUPP), so is an address of another family, and a port without a
    ///   protocol (EINVAL). Ports of protocols other than TCP and UDP are accepted and not compared.
    /// * A status mask of 0 is removed (EINVAL).
    /// * A zone stays. The kernel compares it with the entry's zone number whatever direction that applies to
    ///   (`nf_ct_zone_equal_any`): zone 5 matches entries whose zone 5 applies to one direction only, and zone 0 does not
    ///   match these. [`Zone::id`](crate::flow::Zone::id) has the same meaning.
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

    /// Filter with the family alone.
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
            |value: Option<IpAddr>| value.filter(|a| a.is_ipv4() && family == Family::Ipv4);
        let port = |value: Option<u16>| value.filter(|_| self.protocol.is_some());
        TupleMatch {
            src: address(self.src),
            dst: address(self.dst),
            protocol: self.protocol,
            sport: port(self.sport),
            dport: port(self.dport),
        }
    }
}
