//! Looks at the table: what no event tells shows by comparing dumps.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::session::cluster::Cluster;
use crate::session::pipeline::{EntryPipeline, now};
use crate::watch::record::Record;
use crate::watch::view::key_of;
use ctk_cluster::index::Index;
use ctnetlink::TableKind;
use ctnetlink::flow::Direction;

use super::super::ended::Ended;
use super::super::resolver::EntryResolver;
use super::super::source::Source;
use super::Watch;

/// Dumps in a row that the kernel may spoil before the view is left as it is until the next one.
const ATTEMPTS: usize = 3;
/// From when an entry can be seen until its event is in the queue, at most.
const EVENT_LATENCY: Duration = Duration::from_millis(50);
/// Until the next look after a spoiled one, where there would be none; and between two looks for a changed cluster.
const RETRY: Duration = Duration::from_secs(1);

impl Watch<'_> {
    /// A dump into the view; again when the table changed its shape meanwhile.
    pub(super) fn look(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<(), Ended> {
        pipeline.start_over();
        self.source.forget_questions();
        let began = Instant::now();
        let mut whole = false;
        for attempt in 0..ATTEMPTS {
            self.teller.is_now();
            self.view.begin_dump(attempt > 0);
            whole = self.dump(pipeline, cluster)?;
            if whole {
                self.look_for_missing(pipeline)?;
            }
            self.look_at_unsure(pipeline)?;
            let tell: &mut dyn FnMut(Record<'_>) = &mut |record| self.teller.tell(record);
            let mut resolver = EntryResolver::new(pipeline, &mut self.young);
            self.view.end_dump(whole, &mut resolver, tell);
            if whole {
                break;
            }
        }
        if whole {
            self.young.looked();
            let calm = self.looked.map(|(_, calm)| calm);
            let calm = calm.filter(|calm| self.teller.busy <= *calm);
            self.looked = Some((began, calm.unwrap_or_else(Instant::now)));
            if std::mem::take(&mut self.unsynced) {
                self.teller.tell(Record::Synced);
            }
        }
        let interval = match self.args.interval {
            Duration::ZERO if self.unsynced => Some(RETRY),
            Duration::ZERO => None,
            interval => Some(interval),
        };
        self.next_poll = interval.map(|interval| Instant::now() + interval);
        Ok(())
    }

    /// Shows the view every entry that the kernel gives for the selectors; whether these are all.
    fn dump(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<bool, Ended> {
        let mut whole = true;
        let asking = asking(&self.source, cluster);
        for filter in pipeline.filter().dumps() {
            let kind = TableKind::Conntrack;
            let dump = self.table.dump_timed(kind, &filter, &mut |flow, at| {
                let at = at.saturating_duration_since(self.began);
                let tell: &mut dyn FnMut(Record<'_>) = &mut |record| self.teller.tell(record);
                let mut resolver = EntryResolver::of_look(pipeline, &mut self.young, at);
                if let Some((index, cluster)) = asking {
                    self.source.consider(&flow, index, &cluster.node);
                }
                self.view.seen(flow, at, &mut resolver, tell);
                match self.teller.has_failed() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
            tracing::debug!(?dump, "look");
            self.teller.check()?;
            whole &= dump.is_consistent() && dump.unreadable == 0;
        }
        Ok(whole)
    }

    /// Where the kernel leaves out entries by what can change in one, such as its status, those that were left out may live
    /// on: they are asked for one by one.
    fn look_for_missing(&mut self, pipeline: &mut EntryPipeline<'_>) -> Result<(), Ended> {
        if pipeline.filter().dumps() == pipeline.filter().lasting().dumps() {
            return Ok(());
        }
        for (original, zone) in self.view.missing() {
            let found = self.table.get(&original, Direction::Original, zone)?;
            if let Some(flow) = found {
                let at = self.began.elapsed();
                let tell: &mut dyn FnMut(Record<'_>) = &mut |record| self.teller.tell(record);
                let mut resolver = EntryResolver::of_look(pipeline, &mut self.young, at);
                self.view.seen(flow, at, &mut resolver, tell);
            }
        }
        self.teller.check()?;
        Ok(())
    }

    /// Of stale entries of the first look the queue tells which were made since the watch began to listen: these may be
    /// younger than the cluster source.
    fn look_at_unsure(&mut self, pipeline: &mut EntryPipeline<'_>) -> Result<(), Ended> {
        let unsure = self.young.take_unsure();
        if unsure.is_empty() {
            return Ok(());
        }
        std::thread::sleep(EVENT_LATENCY);
        if self.note_queued()? {
            for (flow, _) in &unsure {
                self.young.note(key_of(flow), now());
            }
        }
        for (flow, at) in unsure {
            let tell: &mut dyn FnMut(Record<'_>) = &mut |record| self.teller.tell(record);
            let mut resolver = EntryResolver::of_look(pipeline, &mut self.young, at);
            self.view.seen(flow, at, &mut resolver, tell);
        }
        self.teller.check()?;
        Ok(())
    }

    /// A look for what matches now and did not before; a cluster that changes all the time is no reason to look all the
    /// time.
    pub(super) fn look_soon(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<(), Ended> {
        let just_now = self.looked.map(|(began, _)| began + RETRY);
        match just_now.filter(|soon| *soon > Instant::now()) {
            None => self.look(pipeline, cluster),
            Some(soon) => {
                let next = self.next_poll.map_or(soon, |next| next.min(soon));
                self.next_poll = Some(next);
                Ok(())
            }
        }
    }
}

/// What an address in question is found with, where not all Pods are known.
pub(super) fn asking<'c>(
    source: &Source<'_>,
    cluster: Option<&'c Cluster>,
) -> Option<(&'c Index, &'c Cluster)> {
    let cluster = cluster.filter(|_| source.asks())?;
    Some((cluster.index()?, cluster))
}
