//! Selection, names and verdicts of the entries of a watch, by one state of the cluster.

use std::time::Duration;

use crate::entry::Entry;
use crate::session::pipeline::{EntryPipeline, now};
use crate::verdict::Activity;
use crate::watch::freshness::FreshnessGuard;
use crate::watch::view::{FlowKey, ResolveEntry};
use ctnetlink::flow::Flow;

/// The pipeline at one moment of a watch.
pub(super) struct EntryResolver<'s, 'c> {
    pub pipeline: &'s mut EntryPipeline<'c>,
    pub guard: &'s mut FreshnessGuard,
    /// Time of the event that is applied, in nanoseconds since the Unix epoch.
    event: Option<u64>,
    /// Monotonic time of the look at the table.
    at: Duration,
}

impl<'s, 'c> EntryResolver<'s, 'c> {
    pub fn new(pipeline: &'s mut EntryPipeline<'c>, guard: &'s mut FreshnessGuard) -> Self {
        EntryResolver {
            pipeline,
            guard,
            event: None,
            at: Duration::ZERO,
        }
    }

    pub fn of_look(
        pipeline: &'s mut EntryPipeline<'c>,
        guard: &'s mut FreshnessGuard,
        at: Duration,
    ) -> Self {
        EntryResolver {
            at,
            ..EntryResolver::new(pipeline, guard)
        }
    }

    pub fn of_event(
        pipeline: &'s mut EntryPipeline<'c>,
        guard: &'s mut FreshnessGuard,
        time: u64,
    ) -> Self {
        EntryResolver {
            event: Some(time),
            ..EntryResolver::new(pipeline, guard)
        }
    }
}

impl<'c> ResolveEntry<'c> for EntryResolver<'_, 'c> {
    fn select(&mut self, flow: Flow, seen: Option<Activity>) -> Option<Entry<'c>> {
        let (guard, enters) = (&mut *self.guard, seen.is_none().then_some(self.at));
        let mut is_shown = true;
        let mut freshness = |entry: &mut Entry<'c>| {
            is_shown = guard.hold_back(entry, enters, now);
        };
        let entry = self.pipeline.pick(flow, seen, &mut freshness);
        entry.filter(|_| is_shown)
    }

    fn entry(&mut self, flow: Flow, seen: Option<Activity>) -> Entry<'c> {
        let mut entry = self.pipeline.entry(flow, seen);
        self.guard.hold_back(&mut entry, None, now);
        entry
    }

    fn note_created(&mut self, key: FlowKey) {
        self.guard
            .record_creation(key, self.event.unwrap_or_else(now));
    }
}
