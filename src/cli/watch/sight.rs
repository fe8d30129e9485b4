//! What a watch sees an entry with: the selectors, and one reading of the cluster.

use crate::cli::pick::{Picker, now};
use crate::entry::Entry;
use crate::flow::Flow;
use crate::verdict::Seen;
use crate::watch::view::Eyes;

use super::young::Young;

/// The eyes.
pub(super) struct Sight<'s, 'c> {
    pub picker: &'s mut Picker<'c>,
    pub young: &'s mut Young,
}

impl<'s, 'c> Sight<'s, 'c> {
    pub fn new(picker: &'s mut Picker<'c>, young: &'s mut Young) -> Self {
        Sight { picker, young }
    }
}

impl<'c> Eyes<'c> for Sight<'_, 'c> {
    fn pick(&mut self, flow: Flow, seen: Option<Seen>) -> Option<Entry<'c>> {
        let (young, enters) = (&mut *self.young, seen.is_none());
        self.picker
            .pick(flow, seen, |entry| young.correct(entry, enters, now))
    }

    fn entry(&mut self, flow: Flow, seen: Option<Seen>) -> Entry<'c> {
        let mut entry = self.picker.entry(flow, seen);
        self.young.correct(&mut entry, false, now);
        entry
    }
}
