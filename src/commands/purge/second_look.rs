//! The second look at the cluster, right before a delete: by the source of the first and no less of it, or nothing is
//! deleted. A dry run and the question on a terminal take the same look, so that they promise no more than a purge does.

use std::time::Duration;

use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::purge::plan::{Fate, Plan, Planned};
use crate::purge::veto::{Veto, newer_than_file};
use crate::session::cluster::Cluster;
use crate::session::node_rules;
use crate::session::pipeline::EntryPipeline;
use crate::session::read_scope;
use crate::terminal::messages::note;
use crate::verdict::{Judgement, Reason, is_recreated};
use ctk_cluster::rules::read::Read;
use ctk_cluster::source::ClusterSource;
use ctnetlink::flow::Flow;

use super::basis::Basis;
use super::lingering::Lingering;
use super::{Purge, say};

/// The cluster as the second look found it.
pub(super) struct SecondLook {
    pub cluster: Option<Cluster>,
    /// The source was read again. Where it cannot be, its age is held against it once more.
    pub read_again: bool,
}

impl SecondLook {
    /// No second look is needed.
    pub fn without(first: Option<Cluster>) -> Self {
        SecondLook {
            cluster: first,
            read_again: false,
        }
    }
}

/// A planned entry as the second look judges it.
pub(super) struct Decision<'c> {
    /// `None` where it does not pass the selectors any more.
    pub entry: Option<Entry<'c>>,
    pub deletes: bool,
    /// Why it is left although it passes the selectors.
    pub veto: Option<Veto>,
}

impl Purge<'_> {
    /// Waits, and reads again what the plan hangs on.
    ///
    /// # Errors
    /// Partial: the source cannot be read again, or it is another or a lesser one than at the first look.
    pub(super) fn look_again(
        &self,
        first: Option<Cluster>,
        plan: &Plan,
        settle: Duration,
    ) -> Result<SecondLook, CommandError> {
        if !settle.is_zero() {
            note(say::waiting(plan.len(), settle));
            std::thread::sleep(settle);
        }
        let mut first = match first {
            Some(first) if self.entries.needs_cluster() => first,
            first => return Ok(SecondLook::without(first)),
        };
        let basis = Basis::of(&first);
        let source = first.source(&self.source);
        let rules_decide = matches!(source, ClusterSource::Rules(_) | ClusterSource::ApiAndRules);
        // Before the API, so that nothing stands between its answer and the deletes.
        let beside = (!rules_decide).then(|| self.rules_beside());
        let read_again = first.can_be_read_again();
        let mut cluster = match read_again {
            true => self.read_same(&source, &mut first, plan)?,
            false => first,
        };
        if let Some(rules) = beside {
            cluster.rules = rules;
        }
        self.accept(&cluster)?;
        if let Some(why) = basis.lost_by(&Basis::of(&cluster)) {
            return Err(refused(&why).hint("run it again, with the same source"));
        }
        Ok(SecondLook {
            cluster: Some(cluster),
            read_again,
        })
    }

    /// Reads `source` again, as little of it as will do.
    fn read_same(
        &self,
        source: &ClusterSource,
        first: &mut Cluster,
        plan: &Plan,
    ) -> Result<Cluster, CommandError> {
        let less = read_scope::again(&mut first.loaded, plan, &self.entries.selectors);
        let read = self.read_cluster(Some(source), less);
        read.map_err(nothing_deleted)?
            .ok_or_else(|| refused("there is no cluster source any more"))
    }

    /// A new packet is translated only if this node's rules do it, whatever the cluster says: for entries that never were,
    /// the rules have a say, too. So they have for entries that may be younger than a file ([`newer_than_file`]), and they show
    /// which flows would come back to a dead endpoint ([`Lingering`]).
    fn rules_beside(&self) -> Option<Read> {
        let by_verdict = self.policy.selects_by_verdict();
        by_verdict.then(|| node_rules::of_kube_proxy(&self.source.netns))?
    }

    /// What a purge makes of a planned entry that is `flow` by now.
    pub(super) fn decide<'c>(
        &self,
        pipeline: &mut EntryPipeline<'c>,
        cluster: Option<&Cluster>,
        planned: &Planned,
        flow: &Flow,
    ) -> Decision<'c> {
        // One more look tells nothing new about refills, unless it shows another entry.
        let seen = planned.seen.filter(|_| !is_recreated(&planned.flow, flow));
        let entry = pipeline.consider(flow.clone(), seen);
        let matches = entry
            .as_ref()
            .is_some_and(|entry| self.fate(entry) == Fate::Planned);
        let veto = match matches {
            true => self.veto(flow, cluster),
            false => self
                .is_not_judged(pipeline, flow)
                .then_some(Veto::NotJudged),
        };
        Decision {
            entry,
            deletes: matches && veto.is_none(),
            veto,
        }
    }

    /// It was planned for its verdict, and has none any more.
    fn is_not_judged(&self, pipeline: &EntryPipeline<'_>, flow: &Flow) -> bool {
        let judgement = || pipeline.entry(flow.clone(), None).judgement;
        let open = |judgement: Judgement<'_>| {
            judgement.reason == Reason::SourceIncomplete && !judgement.is_unsettled()
        };
        self.policy.selects_by_verdict() && judgement().is_some_and(open)
    }

    fn veto(&self, flow: &Flow, cluster: Option<&Cluster>) -> Option<Veto> {
        let file =
            cluster.filter(|cluster| cluster.is_file() && self.policy.selects_by_verdict())?;
        let local = file.node.owns(file.index(), flow.original.dst) == Some(true);
        newer_than_file(flow, file.node_rules(), local)
    }

    /// Says what the second look shows beside the entries, and gives what may come back.
    pub(super) fn say_of(
        &self,
        look: &SecondLook,
        plan: &Plan,
        pipeline: &EntryPipeline<'_>,
    ) -> Lingering {
        let Some(cluster) = look.cluster.as_ref() else {
            return Lingering::default();
        };
        if !self.policy.selects_by_verdict() {
            return Lingering::default();
        }
        let mut planned = plan.planned().iter();
        if cluster.is_file()
            && cluster.rules.is_none()
            && planned.any(|planned| planned.flow.start.is_none())
        {
            note(
                "an entry younger than the cluster file cannot be told: nf_conntrack_timestamp was 0 when it was made, and \
                 no rules of kube-proxy are here, or they cannot be read",
            );
        }
        let is_left = |planned: &Planned| self.veto(&planned.flow, Some(cluster)).is_some();
        let lingering = Lingering::of(plan, cluster, pipeline, is_left);
        lingering.lines().iter().for_each(note);
        lingering
    }
}

/// The second look failed: whatever the reason, the answer is partial.
pub(super) fn nothing_deleted(error: CommandError) -> CommandError {
    let mut refused = refused(&error.text());
    refused.hints = error.hints;
    refused
}

fn refused(why: &str) -> CommandError {
    CommandError::new(
        Status::Partial,
        format!("the second look at the cluster: {why}; nothing was deleted"),
    )
}
