//! Entries that are too young to be called stale.
//!
//! A cluster that is followed over the API is heard of a moment late, and judged by a moment later still. An entry that was
//! made after that may go to an endpoint that nobody told of yet, so it is not called stale before what is judged by is
//! true as of [`SETTLE`] after it was made.
//!
//! When an entry was made is told by its NEW event. One that comes into the view without one, by a dump or because it
//! changed, may have been made just now.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::cluster::follow::SETTLE;
use crate::entry::Entry;
use crate::verdict::Verdict;
use crate::watch::view::Key;

/// Entries that are remembered, at some 250 bytes each.
const MOST: usize = 1 << 17;

/// Entries that were made a moment ago.
#[derive(Debug, Default)]
pub(super) struct Young {
    /// The cluster is followed; every other source has a time of its own.
    pub is_on: bool,
    /// The beginning is over: what comes into the view from now on may be new.
    pub has_begun: bool,
    /// What is judged by is true as of then: nanoseconds since the Unix epoch.
    as_of: u64,
    made: HashMap<Key, Made>,
    /// About in order of time.
    order: VecDeque<(u64, Key)>,
    /// When the last one was made that was too many to be remembered: whichever is not known may be that one.
    forgotten: Option<Made>,
    /// Not young any more, and not looked at since.
    grown: HashSet<Key>,
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
fn is_settled(made: u64, as_of: u64) -> bool {
    const NANOS: u64 = SETTLE.as_nanos() as u64;
    made.saturating_add(NANOS) <= as_of
}

impl Young {
    /// What is judged by from now on lies so far `behind` the time `now`, in nanoseconds since the Unix epoch.
    pub fn mark_time(&mut self, now: u64, behind: Duration) {
        self.as_of = now.saturating_sub(behind.as_nanos() as u64);
    }

    /// An entry was made, whether it is of interest by now or not.
    pub fn note(&mut self, key: Key, at: u64) {
        if self.is_on {
            self.grown.remove(&key);
            self.keep(key, at);
        }
    }

    fn keep(&mut self, key: Key, at: u64) {
        let known = self.made.remove(&key);
        let held = known.is_some_and(|known| known.held);
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

    /// Takes the verdict back that an entry is too young for. `enters`: it comes into the view `now`.
    pub fn correct(&mut self, entry: &mut Entry<'_>, enters: bool, now: impl Fn() -> u64) {
        let Some(judgement) = entry.judgement.filter(|_| self.is_on) else {
            return;
        };
        if judgement.verdict() != Verdict::Stale && !judgement.is_of_young() {
            return;
        }
        let key = (entry.flow.zone, entry.flow.original);
        let unknown = !self.made.contains_key(&key);
        // The judge goes by the start of an entry, which tells more than when it was heard of.
        let is_new = enters && self.has_begun && entry.flow.start.is_none();
        if unknown && ((is_new && !self.grown.contains(&key)) || judgement.is_of_young()) {
            self.keep(key, now());
        }
        let made = match self.made.get_mut(&key) {
            Some(made) => Some(made),
            None => self.forgotten.as_mut(),
        };
        let Some(made) = made else {
            return;
        };
        if judgement.is_of_young() || !is_settled(made.at, self.as_of) {
            made.held = true;
            entry.judgement = Some(judgement.of_young(&entry.flow));
        }
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
#[path = "young/tests.rs"]
mod tests;
