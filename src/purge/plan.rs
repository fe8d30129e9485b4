//! Entries that a purge is to delete, gathered from one scan of the table. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::entry::Entry;
use crate::verdict::{Activity, Reason};
use ctnetlink::flow::Flow;

use super::policy::{DeleteVerdict, HoldReason, PlanDecision, VerdictPolicy};

/// One entry to delete: at most 256 bytes, and the size of [`ctnetlink::flow::Rare`] where an entry has labels, a helper or
/// a security context.
#[derive(Clone, Debug)]
pub struct PlannedEntry {
    /// As the scan found it.
    pub flow: Flow,
    /// Reason of its verdict. `None`: no verdict was sought.
    pub reason: Option<Reason>,
    /// Comparison of several looks. `None`: one look was enough.
    pub seen: Option<Activity>,
}

/// The plan of a purge. It does not change after it is built.
#[derive(Debug, Default)]
pub struct PurgePlan {
    entries: Vec<PlannedEntry>,
    held: [u64; HoldReason::ALL.len()],
    suspects: HeldSuspects,
    without_id: u64,
}

/// Suspect entries that are held back. A suspect is deleted only with evidence that its answers stopped, which takes counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldSuspects {
    pub count: u64,
    /// Those whose packets are counted in both directions.
    pub with_counters: u64,
    /// Destination and reply source of the others: selectors that name them.
    pub without_counters: BTreeSet<(IpAddr, IpAddr)>,
}

impl HeldSuspects {
    pub fn add(&mut self, flow: &Flow) {
        self.count += 1;
        if flow.counters_original.is_some() && flow.counters_reply.is_some() {
            self.with_counters += 1;
        } else {
            self.without_counters
                .insert((flow.original.dst, flow.reply.src));
        }
    }
}

/// More entries than `--max` allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {}, more than --max {max}; nothing was deleted",
    crate::plural::count(*.entries as u64, "entry", "entries"), if *.entries == 1 { "matches" } else { "match" })]
pub struct TooManyEntries {
    pub entries: usize,
    pub max: usize,
}

/// Gathers a [`PurgePlan`] by a policy. Nothing else makes one that has entries.
#[derive(Debug)]
pub struct PlanBuilder<'a> {
    policy: &'a VerdictPolicy,
    plan: PurgePlan,
}

impl<'a> PlanBuilder<'a> {
    pub fn new(policy: &'a VerdictPolicy) -> Self {
        PlanBuilder {
            policy,
            plan: PurgePlan::default(),
        }
    }

    /// Takes an entry in that passed every selector but those by verdict, where the policy deletes it and it has an id; else
    /// counts it.
    pub fn add(&mut self, entry: Entry<'_>, seen: Option<Activity>) {
        let judged = entry.judgement.as_ref().map(DeleteVerdict::from);
        let plan = &mut self.plan;
        match self.policy.decide(&entry.flow, judged, entry.replies) {
            PlanDecision::Leave => {}
            PlanDecision::Hold(reason) => {
                plan.held[reason as usize] += 1;
                if reason == HoldReason::Suspect {
                    plan.suspects.add(&entry.flow);
                }
            }
            PlanDecision::Delete if entry.flow.id.is_none() => plan.without_id += 1,
            PlanDecision::Delete => plan.entries.push(PlannedEntry {
                flow: entry.flow,
                reason: judged.map(|judged| judged.reason),
                seen,
            }),
        }
    }

    /// `inconsistent`: the scan was interrupted, or the table changed its size meanwhile, so that entries may have come twice.
    pub fn finish(self, inconsistent: bool) -> PurgePlan {
        let mut plan = self.plan;
        if inconsistent {
            let key = |entry: &PlannedEntry| (entry.flow.zone, entry.flow.original, entry.flow.id);
            plan.entries.sort_unstable_by_key(key);
            plan.entries.dedup_by_key(|entry| key(entry));
        }
        plan
    }
}

impl PurgePlan {
    pub fn entries(&self) -> &[PlannedEntry] {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries that match and are left because the kernel gave them no id, without which a delete does not name one entry.
    pub fn without_id(&self) -> u64 {
        self.without_id
    }

    /// Number of entries that were held back for each reason that occurred.
    pub fn held(&self) -> impl Iterator<Item = (HoldReason, u64)> {
        let counts = HoldReason::ALL.into_iter().zip(self.held);
        counts.filter(|(_, count)| *count > 0)
    }

    pub fn held_suspects(&self) -> &HeldSuspects {
        &self.suspects
    }

    /// # Errors
    /// The plan has more than `max` entries.
    pub fn check_size(&self, max: usize) -> Result<(), TooManyEntries> {
        let entries = self.len();
        match entries > max {
            true => Err(TooManyEntries { entries, max }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Selectors;
    use ctnetlink::flow::{Counters, L4, Status, Tuple};

    fn flow(port: u16, id: Option<u32>) -> Flow {
        let tuple = |src: u8, dst: u8| Tuple {
            src: [10, 0, 0, src].into(),
            dst: [10, 0, 0, dst].into(),
            protocol: 17,
            l4: L4::Ports { src: port, dst: 53 },
        };
        let mut flow = Flow::new(tuple(1, 2), tuple(9, 1));
        flow.id = id;
        flow
    }

    fn plan(flows: impl IntoIterator<Item = Flow>, inconsistent: bool) -> PurgePlan {
        let policy = VerdictPolicy::default();
        let mut builder = PlanBuilder::new(&policy);
        for flow in flows {
            builder.add(Entry::bare(flow), None);
        }
        builder.finish(inconsistent)
    }

    #[test]
    fn a_plan_has_no_entry_that_is_doubled_dying_or_without_id() {
        let mut dying = flow(4002, Some(7));
        dying.status = Status::CONFIRMED.with(Status::DYING);
        let both = [flow(4000, Some(7)), flow(4001, Some(7))];
        let others = [flow(4000, Some(7)), dying, flow(4003, None)];
        let plan = plan(both.into_iter().chain(others), true);
        let ports = plan
            .entries()
            .iter()
            .map(|entry| entry.flow.original.sport());
        assert_eq!(ports.collect::<Vec<_>>(), [Some(4000), Some(4001)]);
        assert_eq!(plan.without_id(), 1);
    }

    #[test]
    fn a_plan_by_verdict_has_no_entry_without_verdict() {
        let selectors = Selectors {
            stale: true,
            ..Selectors::default()
        };
        let policy = VerdictPolicy::new(&selectors, &[]).unwrap();
        let mut builder = PlanBuilder::new(&policy);
        builder.add(Entry::bare(flow(4000, Some(7))), None);
        let plan = builder.finish(false);
        assert!(plan.is_empty());
        assert_eq!(plan.held().count(), 0);
    }

    #[test]
    fn suspects_are_told_apart_by_their_counters() {
        let mut suspects = HeldSuspects::default();
        let counters = Some(Counters {
            packets: 1,
            bytes: 1,
        });
        let mut counted = flow(4000, Some(7));
        counted.counters_original = counters;
        suspects.add(&counted);
        counted.counters_reply = counters;
        suspects.add(&counted);
        assert_eq!((suspects.count, suspects.with_counters), (2, 1));
        let named = BTreeSet::from([([10, 0, 0, 2].into(), [10, 0, 0, 9].into())]);
        assert_eq!(suspects.without_counters, named);
    }

    #[test]
    fn a_plan_of_more_entries_than_allowed_is_refused() {
        let plan = plan([flow(4000, Some(7))], false);
        assert_eq!(plan.check_size(1), Ok(()));
        let refused = plan.check_size(0).unwrap_err().to_string();
        assert!(refused.starts_with("1 entry matches, more than --max 0;"));
    }

    #[test]
    fn a_planned_entry_stays_within_its_documented_size() {
        let size = size_of::<PlannedEntry>();
        assert!(size <= 256, "{size}");
    }
}
