//! Stale entries whose flows this node's rules still lead to the same dead endpoint, because kube-proxy is behind. Pure.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ctnetlink::flow::Flow;

use super::guard::{ClusterView, Guard, RuleTarget};
use super::plan::PurgePlan;
use crate::verdict::Verdict;

/// Entries of a plan that may come back to their endpoint after the delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaggingRules {
    /// Entries whose endpoint the rules still lead to.
    pub entries: u64,
    /// Endpoints of `entries`.
    pub endpoints: BTreeSet<SocketAddr>,
    /// Entries to a destination whose rules are not understood.
    pub not_understood: u64,
}

impl LaggingRules {
    /// Counts the entries of `plan` that `guard` does not leave and whose verdict is `stale`. `verdict` judges a flow.
    pub fn of(
        plan: &PurgePlan,
        cluster: &ClusterView<'_>,
        guard: &Guard<'_>,
        verdict: impl Fn(&Flow) -> Option<Verdict>,
    ) -> Self {
        let mut lagging = LaggingRules::default();
        for flow in plan.entries().iter().map(|planned| &planned.flow) {
            let target = match flow.is_dnat() {
                true => cluster.rule_target(flow),
                false => None,
            };
            let Some(target @ (RuleTarget::Same | RuleTarget::NotKnown)) = target else {
                continue;
            };
            if guard.newer_than_file(flow).is_some() || verdict(flow) != Some(Verdict::Stale) {
                continue;
            }
            match (target, flow.reply.sport()) {
                (RuleTarget::Same, Some(port)) => {
                    lagging.entries += 1;
                    lagging.endpoints.insert((flow.reply.src, port).into());
                }
                _ => lagging.not_understood += 1,
            }
        }
        lagging
    }

    /// A flow may come back to the endpoint that its entry led to.
    pub fn may_come_back(&self) -> bool {
        self.entries > 0 || self.not_understood > 0
    }
}
