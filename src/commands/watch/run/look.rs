//! Looks at the table: dumps that show the changes without events.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::session::cluster::Cluster;
use crate::session::pipeline::{EntryPipeline, now};
use crate::watch::record::Record;
use crate::watch::view::key_of;
use ctk_cluster::index::Index;
use ctnetlink::TableKind;
use ctnetlink::flow::Direction;

use super::super::end::WatchEnd;
use super::super::resolver::EntryResolver;
use super::super::watched_cluster::WatchedCluster;
use super::Watch;

/// Most dumps of one look. When all are inconsistent, the view stays as it is until the next look.
const MAX_ATTEMPTS: usize = 3;
/// Longest time from the creation of an entry to its event in the queue.
const MAX_EVENT_LATENCY: Duration = Duration::from_millis(50);

impl Watch<'_> {
    /// Dumps the table into the view, and again while the kernel reports an inconsistent dump.
    pub(super) fn look(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<(), WatchEnd> {
        pipeline.start_over();
        self.cluster_source.forget_unknown_owners();
        let began = Instant::now();
        let mut is_complete = false;
        for attempt in 0..MAX_ATTEMPTS {
            self.sink.set_time_to_now();
            self.view.begin_dump(attempt > 0);
            is_complete = self.dump(pipeline, cluster)?;
            if is_complete {
                self.get_missing(pipeline)?;
            }
            self.recheck_unsure(pipeline)?;
            let emit: &mut dyn FnMut(Record<'_>) = &mut |record| self.sink.push(record);
            let mut resolver = EntryResolver::new(pipeline, &mut self.freshness);
            self.view.end_dump(is_complete, &mut resolver, emit);
            if is_complete {
                break;
            }
        }
        if is_complete {
            self.freshness.record_complete_look();
            let last_activity = self.sink.last_activity;
            self.schedule
                .record_complete(began, Instant::now(), last_activity);
            if std::mem::take(&mut self.unsynced) {
                self.sink.push(Record::Synced);
            }
        }
        self.schedule.plan_next(Instant::now(), self.unsynced);
        Ok(())
    }

    /// Applies every entry that the kernel dumps for the selectors. Returns whether these are all.
    fn dump(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<bool, WatchEnd> {
        let mut is_complete = true;
        let unknown_owners = cluster_with_unknown_owners(&self.cluster_source, cluster);
        for filter in pipeline.filter().dumps() {
            let kind = TableKind::Conntrack;
            let dump = self.table.dump_timed(kind, &filter, &mut |flow, at| {
                let at = at.saturating_duration_since(self.began);
                let emit: &mut dyn FnMut(Record<'_>) = &mut |record| self.sink.push(record);
                let mut resolver = EntryResolver::of_look(pipeline, &mut self.freshness, at);
                if let Some((index, cluster)) = unknown_owners {
                    self.cluster_source
                        .note_unknown_owner(&flow, index, &cluster.node);
                }
                self.view.apply_dumped(flow, at, &mut resolver, emit);
                match self.sink.has_failed() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
            tracing::debug!(?dump, "look");
            self.sink.check()?;
            is_complete &= dump.is_consistent() && dump.unreadable == 0;
        }
        Ok(is_complete)
    }

    /// Requests the entries that a dump lacks, one by one, when the kernel filters by a property that can change, such as the
    /// status: they may still exist.
    fn get_missing(&mut self, pipeline: &mut EntryPipeline<'_>) -> Result<(), WatchEnd> {
        if pipeline.filter().dumps() == pipeline.filter().lasting().dumps() {
            return Ok(());
        }
        for (original, zone) in self.view.missing() {
            let found = self.table.get(&original, Direction::Original, zone)?;
            if let Some(flow) = found {
                let at = self.began.elapsed();
                let emit: &mut dyn FnMut(Record<'_>) = &mut |record| self.sink.push(record);
                let mut resolver = EntryResolver::of_look(pipeline, &mut self.freshness, at);
                self.view.apply_dumped(flow, at, &mut resolver, emit);
            }
        }
        self.sink.check()?;
        Ok(())
    }

    /// Applies the stale entries of the first look, after the creations that wait in the queue are recorded: an entry that was
    /// created since the watch began may be younger than the cluster source.
    fn recheck_unsure(&mut self, pipeline: &mut EntryPipeline<'_>) -> Result<(), WatchEnd> {
        let unsure = self.freshness.take_unsure();
        if unsure.is_empty() {
            return Ok(());
        }
        std::thread::sleep(MAX_EVENT_LATENCY);
        if self.record_queued_creations()? {
            for (flow, _) in &unsure {
                self.freshness.record_creation(key_of(flow), now());
            }
        }
        for (flow, at) in unsure {
            let emit: &mut dyn FnMut(Record<'_>) = &mut |record| self.sink.push(record);
            let mut resolver = EntryResolver::of_look(pipeline, &mut self.freshness, at);
            self.view.apply_dumped(flow, at, &mut resolver, emit);
        }
        self.sink.check()?;
        Ok(())
    }

    /// Looks for entries that match since a change of the cluster, now or a little later.
    pub(super) fn look_soon(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<(), WatchEnd> {
        match self.schedule.request(Instant::now()) {
            true => self.look(pipeline, cluster),
            false => Ok(()),
        }
    }
}

/// The cluster with its index, when owners of addresses have to be requested because only chosen Pods are read.
pub(super) fn cluster_with_unknown_owners<'c>(
    source: &WatchedCluster<'_>,
    cluster: Option<&'c Cluster>,
) -> Option<(&'c Index, &'c Cluster)> {
    let cluster = cluster.filter(|_| source.requests_owners())?;
    Some((cluster.index()?, cluster))
}
