//! What the kernel tells and what is heard of endpoints, in the order of their times.

use std::time::{Duration, Instant};

use crate::session::cluster::Cluster;
use crate::session::pipeline::EntryPipeline;
use crate::watch::record::Record;
use crate::watch::view::key_of;
use ctk_cluster::index::Index;
use ctnetlink::{Event, EventKind, QueueItem};

use super::super::ended::Ended;
use super::super::endpoints::Heard;
use super::super::resolver::EntryResolver;
use super::Watch;
use super::look::asking;

/// The longest wait: signals, keys and a rewritten cluster file are looked for in between.
const TICK: Duration = Duration::from_millis(200);

impl Watch<'_> {
    /// What the kernel told since, and a fresh dump where it lost something.
    pub(super) fn take_events(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<(), Ended> {
        let batch = match self.queued.take() {
            Some(batch) => batch,
            None => self.queue.next_batch(self.wait())?,
        };
        let index = cluster.and_then(Cluster::index);
        let mut heard = self.source.news().into_iter().peekable();
        let gaps = batch.items.iter().map(|item| match item {
            QueueItem::Event(_) => 0,
            QueueItem::Gap(gap) => gap.overruns,
        });
        let lost = batch.unreadable + gaps.sum::<u64>();
        // One record where the first of them is: all are made good for by the same look.
        let mut untold = lost;
        for item in batch.items {
            match item {
                QueueItem::Event(event) => {
                    while let Some(heard) = heard.next_if(|heard| heard.time <= event.time) {
                        self.tell_endpoint(&heard, index);
                    }
                    if let Some((index, cluster)) = asking(&self.source, cluster) {
                        self.source.consider(&event.flow, index, &cluster.node);
                    }
                    self.event(event, pipeline);
                }
                QueueItem::Gap(_) => self.gap(std::mem::take(&mut untold)),
            }
            self.teller.check()?;
        }
        for heard in heard {
            self.tell_endpoint(&heard, index);
        }
        self.gap(untold);
        if lost > 0 {
            self.look(pipeline, cluster)?;
        }
        Ok(())
    }

    pub(super) fn tell_endpoint(&mut self, heard: &Heard, index: Option<&Index>) {
        if heard.is_wanted(&self.entries.selectors) {
            self.teller.time = heard.time;
            self.teller.tell(Record::Endpoint(heard.record(index)));
        }
    }

    fn gap(&mut self, overruns: u64) {
        if overruns > 0 {
            self.gaps += overruns;
            self.unsynced = true;
            self.teller.is_now();
            self.teller.tell(Record::Gap { overruns });
        }
    }

    fn event(&mut self, event: Event, pipeline: &mut EntryPipeline<'_>) {
        self.teller.time = event.time;
        let mut resolver = EntryResolver::of_event(pipeline, &mut self.young, event.time);
        let teller = &mut self.teller;
        let tell: &mut dyn FnMut(Record<'_>) = &mut |record| teller.tell(record);
        match event.kind {
            EventKind::New => self.view.made(event.flow, &mut resolver, tell),
            EventKind::Update => self.view.changed(event.flow, &mut resolver, tell),
            EventKind::Destroy => {
                self.view.destroyed(&event.flow, &mut resolver, tell);
                self.young.forget(&key_of(&event.flow), event.time);
            }
        }
    }

    /// Notes which entries were made lately, by what is in the queue. It is applied later, and whether something of it was
    /// lost is told then.
    pub(super) fn note_queued(&mut self) -> Result<bool, Ended> {
        let batch = self.queue.next_batch(Duration::ZERO)?;
        let mut lost = batch.unreadable > 0;
        for item in &batch.items {
            match item {
                QueueItem::Event(event) if event.kind == EventKind::New => {
                    self.young.note(key_of(&event.flow), event.time);
                }
                QueueItem::Event(_) => {}
                QueueItem::Gap(_) => lost = true,
            }
        }
        let queued = self.queued.get_or_insert_default();
        queued.items.extend(batch.items);
        queued.unreadable += batch.unreadable;
        Ok(lost)
    }

    /// How long nothing has to be done but wait for events.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        let poll = self
            .next_poll
            .map(|poll| poll.saturating_duration_since(now));
        let end = self
            .args
            .time
            .map(|time| time.saturating_sub(self.began.elapsed()));
        [poll, end].into_iter().flatten().fold(TICK, Duration::min)
    }
}
