//! Status bits of an entry (`enum ip_conntrack_status` in `include/uapi/linux/netfilter/nf_conntrack_common.h`).

/// Set of status bits. Tools print the absence of [`Status::SEEN_REPLY`] as UNREPLIED.
///
/// ```
/// use ctnetlink::flow::Status;
///
/// let status = Status::CONFIRMED.with(Status::SEEN_REPLY).with(Status::ASSURED);
/// assert!(status.contains(Status::SEEN_REPLY) && !status.is_unreplied());
/// assert_eq!(status.names().collect::<Vec<_>>(), ["seen-reply", "assured", "confirmed"]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    /// A helper expected the flow.
    pub const EXPECTED: Status = Status(1);
    /// Packets of both directions were seen.
    pub const SEEN_REPLY: Status = Status(1 << 1);
    /// The entry is not dropped early when the table is full.
    pub const ASSURED: Status = Status(1 << 2);
    /// The first packet passed all hooks: the entry is in the table.
    pub const CONFIRMED: Status = Status(1 << 3);
    /// The source needs translation.
    pub const SRC_NAT: Status = Status(1 << 4);
    /// The destination needs translation.
    pub const DST_NAT: Status = Status(1 << 5);
    /// TCP sequence numbers need adjustment.
    pub const SEQ_ADJUST: Status = Status(1 << 6);
    /// Source translation is set up, possibly to the same address.
    pub const SRC_NAT_DONE: Status = Status(1 << 7);
    /// Destination translation is set up, possibly to the same address.
    pub const DST_NAT_DONE: Status = Status(1 << 8);
    /// The entry is removed from the table.
    pub const DYING: Status = Status(1 << 9);
    /// Packets do not refill the timer.
    pub const FIXED_TIMEOUT: Status = Status(1 << 10);
    /// The entry is a template of a rule and never in the table.
    pub const TEMPLATE: Status = Status(1 << 11);
    /// The entry clashed with another one and was inserted nevertheless (clash resolution). Before Linux 4.20 this bit is
    /// `IPS_UNTRACKED`.
    pub const NAT_CLASH: Status = Status(1 << 12);
    /// A rule or a netlink request assigned the helper.
    pub const HELPER: Status = Status(1 << 13);
    /// A flow table forwards the packets in software.
    pub const OFFLOAD: Status = Status(1 << 14);
    /// A flow table forwards the packets in hardware.
    pub const HW_OFFLOAD: Status = Status(1 << 15);

    /// Name of every known bit: the kernel's in lower case with hyphens. Lowest bit first.
    pub const NAMES: [(&'static str, Status); 16] = [
        ("expected", Status::EXPECTED),
        ("seen-reply", Status::SEEN_REPLY),
        ("assured", Status::ASSURED),
        ("confirmed", Status::CONFIRMED),
        ("src-nat", Status::SRC_NAT),
        ("dst-nat", Status::DST_NAT),
        ("seq-adjust", Status::SEQ_ADJUST),
        ("src-nat-done", Status::SRC_NAT_DONE),
        ("dst-nat-done", Status::DST_NAT_DONE),
        ("dying", Status::DYING),
        ("fixed-timeout", Status::FIXED_TIMEOUT),
        ("template", Status::TEMPLATE),
        ("nat-clash", Status::NAT_CLASH),
        ("helper", Status::HELPER),
        ("offload", Status::OFFLOAD),
        ("hw-offload", Status::HW_OFFLOAD),
    ];

    /// Reports whether all bits of `other` are set.
    pub const fn contains(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }

    /// Reports whether any bit of `other` is set.
    pub const fn intersects(self, other: Status) -> bool {
        self.0 & other.0 != 0
    }

    /// Union of both sets.
    #[must_use]
    pub const fn with(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }

    /// Bits of `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Status) -> Status {
        Status(self.0 & !other.0)
    }

    /// Reports whether no packet of the reply direction was seen.
    pub const fn is_unreplied(self) -> bool {
        !self.contains(Status::SEEN_REPLY)
    }

    /// Reports whether a flow table forwards the packets, in software or hardware. Such entries have no timeout.
    pub const fn is_offloaded(self) -> bool {
        self.intersects(Status::OFFLOAD.with(Status::HW_OFFLOAD))
    }

    /// Names of the bits that are set, lowest first. Unknown bits have none.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .filter(move |(_, bit)| self.contains(*bit))
            .map(|(name, _)| name)
    }
}
