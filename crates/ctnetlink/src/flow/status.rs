//! Status bits of an entry (`enum ip_conntrack_status` in `nf_conntrack_common.h`).

/// A set of status bits. Absence of [`Status::SEEN_REPLY`] is what tools print as UNREPLIED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    pub const EXPECTED: Status = Status(1);
    pub const SEEN_REPLY: Status = Status(1 << 1);
    pub const ASSURED: Status = Status(1 << 2);
    pub const CONFIRMED: Status = Status(1 << 3);
    pub const SRC_NAT: Status = Status(1 << 4);
    pub const DST_NAT: Status = Status(1 << 5);
    pub const SEQ_ADJUST: Status = Status(1 << 6);
    pub const SRC_NAT_DONE: Status = Status(1 << 7);
    pub const DST_NAT_DONE: Status = Status(1 << 8);
    pub const DYING: Status = Status(1 << 9);
    pub const FIXED_TIMEOUT: Status = Status(1 << 10);
    pub const TEMPLATE: Status = Status(1 << 11);
    /// `IPS_NAT_CLASH` since Linux 4.20, `IPS_UNTRACKED` before.
    pub const NAT_CLASH: Status = Status(1 << 12);
    pub const HELPER: Status = Status(1 << 13);
    pub const OFFLOAD: Status = Status(1 << 14);
    pub const HW_OFFLOAD: Status = Status(1 << 15);

    /// Every known bit with its JSON and `--status` name, lowest bit first.
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

    pub const fn contains(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn intersects(self, other: Status) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn with(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Status) -> Status {
        Status(self.0 & !other.0)
    }

    /// No packet in the reply direction was seen yet.
    pub const fn is_unreplied(self) -> bool {
        !self.contains(Status::SEEN_REPLY)
    }

    pub const fn is_offloaded(self) -> bool {
        self.intersects(Status::OFFLOAD.with(Status::HW_OFFLOAD))
    }

    /// Names of the bits that are set, lowest first; bits that have no name are left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .filter(move |(_, bit)| self.contains(*bit))
            .map(|(name, _)| name)
    }
}
