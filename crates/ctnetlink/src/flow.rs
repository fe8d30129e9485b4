//! What a connection-tracking entry is. Knows nothing else of this crate.
//!
//! A [`Flow`] is one entry of the kernel's table (`struct nf_conn`), or one event about it. What the kernel did not
//! say is `None`: absent is never zero.

mod nat;
mod protocol;
mod state;
mod status;
mod tuple;

pub use protocol::{name as protocol_name, number as protocol_number};
pub use state::{ProtocolState, TcpDirection, dccp_state_name, sctp_state_name, tcp_state_name};
pub use status::Status;
pub use tuple::{Direction, Family, L4, Place, Tuple};

/// Packets and bytes of one direction (`CTA_COUNTERS_*`). Present only for entries created after
/// `net.netfilter.nf_conntrack_acct` was switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    pub packets: u64,
    pub bytes: u64,
}

/// A conntrack zone: entries with one tuple in different zones are different entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zone {
    /// 0 is the default zone.
    pub id: u16,
    /// The direction the zone holds for; `None` = both (`CTA_ZONE`), else `CTA_TUPLE_ZONE` of that tuple.
    pub direction: Option<Direction>,
}

impl Zone {
    /// The zone that a tuple of `direction` lives in (`nf_ct_zone_id` in `nf_conntrack_zones.h`).
    pub fn of(self, direction: Direction) -> u16 {
        match self.direction {
            Some(only) if only != direction => 0,
            _ => self.id,
        }
    }
}

/// Sequence number adjustment of one direction (`CTA_SEQ_ADJ_*`), as NAT helpers leave it. Kept so that an entry can be
/// put back as it was; not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqAdj {
    pub correction_pos: u32,
    pub offset_before: u32,
    pub offset_after: u32,
}

/// What few entries carry. Boxed, so that the many that do not stay small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rare {
    /// Connection labels, 128 bits as the kernel sends them (`CTA_LABELS`); `None` when the entry has no label extension.
    pub labels: Option<[u8; 16]>,
    /// Name of the helper that reads this flow: `ftp`, `sip`, ...
    pub helper: Option<Box<str>>,
    /// SELinux or Smack context, text of the security module.
    pub secctx: Option<Box<str>>,
    /// Original tuple of the entry that expected this one (`CTA_TUPLE_MASTER`).
    pub master: Option<Tuple>,
    pub seq_adj_original: Option<SeqAdj>,
    pub seq_adj_reply: Option<SeqAdj>,
    /// Nanoseconds since the Unix epoch at which the entry ended; only in DESTROY events.
    pub stop: Option<u64>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What the initiator sent.
    pub original: Tuple,
    /// What an answer looks like; its source is where the packets really go.
    pub reply: Tuple,
    pub status: Status,
    /// Seconds until the entry ends unless a packet refills the timer, rounded down by the kernel. `None` for offloaded
    /// entries and DESTROY events of entries that ran out; one that was deleted may still say what was left.
    pub timeout: Option<u32>,
    pub mark: Option<u32>,
    pub zone: Zone,
    /// `CTA_ID`: a hash of address, namespace and original tuple, **not** a generation number.
    pub id: Option<u32>,
    /// Reference count (`CTA_USE`).
    pub use_count: Option<u32>,
    pub state: Option<ProtocolState>,
    pub counters_original: Option<Counters>,
    pub counters_reply: Option<Counters>,
    /// Nanoseconds since the Unix epoch; present only for entries created after `net.netfilter.nf_conntrack_timestamp`
    /// was switched on.
    pub start: Option<u64>,
    pub rare: Option<Box<Rare>>,
}

impl Flow {
    /// An entry with these tuples, confirmed, and nothing else known.
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

    pub fn family(&self) -> Family {
        self.original.family()
    }

    /// IANA protocol number.
    pub fn protocol(&self) -> u8 {
        self.original.protocol
    }

    pub fn tuple(&self, direction: Direction) -> &Tuple {
        match direction {
            Direction::Original => &self.original,
            Direction::Reply => &self.reply,
        }
    }

    pub fn counters(&self, direction: Direction) -> Option<Counters> {
        match direction {
            Direction::Original => self.counters_original,
            Direction::Reply => self.counters_reply,
        }
    }

    /// Packets of both directions; `None` when neither is counted.
    pub fn packets(&self) -> Option<u64> {
        sum(
            self.counters_original.map(|c| c.packets),
            self.counters_reply.map(|c| c.packets),
        )
    }

    /// Bytes of both directions; `None` when neither is counted.
    pub fn bytes(&self) -> Option<u64> {
        sum(
            self.counters_original.map(|c| c.bytes),
            self.counters_reply.map(|c| c.bytes),
        )
    }

    pub fn labels(&self) -> Option<&[u8; 16]> {
        self.rare.as_ref()?.labels.as_ref()
    }

    pub fn helper(&self) -> Option<&str> {
        self.rare.as_ref()?.helper.as_deref()
    }

    pub fn secctx(&self) -> Option<&str> {
        self.rare.as_ref()?.secctx.as_deref()
    }

    /// The extension box, made when missing.
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
    fn a_flow_stays_small_enough_for_a_purge_plan() {
        assert!(size_of::<Flow>() <= 232, "{}", size_of::<Flow>());
    }

    #[test]
    fn a_directional_zone_holds_only_in_its_direction() {
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
