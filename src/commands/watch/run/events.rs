//! Events of the kernel and changes of endpoints, applied in the order of their times.

use std::time::{Duration, Instant};

use crate::session::cluster::Cluster;
use crate::session::pipeline::EntryPipeline;
use crate::watch::endpoint_event::EndpointEvent;
use crate::watch::record::Record;
use crate::watch::view::key_of;
use ctk_cluster::index::Index;
use ctnetlink::{Event, EventKind, QueueItem};

use super::super::end::WatchEnd;
use super::super::resolver::EntryResolver;
use super::Watch;
use super::look::cluster_with_unknown_owners;

/// Longest wait for events, between two checks for signals, keys and a changed cluster file.
const MAX_WAIT: Duration = Duration::from_millis(200);

impl Watch<'_> {
    /// Applies the events since the last call, and makes a look when some were lost.
    pub(super) fn take_events(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<(), WatchEnd> {
        let batch = match self.pending.take() {
            Some(batch) => batch,
            None => self.queue.next_batch(self.wait())?,
        };
        let index = cluster.and_then(Cluster::index);
        let mut endpoints = self
            .cluster_source
            .take_endpoint_events()
            .into_iter()
            .peekable();
        let gaps = batch.items.iter().map(|item| match item {
            QueueItem::Event(_) => 0,
            QueueItem::Gap(gap) => gap.overruns,
        });
        let lost = batch.unreadable + gaps.sum::<u64>();
        // One record for all losses, at the first of them: the same look repairs all.
        let mut unreported = lost;
        for item in batch.items {
            match item {
                QueueItem::Event(event) => {
                    while let Some(change) = endpoints.next_if(|change| change.time <= event.time) {
                        self.push_endpoint(&change, index);
                    }
                    if let Some((index, cluster)) =
                        cluster_with_unknown_owners(&self.cluster_source, cluster)
                    {
                        self.cluster_source
                            .note_unknown_owner(&event.flow, index, &cluster.node);
                    }
                    self.event(event, pipeline);
                }
                QueueItem::Gap(_) => self.gap(std::mem::take(&mut unreported)),
            }
            self.sink.check()?;
        }
        for change in endpoints {
            self.push_endpoint(&change, index);
        }
        self.gap(unreported);
        if lost > 0 {
            self.look(pipeline, cluster)?;
        }
        Ok(())
    }

    pub(super) fn push_endpoint(&mut self, change: &EndpointEvent, index: Option<&Index>) {
        let port = change.service_port();
        let is_selected = self.entries.selectors.wants_endpoints_of(
            port.namespace,
            port.service,
            port.name,
            port.number,
        );
        if is_selected {
            self.sink.time = change.time;
            self.sink.push(Record::Endpoint(change.record(index)));
        }
    }

    fn gap(&mut self, overruns: u64) {
        if overruns > 0 {
            self.overruns += overruns;
            self.unsynced = true;
            self.sink.set_time_to_now();
            self.sink.push(Record::Gap { overruns });
        }
    }

    fn event(&mut self, event: Event, pipeline: &mut EntryPipeline<'_>) {
        self.sink.time = event.time;
        let mut resolver = EntryResolver::of_event(pipeline, &mut self.freshness, event.time);
        let sink = &mut self.sink;
        let emit: &mut dyn FnMut(Record<'_>) = &mut |record| sink.push(record);
        match event.kind {
            EventKind::New => self.view.apply_new(event.flow, &mut resolver, emit),
            EventKind::Update => self.view.apply_update(event.flow, &mut resolver, emit),
            EventKind::Destroy => {
                self.view.apply_destroy(&event.flow, &mut resolver, emit);
                self.freshness.record_end(&key_of(&event.flow), event.time);
            }
        }
    }

    /// Records the creations that wait in the queue. The events are applied later. Returns whether some were lost.
    pub(super) fn record_queued_creations(&mut self) -> Result<bool, WatchEnd> {
        let batch = self.queue.next_batch(Duration::ZERO)?;
        let mut is_lossy = batch.unreadable > 0;
        for item in &batch.items {
            match item {
                QueueItem::Event(event) if event.kind == EventKind::New => {
                    self.freshness
                        .record_creation(key_of(&event.flow), event.time);
                }
                QueueItem::Event(_) => {}
                QueueItem::Gap(_) => is_lossy = true,
            }
        }
        let queued = self.pending.get_or_insert_default();
        queued.items.extend(batch.items);
        queued.unreadable += batch.unreadable;
        Ok(is_lossy)
    }

    /// Time to wait for events, until a look is due or `--for` passes.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        let look = self.schedule.time_left(now);
        let end = self
            .args
            .time
            .map(|time| time.saturating_sub(self.began.elapsed()));
        [look, end]
            .into_iter()
            .flatten()
            .fold(MAX_WAIT, Duration::min)
    }
}
