//! The entries that match, as far as events and dumps told, and the records of what changes in them.
//!
//! Events are applied in the kernel's order, dumps between them. A dump is newer than the events that wait in the queue
//! behind it, so an event may be *late*: it tells what the view knows already, or what was true before the dump. Late
//! events are told apart by reply tuple, id and status, as far as that goes; the view ends right in any case, because the
//! events end right.
//!
//! The id is a hash that survives re-creation, and the endpoint is often the same again. So an entry that was made anew
//! without a word of the old one's end (`nf_conntrack_events` at 0 or 2) shows by what cannot happen within one life:
//! status bits that vanish, counters that fall, a second NEW.

use std::collections::HashMap;
use std::time::Duration;

use crate::entry::Entry;
use crate::verdict::{Activity, Observation, Reason, RecentObservations, Verdict};
use ctnetlink::flow::{AddressPort, Counters, Flow, ProtocolState, Status, Tuple, Zone};

use super::pods::Pods;
use super::record::{Followed, Record};

/// Flows that ended whose endpoint is remembered, to tell where they went when they come back.
const REMEMBERED: usize = 4096;

/// What names an entry for as long as it lives.
pub type Key = (Zone, Tuple);

/// Selects and judges; what a watch sees an entry with.
pub trait ResolveEntry<'c> {
    /// The entry behind a flow, with what the looks at it showed, if it passes every selector. Without any it was not in the
    /// view before.
    fn pick(&mut self, flow: Flow, seen: Option<Activity>) -> Option<Entry<'c>>;

    /// The same whether it passes or not.
    fn entry(&mut self, flow: Flow, seen: Option<Activity>) -> Entry<'c>;

    /// A NEW event tells that this entry was made. Called after the end of the one before it, which is judged as it was.
    fn begins(&mut self, key: Key);
}

/// One entry of the view: 432 bytes with its key, and as much again of the map around it at worst.
#[derive(Debug)]
struct Tracked {
    flow: Flow,
    reason: Option<Reason>,
    /// The verdict that the records so far leave it with.
    told: Option<Verdict>,
    looks: RecentObservations,
    /// The look at the table after which, or in which, it came into the view.
    since: u64,
    /// The dump that had it last.
    dump: u64,
}

impl Tracked {
    /// What the looks at it showed; `None` before there were two.
    fn seen(&self) -> Option<Activity> {
        Some(self.looks.activity(&self.flow))
    }
}

/// The view.
#[derive(Debug, Default)]
pub struct View {
    tracked: HashMap<Key, Tracked>,
    /// Where flows went that ended.
    ended: HashMap<Key, (AddressPort, String)>,
    /// Pods at reply sources, by their last names.
    pods: Pods,
    /// Looks at the table, each a dump or, when one was spoiled, several.
    look: u64,
    dump: u64,
    /// There was a whole dump. What was found until then are snapshots.
    begun: bool,
}

/// Takes records.
pub type Tell<'a, 'c> = &'a mut dyn FnMut(Record<'c>);

impl View {
    /// Entries that match.
    pub fn len(&self) -> usize {
        self.tracked.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tracked.is_empty()
    }

    /// Entries of the view with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let reasons = self.tracked.values().filter_map(|tracked| tracked.reason);
        reasons.filter(|reason| reason.verdict() == verdict).count()
    }

    /// Entries whose verdict is open because too little is known of the cluster or of this namespace.
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

    /// Every flow.
    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.tracked.values().map(|tracked| &tracked.flow)
    }

    /// Every entry, for a table of them.
    pub fn entries<'a, 'c: 'a>(
        &'a self,
        resolver: &'a mut dyn ResolveEntry<'c>,
    ) -> impl Iterator<Item = Entry<'c>> + 'a {
        self.tracked
            .values()
            .map(|tracked| resolver.entry(tracked.flow.clone(), tracked.seen()))
    }

    /// A NEW event.
    pub fn made<'c>(
        &mut self,
        flow: Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        let key = key_of(&flow);
        // What came into the view with the last dump may have its NEW still to come. What was there before has not.
        let is_late = self
            .tracked
            .get(&key)
            .is_some_and(|tracked| is_same(&tracked.flow, &flow) && tracked.since == self.look);
        if !is_late {
            // Its DESTROY never comes, or was told before a dump: the old one is over.
            self.end(&key, resolver, tell);
        }
        resolver.begins(key);
        match is_late {
            true => self.learn(&key, flow, resolver, tell),
            false => self.begin(key, flow, resolver, tell),
        }
    }

    fn begin<'c>(
        &mut self,
        key: Key,
        flow: Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        if let Some(entry) = resolver.pick(flow, None) {
            self.add(key, &entry, tell);
            tell(Record::New(self.pods.followed(entry)));
        }
    }

    /// An UPDATE event. One that names another entry than the view has is late.
    pub fn changed<'c>(
        &mut self,
        flow: Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        let key = key_of(&flow);
        match self.tracked.get(&key) {
            Some(tracked) if is_same(&tracked.flow, &flow) => {
                self.learn(&key, flow, resolver, tell)
            }
            Some(_) => {}
            // It changed into the selection, or its NEW is lost: new to whoever follows.
            None => self.begin(key, flow, resolver, tell),
        }
    }

    /// What an event says of the entry that the view has.
    fn learn<'c>(
        &mut self,
        key: &Key,
        flow: Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        let Some(tracked) = self.tracked.get_mut(key) else {
            return;
        };
        if has_lost_status(&tracked.flow, &flow) {
            return;
        }
        let before = tracked.flow.clone();
        merge(&mut tracked.flow, flow);
        if is_changed(&before, &tracked.flow) {
            let change = Change {
                updated: true,
                refreshed: None,
            };
            self.show(key, change, resolver, tell);
        }
    }

    /// Tells what changed in an entry, if it still passes; else that it changed, once, and forgets it.
    fn show<'c>(
        &mut self,
        key: &Key,
        change: Change,
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        let Some(tracked) = self.tracked.get_mut(key) else {
            return;
        };
        let (flow, seen) = (tracked.flow.clone(), tracked.seen());
        let Some(entry) = resolver.pick(flow.clone(), seen) else {
            self.tracked.remove(key);
            let entry = resolver.entry(flow, seen);
            return tell(Record::Update(self.pods.followed(entry)));
        };
        let entry = self.pods.followed(entry);
        let shown = change.updated || change.refreshed.is_some();
        if change.updated {
            tell(Record::Update(entry.clone()));
        }
        if let Some((before, after)) = change.refreshed {
            tell(Record::Refresh {
                followed: entry.clone(),
                before,
                after,
            });
        }
        tell_verdict(tracked, entry, shown, tell);
    }

    /// A DESTROY event. One that names another entry than the view has is late, and told already.
    pub fn destroyed<'c>(
        &mut self,
        flow: &Flow,
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        let key = key_of(flow);
        let Some(tracked) = self.tracked.get_mut(&key) else {
            return;
        };
        if !is_same(&tracked.flow, flow) {
            return;
        }
        // The last counters, which only this event has.
        tracked.flow.counters_original = flow.counters_original.or(tracked.flow.counters_original);
        tracked.flow.counters_reply = flow.counters_reply.or(tracked.flow.counters_reply);
        self.end(&key, resolver, tell);
    }

    /// Before the flows of a dump are given to [`View::seen`]. `again`: the one before was spoiled, and no event was heard
    /// since.
    pub fn begin_dump(&mut self, again: bool) {
        self.dump += 1;
        self.look += u64::from(!again);
    }

    /// A flow of a dump, at a monotonic time.
    pub fn seen<'c>(
        &mut self,
        flow: Flow,
        at: Duration,
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        let (key, look) = (key_of(&flow), Observation::of(&flow, at));
        if let Some(tracked) = self.tracked.get_mut(&key) {
            if !is_made_anew(&tracked.flow, &flow) {
                tracked.dump = self.dump;
                let before = tracked.looks.last_timeout();
                let refilled = tracked.looks.push(look);
                let change = Change {
                    updated: is_changed(&tracked.flow, &flow),
                    refreshed: before.zip(flow.timeout).filter(|_| refilled),
                };
                tracked.flow = flow;
                return self.show(&key, change, resolver, tell);
            }
            self.end(&key, resolver, tell);
        }
        let Some(entry) = resolver.pick(flow, None) else {
            return;
        };
        self.add(key, &entry, tell).looks.push(look);
        let entry = self.pods.followed(entry);
        tell(match self.begun {
            true => Record::New(entry),
            false => Record::Snapshot(entry),
        });
    }

    /// Entries that the dump did not have. Where the kernel left out what does not match, they may live on.
    pub fn missing(&self) -> Vec<(Tuple, Zone)> {
        let tracked = self.tracked.iter();
        let missing = tracked.filter(|(_, tracked)| tracked.dump != self.dump);
        missing
            .map(|((zone, original), _)| (*original, *zone))
            .collect()
    }

    /// After the flows of a dump. `whole`: every entry that lived was seen, so one that was not has ended without a word.
    pub fn end_dump<'c>(
        &mut self,
        whole: bool,
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        if !whole {
            return;
        }
        self.begun = true;
        for (original, zone) in self.missing() {
            self.end(&(zone, original), resolver, tell);
        }
    }

    /// The cluster changed: judges every entry anew. One that does not pass any more stays until it is looked at.
    pub fn judge_again<'c>(&mut self, resolver: &mut dyn ResolveEntry<'c>, tell: Tell<'_, 'c>) {
        for tracked in self.tracked.values_mut() {
            let entry = resolver.entry(tracked.flow.clone(), tracked.seen());
            self.pods.remember(&entry);
            tell_verdict(tracked, self.pods.followed(entry), false, tell);
        }
    }

    /// The same of some entries, as far as they are in the view.
    pub fn judge_these<'c>(
        &mut self,
        keys: &[Key],
        resolver: &mut dyn ResolveEntry<'c>,
        tell: Tell<'_, 'c>,
    ) {
        for key in keys {
            if let Some(tracked) = self.tracked.get_mut(key) {
                let entry = resolver.entry(tracked.flow.clone(), tracked.seen());
                tell_verdict(tracked, self.pods.followed(entry), false, tell);
            }
        }
    }

    /// Takes an entry into the view, and tells when its flow went elsewhere before.
    fn add<'c>(&mut self, key: Key, entry: &Entry<'c>, tell: Tell<'_, 'c>) -> &mut Tracked {
        self.pods.remember(entry);
        let now = entry.flow.reply.source();
        let elsewhere = self.ended.remove(&key).filter(|(place, _)| *place != now);
        if let Some((_, before)) = elsewhere {
            let followed = self.pods.followed(entry.clone());
            tell(Record::Move { followed, before });
        }
        let tracked = Tracked {
            flow: entry.flow.clone(),
            reason: entry.judgement.map(|judgement| judgement.reason),
            told: entry.judgement.map(|judgement| judgement.verdict()),
            looks: RecentObservations::default(),
            since: self.look,
            dump: self.dump,
        };
        self.tracked.entry(key).insert_entry(tracked).into_mut()
    }

    fn end<'c>(&mut self, key: &Key, resolver: &mut dyn ResolveEntry<'c>, tell: Tell<'_, 'c>) {
        let Some(mut tracked) = self.tracked.remove(key) else {
            return;
        };
        tracked.flow.timeout = None;
        let seen = tracked.seen();
        let entry = resolver.entry(tracked.flow, seen);
        if self.ended.len() >= REMEMBERED {
            self.ended.clear();
        }
        let place = entry.flow.reply.source();
        self.ended
            .insert(*key, (place, self.pods.endpoint_text(&entry)));
        tell(Record::Destroy(self.pods.followed(entry)));
    }
}

/// What is to be told of an entry that stays.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    updated: bool,
    /// Seconds left before and after.
    refreshed: Option<(u32, u32)>,
}

/// The name of an entry.
pub fn key_of(flow: &Flow) -> Key {
    (flow.zone, flow.original)
}

/// One entry, and not a later one of the same original tuple. Start times tell best, but are seldom there.
fn is_same(a: &Flow, b: &Flow) -> bool {
    let start = a.start.zip(b.start).is_none_or(|(a, b)| a == b);
    a.reply == b.reply && a.id == b.id && start
}

/// `now` cannot be the entry that was `known`, even where tuples and id are the same.
fn is_made_anew(known: &Flow, now: &Flow) -> bool {
    let fell = |known: Option<Counters>, now: Option<Counters>| {
        let both = known.zip(now);
        both.is_some_and(|(known, now)| now.packets < known.packets)
    };
    !is_same(known, now)
        || has_lost_status(known, now)
        || fell(known.counters_original, now.counters_original)
        || fell(known.counters_reply, now.counters_reply)
}

/// Bits that stay for as long as an entry lives.
fn has_lost_status(known: &Flow, now: &Flow) -> bool {
    let lasting = Status::SEEN_REPLY.with(Status::ASSURED);
    known.status.without(now.status).intersects(lasting)
}

/// Something changed that is worth telling: not its timer, nor its counters. What an event left out was 0.
fn is_changed(known: &Flow, now: &Flow) -> bool {
    let state = |flow: &Flow| flow.state.map(ProtocolState::number);
    let labels = |flow: &Flow| flow.labels().copied().unwrap_or_default();
    known.status != now.status
        || known.mark.unwrap_or(0) != now.mark.unwrap_or(0)
        || state(known) != state(now)
        || labels(known) != labels(now)
        || (now.helper().is_some() && known.helper() != now.helper())
}

/// What an event says over what was known; it leaves out much.
fn merge(known: &mut Flow, event: Flow) {
    known.status = event.status;
    known.timeout = event.timeout.or(known.timeout);
    known.mark = event.mark.or(known.mark);
    known.state = event.state.or(known.state);
    if let Some(event) = event.rare {
        let rare = known.rare_mut();
        rare.labels = event.labels.or(rare.labels);
        rare.helper = event.helper.or_else(|| rare.helper.take());
        rare.secctx = event.secctx.or_else(|| rare.secctx.take());
        rare.master = event.master.or(rare.master);
    }
}

/// Notes the verdict, and tells it when it changed. `shown`: another record shows the entry as it is judged now.
///
/// An entry that is too young to be called stale will be, or not, in a few seconds. Until then the verdict that its
/// endpoint was fine is not taken back, unless another record does.
fn tell_verdict<'c>(
    tracked: &mut Tracked,
    followed: Followed<'c>,
    shown: bool,
    tell: Tell<'_, 'c>,
) {
    let judgement = followed.entry.judgement;
    tracked.reason = judgement.map(|judgement| judgement.reason);
    let after = judgement.map(|judgement| judgement.verdict());
    let before = tracked.told;
    let fine = matches!(before, Some(Verdict::Ok | Verdict::Draining));
    let awaited = fine && !shown && judgement.is_some_and(|judgement| judgement.is_unsettled());
    if before == after || awaited {
        return;
    }
    tracked.told = after;
    tell(Record::Verdict {
        followed,
        before,
        after,
    });
}

#[cfg(test)]
mod tests;
