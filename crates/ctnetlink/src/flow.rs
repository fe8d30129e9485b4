//! Model of a connection-tracking entry. Plain data, independent of the rest of the crate.
//!
//! A [`Flow`] is one entry of the kernel's table (`struct nf_conn`), or the part of it that an event carries. `None` means
//! that the message has no such attribute; it never stands for zero.
//!
//! [`Flow`] and [`Rare`] may get fields with new attributes of the kernel. The parts of an entry ([`Tuple`], [`L4`], [`Zone`],
//! [`Counters`], [`ProtocolState`], ...) are exhaustive: a program takes them apart by matching, and a new case must not be
//! missed.

mod nat;
mod protocol;
mod state;
mod status;
mod tuple;

pub use protocol::{name as protocol_name, number as protocol_number};
pub use state::{ProtocolState, TcpDirection, dccp_state_name, sctp_state_name, tcp_state_name};
pub use status::Status;
pub use tuple::{AddressPort, Direction, Family, L4, Tuple};

/// Packets and bytes of one direction since the entry was created (`CTA_COUNTERS_*`). Present only for entries created while
/// `net.netfilter.nf_conntrack_acct` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, IP headers included.
    pub bytes: u64,
}

/// Conntrack zone: equal tuples in different zones are different entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zone {
    /// Number of the zone. 0 is the default zone.
    pub id: u16,
    /// Direction that the zone applies to: `None` for both (`CTA_ZONE`), else that of the tuple with `CTA_TUPLE_ZONE`.
    pub direction: Option<Direction>,
}

impl Zone {
    /// Number of the zone that tuples of `direction` are in (`nf_ct_zone_id` in `include/net/netfilter/nf_conntrack_zones.h`).
    pub fn of(self, direction: Direction) -> u16 {
        match self.direction {
            Some(only) if only != direction => 0,
            _ => self.id,
        }
    }
}

/// Sequence number adjustment of one direction (`CTA_SEQ_ADJ_*`, `struct nf_ct_seqadj`), made by helpers that change the
/// length of a TCP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqAdj {
    /// Sequence number of the last change of a payload.
    pub correction_pos: u32,
    /// Bytes added up to that position, as a 32-bit number in two's complement.
    pub offset_before: u32,
    /// Bytes added from that position on, as a 32-bit number in two's complement.
    pub offset_after: u32,
}

/// Attributes that few entries have. Boxed in [`Flow::rare`], so that the other entries stay small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rare {
    /// Connection labels (`CTA_LABELS`): 128 bits in the kernel's byte order. `None` when the entry has no label extension.
    pub labels: Option<[u8; 16]>,
    /// Name of the helper assigned to the flow (`CTA_HELP`): `ftp`, `sip`, ...
    pub helper: Option<Box<str>>,
    /// Security context (`CTA_SECCTX`) as text of the security module, SELinux or Smack.
    pub secctx: Option<Box<str>>,
    /// Original tuple of the entry that expected this one (`CTA_TUPLE_MASTER`).
    pub master: Option<Tuple>,
    /// Adjustment of the original direction.
    pub seq_adj_original: Option<SeqAdj>,
    /// Adjustment of the reply direction.
    pub seq_adj_reply: Option<SeqAdj>,
    /// End of the entry in nanoseconds since the Unix epoch. Only in DESTROY events, with
    /// `net.netfilter.nf_conntrack_timestamp`.
    pub stop: Option<u64>,
}

/// One entry of the conntrack table.
///
/// ```
/// use ctnetlink::flow::{Flow, L4, Tuple};
///
/// let tuple = |src: [u8; 4], sport, dst: [u8; 4], dport| Tuple {
///     src: src.into(),
///     dst: dst.into(),
///     protocol: 17,
///     l4: L4::Ports { src: sport, dst: dport },
/// };
/// // A client asks 198.51.100.10:53, and the packets go to 203.0.113.7:53.
/// let flow = Flow::new(
///     tuple([192, 0, 2, 5], 4000, [198, 51, 100, 10], 53),
///     tuple([203, 0, 113, 7], 53, [192, 0, 2, 5], 4000),
/// );
/// assert!(flow.is_dnat() && !flow.is_snat());
/// assert_eq!(flow.reply.source().to_string(), "203.0.113.7:53");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flow {
    /// Tuple of the packets of the initiator, before any translation (`CTA_TUPLE_ORIG`).
    pub original: Tuple,
    /// Tuple of the answers, before any translation back (`CTA_TUPLE_REPLY`). Its source is the translated destination of
    /// the original direction.
    pub reply: Tuple,
    /// Status bits (`CTA_STATUS`).
    pub status: Status,
    /// Seconds until the entry ends unless a packet refills the timer, rounded down by the kernel (`CTA_TIMEOUT`). `None` for
    /// offloaded entries and in DESTROY events of entries that timed out. The event of a deleted entry may have the seconds
    /// that were left.
    pub timeout: Option<u32>,
    /// Connection mark (`CTA_MARK`).
    pub mark: Option<u32>,
    /// Zone.
    pub zone: Zone,
    /// Identifier (`CTA_ID`): a keyed hash of kernel address, namespace and original tuple (`nf_ct_get_id`). It is **not** a
    /// generation number: a re-created entry may get the same one.
    pub id: Option<u32>,
    /// Reference count (`CTA_USE`).
    pub use_count: Option<u32>,
    /// State of the protocol tracker (`CTA_PROTOINFO`), for TCP, SCTP and DCCP.
    pub state: Option<ProtocolState>,
    /// Counters of the original direction.
    pub counters_original: Option<Counters>,
    /// Counters of the reply direction.
    pub counters_reply: Option<Counters>,
    /// Creation of the entry in nanoseconds since the Unix epoch (`CTA_TIMESTAMP_START`). Present only for entries created
    /// while `net.netfilter.nf_conntrack_timestamp` is 1.
    pub start: Option<u64>,
    /// Attributes that few entries have.
    pub rare: Option<Box<Rare>>,
}

impl Flow {
    /// Confirmed entry with these tuples, and nothing else known.
    pub fn new(original: Tuple, reply: Tuple) -> Self {
        Flow {
            original,
            reply,
            status: Status::CONFIRMED,
            timeout: None,
            mark: None,
            zone: Zone::default(),
            id: None,
            use_count: None,
            state: None,
            counters_original: None,
            counters_reply: None,
            start: None,
            rare: None,
        }
    }

    /// Address family of the original tuple.
    pub fn family(&self) -> Family {
        self.original.family()
    }

    /// IANA protocol number of the original tuple.
    pub fn protocol(&self) -> u8 {
        self.original.protocol
    }

    /// Tuple of one direction.
    #[inline]
    pub fn tuple(&self, direction: Direction) -> &Tuple {
        match direction {
            Direction::Original => &self.original,
            Direction::Reply => &self.reply,
        }
    }

    /// Counters of one direction.
    pub fn counters(&self, direction: Direction) -> Option<Counters> {
        match direction {
            Direction::Original => self.counters_original,
            Direction::Reply => self.counters_reply,
        }
    }

    /// Packets of both directions together. `None` when neither is counted.
    pub fn packets(&self) -> Option<u64> {
        sum(
            self.counters_original.map(|c| c.packets),
            self.counters_reply.map(|c| c.packets),
        )
    }

    /// Bytes of both directions together. `None` when neither is counted.
    pub fn bytes(&self) -> Option<u64> {
        sum(
            self.counters_original.map(|c| c.bytes),
            self.counters_reply.map(|c| c.bytes),
        )
    }

    /// Connection labels, see [`Rare::labels`].
    pub fn labels(&self) -> Option<&[u8; 16]> {
        self.rare.as_ref()?.labels.as_ref()
    }

    /// Name of the helper, see [`Rare::helper`].
    pub fn helper(&self) -> Option<&str> {
        self.rare.as_ref()?.helper.as_deref()
    }

    /// Original tuple of the entry that expected this one, see [`Rare::master`].
    pub fn master(&self) -> Option<&Tuple> {
        self.rare.as_ref()?.master.as_ref()
    }

    /// Security context, see [`Rare::secctx`].
    pub fn secctx(&self) -> Option<&str> {
        self.rare.as_ref()?.secctx.as_deref()
    }

    /// Attributes that few entries have, created when missing.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_takes_at_most_232_bytes() {
        assert!(size_of::<Flow>() <= 232, "{}", size_of::<Flow>());
    }

    #[test]
    fn directional_zone_applies_to_its_direction_only() {
        let both = Zone {
            id: 5,
            direction: None,
        };
        let original = Zone {
            id: 5,
            direction: Some(Direction::Original),
        };
        assert_eq!(
            (both.of(Direction::Original), both.of(Direction::Reply)),
            (5, 5)
        );
        assert_eq!(
            (
                original.of(Direction::Original),
                original.of(Direction::Reply)
            ),
            (5, 0)
        );
    }
}
