//! The entries that match, as far as events and dumps told, and the records of what changes in them.
//!
//! Events are applied in the kernel's order, dumps between them. A dump is newer than the events that wait in the queue
//! behind it, so an event may tell what the view knows already: it is told apart by reply tuple, id and status, and the
//! view ends right because the events end right.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::time::Duration;

use crate::entry::Entry;
use crate::flow::{Flow, Place, Tuple, Zone};
use crate::verdict::{Look, Looks, Reason, Seen, Verdict};

use super::record::Record;

/// Flows that ended whose endpoint is remembered, to tell where they went when they come back.
const REMEMBERED: usize = 4096;

/// What names an entry for as long as it lives.
type Key = (Zone, Tuple);

/// Selects and judges; what a watch sees an entry with.
pub trait Eyes<'c> {
    /// The entry behind a flow, with what the looks at it showed, if it passes every selector.
    fn pick(&mut self, flow: Flow, seen: Option<Seen>) -> Option<Entry<'c>>;

    /// The same whether it passes or not.
    fn entry(&mut self, flow: Flow, seen: Option<Seen>) -> Entry<'c>;
}

/// One entry of the view: about 350 bytes, and as much again of the map around it at worst.
#[derive(Debug)]
struct Tracked {
    flow: Flow,
    reason: Option<Reason>,
    looks: Looks,
    /// The dump that had it last.
    dump: u64,
}

impl Tracked {
    /// What the looks at it showed; `None` before there were two.
    fn seen(&self) -> Option<Seen> {
        Some(self.looks.seen(&self.flow))
    }
}

/// The view.
#[derive(Debug, Default)]
pub struct View {
    tracked: HashMap<Key, Tracked>,
    /// Where flows went that ended.
    ended: HashMap<Key, (Place, String)>,
    dump: u64,
    /// The first dump makes snapshots.
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

    /// Every entry, for a table of them.
    pub fn entries<'a, 'c: 'a>(
        &'a self,
        eyes: &'a mut dyn Eyes<'c>,
    ) -> impl Iterator<Item = Entry<'c>> + 'a {
        self.tracked
            .values()
            .map(|tracked| eyes.entry(tracked.flow.clone(), tracked.seen()))
    }

    /// A NEW or UPDATE event.
    pub fn changed<'c>(&mut self, flow: Flow, eyes: &mut dyn Eyes<'c>, tell: Tell<'_, 'c>) {
        let key = key(&flow);
        let Some(tracked) = self.tracked.get_mut(&key) else {
            if let Some(entry) = eyes.pick(flow, None) {
                self.add(key, entry, tell);
            }
            return;
        };
        if !is_same(&tracked.flow, &flow) {
            // Its DESTROY is still to come, or was told before a dump: the old one is over.
            self.end(&key, eyes, tell);
            return self.changed(flow, eyes, tell);
        }
        if tracked.flow.status == flow.status
            && tracked.flow.mark == flow.mark.or(tracked.flow.mark)
        {
            return;
        }
        merge(&mut tracked.flow, flow);
        let (flow, seen) = (tracked.flow.clone(), tracked.seen());
        match eyes.pick(flow.clone(), seen) {
            Some(entry) => {
                let judged = judged(tracked, &entry);
                tell(Record::Update(entry.clone()));
                if let Some((before, after)) = judged {
                    tell(Record::Verdict {
                        entry,
                        before,
                        after,
                    });
                }
            }
            // It changed out of the selection: told once, then forgotten.
            None => {
                tell(Record::Update(eyes.entry(flow, seen)));
                self.tracked.remove(&key);
            }
        }
    }

    /// A DESTROY event. One that names another entry than the view has is late, and told already.
    pub fn destroyed<'c>(&mut self, flow: &Flow, eyes: &mut dyn Eyes<'c>, tell: Tell<'_, 'c>) {
        let key = key(flow);
        let Some(tracked) = self.tracked.get_mut(&key) else {
            return;
        };
        if !is_same(&tracked.flow, flow) {
            return;
        }
        // The last counters, which only this event has.
        tracked.flow.counters_original = flow.counters_original.or(tracked.flow.counters_original);
        tracked.flow.counters_reply = flow.counters_reply.or(tracked.flow.counters_reply);
        tracked.flow.timeout = None;
        self.end(&key, eyes, tell);
    }

    /// Before the flows of a dump are given to [`View::seen`].
    pub fn begin_dump(&mut self) {
        self.dump += 1;
    }

    /// A flow of a dump, at a monotonic time.
    pub fn seen<'c>(
        &mut self,
        flow: Flow,
        at: Duration,
        eyes: &mut dyn Eyes<'c>,
        tell: Tell<'_, 'c>,
    ) {
        let key = key(&flow);
        let Some(tracked) = self.tracked.get_mut(&key) else {
            let look = Look::of(&flow, at);
            if let Some(entry) = eyes.pick(flow, None) {
                self.add(key, entry, tell);
                if let Some(tracked) = self.tracked.get_mut(&key) {
                    tracked.looks.push(look);
                }
            }
            return;
        };
        if !is_same(&tracked.flow, &flow) {
            self.end(&key, eyes, tell);
            return self.seen(flow, at, eyes, tell);
        }
        tracked.dump = self.dump;
        // Events leave attributes out: what was not known has not changed.
        let marked = tracked.flow.mark.is_some() && tracked.flow.mark != flow.mark;
        let changed = tracked.flow.status != flow.status || marked;
        let before = tracked.looks.last_timeout();
        let refilled = tracked.looks.push(Look::of(&flow, at));
        tracked.flow = flow;
        let (flow, seen) = (tracked.flow.clone(), tracked.seen());
        let Some(entry) = eyes.pick(flow.clone(), seen) else {
            tell(Record::Update(eyes.entry(flow, seen)));
            self.tracked.remove(&key);
            return;
        };
        if changed {
            tell(Record::Update(entry.clone()));
        }
        if let (true, Some(before), Some(after)) = (refilled, before, tracked.flow.timeout) {
            tell(Record::Refresh {
                entry: entry.clone(),
                before,
                after,
            });
        }
        if let Some((before, after)) = judged(tracked, &entry) {
            tell(Record::Verdict {
                entry,
                before,
                after,
            });
        }
    }

    /// After the flows of a dump. `whole`: every entry that lived was seen, so one that was not has ended without a word.
    pub fn end_dump<'c>(&mut self, whole: bool, eyes: &mut dyn Eyes<'c>, tell: Tell<'_, 'c>) {
        self.begun = true;
        if !whole {
            return;
        }
        let dump = self.dump;
        let silent = self
            .tracked
            .iter()
            .filter(|(_, tracked)| tracked.dump != dump);
        let silent: Vec<Key> = silent.map(|(key, _)| *key).collect();
        for key in silent {
            self.end(&key, eyes, tell);
        }
    }

    /// The cluster changed: judges every entry anew.
    pub fn judge_again<'c>(&mut self, eyes: &mut dyn Eyes<'c>, tell: Tell<'_, 'c>) {
        for tracked in self.tracked.values_mut() {
            let entry = eyes.entry(tracked.flow.clone(), tracked.seen());
            if let Some((before, after)) = judged(tracked, &entry) {
                tell(Record::Verdict {
                    entry,
                    before,
                    after,
                });
            }
        }
    }

    fn add<'c>(&mut self, key: Key, entry: Entry<'c>, tell: Tell<'_, 'c>) {
        let tracked = Tracked {
            flow: entry.flow.clone(),
            reason: entry.judgement.map(|judgement| judgement.reason),
            looks: Looks::default(),
            dump: self.dump,
        };
        self.tracked.insert(key, tracked);
        if !self.begun {
            return tell(Record::Snapshot(entry));
        }
        let now = entry.flow.reply.source();
        if let Some((_, before)) = self.ended.remove(&key).filter(|(place, _)| *place != now) {
            tell(Record::Move {
                entry: entry.clone(),
                before,
            });
        }
        tell(Record::New(entry));
    }

    fn end<'c>(&mut self, key: &Key, eyes: &mut dyn Eyes<'c>, tell: Tell<'_, 'c>) {
        let Slot::Occupied(slot) = self.tracked.entry(*key) else {
            return;
        };
        let tracked = slot.remove();
        let seen = tracked.seen();
        let entry = eyes.entry(tracked.flow, seen);
        if self.ended.len() >= REMEMBERED {
            self.ended.clear();
        }
        let place = entry.flow.reply.source();
        self.ended.insert(*key, (place, endpoint_text(&entry)));
        tell(Record::Destroy(entry));
    }
}

fn key(flow: &Flow) -> Key {
    (flow.zone, flow.original)
}

/// One entry, and not a later one of the same original tuple. Start times tell best, but are seldom there.
fn is_same(a: &Flow, b: &Flow) -> bool {
    let start = a.start.zip(b.start).is_none_or(|(a, b)| a == b);
    a.reply == b.reply && a.id == b.id && start
}

/// What an event says over what was known; it leaves out much.
fn merge(known: &mut Flow, event: Flow) {
    let Flow {
        status,
        timeout,
        mark,
        state,
        rare,
        ..
    } = event;
    known.status = status;
    known.timeout = timeout.or(known.timeout);
    known.mark = mark.or(known.mark);
    known.state = state.or(known.state);
    known.rare = rare.or(known.rare.take());
}

/// Notes the verdict; before and after, when it changed.
fn judged(tracked: &mut Tracked, entry: &Entry<'_>) -> Option<(Option<Verdict>, Option<Verdict>)> {
    let before = tracked.reason.map(Reason::verdict);
    tracked.reason = entry.judgement.map(|judgement| judgement.reason);
    let after = tracked.reason.map(Reason::verdict);
    (before != after).then_some((before, after))
}

/// `ns/pod` or the address, with what is wrong with it.
fn endpoint_text(entry: &Entry<'_>) -> String {
    let party = entry.names.endpoint.map(|endpoint| endpoint.party);
    let place = entry.flow.reply.source();
    let name = party.and_then(|party| Some(format!("{}/{}", party.namespace?, party.name?)));
    let gone = entry
        .judgement
        .is_some_and(|judgement| judgement.verdict() == Verdict::Stale);
    let name = name.unwrap_or_else(|| place.to_string());
    if gone { format!("{name} (gone)") } else { name }
}
