//! Stale entries whose flows this node's rules would lead to the same dead endpoint again: kube-proxy is behind.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::plural::count;
use crate::purge::plan::{Plan, Planned};
use crate::purge::veto::RulesLead;
use crate::session::cluster::Cluster;
use crate::session::pipeline::EntryPipeline;
use crate::verdict::Verdict;
use ctnetlink::flow::Flow;

/// Endpoints that are named.
const NAMED: usize = 5;

/// How many entries of a plan may come back as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lingering {
    /// Entries that the rules lead to where they lead.
    entries: u64,
    endpoints: BTreeSet<SocketAddr>,
    /// Entries of whose destination the rules are not understood.
    open: u64,
}

impl Lingering {
    /// Of the entries that `cluster` calls stale; `is_left` names those that are not deleted all the same.
    pub fn of(
        plan: &Plan,
        cluster: &Cluster,
        pipeline: &EntryPipeline<'_>,
        is_left: impl Fn(&Planned) -> bool,
    ) -> Self {
        let mut lingering = Lingering::default();
        for planned in plan.planned() {
            let flow = &planned.flow;
            let lead = lead(flow, cluster);
            if matches!(lead, RulesLead::Elsewhere | RulesLead::Draining) || is_left(planned) {
                continue;
            }
            let judgement = pipeline.entry(flow.clone(), None).judgement;
            if judgement.is_none_or(|judgement| judgement.verdict() != Verdict::Stale) {
                continue;
            }
            match (lead, flow.reply.sport()) {
                (RulesLead::There, Some(port)) => {
                    lingering.entries += 1;
                    lingering.endpoints.insert((flow.reply.src, port).into());
                }
                _ => lingering.open += 1,
            }
        }
        lingering
    }

    /// Flows may come back to where they led.
    pub fn may_come_back(&self) -> bool {
        self.entries > 0 || self.open > 0
    }

    /// Lines for stderr.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.entries > 0 {
            let named: Vec<String> = self
                .endpoints
                .iter()
                .take(NAMED)
                .map(SocketAddr::to_string)
                .collect();
            let more = match self.endpoints.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let lead = if self.entries == 1 { "leads" } else { "lead" };
            lines.push(format!(
                "kube-proxy on this node is behind: its rules still lead to {}{more}; {} {lead} there and may come back as \
                 before",
                named.join(", "),
                count(self.entries, "entry", "entries")
            ));
        }
        if self.open > 0 {
            lines.push(format!(
                "{} may come back as before: this node's rules for the destination are not understood",
                count(self.open, "entry", "entries")
            ));
        }
        lines
    }
}

fn lead(flow: &Flow, cluster: &Cluster) -> RulesLead {
    let Some(rules) = cluster.node_rules().filter(|_| flow.is_dnat()) else {
        return RulesLead::Elsewhere;
    };
    let local = cluster.node.owns(cluster.index(), flow.original.dst) == Some(true);
    RulesLead::of(flow, rules, local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_named_up_to_a_number_and_entries_counted() {
        let endpoints = |count: u8| (1..=count).map(|n| ([10, 244, 0, n], 53).into()).collect();
        for (entries, open, named, wanted) in [
            (0, 0, 0, &[][..]),
            (
                1,
                0,
                1,
                &["lead to 10.244.0.1:53; 1 entry leads there and may come back"],
            ),
            (
                9,
                2,
                7,
                &[
                    "10.244.0.5:53 and 2 more; 9 entries lead there",
                    "2 entries may come back as before",
                ],
            ),
        ] {
            let lingering = Lingering {
                entries,
                open,
                endpoints: endpoints(named),
            };
            let lines = lingering.lines();
            assert_eq!(lines.len(), wanted.len(), "{lines:?}");
            for (line, words) in lines.iter().zip(wanted) {
                assert!(line.contains(words), "{words}: {line}");
            }
            assert_eq!(lingering.may_come_back(), !wanted.is_empty());
        }
    }
}
