//! Look at the table after a purge: flows that have an entry again, and where these lead.

use rustix::io::Errno;

use ctnetlink::flow::Flow;
use ctnetlink::{MAX_BATCH, Table};

use super::execute::{DeleteReport, current_entries};
use super::plan::{PlannedEntry, PurgePlan};
use crate::verdict::Verdict;

/// Flow whose entry was deleted, or was gone already, and that has an entry again.
#[derive(Debug)]
pub struct CameBack<'p> {
    /// The entry that is gone.
    pub before: &'p PlannedEntry,
    /// The entry that exists now.
    pub now: Flow,
}

/// Looks every entry that is gone up by its original tuple, and gives those that exist again to `on_back`.
///
/// # Errors
/// The first lookup that failed: later ones were not made.
pub fn verify<'p>(
    table: &mut Table,
    plan: &'p PurgePlan,
    report: &DeleteReport,
    on_back: &mut dyn FnMut(CameBack<'p>),
) -> Result<(), Errno> {
    for positions in report.gone.chunks(MAX_BATCH) {
        let gone = positions.iter();
        let gone = gone.filter_map(|position| plan.entries().get(*position as usize));
        for (before, now) in gone.clone().zip(current_entries(table, gone)) {
            if let Some(now) = now? {
                on_back(CameBack { before, now });
            }
        }
    }
    Ok(())
}

/// Destination of an entry that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnedTo {
    DeadEndpoint,
    /// No endpoint: a packet is still not translated.
    Untranslated,
    /// The endpoint of the deleted entry, which is not known to be dead; or the same destination, untranslated.
    SameEndpoint,
    /// Another endpoint, which lives.
    LiveEndpoint,
    /// Another endpoint, of which the cluster source does not tell.
    NotDecided,
}

impl ReturnedTo {
    /// `verdict`: on `now`, the entry that came back. `None` without a cluster source.
    pub fn of(before: &PlannedEntry, now: &Flow, verdict: Option<Verdict>) -> Self {
        let is_dead = |verdict| matches!(verdict, Verdict::Stale | Verdict::Suspect);
        let is_same = before.flow.reply.source() == now.reply.source();
        let dead = match verdict {
            // A new entry is newer than a cluster file, which leaves its verdict open; its endpoint was judged before.
            None | Some(Verdict::Unknown) => {
                let was_dead = before.reason.map(|reason| is_dead(reason.verdict()));
                is_same && was_dead == Some(true)
            }
            Some(verdict) => is_dead(verdict),
        };
        match verdict {
            _ if dead && now.reply.source() == now.original.destination() => {
                ReturnedTo::Untranslated
            }
            _ if dead => ReturnedTo::DeadEndpoint,
            _ if is_same => ReturnedTo::SameEndpoint,
            Some(Verdict::Ok) => ReturnedTo::LiveEndpoint,
            _ => ReturnedTo::NotDecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Reason;
    use ctnetlink::flow::{L4, Tuple};

    const SERVICE: u8 = 10;
    const DEAD: u8 = 9;
    const LIVE: u8 = 30;

    fn flow(endpoint: u8) -> Flow {
        let tuple = |src: u8, dst: u8, ports: (u16, u16)| Tuple {
            src: [10, 0, 0, src].into(),
            dst: [10, 0, 0, dst].into(),
            protocol: 17,
            l4: L4::Ports {
                src: ports.0,
                dst: ports.1,
            },
        };
        Flow::new(
            tuple(1, SERVICE, (4000, 53)),
            tuple(endpoint, 1, (53, 4000)),
        )
    }

    #[test]
    fn an_entry_that_came_back_is_dead_where_its_verdict_or_its_known_endpoint_says_so() {
        use ReturnedTo::{DeadEndpoint, LiveEndpoint, NotDecided, SameEndpoint, Untranslated};
        let gone = Some(Reason::EndpointGone);
        let without_source = [
            (None, DEAD, DEAD, None, SameEndpoint),
            (None, DEAD, LIVE, None, NotDecided),
        ];
        let judged = [
            (gone, DEAD, DEAD, Verdict::Stale, DeadEndpoint),
            (gone, DEAD, LIVE, Verdict::Suspect, DeadEndpoint),
            (gone, DEAD, LIVE, Verdict::Ok, LiveEndpoint),
            (gone, DEAD, DEAD, Verdict::Unknown, DeadEndpoint),
            (gone, DEAD, LIVE, Verdict::Unknown, NotDecided),
            (None, DEAD, DEAD, Verdict::Unknown, SameEndpoint),
            (
                Some(Reason::Endpoint),
                LIVE,
                LIVE,
                Verdict::Ok,
                SameEndpoint,
            ),
            (gone, DEAD, LIVE, Verdict::Draining, NotDecided),
            (
                Some(Reason::NoDnat),
                SERVICE,
                SERVICE,
                Verdict::Stale,
                Untranslated,
            ),
            (
                Some(Reason::NoDnat),
                SERVICE,
                SERVICE,
                Verdict::Unknown,
                Untranslated,
            ),
        ];
        let judged = judged.map(|(reason, before, now, verdict, expected)| {
            (reason, before, now, Some(verdict), expected)
        });
        for (reason, before, now, verdict, expected) in judged.into_iter().chain(without_source) {
            let planned = PlannedEntry {
                flow: flow(before),
                reason,
                seen: None,
            };
            let returned = ReturnedTo::of(&planned, &flow(now), verdict);
            assert_eq!(returned, expected, "{reason:?} {before} {now} {verdict:?}");
        }
    }
}
