//! Freshness of the cluster source, compared with the age of each entry of a watch.
//!
//! An entry that was created after the time of the cluster source may lead to an endpoint that the source does not have yet.
//! Its verdict `stale` is held back until the source is true as of a later time: within seconds for a source that is followed
//! over the API (at least [`DEFAULT_SETTLE`] behind), at the next reading for any other.
//!
//! The NEW event tells when an entry was created. An entry that enters the view without one, by a dump or by a change, may
//! have been created just now. [`FreshnessGuard`] assumes that for a followed source, which catches up soon; any other source
//! may never change again. Entries of the first look are old, unless a NEW waits in the queue: see
//! [`FreshnessGuard::take_unsure`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::entry::Entry;
use crate::verdict::Verdict;
use ctk_cluster::follow::DEFAULT_SETTLE;
use ctnetlink::flow::Flow;

use super::view::{FlowKey, key_of};

/// Most entries that are remembered, at about 250 bytes each.
const MAX_CREATIONS: usize = 1 << 17;
/// Most stale entries of the first look that wait until the queue is read.
const MAX_UNSURE: usize = 1 << 16;

/// Time as of which the cluster source is true. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceFreshness {
    /// The time is not known, so that no entry is too young for the source.
    #[default]
    Unknown,
    /// The source was read at this time, and stays as it is until it is read again.
    ReadAt(u64),
    /// The source is followed, and this time advances.
    FollowedUntil(u64),
}

impl SourceFreshness {
    /// Freshness of a source that was read at `time`.
    pub fn of_reading(time: Option<SystemTime>) -> Self {
        time.and_then(nanos).map_or(Self::Unknown, Self::ReadAt)
    }

    /// Freshness of a source that is followed, at the time `now`. `behind`: age of the newest state that was received.
    pub fn of_following(now: SystemTime, behind: Duration) -> Self {
        let until = now.checked_sub(behind + DEFAULT_SETTLE);
        until
            .and_then(nanos)
            .map_or(Self::Unknown, Self::FollowedUntil)
    }

    /// Time as of which the source is true, when it is known.
    pub fn time(self) -> Option<SystemTime> {
        self.as_of()
            .map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos))
    }

    const fn as_of(self) -> Option<u64> {
        match self {
            SourceFreshness::Unknown => None,
            SourceFreshness::ReadAt(time) | SourceFreshness::FollowedUntil(time) => Some(time),
        }
    }

    const fn is_followed(self) -> bool {
        matches!(self, SourceFreshness::FollowedUntil(_))
    }

    /// Returns whether the source is fresh enough to judge an entry that was created at `created`.
    pub fn covers(self, created: u64) -> bool {
        self.as_of().is_none_or(|as_of| created <= as_of)
    }
}

fn nanos(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_nanos() as u64)
}

/// Entries that were created a moment ago, and may be too young for the cluster source.
#[derive(Debug, Default)]
pub struct FreshnessGuard {
    source: SourceFreshness,
    /// The first look is over: an entry that enters the view from now on may be new.
    is_first_look_over: bool,
    creations: HashMap<FlowKey, Creation>,
    /// Times of creation, roughly sorted. May name entries that ended or were created again since.
    order: VecDeque<(u64, FlowKey)>,
    /// Latest creation that exceeded [`MAX_CREATIONS`]. Every entry without a creation of its own may be that one.
    overflow: Option<Creation>,
    /// Entries that are old enough, until the next complete look.
    settled: HashSet<FlowKey>,
    /// Stale entries of the first look, whose NEW may wait in the queue, with the monotonic time of the look.
    unsure: Vec<(Flow, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Creation {
    /// Nanoseconds since the Unix epoch.
    time: u64,
    /// A verdict `stale` was held back.
    is_held_back: bool,
}

/// Entries whose verdict was held back and can be settled now.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    None,
    Entries(Vec<FlowKey>),
    /// Any entry of the view may be one of them.
    All,
}

impl FreshnessGuard {
    /// Sets the freshness of the source that judges from now on.
    pub fn set_source(&mut self, source: SourceFreshness) {
        self.source = source;
    }

    /// Records the creation of an entry, whether it is selected or not: it may be selected later.
    pub fn record_creation(&mut self, key: FlowKey, time: u64) {
        if self.source != SourceFreshness::Unknown {
            self.settled.remove(&key);
            self.remember(key, time);
        }
    }

    /// Records the end of an entry. One that was created after `time` has its place by now and is kept.
    pub fn record_end(&mut self, key: &FlowKey, time: u64) {
        if self
            .creations
            .get(key)
            .is_some_and(|creation| creation.time <= time)
        {
            self.creations.remove(key);
        }
    }

    fn remember(&mut self, key: FlowKey, time: u64) {
        let known = self.creations.remove(&key);
        let is_held_back = known.is_some_and(|known| known.is_held_back);
        if self.order.len() >= MAX_CREATIONS && self.creations.len() < MAX_CREATIONS / 2 {
            let creations = &self.creations;
            self.order
                .retain(|(time, key)| creations.get(key).is_some_and(|known| known.time == *time));
        }
        let creation = Creation { time, is_held_back };
        if self.order.len() < MAX_CREATIONS {
            self.creations.insert(key, creation);
            self.order.push_back((time, key));
            return;
        }
        let others = self.overflow.unwrap_or(creation);
        self.overflow = Some(Creation {
            time: others.time.max(time),
            is_held_back: others.is_held_back || is_held_back,
        });
    }

    /// Holds back the verdict `stale` of an entry that is too young for the source. `enters`: monotonic time of the look by
    /// which it enters the view. `now`: the present time, for an entry without a known time of creation.
    ///
    /// Returns `false` for an entry that must not be shown yet, see [`FreshnessGuard::take_unsure`].
    pub fn hold_back(
        &mut self,
        entry: &mut Entry<'_>,
        enters: Option<Duration>,
        now: impl Fn() -> u64,
    ) -> bool {
        let Some(judgement) = entry
            .judgement
            .filter(|_| self.source != SourceFreshness::Unknown)
        else {
            return true;
        };
        if judgement.verdict() != Verdict::Stale && !judgement.is_unsettled() {
            return true;
        }
        let key = key_of(&entry.flow);
        let unknown = !self.creations.contains_key(&key);
        // The judge knows the start time of an entry, which is more exact than the time of its event.
        let enters = enters.filter(|_| entry.flow.start.is_none() && !self.settled.contains(&key));
        if let Some(at) = enters.filter(|_| unknown && !self.is_first_look_over) {
            if self.unsure.len() < MAX_UNSURE {
                self.unsure.push((entry.flow.clone(), at));
                return false;
            }
            self.remember(key, now());
        }
        let is_new = enters.is_some() && self.is_first_look_over && self.source.is_followed();
        if unknown && (is_new || judgement.is_unsettled()) {
            self.remember(key, entry.flow.start.unwrap_or_else(now));
        }
        let source = self.source;
        let creation = match self.creations.get_mut(&key) {
            Some(creation) => Some(creation),
            None => self.overflow.as_mut(),
        };
        if let Some(creation) = creation
            && (judgement.is_unsettled() || !source.covers(creation.time))
        {
            creation.is_held_back = true;
            entry.judgement = Some(judgement.unsettled(&entry.flow));
        }
        true
    }

    /// Takes the stale entries of the first look that were not shown yet. They are old, unless a NEW event of theirs waits in
    /// the queue: it has to be recorded before they are looked at again.
    pub fn take_unsure(&mut self) -> Vec<(Flow, Duration)> {
        let unsure = std::mem::take(&mut self.unsure);
        let keys = unsure.iter().map(|(flow, _)| key_of(flow));
        self.settled.extend(keys);
        unsure
    }

    /// Takes the entries that the source covers by now and whose verdict was held back.
    pub fn take_settled(&mut self) -> Settled {
        let mut settled = Vec::new();
        while let Some((time, key)) = self.order.front().copied() {
            if !self.source.covers(time) {
                break;
            }
            self.order.pop_front();
            // The entry may have been created again since.
            let creation = self.creations.get(&key).filter(|known| known.time == time);
            if let Some(creation) = creation.copied() {
                self.creations.remove(&key);
                settled.extend(creation.is_held_back.then_some(key));
            }
        }
        let source = self.source;
        let overflow = self
            .overflow
            .take_if(|overflow| source.covers(overflow.time));
        match (
            overflow.is_some_and(|overflow| overflow.is_held_back),
            settled.is_empty(),
        ) {
            (true, _) => Settled::All,
            (false, true) => Settled::None,
            (false, false) => Settled::Entries(settled),
        }
    }

    /// Exempts entries from being held back again by the next look.
    pub fn mark_settled(&mut self, keys: &[FlowKey]) {
        self.settled.extend(keys);
    }

    /// Records that a look saw the whole table.
    pub fn record_complete_look(&mut self) {
        self.is_first_look_over = true;
        self.settled.clear();
    }
}

#[cfg(test)]
mod tests;
