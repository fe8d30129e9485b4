//! What a watch sees an entry with: the selectors, and one reading of the cluster.
//!
//! A cluster that is followed over the API is heard of a moment late. An entry that was made just now may go to an endpoint
//! that nobody told of yet, so it is not called stale before it is [`SETTLE`] old.

use std::collections::HashMap;
use std::time::Duration;

use crate::cli::pick::{Picker, now};
use crate::cluster::follow::SETTLE;
use crate::entry::Entry;
use crate::flow::{Flow, Tuple, Zone};
use crate::verdict::{Reason, Seen, Verdict};
use crate::watch::view::Eyes;

/// Entries that were made a moment ago, and would be stale.
#[derive(Debug, Default)]
pub(super) struct Young {
    /// The cluster is followed; every other source has a time of its own.
    pub is_on: bool,
    /// When each was made, in nanoseconds since the Unix epoch.
    made: HashMap<(Zone, Tuple), u64>,
}

const fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

impl Young {
    /// `made`: when the entry was made, where this is told just now.
    fn correct(&mut self, entry: &mut Entry<'_>, made: Option<u64>, now: impl Fn() -> u64) {
        if !self.is_on || (made.is_none() && self.made.is_empty()) {
            return;
        }
        let key = (entry.flow.zone, entry.flow.original);
        let Some(judgement) = entry.judgement else {
            return;
        };
        let open =
            judgement.verdict() == Verdict::Stale || judgement.reason == Reason::SourceIncomplete;
        if let Some(made) = made.filter(|_| open) {
            self.made.insert(key, made);
        }
        let made = self.made.get(&key);
        if made.is_some_and(|made| made + nanos(SETTLE) > now()) {
            entry.judgement = Some(judgement.of_young(&entry.flow));
        }
    }

    /// Some entry is not young any more: what is in the view is to be judged again.
    pub fn is_due(&mut self) -> bool {
        if self.made.is_empty() {
            return false;
        }
        let (now, before) = (now(), self.made.len());
        self.made.retain(|_, made| *made + nanos(SETTLE) > now);
        self.made.len() < before
    }
}

/// The eyes.
pub(super) struct Sight<'s, 'c> {
    pub picker: &'s mut Picker<'c>,
    pub young: &'s mut Young,
    /// When the entry was made that is told of now.
    pub made: Option<u64>,
}

impl<'s, 'c> Sight<'s, 'c> {
    pub fn new(picker: &'s mut Picker<'c>, young: &'s mut Young) -> Self {
        Sight {
            picker,
            young,
            made: None,
        }
    }
}

impl<'c> Eyes<'c> for Sight<'_, 'c> {
    fn pick(&mut self, flow: Flow, seen: Option<Seen>) -> Option<Entry<'c>> {
        let (young, made) = (&mut *self.young, self.made);
        self.picker
            .pick(flow, seen, |entry| young.correct(entry, made, now))
    }

    fn entry(&mut self, flow: Flow, seen: Option<Seen>) -> Entry<'c> {
        let mut entry = self.picker.entry(flow, seen);
        self.young.correct(&mut entry, None, now);
        entry
    }
}
