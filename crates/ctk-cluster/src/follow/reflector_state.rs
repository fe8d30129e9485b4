//! What all feeds know, and how each of them stands. The feeds write it, whoever judges reads it.

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

/// A stream may be gone for so long before what it told is not believed any more.
pub const GRACE: Duration = Duration::from_secs(2);
/// Changes of endpoints that nobody has taken yet, at some 200 bytes each.
const MAX_CHANGES: usize = 65_536;

/// How a feed stands.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Its list was not read yet.
    Awaited,
    /// What is known is what the API server knows.
    Current,
    /// Its stream is gone since then, or not open yet.
    Broken { since: Instant, why: String },
    /// What is known may lack something: it must be listed anew, or cannot be read.
    Lost {
        state: State,
        verb: &'static str,
        why: String,
    },
}

impl Standing {
    /// What is known may be believed.
    pub fn is_whole(&self) -> bool {
        match self {
            Standing::Current => true,
            Standing::Broken { since, .. } => since.elapsed() < GRACE,
            Standing::Awaited | Standing::Lost { .. } => false,
        }
    }

    /// As the state of a list.
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
    /// When the API server last showed that nothing older is missing. A connection may be dead long before that is noticed.
    proven: BTreeMap<Feed, Instant>,
    /// Feeds of which a stream was open once.
    opened: BTreeSet<Feed>,
    /// Since when there is something that no index has.
    pub unbuilt: Option<Instant>,
    pub changes: Vec<(SystemTime, EndpointChange)>,
    /// Changes that were too many to keep.
    pub dropped: u64,
    /// Of the lists that were read since somebody asked.
    pub warnings: Vec<String>,
    pub conflict: Option<NotAServiceRange>,
    /// Why the first list could not be read.
    pub first_error: Option<GetError>,
}

impl Known {
    pub fn standing(&self, feed: &Feed) -> Option<&Standing> {
        self.standings.get(feed)
    }

    /// The state of each kind; of Pods that of all of them, or of the node's.
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

    /// An index that was built of all this is true as of then, or of a moment before. `None` before there are lists.
    pub fn as_of(&self) -> Option<Instant> {
        let proven = DECIDING.iter().map(|feed| self.proven.get(feed).copied());
        let proven = proven.min().flatten()?;
        Some(self.unbuilt.map_or(proven, |since| since.min(proven)))
    }

    /// Addresses of which it is known which Pod has them.
    pub fn asked(&self) -> HashSet<IpAddr> {
        let whole = self.standings.iter().filter(|(_, s)| s.is_whole());
        whole
            .filter_map(|(feed, _)| match feed {
                Feed::PodsAt(address) => Some(*address),
                _ => None,
            })
            .collect()
    }

    /// Some Pods are still being read for the first time.
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

/// The board.
#[derive(Debug, Default)]
pub struct ReflectorState {
    known: Mutex<Known>,
    changed: Condvar,
    /// How often a reader that had failed, or was refused, could read again.
    recoveries: AtomicU64,
}

impl ReflectorState {
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn recoveries(&self) -> u64 {
        self.recoveries.load(Ordering::Relaxed)
    }

    /// Counts one more; how many there are with it.
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

    /// Waits until it shows of every one of these feeds whether it can be followed; at most until `deadline`.
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
        /// `over` wakes nobody.
        const TICK: Duration = Duration::from_millis(100);
        let mut known = self.known();
        while pending(&known) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || over() {
                return;
            }
            let waited = self.changed.wait_timeout(known, left.min(TICK));
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Where one reader writes. Once its feed was ended nothing that it says counts: the feed may have a new reader by then.
pub struct FeedHandle {
    pub board: Arc<ReflectorState>,
    pub feed: Feed,
    over: Arc<AtomicBool>,
}

impl FeedHandle {
    /// `over`: set before the feed is removed from the board.
    pub fn new(board: &Arc<ReflectorState>, feed: &Feed, over: &Arc<AtomicBool>) -> Self {
        board.add(feed);
        FeedHandle {
            board: Arc::clone(board),
            feed: feed.clone(),
            over: Arc::clone(over),
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn is_whole(&self) -> bool {
        self.board.is_whole(&self.feed)
    }

    /// Who ends a feed says so before the board is cleared of it, so what is written under the lock is cleared, too.
    fn known(&self) -> Option<MutexGuard<'_, Known>> {
        let known = self.board.known();
        (!self.is_over()).then_some(known)
    }

    /// A feed that was removed meanwhile stays so.
    pub fn set(&self, standing: Standing) {
        let Some(mut known) = self.known() else {
            return;
        };
        if let Some(known) = known.standings.get_mut(&self.feed) {
            tracing::debug!(feed = ?self.feed, ?standing, "stands");
            *known = standing;
        }
        drop(known);
        self.board.changed.notify_all();
    }

    /// Its stream is open, and brought what was missed.
    pub fn is_followed(&self) {
        if let Some(mut known) = self.known() {
            known.opened.insert(self.feed.clone());
        }
        self.board.changed.notify_all();
    }

    /// A stream of it was open once.
    pub fn was_opened(&self) -> bool {
        self.board.known().opened.contains(&self.feed)
    }

    /// The stream is gone; since the first time that this is said in a row.
    pub fn broken(&self, why: &str) {
        self.not_followed(why, true);
    }

    /// The stream is not open yet. Why the last one broke is still the reason, if it did.
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
            // What was lost before stays lost.
            _ => {}
        }
        drop(known);
        self.board.changed.notify_all();
    }

    /// The list could not be read.
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

    /// A whole list, for which was asked at `asked`.
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
        // What was there when the watch began is no change.
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
        self.board.changed.notify_all();
    }

    /// One event.
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

    /// Nothing is missing that happened until then, but for what is on its way.
    pub fn proven(&self, at: Instant) {
        if let Some(mut known) = self.known() {
            known.proven.insert(self.feed.clone(), at);
        }
    }
}
