//! Resolves the entries of a watch: selects, names and judges them by one reading of the cluster.

use std::time::Duration;

use crate::entry::Entry;
use crate::session::pipeline::{EntryPipeline, now};
use crate::verdict::Activity;
use crate::watch::view::{Key, ResolveEntry};
use ctnetlink::flow::Flow;

use super::freshness::FreshnessGuard;

/// The pipeline at one moment of a watch.
pub(super) struct EntryResolver<'s, 'c> {
    pub pipeline: &'s mut EntryPipeline<'c>,
    pub young: &'s mut FreshnessGuard,
    /// Time of the event that is looked at, in nanoseconds since the Unix epoch.
    event: Option<u64>,
    /// Monotonic time of the look at the table.
    at: Duration,
}

impl<'s, 'c> EntryResolver<'s, 'c> {
    pub fn new(pipeline: &'s mut EntryPipeline<'c>, young: &'s mut FreshnessGuard) -> Self {
        EntryResolver {
            pipeline,
            young,
            event: None,
            at: Duration::ZERO,
        }
    }

    pub fn of_look(
        pipeline: &'s mut EntryPipeline<'c>,
        young: &'s mut FreshnessGuard,
        at: Duration,
    ) -> Self {
        EntryResolver {
            at,
            ..EntryResolver::new(pipeline, young)
        }
    }

    pub fn of_event(
        pipeline: &'s mut EntryPipeline<'c>,
        young: &'s mut FreshnessGuard,
        time: u64,
    ) -> Self {
        EntryResolver {
            event: Some(time),
            ..EntryResolver::new(pipeline, young)
        }
    }
}

impl<'c> ResolveEntry<'c> for EntryResolver<'_, 'c> {
    fn pick(&mut self, flow: Flow, seen: Option<Activity>) -> Option<Entry<'c>> {
        let (young, enters) = (&mut *self.young, seen.is_none().then_some(self.at));
        let mut is_told = true;
        let mut freshness = |entry: &mut Entry<'c>| {
            is_told = young.correct(entry, enters, now);
        };
        let entry = self.pipeline.pick(flow, seen, &mut freshness);
        entry.filter(|_| is_told)
    }

    fn entry(&mut self, flow: Flow, seen: Option<Activity>) -> Entry<'c> {
        let mut entry = self.pipeline.entry(flow, seen);
        self.young.correct(&mut entry, None, now);
        entry
    }

    fn begins(&mut self, key: Key) {
        // Also where it does not pass: it may come to be selected later.
        self.young.note(key, self.event.unwrap_or_else(now));
    }
}
