//! View of the entries that match, built from events and dumps, and the records of its changes.
//!
//! Events are applied in the kernel's order, dumps between them. A dump is newer than the events that wait in the queue at
//! that time, so an event may be *late*: it reports a state that the view has already, or one from before the dump. Reply
//! tuple, id and status show most late events. The view converges in any case, because the last event of each entry is right.
//!
//! The id is a hash that survives re-creation, and the endpoint is often the same again. An entry that was created again
//! without an event for the end of the old one (`nf_conntrack_events` at 0 or 2) is recognized by changes that cannot happen
//! within one life: status bits that vanish, counters that fall, a second NEW.

use std::collections::HashMap;
use std::time::Duration;

use crate::entry::Entry;
use crate::verdict::{Activity, Observation, Reason, RecentObservations, Verdict};
use ctnetlink::flow::{AddressPort, Flow, Tuple, Zone};

use super::flow_diff::{
    has_lost_status, is_recreated, is_same_entry, is_updated, merge_end, merge_event,
};
use super::former_pods::FormerPods;
use super::record::{Record, WatchedEntry};

/// Most ended flows whose endpoint is remembered, for the record of a move; all are forgotten when one more comes.
const MAX_ENDED_FLOWS: usize = 4096;

/// Identity of an entry for as long as it lives.
pub type FlowKey = (Zone, Tuple);

/// Selects, names and judges flows.
pub trait ResolveEntry<'c> {
    /// Returns the entry of a flow that passes every selector. `seen`: result of the looks at it; `None` when it enters the
    /// view.
    fn select(&mut self, flow: Flow, seen: Option<Activity>) -> Option<Entry<'c>>;

    /// Returns the entry of a flow, whether it passes the selectors or not.
    fn entry(&mut self, flow: Flow, seen: Option<Activity>) -> Entry<'c>;

    /// Records that a NEW event reported this entry. Called after the removal of its predecessor, which is judged by its own
    /// age.
    fn note_created(&mut self, key: FlowKey);
}

/// One entry of the view: 432 bytes with its key, and at worst as much again for the free slots of the map.
#[derive(Debug)]
struct Tracked {
    flow: Flow,
    reason: Option<Reason>,
    /// Verdict after the records that were emitted so far.
    emitted: Option<Verdict>,
    looks: RecentObservations,
    /// Number of the look after which, or in which, it entered the view.
    first_look: u64,
    /// Number of the last dump that contained it.
    dump: u64,
}

impl Tracked {
    /// Result of the looks at it.
    fn seen(&self) -> Option<Activity> {
        Some(self.looks.activity(&self.flow))
    }
}

/// View of the entries that match.
#[derive(Debug, Default)]
pub struct View {
    tracked: HashMap<FlowKey, Tracked>,
    /// Endpoint, and its text, of flows that ended.
    ended: HashMap<FlowKey, (AddressPort, String)>,
    pods: FormerPods,
    /// Number of looks at the table. A look is one dump, or several when the first ones were inconsistent.
    look: u64,
    dump: u64,
    /// A complete dump was seen. Entries that are found before are snapshots.
    is_initialized: bool,
}

/// Receiver of records.
pub type RecordHandler<'a, 'c> = &'a mut dyn FnMut(Record<'c>);

impl View {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.tracked.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tracked.is_empty()
    }

    /// Number of entries with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let reasons = self.tracked.values().filter_map(|tracked| tracked.reason);
        reasons.filter(|reason| reason.verdict() == verdict).count()
    }

    /// Number of entries whose verdict is open because the cluster or this namespace is not known well enough.
    pub fn count_open(&self) -> usize {
        let reasons = self.tracked.values().filter_map(|tracked| tracked.reason);
        let open = |reason: &Reason| {
            matches!(
                reason,
                Reason::SourceIncomplete | Reason::ForeignNetns | Reason::ServiceRangeUnknown
            )
        };
        reasons.filter(open).count()
    }

    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.tracked.values().map(|tracked| &tracked.flow)
    }

    /// All entries, named and judged now.
    pub fn entries<'a, 'c: 'a>(
        &'a self,
        resolver: &'a mut dyn ResolveEntry<'c>,
    ) -> impl Iterator<Item = Entry<'c>> + 'a {
        self.tracked
            .values()
            .map(|tracked| resolver.entry(tracked.flow.clone(), tracked.seen()))
    }

    /// Applies a NEW event.
    pub fn apply_new<'c>(
        &mut self,
        flow: Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        let key = key_of(&flow);
        // The NEW of an entry that entered with the last look may still wait in the queue. That of an older entry cannot.
        let is_late = self.tracked.get(&key).is_some_and(|tracked| {
            is_same_entry(&tracked.flow, &flow) && tracked.first_look == self.look
        });
        if !is_late {
            // The old entry has ended: its DESTROY is never sent, or a dump has replaced it.
            self.remove(&key, None, resolver, emit);
        }
        resolver.note_created(key);
        match is_late {
            true => self.apply_to_tracked(&key, flow, resolver, emit),
            false => self.start_tracking(key, flow, resolver, emit),
        }
    }

    fn start_tracking<'c>(
        &mut self,
        key: FlowKey,
        flow: Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        if let Some(entry) = resolver.select(flow, None) {
            self.insert(key, &entry, emit);
            emit(Record::New(self.pods.annotate(entry)));
        }
    }

    /// Applies an UPDATE event. One of another entry than that of the view is late and ignored.
    pub fn apply_update<'c>(
        &mut self,
        flow: Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        let key = key_of(&flow);
        match self.tracked.get(&key) {
            Some(tracked) if is_same_entry(&tracked.flow, &flow) => {
                self.apply_to_tracked(&key, flow, resolver, emit)
            }
            Some(_) => {}
            // It matches from now on, or its NEW was lost: a new entry for the reader.
            None => self.start_tracking(key, flow, resolver, emit),
        }
    }

    /// Applies an event to an entry of the view, unless the event is late.
    fn apply_to_tracked<'c>(
        &mut self,
        key: &FlowKey,
        flow: Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        let Some(tracked) = self.tracked.get_mut(key) else {
            return;
        };
        if has_lost_status(&tracked.flow, &flow) {
            return;
        }
        let before = tracked.flow.clone();
        merge_event(&mut tracked.flow, flow);
        if is_updated(&before, &tracked.flow) {
            let change = EntryChange {
                updated: true,
                refreshed: None,
            };
            self.emit_changes(key, change, resolver, emit);
        }
    }

    /// Emits the changes of an entry. One that passes the selectors no longer gets a last update and is removed.
    fn emit_changes<'c>(
        &mut self,
        key: &FlowKey,
        change: EntryChange,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        let Some(tracked) = self.tracked.get_mut(key) else {
            return;
        };
        let (flow, seen) = (tracked.flow.clone(), tracked.seen());
        let Some(entry) = resolver.select(flow.clone(), seen) else {
            self.tracked.remove(key);
            let entry = resolver.entry(flow, seen);
            return emit(Record::Update(self.pods.annotate(entry)));
        };
        let entry = self.pods.annotate(entry);
        let is_shown = change.updated || change.refreshed.is_some();
        if change.updated {
            emit(Record::Update(entry.clone()));
        }
        if let Some((before, after)) = change.refreshed {
            emit(Record::Refresh {
                watched: entry.clone(),
                before,
                after,
            });
        }
        emit_verdict(tracked, entry, is_shown, emit);
    }

    /// Applies a DESTROY event. One of another entry than that of the view is late and ignored.
    pub fn apply_destroy<'c>(
        &mut self,
        flow: &Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        let key = key_of(flow);
        let Some(tracked) = self.tracked.get_mut(&key) else {
            return;
        };
        if !is_same_entry(&tracked.flow, flow) {
            return;
        }
        merge_end(&mut tracked.flow, flow);
        self.remove(&key, flow.timeout, resolver, emit);
    }

    /// Begins a dump, whose flows follow by [`View::apply_dumped`]. `is_retry`: the dump before was inconsistent, and no event
    /// was applied since.
    pub fn begin_dump(&mut self, is_retry: bool) {
        self.dump += 1;
        self.look += u64::from(!is_retry);
    }

    /// Applies a flow of a dump. `at`: monotonic time since the start of the watch.
    pub fn apply_dumped<'c>(
        &mut self,
        flow: Flow,
        at: Duration,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        let (key, look) = (key_of(&flow), Observation::of(&flow, at));
        if let Some(tracked) = self.tracked.get_mut(&key) {
            if !is_recreated(&tracked.flow, &flow) {
                tracked.dump = self.dump;
                let before = tracked.looks.last_timeout();
                let refilled = tracked.looks.push(look);
                let change = EntryChange {
                    updated: is_updated(&tracked.flow, &flow),
                    refreshed: before.zip(flow.timeout).filter(|_| refilled),
                };
                tracked.flow = flow;
                return self.emit_changes(&key, change, resolver, emit);
            }
            self.remove(&key, None, resolver, emit);
        }
        let Some(entry) = resolver.select(flow, None) else {
            return;
        };
        self.insert(key, &entry, emit).looks.push(look);
        let entry = self.pods.annotate(entry);
        emit(match self.is_initialized {
            true => Record::New(entry),
            false => Record::Snapshot(entry),
        });
    }

    /// Entries that the current dump did not contain. They may still exist when the kernel filters the dump.
    pub fn missing(&self) -> Vec<(Tuple, Zone)> {
        let tracked = self.tracked.iter();
        let missing = tracked.filter(|(_, tracked)| tracked.dump != self.dump);
        missing
            .map(|((zone, original), _)| (*original, *zone))
            .collect()
    }

    /// Ends a dump. `is_complete`: it contained every entry, so that a missing one has ended without an event.
    pub fn end_dump<'c>(
        &mut self,
        is_complete: bool,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        if !is_complete {
            return;
        }
        self.is_initialized = true;
        for (original, zone) in self.missing() {
            self.remove(&(zone, original), None, resolver, emit);
        }
    }

    /// Judges every entry again, after a change of the cluster. One that passes the selectors no longer stays until the next
    /// look.
    pub fn rejudge_all<'c>(
        &mut self,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        for tracked in self.tracked.values_mut() {
            let entry = resolver.entry(tracked.flow.clone(), tracked.seen());
            self.pods.remember(&entry);
            emit_verdict(tracked, self.pods.annotate(entry), false, emit);
        }
    }

    /// Judges some entries again, as far as they are in the view.
    pub fn rejudge<'c>(
        &mut self,
        keys: &[FlowKey],
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        for key in keys {
            if let Some(tracked) = self.tracked.get_mut(key) {
                let entry = resolver.entry(tracked.flow.clone(), tracked.seen());
                emit_verdict(tracked, self.pods.annotate(entry), false, emit);
            }
        }
    }

    /// Adds an entry to the view, and emits a move when its flow had another endpoint before.
    fn insert<'c>(
        &mut self,
        key: FlowKey,
        entry: &Entry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) -> &mut Tracked {
        self.pods.remember(entry);
        let now = entry.flow.reply.source();
        let moved = self.ended.remove(&key).filter(|(place, _)| *place != now);
        if let Some((_, before)) = moved {
            let watched = self.pods.annotate(entry.clone());
            emit(Record::Move { watched, before });
        }
        let tracked = Tracked {
            flow: entry.flow.clone(),
            reason: entry.judgement.map(|judgement| judgement.reason),
            emitted: entry.judgement.map(|judgement| judgement.verdict()),
            looks: RecentObservations::default(),
            first_look: self.look,
            dump: self.dump,
        };
        self.tracked.entry(key).insert_entry(tracked).into_mut()
    }

    /// Removes an entry that has ended. `left`: seconds left on its timer then, if an event says so.
    fn remove<'c>(
        &mut self,
        key: &FlowKey,
        left: Option<u32>,
        resolver: &mut dyn ResolveEntry<'c>,
        emit: RecordHandler<'_, 'c>,
    ) {
        let Some(mut tracked) = self.tracked.remove(key) else {
            return;
        };
        tracked.flow.timeout = left;
        let seen = tracked.seen();
        let entry = resolver.entry(tracked.flow, seen);
        if self.ended.len() >= MAX_ENDED_FLOWS {
            self.ended.clear();
        }
        let place = entry.flow.reply.source();
        self.ended
            .insert(*key, (place, self.pods.endpoint_text(&entry)));
        emit(Record::Destroy(self.pods.annotate(entry)));
    }
}

/// Changes to emit for one entry.
#[derive(Clone, Copy, Debug, Default)]
struct EntryChange {
    updated: bool,
    /// Seconds left before and after.
    refreshed: Option<(u32, u32)>,
}

/// Identity of the entry of a flow.
pub fn key_of(flow: &Flow) -> FlowKey {
    (flow.zone, flow.original)
}

/// Records the verdict, and emits it when it changed. `is_shown`: another record shows the entry with its present verdict.
///
/// The verdict of an entry that may be younger than the cluster source is settled within seconds. Until then an emitted
/// verdict that its endpoint serves is not taken back, unless another record shows the open one.
fn emit_verdict<'c>(
    tracked: &mut Tracked,
    watched: WatchedEntry<'c>,
    is_shown: bool,
    emit: RecordHandler<'_, 'c>,
) {
    let judgement = watched.entry.judgement;
    tracked.reason = judgement.map(|judgement| judgement.reason);
    let after = judgement.map(|judgement| judgement.verdict());
    let before = tracked.emitted;
    let was_fine = matches!(before, Some(Verdict::Ok | Verdict::Draining));
    let is_awaited =
        was_fine && !is_shown && judgement.is_some_and(|judgement| judgement.is_unsettled());
    if before == after || is_awaited {
        return;
    }
    tracked.emitted = after;
    emit(Record::Verdict {
        watched,
        before,
        after,
    });
}

#[cfg(test)]
mod tests;
