//! Protocol states as `nf_conntrack_proto_{tcp,sctp,dccp}.c` number them.

/// What TCP tracking knows of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpDirection {
    /// `IP_CT_TCP_FLAG_*` bits: 1 window scale, 2 SACK permitted, 4 close init, 8 be liberal, 0x10 data unacknowledged,
    /// 0x20 max-ack set.
    pub flags: Option<u8>,
    /// Window scale shift, 0-14.
    pub window_scale: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolState {
    Tcp {
        state: u8,
        original: TcpDirection,
        reply: TcpDirection,
    },
    Sctp {
        state: u8,
        vtag_original: Option<u32>,
        vtag_reply: Option<u32>,
    },
    /// `role`: 0 client, 1 server. Kernels since 6.16 have no DCCP tracker.
    Dccp { state: u8, role: Option<u8> },
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

/// The kernel's word for a TCP state (`ESTABLISHED`); `None` for a number this program does not know.
pub fn tcp_state_name(state: u8) -> Option<&'static str> {
    TCP.get(usize::from(state)).copied()
}

/// The kernel's word for an SCTP state.
pub fn sctp_state_name(state: u8) -> Option<&'static str> {
    SCTP.get(usize::from(state)).copied()
}

/// The kernel's word for a DCCP state.
pub fn dccp_state_name(state: u8) -> Option<&'static str> {
    DCCP.get(usize::from(state)).copied()
}

impl ProtocolState {
    pub fn number(self) -> u8 {
        match self {
            ProtocolState::Tcp { state, .. }
            | ProtocolState::Sctp { state, .. }
            | ProtocolState::Dccp { state, .. } => state,
        }
    }

    /// The kernel's word (`TIME_WAIT`); `None` for a number this program does not know, shown as `STATE(n)`.
    pub fn name(self) -> Option<&'static str> {
        match self {
            ProtocolState::Tcp { state, .. } => tcp_state_name(state),
            ProtocolState::Sctp { state, .. } => sctp_state_name(state),
            ProtocolState::Dccp { state, .. } => dccp_state_name(state),
        }
    }

    /// A TCP or SCTP connection that is still being made: neither side has got anything through it yet.
    pub fn is_connecting(self) -> bool {
        matches!(
            self.name(),
            Some("SYN_SENT" | "SYN_RECV" | "SYN_SENT2" | "COOKIE_WAIT" | "COOKIE_ECHOED")
        )
    }

    /// Every state word of any protocol, for validation and completion.
    pub fn all_names() -> impl Iterator<Item = &'static str> {
        TCP.into_iter().chain(SCTP).chain(DCCP)
    }
}
