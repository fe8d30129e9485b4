//! Readings of the cluster: one before the scan, and one for the second look, right before the deletes.
//!
//! A dry run and the question on a terminal take the same second look, so that they show what a purge would do.

use std::time::{Duration, SystemTime};

use crate::entry::Entry;
use crate::error::{CommandError, ExitStatus};
use crate::output::Format;
use crate::purge::cluster_reading::{ClusterReading, ReadingRefused};
use crate::purge::guard::{ClusterView, EntryJudge, Guard};
use crate::purge::lagging_rules::LaggingRules;
use crate::purge::plan::PurgePlan;
use crate::session::cluster::{self, Cluster};
use crate::session::cluster_source::Purpose;
use crate::session::pipeline::EntryPipeline;
use crate::session::read_scope;
use crate::terminal::messages::note;
use crate::verdict::{Activity, Judgement};
use ctk_cluster::read_scope::ReadScope;
use ctk_cluster::source::ClusterSource;
use ctnetlink::flow::Flow;

use super::{Purge, messages};

/// The cluster as the second look found it.
pub(super) struct SecondLook {
    pub cluster: Option<Cluster>,
    /// The source was read again. Standard input cannot be.
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

    fn view(&self) -> Option<ClusterView<'_>> {
        let cluster = self.cluster.as_ref()?;
        Some(ClusterView {
            is_file: cluster.is_file(),
            rules: match cluster.is_rules_only() {
                true => cluster.node_rules(),
                false => cluster.kube_proxy_rules(),
            },
            index: cluster.index(),
            node: &cluster.node,
        })
    }
}

impl<'c> EntryJudge<'c> for EntryPipeline<'c> {
    fn select(&mut self, flow: &Flow, seen: Option<Activity>) -> Option<Entry<'c>> {
        self.consider(flow.clone(), seen)
    }

    fn judge(&self, flow: &Flow, seen: Option<Activity>) -> Entry<'c> {
        self.entry(flow.clone(), seen)
    }
}

impl Purge<'_> {
    /// Reads the cluster, where names or verdicts are selected or names can be shown. `again`: the source of an earlier
    /// reading, whose notes were printed; `scope`: less of it than the selectors need.
    pub(super) fn read_cluster(
        &self,
        again: Option<&ClusterSource>,
        scope: Option<ReadScope>,
    ) -> Result<Option<Cluster>, CommandError> {
        let cluster_decides = self.entries.needs_cluster();
        // The format shows no names.
        if !cluster_decides && self.args.output.report.format == Format::Conntrack {
            return Ok(None);
        }
        let purpose = match cluster_decides {
            true => Purpose::Delete,
            false => Purpose::Show,
        };
        let scope = scope.unwrap_or_else(|| read_scope::first(&self.source, &self.entries));
        let cluster = match again {
            None => Cluster::read(&self.source, purpose, scope),
            Some(again) => Cluster::read_from(again, &self.source, purpose, scope),
        }?;
        cluster::require(&self.source, cluster.as_ref(), cluster_decides)?;
        Ok(cluster)
    }

    /// Checks a cluster that is to decide.
    ///
    /// # Errors
    /// Partial, see [`ClusterReading::check`].
    pub(super) fn check_cluster(&self, cluster: &Cluster) -> Result<(), CommandError> {
        let checked = reading(cluster).check(SystemTime::now(), self.args.max_age);
        let Err(refused) = checked else {
            return Ok(());
        };
        let hint = match &refused {
            ReadingRefused::Incomplete(_) => cluster.remedy(),
            ReadingRefused::FromTheFuture => {
                "set the clock right, or fetch the file again".to_owned()
            }
            ReadingRefused::TooOld { .. } if cluster.is_rules_only() => {
                "save the rules again, or use those of this node: --cluster rules".to_owned()
            }
            ReadingRefused::TooOld { .. } => cluster::FETCH.to_owned(),
        };
        Err(CommandError::new(ExitStatus::Partial, refused).hint(hint))
    }

    /// Waits for `settle`, and reads the cluster again, by the source of the first reading.
    ///
    /// # Errors
    /// Partial: the source cannot be read again, or [`ClusterReading::check_later`] refuses it.
    pub(super) fn look_again(
        &self,
        first: Option<Cluster>,
        plan: &PurgePlan,
        settle: Duration,
    ) -> Result<SecondLook, CommandError> {
        if !settle.is_zero() {
            note(messages::waiting(plan.len(), settle));
            std::thread::sleep(settle);
        }
        let mut first = match first {
            Some(first) if self.entries.needs_cluster() => first,
            first => return Ok(SecondLook::without(first)),
        };
        let first_reading = reading(&first);
        let source = first.source(&self.source);
        let read_again = first.can_be_read_again();
        let cluster = match read_again {
            true => self.read_same(&source, &mut first, plan)?,
            false => {
                first.refresh_rules(&self.source);
                first
            }
        };
        self.check_cluster(&cluster)?;
        if let Err(lost) = first_reading.check_later(&reading(&cluster)) {
            return Err(refused(&lost.to_string()).hint("run it again, with the same source"));
        }
        Ok(SecondLook {
            cluster: Some(cluster),
            read_again,
        })
    }

    /// Reads of `source` the part that the plan depends on.
    fn read_same(
        &self,
        source: &ClusterSource,
        first: &mut Cluster,
        plan: &PurgePlan,
    ) -> Result<Cluster, CommandError> {
        let scope = read_scope::again(&mut first.loaded, plan, &self.entries.selectors);
        let read = self.read_cluster(Some(source), scope);
        read.map_err(nothing_deleted)?
            .ok_or_else(|| refused("there is no cluster source any more"))
    }

    /// Selectors, resolved against the cluster of the second look.
    ///
    /// # Errors
    /// Partial: a selected name does not exist any more.
    pub(super) fn second_pipeline<'c>(
        &'c self,
        look: &'c SecondLook,
    ) -> Result<EntryPipeline<'c>, CommandError> {
        let pipeline = EntryPipeline::new(&self.entries, look.cluster.as_ref());
        pipeline.map_err(nothing_deleted)
    }

    pub(super) fn guard<'l>(&'l self, look: &'l SecondLook) -> Guard<'l> {
        Guard::new(&self.policy, look.view())
    }

    /// Prints notes on what the second look shows besides the entries, and returns the entries that may come back.
    pub(super) fn report_rules(
        &self,
        look: &SecondLook,
        plan: &PurgePlan,
        guard: &Guard<'_>,
        pipeline: &EntryPipeline<'_>,
    ) -> LaggingRules {
        let Some(view) = look.view().filter(|_| self.policy.selects_by_verdict()) else {
            return LaggingRules::default();
        };
        if guard.cannot_tell_age(plan) {
            note(messages::AGE_NOT_KNOWN);
        }
        let lagging = LaggingRules::of(plan, &view, guard, |flow| {
            let judgement = pipeline.entry(flow.clone(), None).judgement;
            judgement.as_ref().map(Judgement::verdict)
        });
        messages::lagging_rules(&lagging).iter().for_each(note);
        lagging
    }
}

fn reading(cluster: &Cluster) -> ClusterReading {
    let loaded = cluster.loaded.as_ref();
    let missing = loaded.map(|loaded| loaded.summary.missing.iter().copied());
    let uid = cluster.index().and_then(|index| index.uid());
    let rules = cluster.node_rules();
    ClusterReading {
        kind: loaded.map(|loaded| loaded.source.kind),
        time: cluster.time(),
        complete: cluster.is_complete(),
        uid: uid.map(str::to_owned),
        lacking: cluster.missing(),
        missing: missing.into_iter().flatten().collect(),
        node: cluster.node.name.clone(),
        netns_owner: cluster.node.namespace,
        proxies: rules.map(|rules| rules.proxies.clone()).unwrap_or_default(),
    }
}

/// A failure of the second look. The answer is partial, whatever the cause.
fn nothing_deleted(error: CommandError) -> CommandError {
    let mut refused = refused(&error.text());
    refused.hints = error.hints;
    refused
}

fn refused(reason: &str) -> CommandError {
    CommandError::new(
        ExitStatus::Partial,
        format!("the second look at the cluster: {reason}; nothing was deleted"),
    )
}
