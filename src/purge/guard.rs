//! Decision on each planned entry at the second look, right before its delete. Pure.
//!
//! The cluster was read again by then, and an entry may have been looked up again. An entry is deleted only where it still
//! passes every selector, [`VerdictPolicy`] still deletes it, and no [`Veto`] forbids it.

use std::net::SocketAddr;

use ctk_cluster::index::Index;
use ctk_cluster::rules::NodeRules;
use ctnetlink::flow::Flow;

use super::plan::{PlannedEntry, PurgePlan};
use super::policy::{DeleteVerdict, PlanDecision, VerdictPolicy};
use crate::entry::Entry;
use crate::this_node::ThisNode;
use crate::verdict::{Activity, Reason, Replies, is_recreated};

/// Access to the selectors, names and verdicts of the second look.
pub trait EntryJudge<'c> {
    /// The entry of `flow`, where it passes every selector but those by verdict. `seen`: comparison of earlier looks.
    fn select(&mut self, flow: &Flow, seen: Option<Activity>) -> Option<Entry<'c>>;

    /// The entry of `flow`, whatever the selectors say.
    fn judge(&self, flow: &Flow, seen: Option<Activity>) -> Entry<'c>;
}

/// Cluster of the second look, as far as it can forbid a delete.
#[derive(Clone, Copy)]
pub struct ClusterView<'c> {
    /// Saved at an earlier time: a file, or standard input.
    pub is_file: bool,
    /// Rules of this node. `None`: they were not read, or cannot be.
    pub rules: Option<&'c NodeRules>,
    pub index: Option<&'c Index>,
    pub node: &'c ThisNode,
}

impl ClusterView<'_> {
    /// Compares where this node's rules lead with where the flow leads. `None` without rules.
    pub fn rule_target(&self, flow: &Flow) -> Option<RuleTarget> {
        let rules = self.rules?;
        let local = self.node.owns(self.index, flow.original.dst) == Some(true);
        Some(RuleTarget::of(flow, rules, local))
    }
}

/// Endpoint to which this node's rules lead a new flow to a flow's destination, compared with the flow's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleTarget {
    /// The same endpoint.
    Same,
    /// Others; existing flows keep the endpoint (an IPVS server of weight 0).
    SameForExisting,
    Other,
    /// Rules that may lead to the endpoint are missing or not understood.
    NotKnown,
}

impl RuleTarget {
    /// `local`: the destination is an address of this node.
    fn of(flow: &Flow, rules: &NodeRules, local: bool) -> Self {
        let (Some(to), Some(from)) = (flow.original.dport(), flow.reply.sport()) else {
            return RuleTarget::Other;
        };
        let endpoint = SocketAddr::new(flow.reply.src, from);
        match rules.frontend(flow.original.dst, flow.protocol(), to, local) {
            Some(frontend) if frontend.targets.contains(&endpoint) => RuleTarget::Same,
            Some(frontend) if frontend.draining.contains(&endpoint) => RuleTarget::SameForExisting,
            Some(frontend) if !frontend.understood => RuleTarget::NotKnown,
            None if !rules.is_whole() => RuleTarget::NotKnown,
            _ => RuleTarget::Other,
        }
    }
}

/// Reason to leave a planned entry that was selected by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Veto {
    /// The entry may be newer than the cluster file, and this node's rules lead to its endpoint.
    RulesLeadThere,
    /// The same, and whether the rules lead there is not known.
    RulesNotKnown,
    /// The second look gives no verdict on it: rules that decide by then are not understood, or an object is missing.
    NotJudged,
}

/// Number of entries that were left, by veto.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VetoCounts {
    pub rules_lead_there: u64,
    pub rules_not_known: u64,
    pub not_judged: u64,
}

impl VetoCounts {
    fn add(&mut self, veto: Veto) {
        match veto {
            Veto::RulesLeadThere => self.rules_lead_there += 1,
            Veto::RulesNotKnown => self.rules_not_known += 1,
            Veto::NotJudged => self.not_judged += 1,
        }
    }

    /// Entries of which it is not known whether they are to be deleted.
    pub fn undecided(self) -> u64 {
        self.rules_not_known + self.not_judged
    }

    pub fn total(self) -> u64 {
        self.rules_lead_there + self.undecided()
    }
}

/// Decision on one planned entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteDecision {
    Delete,
    /// The entry does not match any more.
    Leave,
    /// The entry is left, and the reason is reported.
    Veto(Veto),
}

/// Verdict and replies of an entry that passes every selector but those by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectedEntry {
    /// `None`: no verdict was sought, or the entry is not confirmed or is dying.
    pub verdict: Option<DeleteVerdict>,
    pub replies: Replies,
}

impl From<&Entry<'_>> for SelectedEntry {
    fn from(entry: &Entry<'_>) -> Self {
        SelectedEntry {
            verdict: entry.judgement.as_ref().map(DeleteVerdict::from),
            replies: entry.replies,
        }
    }
}

/// Decides on planned entries by the cluster of the second look, and counts the vetoes.
pub struct Guard<'a> {
    policy: &'a VerdictPolicy,
    /// `None` where no selector is by verdict: then the cluster forbids nothing.
    cluster: Option<ClusterView<'a>>,
    vetoes: VetoCounts,
}

impl<'a> Guard<'a> {
    pub fn new(policy: &'a VerdictPolicy, cluster: Option<ClusterView<'a>>) -> Self {
        Guard {
            policy,
            cluster: cluster.filter(|_| policy.selects_by_verdict()),
            vetoes: VetoCounts::default(),
        }
    }

    pub fn vetoes(&self) -> VetoCounts {
        self.vetoes
    }

    /// Decides on a planned entry that is `now` at the second look. Returns the entry, too, where it is selected.
    pub fn reconsider<'c>(
        &mut self,
        judge: &mut impl EntryJudge<'c>,
        planned: &PlannedEntry,
        now: &Flow,
    ) -> (DeleteDecision, Option<Entry<'c>>) {
        // Another look adds nothing to what earlier ones showed, unless it shows another entry.
        let seen = planned.seen.filter(|_| !is_recreated(&planned.flow, now));
        let entry = judge.select(now, seen);
        let selected = entry.as_ref().map(SelectedEntry::from);
        let decision = self.decide(now, selected, || {
            let entry = judge.judge(now, None);
            entry.judgement.as_ref().map(DeleteVerdict::from)
        });
        if let DeleteDecision::Veto(veto) = decision {
            self.vetoes.add(veto);
        }
        (decision, entry)
    }

    /// `selected` is `None` where the entry does not pass a selector on what the kernel says or on names. `verdict` judges such
    /// an entry.
    fn decide(
        &self,
        now: &Flow,
        selected: Option<SelectedEntry>,
        verdict: impl FnOnce() -> Option<DeleteVerdict>,
    ) -> DeleteDecision {
        let deletes = selected.is_some_and(|entry| {
            self.policy.decide(now, entry.verdict, entry.replies) == PlanDecision::Delete
        });
        let veto = match deletes {
            true => self.newer_than_file(now),
            false if !self.policy.selects_by_verdict() => None,
            false => not_judged(match selected {
                Some(entry) => entry.verdict,
                None => verdict(),
            }),
        };
        match (deletes, veto) {
            (_, Some(veto)) => DeleteDecision::Veto(veto),
            (true, None) => DeleteDecision::Delete,
            (false, None) => DeleteDecision::Leave,
        }
    }

    /// The veto on an entry that a cluster file calls stale. An entry without a start may be newer than the file, and so may
    /// its endpoint; this node's own rules lead only to endpoints of the present. A start is compared with the file's time
    /// when the entry is judged.
    pub fn newer_than_file(&self, flow: &Flow) -> Option<Veto> {
        let file = self.cluster.filter(|cluster| cluster.is_file)?;
        if flow.start.is_some() {
            return None;
        }
        match file.rule_target(flow)? {
            RuleTarget::Same | RuleTarget::SameForExisting => Some(Veto::RulesLeadThere),
            RuleTarget::NotKnown => Some(Veto::RulesNotKnown),
            RuleTarget::Other => None,
        }
    }

    /// Entries of the plan may be newer than the cluster file, and no rules of this node tell.
    pub fn cannot_tell_age(&self, plan: &PurgePlan) -> bool {
        let file = self.cluster.filter(|cluster| cluster.is_file);
        file.is_some_and(|file| file.rules.is_none())
            && plan
                .entries()
                .iter()
                .any(|entry| entry.flow.start.is_none())
    }

    /// Each entry is looked up right before its delete, because a selector uses a value that changes while an entry lives,
    /// the cluster that decides was not read again, or a verdict depends on the state of a connection (stale or detached).
    pub fn needs_lookups(&self, plan: &PurgePlan, second_look: &SecondLookScope) -> bool {
        second_look.uses_changing_values
            || (second_look.cluster_decides && !second_look.cluster_read_again)
            || (self.policy.selects_by_verdict()
                && plan
                    .entries()
                    .iter()
                    .any(|entry| entry.flow.state.is_some()))
    }
}

/// Values that the selectors use, and those of them that the second look at the cluster renewed.
#[derive(Clone, Copy, Debug)]
pub struct SecondLookScope {
    /// A selector uses a value that changes while an entry lives.
    pub uses_changing_values: bool,
    /// A selector is by name or verdict.
    pub cluster_decides: bool,
    /// False for standard input.
    pub cluster_read_again: bool,
}

/// The veto on an entry that is not selected: it was planned for its verdict, and now it has none.
fn not_judged(verdict: Option<DeleteVerdict>) -> Option<Veto> {
    let verdict = verdict?;
    (verdict.reason == Reason::SourceIncomplete && !verdict.unsettled).then_some(Veto::NotJudged)
}

#[cfg(test)]
mod tests;
