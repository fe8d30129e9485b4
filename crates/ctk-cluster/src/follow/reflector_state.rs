//! State that all feeds write, and the status of each feed. Consumers read it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::store::{Decoded, Items, Key, Slim, Store};
use super::{DECIDING, EndpointChange, Feed};
use crate::build::NotAServiceRange;
use crate::list_status::{Listed, State};
use crate::lister::refused_state;
use crate::object::Kind;
use crate::server::GetError;

/// Time since the end of a stream during which its state is still trusted.
pub const GRACE: Duration = Duration::from_secs(2);
/// Upper bound of the endpoint changes that are kept until they are taken, at some 200 bytes each.
const MAX_CHANGES: usize = 65_536;

/// Status of a feed.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Its list was not read yet.
    Awaited,
    /// Its state equals that of the API server.
    Current,
    /// Its stream has been gone since then, or is not open yet.
    Broken { since: Instant, why: String },
    /// Its state may be incomplete: it must be listed again, or cannot be read.
    Lost {
        state: State,
        verb: &'static str,
        why: String,
    },
}

impl Standing {
    /// Reports whether the state is trusted.
    pub fn is_whole(&self) -> bool {
        match self {
            Standing::Current => true,
            Standing::Broken { since, .. } => since.elapsed() < GRACE,
            Standing::Awaited | Standing::Lost { .. } => false,
        }
    }

    /// Status of the list.
    fn listed(&self, kind: Kind) -> Listed {
        let (state, verb, why) = match self {
            Standing::Current => (State::Complete, "list", None),
            Standing::Broken { .. } if self.is_whole() => (State::Complete, "list", None),
            Standing::Awaited => {
                let why = "the list is still being read".to_owned();
                (State::Failed, "list", Some(why))
            }
            Standing::Broken { why, .. } => (State::Failed, "watch", Some(why.clone())),
            Standing::Lost { state, verb, why } => (*state, *verb, Some(why.clone())),
        };
        Listed {
            kind,
            state,
            verb,
            why,
        }
    }
}

#[derive(Debug, Default)]
pub struct Known {
    pub store: Store,
    standings: BTreeMap<Feed, Standing>,
    /// Time at which the API server last proved the state complete. A dead connection may be detected much later.
    proven: BTreeMap<Feed, Instant>,
    /// Feeds that had an open stream once.
    opened: BTreeSet<Feed>,
    /// Time of the first change that no index includes.
    pub unbuilt: Option<Instant>,
    pub changes: Vec<(SystemTime, EndpointChange)>,
    /// Number of changes beyond the bound.
    pub dropped: u64,
    /// Warnings of the lists that were read since the last call.
    pub warnings: Vec<String>,
    pub conflict: Option<NotAServiceRange>,
    /// Reason why the first list could not be read.
    pub first_error: Option<GetError>,
}

impl Known {
    pub fn standing(&self, feed: &Feed) -> Option<&Standing> {
        self.standings.get(feed)
    }

    /// Status of each kind; for Pods that of the feed of all of them, or of the node's.
    pub fn listed(&self) -> Vec<Listed> {
        let mut listed = Vec::new();
        for (feed, standing) in &self.standings {
            if !matches!(feed, Feed::PodsAt(_)) {
                listed.push(standing.listed(feed.kind()));
            }
        }
        for kind in Kind::ALL {
            if !listed.iter().any(|one| one.kind == kind) {
                listed.push(Standing::Awaited.listed(kind));
            }
        }
        listed
    }

    /// Time at which an index of this state is true, or a moment before. `None` before the first lists.
    pub fn as_of(&self) -> Option<Instant> {
        let proven = DECIDING.iter().map(|feed| self.proven.get(feed).copied());
        let proven = proven.min().flatten()?;
        Some(self.unbuilt.map_or(proven, |since| since.min(proven)))
    }

    /// Addresses whose Pods are known.
    pub fn asked(&self) -> HashSet<IpAddr> {
        let whole = self.standings.iter().filter(|(_, s)| s.is_whole());
        whole
            .filter_map(|(feed, _)| match feed {
                Feed::PodsAt(address) => Some(*address),
                _ => None,
            })
            .collect()
    }

    /// Reports whether some Pods are being read for the first time.
    pub fn is_asking(&self) -> bool {
        let awaited = |(feed, standing): (&Feed, &Standing)| {
            feed.kind() == Kind::Pod && matches!(standing, Standing::Awaited)
        };
        self.standings.iter().any(awaited)
    }

    fn note(&mut self, (changed, told): (bool, Vec<EndpointChange>)) {
        if changed {
            self.unbuilt.get_or_insert_with(Instant::now);
        }
        let now = SystemTime::now();
        for change in told {
            if self.changes.len() < MAX_CHANGES {
                self.changes.push((now, change));
            } else {
                self.dropped += 1;
            }
        }
    }
}

/// Shared state of the reflector.
#[derive(Debug, Default)]
pub struct ReflectorState {
    known: Mutex<Known>,
    changed: Condvar,
    /// Number of times that a failed or refused reader recovered.
    recoveries: AtomicU64,
}

impl ReflectorState {
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn recoveries(&self) -> u64 {
        self.recoveries.load(Ordering::Relaxed)
    }

    /// Counts a recovery. Returns the new number.
    pub fn recovered(&self) -> u64 {
        self.recoveries.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn add(&self, feed: &Feed) {
        let mut known = self.known();
        known.standings.insert(feed.clone(), Standing::Awaited);
    }

    pub fn remove(&self, feed: &Feed) {
        let mut known = self.known();
        known.standings.remove(feed);
        known.proven.remove(feed);
        known.opened.remove(feed);
        known.store.forget(feed);
        known.unbuilt.get_or_insert_with(Instant::now);
    }

    pub fn is_whole(&self, feed: &Feed) -> bool {
        let known = self.known();
        known.standing(feed).is_some_and(Standing::is_whole)
    }

    /// Waits until every one of these feeds was listed, or cannot be; at most until `deadline`.
    pub fn wait(&self, feeds: &[Feed], deadline: Instant, over: &dyn Fn() -> bool) {
        let awaited =
            |known: &Known, feed: &Feed| matches!(known.standing(feed), Some(Standing::Awaited));
        self.wait_while(deadline, over, |known| {
            feeds.iter().any(|feed| awaited(known, feed))
        });
    }

    /// Waits until it is known for every one of these feeds whether it can be followed; at most until `deadline`.
    pub fn wait_for_streams(&self, feeds: &[Feed], deadline: Instant) {
        let open = |known: &Known, feed: &Feed| match known.standing(feed) {
            Some(Standing::Current) => known.opened.contains(feed),
            Some(Standing::Awaited | Standing::Broken { .. }) => false,
            Some(Standing::Lost { .. }) | None => true,
        };
        self.wait_while(deadline, &|| false, |known| {
            !feeds.iter().all(|feed| open(known, feed))
        });
    }

    fn wait_while(
        &self,
        deadline: Instant,
        over: &dyn Fn() -> bool,
        pending: impl Fn(&Known) -> bool,
    ) {
        /// `over` signals no condition variable.
        const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
        let mut known = self.known();
        while pending(&known) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || over() {
                return;
            }
            let waited = self
                .changed
                .wait_timeout(known, left.min(STOP_POLL_INTERVAL));
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Write access of one reader. Writes have no effect after the feed was ended, because it may have a new reader by then.
pub struct FeedHandle {
    pub reflector: Arc<ReflectorState>,
    pub feed: Feed,
    over: Arc<AtomicBool>,
}

impl FeedHandle {
    /// End flag, set before the feed is removed from the state.
    pub fn new(reflector: &Arc<ReflectorState>, feed: &Feed, over: &Arc<AtomicBool>) -> Self {
        reflector.add(feed);
        FeedHandle {
            reflector: Arc::clone(reflector),
            feed: feed.clone(),
            over: Arc::clone(over),
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn is_whole(&self) -> bool {
        self.reflector.is_whole(&self.feed)
    }

    /// The flag is set before the state is cleared, so that writes under the lock are cleared as well.
    fn known(&self) -> Option<MutexGuard<'_, Known>> {
        let known = self.reflector.known();
        (!self.is_over()).then_some(known)
    }

    /// A feed that was removed meanwhile stays removed.
    pub fn set(&self, standing: Standing) {
        let Some(mut known) = self.known() else {
            return;
        };
        if let Some(known) = known.standings.get_mut(&self.feed) {
            tracing::debug!(feed = ?self.feed, ?standing, "stands");
            *known = standing;
        }
        drop(known);
        self.reflector.changed.notify_all();
    }

    /// Notes that the stream is open and sent the missed events.
    pub fn is_followed(&self) {
        if let Some(mut known) = self.known() {
            known.opened.insert(self.feed.clone());
        }
        self.reflector.changed.notify_all();
    }

    /// Reports whether the feed had an open stream once.
    pub fn was_opened(&self) -> bool {
        self.reflector.known().opened.contains(&self.feed)
    }

    /// Notes that the stream is gone. The time of the first of several such calls counts.
    pub fn broken(&self, why: &str) {
        self.not_followed(why, true);
    }

    /// Notes that the stream is not open yet. The reason why the last one broke is kept, if any.
    pub fn opening(&self) {
        self.not_followed("the stream is being opened", false);
    }

    fn not_followed(&self, why: &str, replaces: bool) {
        let Some(mut known) = self.known() else {
            return;
        };
        let why = why.to_owned();
        match known.standings.get_mut(&self.feed) {
            Some(Standing::Broken { why: before, .. }) if replaces => *before = why,
            Some(standing @ Standing::Current) => {
                let since = Instant::now();
                *standing = Standing::Broken { since, why };
            }
            // A lost feed stays lost.
            _ => {}
        }
        drop(known);
        self.reflector.changed.notify_all();
    }

    /// Notes that the list could not be read.
    pub fn failed(&self, error: &GetError) {
        if let Some(mut known) = self.known()
            && self.feed == Feed::Services
            && known.first_error.is_none()
        {
            known.first_error = Some(error.clone());
        }
        self.set(Standing::Lost {
            state: refused_state(self.feed.kind(), error),
            verb: "list",
            why: error.to_string(),
        });
    }

    /// Replaces the list by one that was requested at `asked`.
    pub fn replace(&self, decoded: Decoded, asked: Instant) {
        let feed = &self.feed;
        let Some(mut known) = self.known() else {
            return;
        };
        let Some(standing) = known.standings.get(feed) else {
            return;
        };
        let first = matches!(standing, Standing::Awaited) || !known.store.has(feed);
        let (items, broken): (Items, bool) = (decoded.items, decoded.broken);
        let (changed, told) = known.store.replace(feed, items);
        // Objects of the first list are no changes.
        known.note((changed || first, if first { Vec::new() } else { told }));
        known.warnings.extend(decoded.warnings);
        known.conflict = known.conflict.take().or(decoded.conflict);
        let standing = match broken {
            false => Standing::Current,
            true => Standing::Lost {
                state: State::Partial,
                verb: "list",
                why: "some items cannot be read".to_owned(),
            },
        };
        known.standings.insert(feed.clone(), standing);
        known.proven.insert(feed.clone(), asked);
        drop(known);
        self.reflector.changed.notify_all();
    }

    /// Applies one event.
    pub fn apply(&self, key: Key, slim: Option<Slim>, conflict: Option<NotAServiceRange>) {
        let Some(mut known) = self.known() else {
            return;
        };
        if known.standings.contains_key(&self.feed) {
            let happened = known.store.apply(&self.feed, key, slim);
            known.note(happened);
            known.conflict = known.conflict.take().or(conflict);
        }
    }

    /// Notes that the state is complete up to this time, except for events in transit.
    pub fn proven(&self, at: Instant) {
        if let Some(mut known) = self.known() {
            known.proven.insert(self.feed.clone(), at);
        }
    }
}
