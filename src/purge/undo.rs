//! Putting purged entries back.
//!
//! From a saved line to what is asked of the kernel, without I/O ([`Wanted::of`]); and the asking ([`put_back`]).
//!
//! An entry comes back with both tuples (translation in either direction with them), zone, ASSURED, SEEN_REPLY and
//! FIXED_TIMEOUT, protocol state, the rest of its timer as it was saved, mark, labels (where a rule of the namespace uses
//! labels) and helper (where the kernel has it). What cannot come back:
//!
//! * id, counters, start time and use count: the kernel gives them anew.
//! * The windows of a TCP connection, their scale among them: JSON does not carry the scale, ctnetlink not the rest. Where
//!   both ends scale theirs, the entry is marked as liberal, as the kernel marks connections that it picks up in their
//!   middle; else it would call good packets invalid.
//! * Sequence adjustments of NAT helpers, and the master of an entry that a helper expected.
//! * The role in DCCP, without which the kernel takes no DCCP state, and the timer of an offloaded entry: such lines fail.
//! * Other status bits. SRC_NAT and DST_NAT come back with the translation itself. An untranslated entry comes back
//!   without SRC_NAT_DONE and DST_NAT_DONE, which changes nothing: rules are not asked again for an entry that is there.

use rustix::io::Errno;

use ctnetlink::flow::{Flow, ProtocolState, TcpDirection};
use ctnetlink::{Incomplete, InsertError, Table, check_insertable};

/// The result that a purge prints for an entry that it deleted; no other is put back.
pub const DELETED: &str = "deleted";

/// A line that does not say what became of its entry: a listing, not the output of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has no result")]
pub struct NoResult;

/// Why an entry cannot be put back, known before the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    #[error("it was offloaded, so there is no timeout to give it")]
    Offloaded,
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
}

/// An entry that is to be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As it was saved.
    pub flow: Flow,
    pub obstacle: Option<Obstacle>,
}

impl Wanted {
    /// What a saved line asks for; `None` when it is to be skipped: whatever became of the entry, it was not deleted then.
    ///
    /// # Errors
    /// [`NoResult`].
    pub fn of(flow: Flow, result: Option<&str>) -> Result<Option<Self>, NoResult> {
        Ok((result.ok_or(NoResult)? == DELETED).then(|| Wanted {
            obstacle: obstacle(&flow),
            flow,
        }))
    }
}

fn obstacle(flow: &Flow) -> Option<Obstacle> {
    if flow.timeout.is_none() && flow.status.is_offloaded() {
        return Some(Obstacle::Offloaded);
    }
    check_insertable(flow).err().map(Obstacle::Incomplete)
}

/// `IP_CT_TCP_FLAG_*` of `nf_conntrack_tcp.h`.
const WINDOW_SCALE: u8 = 1;
const BE_LIBERAL: u8 = 8;
const MAXACK_SET: u8 = 0x20;

/// The entry as the kernel is to take it.
fn prepared(flow: &Flow) -> Flow {
    let mut flow = flow.clone();
    if let Some(ProtocolState::Tcp {
        original, reply, ..
    }) = &mut flow.state
    {
        let scales = |side: &TcpDirection| side.flags.is_some_and(|f| f & WINDOW_SCALE != 0);
        let known = original.window_scale.is_some() && reply.window_scale.is_some();
        let liberal = scales(original) && scales(reply) && !known;
        for flags in [&mut original.flags, &mut reply.flags]
            .into_iter()
            .flatten()
        {
            // The highest ACK itself is lost; with the flag the kernel would take 0 for it, and call every RST with a
            // sequence number "before" that invalid (`nf_conntrack_tcp_packet`).
            *flags &= !MAXACK_SET;
            if liberal {
                // What the kernel does for a connection whose SYN it did not see (`tcp_new`).
                *flags |= BE_LIBERAL;
            }
        }
    }
    flow
}

/// What became of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Restored,
    /// One of its tuples is taken: by the entry itself, or by a newer one, which stays.
    Exists,
    Failed {
        error: String,
        /// `None`: the kernel was not asked.
        errno: Option<Errno>,
    },
}

impl Outcome {
    fn failed(error: impl ToString, errno: Option<Errno>) -> Self {
        Outcome::Failed {
            error: error.to_string(),
            errno,
        }
    }

    /// CAP_NET_ADMIN is missing.
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Outcome::Failed {
                errno: Some(Errno::PERM),
                ..
            }
        )
    }

    /// The kernel was asked.
    pub fn was_tried(&self) -> bool {
        !matches!(self, Outcome::Failed { errno: None, .. })
    }
}

/// Puts entries back, [`ctnetlink::MAX_BATCH`] in one send; one outcome each, in order. Who must stop between batches
/// gives slices of that length.
pub fn put_back(table: &mut Table, wanted: &[Wanted]) -> Vec<Outcome> {
    let possible = wanted.iter().filter(|wanted| wanted.obstacle.is_none());
    let mut answers = table
        .insert_all(possible.map(|wanted| prepared(&wanted.flow)))
        .into_iter();
    let outcome = |wanted: &Wanted| match wanted.obstacle {
        Some(obstacle) => Outcome::failed(obstacle, None),
        // There is an answer to everything that was asked.
        None => match answers
            .next()
            .unwrap_or(Err(InsertError::Kernel(Errno::NOBUFS)))
        {
            Ok(()) => Outcome::Restored,
            Err(InsertError::Kernel(Errno::EXIST)) => Outcome::Exists,
            Err(InsertError::Kernel(errno)) => {
                Outcome::failed(explained(errno, &wanted.flow), Some(errno))
            }
            Err(InsertError::Incomplete(incomplete)) => Outcome::failed(incomplete, None),
            Err(other) => Outcome::failed(other, None),
        },
    };
    wanted.iter().map(outcome).collect()
}

/// The kernel's error in words that help, where its own do not (`ctnetlink_create_conntrack`).
fn explained(errno: Errno, flow: &Flow) -> String {
    match (errno, flow.helper()) {
        (Errno::PERM, _) => "not permitted: it needs CAP_NET_ADMIN".to_owned(),
        (Errno::NOMEM, _) => {
            "the table is full (nf_conntrack_max), or there is no memory".to_owned()
        }
        (Errno::OPNOTSUPP, Some(helper)) => format!("this kernel has no helper {helper:?} loaded"),
        (Errno::NOBUFS, _) => "the kernel's answer was lost: it may be there".to_owned(),
        _ => errno.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctnetlink::flow::{L4, Status, Tuple};

    fn flow(protocol: u8) -> Flow {
        let tuple = Tuple {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            protocol,
            l4: L4::Ports { src: 4000, dst: 53 },
        };
        let mut flow = Flow::new(tuple, tuple);
        flow.timeout = Some(100);
        flow
    }

    fn side(flags: u8, window_scale: Option<u8>) -> TcpDirection {
        TcpDirection {
            flags: Some(flags),
            window_scale,
        }
    }

    fn tcp(original: TcpDirection, reply: TcpDirection) -> Flow {
        let mut flow = flow(6);
        flow.state = Some(ProtocolState::Tcp {
            state: 3,
            original,
            reply,
        });
        flow
    }

    #[test]
    fn only_what_was_deleted_is_put_back() {
        let wanted = Wanted {
            flow: flow(17),
            obstacle: None,
        };
        assert_eq!(Wanted::of(flow(17), Some("deleted")), Ok(Some(wanted)));
        for other in [
            "already-gone",
            "replaced",
            "changed",
            "failed",
            "would-delete",
            "restored",
            "",
        ] {
            assert_eq!(Wanted::of(flow(17), Some(other)), Ok(None), "{other}");
        }
        assert_eq!(Wanted::of(flow(17), None), Err(NoResult));
    }

    #[test]
    fn a_line_that_lacks_what_the_kernel_needs_is_told_before_it_is_asked() {
        let mut timeless = flow(17);
        timeless.timeout = None;
        let mut offloaded = timeless.clone();
        offloaded.status = Status::CONFIRMED.with(Status::OFFLOAD);
        let mut tagless = flow(132);
        tagless.state = Some(ProtocolState::Sctp {
            state: 4,
            vtag_original: Some(1),
            vtag_reply: None,
        });
        let mut roleless = flow(33);
        roleless.state = Some(ProtocolState::Dccp {
            state: 4,
            role: None,
        });
        for (flow, expected) in [
            (timeless, "timeout"),
            (offloaded, "offloaded"),
            (tagless, "tags"),
            (roleless, "role"),
        ] {
            let wanted = Wanted::of(flow, Some(DELETED)).unwrap().unwrap();
            let obstacle = wanted.obstacle.unwrap().to_string();
            assert!(obstacle.contains(expected), "{obstacle}");
        }
        // Without a state the tags do not matter.
        let bare = Wanted::of(flow(132), Some(DELETED)).unwrap().unwrap();
        assert_eq!(bare.obstacle, None);
    }

    #[test]
    fn a_connection_whose_window_scale_is_lost_is_put_back_as_liberal() {
        let cases = [
            // Both scale, and the scale is not known.
            ((0x23, None), (0x23, None), (0x0b, 0x0b)),
            ((0x01, Some(7)), (0x01, None), (0x09, 0x09)),
            ((0x23, Some(7)), (0x23, Some(2)), (0x03, 0x03)),
            // Where one end does not, nobody does.
            ((0x03, None), (0x02, None), (0x03, 0x02)),
            ((0x0a, None), (0x0a, None), (0x0a, 0x0a)),
            // Who sent the first FIN stays known.
            ((0x07, Some(1)), (0x23, Some(1)), (0x07, 0x03)),
        ];
        for (original, reply, (a, b)) in cases {
            let given = tcp(side(original.0, original.1), side(reply.0, reply.1));
            let expected = tcp(side(a, original.1), side(b, reply.1));
            assert_eq!(prepared(&given), expected, "{original:x?} {reply:x?}");
        }
        let udp = flow(17);
        assert_eq!(prepared(&udp), udp);
    }
}
