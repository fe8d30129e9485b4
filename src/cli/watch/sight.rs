//! What a watch sees an entry with: the selectors, and one reading of the cluster.

use std::time::Duration;

use crate::cli::pick::{Picker, now};
use crate::entry::Entry;
use crate::verdict::Seen;
use crate::watch::view::{Eyes, Key};
use ctnetlink::flow::Flow;

use super::young::Young;

/// The eyes.
pub(super) struct Sight<'s, 'c> {
    pub picker: &'s mut Picker<'c>,
    pub young: &'s mut Young,
    /// Time of the event that is looked at, in nanoseconds since the Unix epoch.
    event: Option<u64>,
    /// Monotonic time of the look at the table.
    at: Duration,
}

impl<'s, 'c> Sight<'s, 'c> {
    pub fn new(picker: &'s mut Picker<'c>, young: &'s mut Young) -> Self {
        Sight {
            picker,
            young,
            event: None,
            at: Duration::ZERO,
        }
    }

    pub fn of_look(picker: &'s mut Picker<'c>, young: &'s mut Young, at: Duration) -> Self {
        Sight {
            at,
            ..Sight::new(picker, young)
        }
    }

    pub fn of_event(picker: &'s mut Picker<'c>, young: &'s mut Young, time: u64) -> Self {
        Sight {
            event: Some(time),
            ..Sight::new(picker, young)
        }
    }
}

impl<'c> Eyes<'c> for Sight<'_, 'c> {
    fn pick(&mut self, flow: Flow, seen: Option<Seen>) -> Option<Entry<'c>> {
        let (young, enters) = (&mut *self.young, seen.is_none().then_some(self.at));
        let mut is_told = true;
        let entry = self.picker.pick(flow, seen, |entry| {
            is_told = young.correct(entry, enters, now);
        });
        entry.filter(|_| is_told)
    }

    fn entry(&mut self, flow: Flow, seen: Option<Seen>) -> Entry<'c> {
        let mut entry = self.picker.entry(flow, seen);
        self.young.correct(&mut entry, None, now);
        entry
    }

    fn begins(&mut self, key: Key) {
        // Also where it does not pass: it may come to be selected later.
        self.young.note(key, self.event.unwrap_or_else(now));
    }
}
