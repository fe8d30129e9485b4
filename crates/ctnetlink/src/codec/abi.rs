//! Constants of the ctnetlink protocol (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`). The netlink crates do not
//! export them.

/// Message types of subsystem 1 (entries).
pub(crate) mod entry {
    pub const NEW: u8 = 0;
    pub const GET: u8 = 1;
    pub const DELETE: u8 = 2;
    pub const GET_STATS_CPU: u8 = 4;
    pub const GET_STATS: u8 = 5;
    pub const GET_DYING: u8 = 6;
    pub const GET_UNCONFIRMED: u8 = 7;
}

/// Message types of subsystem 2 (expectations).
pub(crate) mod expect {
    pub const GET: u8 = 1;
    pub const GET_STATS_CPU: u8 = 3;

    pub const MASTER: u16 = 1;
    pub const TUPLE: u16 = 2;
    pub const MASK: u16 = 3;
    pub const TIMEOUT: u16 = 4;
    pub const ID: u16 = 5;
    pub const HELP_NAME: u16 = 6;
    pub const ZONE: u16 = 7;
    pub const FLAGS: u16 = 8;
    pub const CLASS: u16 = 9;
    pub const FN: u16 = 11;
}

/// `NFNL_SUBSYS_CTNETLINK_EXP`.
pub(crate) const SUBSYSTEM_EXPECT: u8 = 2;

/// Attributes of an entry (`enum ctattr_type`).
pub(crate) mod cta {
    pub const TUPLE_ORIG: u16 = 1;
    pub const TUPLE_REPLY: u16 = 2;
    pub const STATUS: u16 = 3;
    pub const PROTOINFO: u16 = 4;
    pub const HELP: u16 = 5;
    pub const NAT_SRC: u16 = 6;
    pub const TIMEOUT: u16 = 7;
    pub const MARK: u16 = 8;
    pub const COUNTERS_ORIG: u16 = 9;
    pub const COUNTERS_REPLY: u16 = 10;
    pub const USE: u16 = 11;
    pub const ID: u16 = 12;
    pub const NAT_DST: u16 = 13;
    pub const TUPLE_MASTER: u16 = 14;
    pub const SEQ_ADJ_ORIG: u16 = 15;
    pub const SEQ_ADJ_REPLY: u16 = 16;
    pub const ZONE: u16 = 18;
    pub const SECCTX: u16 = 19;
    pub const TIMESTAMP: u16 = 20;
    pub const MARK_MASK: u16 = 21;
    pub const LABELS: u16 = 22;
    pub const FILTER: u16 = 25;
    pub const STATUS_MASK: u16 = 26;
    pub const TIMESTAMP_EVENT: u16 = 27;
}

/// Inside a tuple.
pub(crate) mod tuple {
    pub const IP: u16 = 1;
    pub const PROTO: u16 = 2;
    pub const ZONE: u16 = 3;

    pub const V4_SRC: u16 = 1;
    pub const V4_DST: u16 = 2;
    pub const V6_SRC: u16 = 3;
    pub const V6_DST: u16 = 4;

    pub const PROTO_NUM: u16 = 1;
    pub const SRC_PORT: u16 = 2;
    pub const DST_PORT: u16 = 3;
    pub const ICMP_ID: u16 = 4;
    pub const ICMP_TYPE: u16 = 5;
    pub const ICMP_CODE: u16 = 6;
    pub const ICMPV6_ID: u16 = 7;
    pub const ICMPV6_TYPE: u16 = 8;
    pub const ICMPV6_CODE: u16 = 9;
}

/// Inside `CTA_PROTOINFO`.
pub(crate) mod protoinfo {
    pub const TCP: u16 = 1;
    pub const DCCP: u16 = 2;
    pub const SCTP: u16 = 3;

    pub const TCP_STATE: u16 = 1;
    pub const TCP_WSCALE_ORIGINAL: u16 = 2;
    pub const TCP_WSCALE_REPLY: u16 = 3;
    pub const TCP_FLAGS_ORIGINAL: u16 = 4;
    pub const TCP_FLAGS_REPLY: u16 = 5;

    pub const DCCP_STATE: u16 = 1;
    pub const DCCP_ROLE: u16 = 2;

    pub const SCTP_STATE: u16 = 1;
    pub const SCTP_VTAG_ORIGINAL: u16 = 2;
    pub const SCTP_VTAG_REPLY: u16 = 3;
}

/// Inside `CTA_COUNTERS_*`.
pub(crate) mod counters {
    pub const PACKETS: u16 = 1;
    pub const BYTES: u16 = 2;
    pub const PACKETS32: u16 = 3;
    pub const BYTES32: u16 = 4;
}

/// Inside `CTA_TIMESTAMP`.
pub(crate) mod timestamp {
    pub const START: u16 = 1;
    pub const STOP: u16 = 2;
}

/// Inside `CTA_SEQ_ADJ_*`.
pub(crate) mod seq_adj {
    pub const CORRECTION_POS: u16 = 1;
    pub const OFFSET_BEFORE: u16 = 2;
    pub const OFFSET_AFTER: u16 = 3;
}

/// Inside `CTA_NAT_SRC` and `CTA_NAT_DST`.
pub(crate) mod nat {
    pub const V4_MIN: u16 = 1;
    pub const V4_MAX: u16 = 2;
    pub const PROTO: u16 = 3;
    pub const V6_MIN: u16 = 4;
    pub const V6_MAX: u16 = 5;

    pub const PORT_MIN: u16 = 1;
    pub const PORT_MAX: u16 = 2;
}

/// Inside `CTA_HELP` and `CTA_SECCTX`: the name is the first attribute of both.
pub(crate) const NAME: u16 = 1;

/// `CTA_STATS_GLOBAL_ENTRIES`.
pub(crate) const STATS_GLOBAL_ENTRIES: u16 = 1;

/// Counters of one CPU (`enum ctattr_stats_cpu`) with the kernel's names. Includes those that only older kernels send.
pub(crate) const STATS_CPU: [(u16, &str); 15] = [
    (1, "searched"),
    (2, "found"),
    (3, "new"),
    (4, "invalid"),
    (5, "ignore"),
    (6, "delete"),
    (7, "delete_list"),
    (8, "insert"),
    (9, "insert_failed"),
    (10, "drop"),
    (11, "early_drop"),
    (12, "error"),
    (13, "search_restart"),
    (14, "clash_resolve"),
    (15, "chaintoolong"),
];

/// Counters of expectations of one CPU (`enum ctattr_expect_stats`).
pub(crate) const EXPECT_STATS_CPU: [(u16, &str); 3] = [
    (1, "expect_new"),
    (2, "expect_create"),
    (3, "expect_delete"),
];

/// Inside `CTA_FILTER`, and the bits of its flags (`CTA_FILTER_F_*` in `nf_internals.h`).
pub(crate) mod filter {
    pub const ORIG_FLAGS: u16 = 1;
    pub const REPLY_FLAGS: u16 = 2;

    pub const SRC: u32 = 1;
    pub const DST: u32 = 1 << 1;
    pub const PROTO_NUM: u32 = 1 << 3;
    pub const SRC_PORT: u32 = 1 << 4;
    pub const DST_PORT: u32 = 1 << 5;
}

pub(crate) const ICMP: u8 = 1;
pub(crate) const GRE: u8 = 47;
pub(crate) const ICMPV6: u8 = 58;
