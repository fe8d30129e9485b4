//! Protocol states, numbered as in `include/uapi/linux/netfilter/nf_conntrack_{tcp,sctp}.h` and
//! `nf_conntrack_dccp.h` (removed in Linux 6.16).

/// TCP tracking of one direction (`struct ip_ct_tcp_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpDirection {
    /// `IP_CT_TCP_FLAG_*` bits: 1 window scale, 2 SACK permitted, 4 close init, 8 be liberal, 0x10 data unacknowledged,
    /// 0x20 max-ack set.
    pub flags: Option<u8>,
    /// Window scale as a number of bits, 0 to 14.
    pub window_scale: Option<u8>,
}

/// State of a protocol tracker (`CTA_PROTOINFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolState {
    /// TCP (`CTA_PROTOINFO_TCP`).
    Tcp {
        /// `enum tcp_conntrack`, see [`tcp_state_name`].
        state: u8,
        /// Original direction.
        original: TcpDirection,
        /// Reply direction.
        reply: TcpDirection,
    },
    /// SCTP (`CTA_PROTOINFO_SCTP`).
    Sctp {
        /// `enum sctp_conntrack`, see [`sctp_state_name`].
        state: u8,
        /// Verification tag of packets of the original direction.
        vtag_original: Option<u32>,
        /// Verification tag of packets of the reply direction.
        vtag_reply: Option<u32>,
    },
    /// DCCP (`CTA_PROTOINFO_DCCP`). Kernels since 6.16 do not track it.
    Dccp {
        /// `enum ct_dccp_states`, see [`dccp_state_name`].
        state: u8,
        /// Role of the original direction: 0 client, 1 server.
        role: Option<u8>,
    },
}

const TCP: [&str; 10] = [
    "NONE",
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "SYN_SENT2",
];
const SCTP: [&str; 10] = [
    "NONE",
    "CLOSED",
    "COOKIE_WAIT",
    "COOKIE_ECHOED",
    "ESTABLISHED",
    "SHUTDOWN_SENT",
    "SHUTDOWN_RECD",
    "SHUTDOWN_ACK_SENT",
    "HEARTBEAT_SENT",
    "HEARTBEAT_ACKED",
];
const DCCP: [&str; 10] = [
    "NONE", "REQUEST", "RESPOND", "PARTOPEN", "OPEN", "CLOSEREQ", "CLOSING", "TIMEWAIT", "IGNORE",
    "INVALID",
];

/// Name that the kernel uses for a TCP state (`ESTABLISHED`). `None` for an unknown number.
pub fn tcp_state_name(state: u8) -> Option<&'static str> {
    TCP.get(usize::from(state)).copied()
}

/// Name that the kernel uses for an SCTP state. `None` for an unknown number.
pub fn sctp_state_name(state: u8) -> Option<&'static str> {
    SCTP.get(usize::from(state)).copied()
}

/// Name that the kernel uses for a DCCP state. `None` for an unknown number.
pub fn dccp_state_name(state: u8) -> Option<&'static str> {
    DCCP.get(usize::from(state)).copied()
}

impl ProtocolState {
    /// Number of the state.
    pub fn number(self) -> u8 {
        match self {
            ProtocolState::Tcp { state, .. }
            | ProtocolState::Sctp { state, .. }
            | ProtocolState::Dccp { state, .. } => state,
        }
    }

    /// Name that the kernel uses for the state (`TIME_WAIT`). `None` for an unknown number.
    pub fn name(self) -> Option<&'static str> {
        match self {
            ProtocolState::Tcp { state, .. } => tcp_state_name(state),
            ProtocolState::Sctp { state, .. } => sctp_state_name(state),
            ProtocolState::Dccp { state, .. } => dccp_state_name(state),
        }
    }

    /// Reports whether the handshake of a TCP or SCTP connection is not complete.
    pub fn is_connecting(self) -> bool {
        matches!(
            self.name(),
            Some("SYN_SENT" | "SYN_RECV" | "SYN_SENT2" | "COOKIE_WAIT" | "COOKIE_ECHOED")
        )
    }

    /// Reports whether a TCP or SCTP connection has ended, so that it carries no more data.
    pub fn is_over(self) -> bool {
        matches!(self.name(), Some("TIME_WAIT" | "CLOSE" | "CLOSED"))
    }

    /// Names of all states of all protocols, in the kernel's order. A name of several protocols comes several times.
    pub fn all_names() -> impl Iterator<Item = &'static str> {
        TCP.into_iter().chain(SCTP).chain(DCCP)
    }
}
