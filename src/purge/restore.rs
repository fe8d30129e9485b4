//! Return of purged entries into the table.
//!
//! [`RestoreRequest::of`] turns a saved line into a request, without I/O; [`restore`] inserts the entries.
//!
//! An entry comes back with both tuples (and so with its translation in either direction), zone, ASSURED, SEEN_REPLY and
//! FIXED_TIMEOUT, protocol state, the remaining timeout as it was saved, mark, labels (where a rule of the namespace uses
//! labels) and helper (where the kernel has it). These do not come back:
//!
//! * Id, counters, start time and use count: the kernel assigns new ones.
//! * The windows of a TCP connection and their scale: JSON does not carry the scale, ctnetlink not the rest. Where both ends
//!   scale their windows, the entry is marked as liberal, as the kernel marks connections that it picks up in their middle;
//!   otherwise it would call good packets invalid.
//! * Sequence adjustments of NAT helpers, and the master of an entry that a helper expected.
//! * The role in DCCP, without which the kernel takes no DCCP state, and the timer of an offloaded entry: such lines fail.
//! * Other status bits. SRC_NAT and DST_NAT come back with the translation itself. An untranslated entry comes back
//!   without SRC_NAT_DONE and DST_NAT_DONE, which changes nothing: rules are not consulted again for an existing entry.

use rustix::io::Errno;

use ctnetlink::flow::{Flow, ProtocolState, TcpDirection};
use ctnetlink::{Incomplete, InsertError, Table, check_insertable};

/// Result that a purge prints for an entry that it deleted; entries with another result are not put back.
pub const DELETED: &str = "deleted";

/// A line without a result: of a listing, not of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has no result")]
pub struct NoResult;

/// Obstacle to an insert that is known before the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreObstacle {
    #[error("it was offloaded, so there is no timeout to give it")]
    Offloaded,
    #[error("it has no time left: the kernel would end it at once")]
    NoTimeLeft,
    #[error("its timeout of {0} s is longer than kernels keep (at most {MAX_TIMEOUT} s)")]
    TimeoutTooLong(u32),
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
}

/// Seconds that every kernel keeps as they are: timers are signed 32-bit numbers of at most 1000 ticks a second, and a longer
/// timeout is shortened (`__nf_ct_set_timeout` in `include/net/netfilter/nf_conntrack.h`).
const MAX_TIMEOUT: u32 = i32::MAX as u32 / 1000;

/// An entry that is to be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreRequest {
    /// As it was saved.
    pub flow: Flow,
    pub obstacle: Option<RestoreObstacle>,
}

impl RestoreRequest {
    /// The request of a saved line. `None`: the entry was not deleted, so the line is skipped.
    ///
    /// # Errors
    /// [`NoResult`].
    pub fn of(flow: Flow, result: Option<&str>) -> Result<Option<Self>, NoResult> {
        Ok(
            (result.ok_or(NoResult)? == DELETED).then(|| RestoreRequest {
                obstacle: obstacle(&flow),
                flow,
            }),
        )
    }
}

fn obstacle(flow: &Flow) -> Option<RestoreObstacle> {
    if flow.timeout.is_none() && flow.status.is_offloaded() {
        return Some(RestoreObstacle::Offloaded);
    }
    match flow.timeout {
        Some(0) => return Some(RestoreObstacle::NoTimeLeft),
        Some(seconds) if seconds > MAX_TIMEOUT => {
            return Some(RestoreObstacle::TimeoutTooLong(seconds));
        }
        _ => {}
    }
    check_insertable(flow)
        .err()
        .map(RestoreObstacle::Incomplete)
}

/// `IP_CT_TCP_FLAG_*` of `nf_conntrack_tcp.h`.
const WINDOW_SCALE: u8 = 1;
const BE_LIBERAL: u8 = 8;
const MAXACK_SET: u8 = 0x20;

/// The entry with the flags that the kernel is to take.
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
                // As the kernel does for a connection whose SYN it did not see (`tcp_new`).
                *flags |= BE_LIBERAL;
            }
        }
    }
    flow
}

/// Outcome for one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreOutcome {
    Restored,
    /// One of its tuples is taken: by the entry itself, or by a newer one, which is left.
    Exists,
    Failed(RestoreError),
}

/// Failure of one insert.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The kernel was not asked.
    #[error(transparent)]
    Obstacle(#[from] RestoreObstacle),
    #[error("not permitted: it needs CAP_NET_ADMIN")]
    NotPermitted,
    #[error("the table is full (nf_conntrack_max), or there is no memory")]
    Full,
    #[error("this kernel has no helper {0:?} loaded")]
    NoHelper(String),
    #[error("the kernel's answer was lost: it may be there")]
    AnswerLost,
    #[error(transparent)]
    Kernel(Errno),
    /// Another error of the library, without an answer of the kernel.
    #[error(transparent)]
    Insert(InsertError),
}

impl RestoreError {
    /// Error of `ctnetlink_create_conntrack` (`net/netfilter/nf_conntrack_netlink.c`) for `flow`.
    fn answered(errno: Errno, flow: &Flow) -> Self {
        match (errno, flow.helper()) {
            (Errno::PERM, _) => RestoreError::NotPermitted,
            (Errno::NOMEM, _) => RestoreError::Full,
            (Errno::OPNOTSUPP, Some(helper)) => RestoreError::NoHelper(helper.to_owned()),
            (Errno::NOBUFS, _) => RestoreError::AnswerLost,
            _ => RestoreError::Kernel(errno),
        }
    }
}

impl RestoreOutcome {
    /// CAP_NET_ADMIN is missing.
    pub fn is_refused(&self) -> bool {
        *self == RestoreOutcome::Failed(RestoreError::NotPermitted)
    }

    /// The kernel was asked.
    pub fn was_tried(&self) -> bool {
        use RestoreError::{Insert, Obstacle};
        !matches!(self, RestoreOutcome::Failed(Obstacle(_) | Insert(_)))
    }
}

/// Inserts entries, [`ctnetlink::MAX_BATCH`] in one send. One outcome for each, in order. A caller that may stop between two
/// sends passes slices of that length.
pub fn restore(table: &mut Table, requests: &[RestoreRequest]) -> Vec<RestoreOutcome> {
    let possible = requests.iter().filter(|request| request.obstacle.is_none());
    let answers = table.insert_all(possible.map(|request| prepared(&request.flow)));
    let mut answers = answers.into_iter();
    let outcome = |request: &RestoreRequest| {
        if let Some(obstacle) = request.obstacle {
            return RestoreOutcome::Failed(obstacle.into());
        }
        // The library gives an answer for every flow.
        let answer = answers.next();
        let error = match answer.unwrap_or(Err(InsertError::Kernel(Errno::NOBUFS))) {
            Ok(()) => return RestoreOutcome::Restored,
            Err(InsertError::Kernel(Errno::EXIST)) => return RestoreOutcome::Exists,
            Err(InsertError::Kernel(errno)) => RestoreError::answered(errno, &request.flow),
            Err(InsertError::Incomplete(incomplete)) => {
                RestoreObstacle::Incomplete(incomplete).into()
            }
            Err(other) => RestoreError::Insert(other),
        };
        RestoreOutcome::Failed(error)
    };
    requests.iter().map(outcome).collect()
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
    fn only_entries_with_the_result_deleted_are_put_back() {
        let request = RestoreRequest {
            flow: flow(17),
            obstacle: None,
        };
        assert_eq!(
            RestoreRequest::of(flow(17), Some("deleted")),
            Ok(Some(request))
        );
        for other in [
            "already-gone",
            "replaced",
            "changed",
            "failed",
            "would-delete",
            "restored",
            "",
        ] {
            assert_eq!(
                RestoreRequest::of(flow(17), Some(other)),
                Ok(None),
                "{other}"
            );
        }
        assert_eq!(RestoreRequest::of(flow(17), None), Err(NoResult));
    }

    #[test]
    fn an_obstacle_is_known_before_the_kernel_is_asked() {
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
            let request = RestoreRequest::of(flow, Some(DELETED)).unwrap().unwrap();
            let obstacle = request.obstacle.unwrap().to_string();
            assert!(obstacle.contains(expected), "{obstacle}");
        }
        // Without a state the tags do not matter.
        let bare = RestoreRequest::of(flow(132), Some(DELETED))
            .unwrap()
            .unwrap();
        assert_eq!(bare.obstacle, None);
    }

    #[test]
    fn a_connection_whose_window_scale_is_lost_is_put_back_as_liberal() {
        let cases = [
            // Both scale, and the scale is not known.
            ((0x23, None), (0x23, None), (0x0b, 0x0b)),
            ((0x01, Some(7)), (0x01, None), (0x09, 0x09)),
            ((0x23, Some(7)), (0x23, Some(2)), (0x03, 0x03)),
            // One end does not scale, so neither does.
            ((0x03, None), (0x02, None), (0x03, 0x02)),
            ((0x0a, None), (0x0a, None), (0x0a, 0x0a)),
            // The flag of the side that sent the first FIN stays.
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
