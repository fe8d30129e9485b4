//! Guards entries that may be younger than the cluster source from being called stale.
//!
//! An entry that was made after the time that the cluster source is true as of may go to an endpoint that the source does
//! not have yet. It is not called stale before the source is true as of a later time: at once where it is followed over the
//! API (which lies [`DEFAULT_SETTLE`](ctk_cluster::follow::SETTLE) behind at least), when it is read again where it is not.
//!
//! When an entry was made is told by its NEW event. One that comes into the view without one, by a dump or because it
//! changed, may have been made just now. That is assumed where the source is followed, which is known again soon; any other
//! source may stay as old as it is. Entries of the first look are old, unless a NEW waits in the queue: see
//! [`FreshnessGuard::take_unsure`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::entry::Entry;
use crate::verdict::Verdict;
use crate::watch::view::{Key, key_of};
use ctnetlink::flow::Flow;

/// Entries that are remembered, at some 250 bytes each.
const MOST: usize = 1 << 17;
/// Stale entries of the first look that wait for the queue to be read.
const MOST_UNSURE: usize = 1 << 16;

/// Entries that were made a moment ago.
#[derive(Debug, Default)]
pub(super) struct FreshnessGuard {
    /// The cluster is followed.
    pub is_followed: bool,
    /// The beginning is over: what comes into the view from now on may be new.
    pub has_begun: bool,
    /// What is judged by is true as of then: nanoseconds since the Unix epoch. `None`: of a time that is not known, so that
    /// nothing is too young for it.
    as_of: Option<u64>,
    made: HashMap<Key, Made>,
    /// About in order of time. May name entries that were made anew, or ended, since.
    order: VecDeque<(u64, Key)>,
    /// When the last one was made that was too many to be remembered: whichever is not known may be that one.
    forgotten: Option<Made>,
    /// Not young, as far as is known, and not looked at since.
    grown: HashSet<Key>,
    /// Stale ones of the first look, of which a NEW may wait in the queue, with the monotonic time of the look.
    unsure: Vec<(Flow, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Made {
    /// Nanoseconds since the Unix epoch.
    at: u64,
    /// It would have been called stale.
    held: bool,
}

/// Which entries are to be judged again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    These(Vec<Key>),
    All,
}

/// `made` is long enough ago.
fn is_settled(made: u64, as_of: Option<u64>) -> bool {
    as_of.is_none_or(|as_of| made <= as_of)
}

impl FreshnessGuard {
    /// What is judged by from now on is true as of `time`.
    pub fn mark_time(&mut self, time: Option<SystemTime>) {
        let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        self.as_of = since.map(|since| since.as_nanos() as u64);
    }

    /// An entry was made, whether it is of interest by now or not.
    pub fn note(&mut self, key: Key, at: u64) {
        if self.as_of.is_some() {
            self.grown.remove(&key);
            self.keep(key, at);
        }
    }

    /// The entry that there was until then ended.
    pub fn forget(&mut self, key: &Key, until: u64) {
        if self.made.get(key).is_some_and(|made| made.at <= until) {
            self.made.remove(key);
        }
    }

    fn keep(&mut self, key: Key, at: u64) {
        let known = self.made.remove(&key);
        let held = known.is_some_and(|known| known.held);
        if self.order.len() >= MOST && self.made.len() < MOST / 2 {
            let made = &self.made;
            self.order
                .retain(|(at, key)| made.get(key).is_some_and(|made| made.at == *at));
        }
        if self.order.len() < MOST {
            self.made.insert(key, Made { at, held });
            self.order.push_back((at, key));
            return;
        }
        let others = self.forgotten.unwrap_or(Made { at, held });
        self.forgotten = Some(Made {
            at: others.at.max(at),
            held: others.held || held,
        });
    }

    /// Takes the verdict back that an entry is too young for. `enters`: it comes into the view `now`, by a look at this
    /// monotonic time. `false`: it cannot be told yet, see [`FreshnessGuard::take_unsure`].
    pub fn correct(
        &mut self,
        entry: &mut Entry<'_>,
        enters: Option<Duration>,
        now: impl Fn() -> u64,
    ) -> bool {
        let Some(judgement) = entry.judgement.filter(|_| self.as_of.is_some()) else {
            return true;
        };
        if judgement.verdict() != Verdict::Stale && !judgement.is_unsettled() {
            return true;
        }
        let key = key_of(&entry.flow);
        let unknown = !self.made.contains_key(&key);
        // The judge goes by the start of an entry, which tells more than when it was heard of.
        let enters = enters.filter(|_| entry.flow.start.is_none() && !self.grown.contains(&key));
        if let Some(at) = enters.filter(|_| unknown && !self.has_begun) {
            if self.unsure.len() < MOST_UNSURE {
                self.unsure.push((entry.flow.clone(), at));
                return false;
            }
            self.keep(key, now());
        }
        let is_new = enters.is_some() && self.has_begun && self.is_followed;
        if unknown && (is_new || judgement.is_unsettled()) {
            self.keep(key, entry.flow.start.unwrap_or_else(now));
        }
        let as_of = self.as_of;
        let made = match self.made.get_mut(&key) {
            Some(made) => Some(made),
            None => self.forgotten.as_mut(),
        };
        if let Some(made) = made
            && (judgement.is_unsettled() || !is_settled(made.at, as_of))
        {
            made.held = true;
            entry.judgement = Some(judgement.unsettled(&entry.flow));
        }
        true
    }

    /// Stale entries of the first look that were not told yet. They are old, unless the kernel told of them that they were
    /// made: that is to be noted before they are looked at once more.
    pub fn take_unsure(&mut self) -> Vec<(Flow, Duration)> {
        let unsure = std::mem::take(&mut self.unsure);
        let keys = unsure.iter().map(|(flow, _)| key_of(flow));
        self.grown.extend(keys);
        unsure
    }

    /// Entries whose verdict was held back, and is so no longer.
    pub fn due(&mut self) -> Due {
        let mut due = Vec::new();
        while let Some((at, key)) = self.order.front().copied() {
            if !is_settled(at, self.as_of) {
                break;
            }
            self.order.pop_front();
            // It may have been made once more.
            let made = self.made.get(&key).filter(|made| made.at == at).copied();
            if let Some(made) = made {
                self.made.remove(&key);
                due.extend(made.held.then_some(key));
            }
        }
        let forgotten = self
            .forgotten
            .filter(|made| is_settled(made.at, self.as_of));
        if forgotten.is_some() {
            self.forgotten = None;
        }
        match (forgotten.is_some_and(|made| made.held), due.is_empty()) {
            (true, _) => Due::All,
            (false, true) => Due::Nothing,
            (false, false) => Due::These(due),
        }
    }

    /// They are not to be held back once more when a look at the table finds them.
    pub fn let_in(&mut self, keys: &[Key]) {
        self.grown.extend(keys);
    }

    /// The whole table was looked at.
    pub fn looked(&mut self) {
        self.has_begun = true;
        self.grown.clear();
    }
}

#[cfg(test)]
#[path = "freshness/tests.rs"]
mod tests;
