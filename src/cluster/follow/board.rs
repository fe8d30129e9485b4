//! What all feeds know, and how each of them stands. The feeds write it, whoever judges reads it.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::store::{Decoded, Items, Key, Slim, Store};
use super::{EndpointChange, Feed};
use crate::cluster::build::NotAServiceRange;
use crate::cluster::listed::{Listed, State};
use crate::cluster::lists::{GetError, refused_state};
use crate::cluster::object::Kind;

/// A stream may be gone for so long before what it told is not believed any more.
pub const GRACE: Duration = Duration::from_secs(2);
/// Changes of endpoints that nobody has taken yet, at some 200 bytes each.
const MOST_CHANGES: usize = 65_536;

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

    fn note(&mut self, (changed, told): (bool, Vec<EndpointChange>)) {
        if changed {
            self.unbuilt.get_or_insert_with(Instant::now);
        }
        let now = SystemTime::now();
        for change in told {
            if self.changes.len() < MOST_CHANGES {
                self.changes.push((now, change));
            } else {
                self.dropped += 1;
            }
        }
    }
}

/// The board.
#[derive(Debug, Default)]
pub struct Board {
    known: Mutex<Known>,
    changed: Condvar,
}

impl Board {
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, feed: &Feed) {
        let mut known = self.known();
        known.standings.insert(feed.clone(), Standing::Awaited);
    }

    pub fn remove(&self, feed: &Feed) {
        let mut known = self.known();
        known.standings.remove(feed);
        known.store.forget(feed);
        known.unbuilt.get_or_insert_with(Instant::now);
    }

    /// A feed that was removed meanwhile stays so.
    pub fn set(&self, feed: &Feed, standing: Standing) {
        let mut known = self.known();
        if let Some(known) = known.standings.get_mut(feed) {
            tracing::debug!(?feed, ?standing, "stands");
            *known = standing;
        }
        self.changed.notify_all();
    }

    /// The stream is gone; since the first time that this is said in a row.
    pub fn broken(&self, feed: &Feed, why: &str) {
        let mut known = self.known();
        if let Some(standing) = known.standings.get_mut(feed) {
            let whole = matches!(standing, Standing::Current);
            let since = match standing {
                Standing::Broken { since, .. } => Some(*since),
                _ => whole.then(Instant::now),
            };
            // What was lost before stays lost.
            if let Some(since) = since {
                let why = why.to_owned();
                *standing = Standing::Broken { since, why };
            }
        }
        self.changed.notify_all();
    }

    pub fn is_whole(&self, feed: &Feed) -> bool {
        let known = self.known();
        known.standing(feed).is_some_and(Standing::is_whole)
    }

    /// The list could not be read.
    pub fn failed(&self, feed: &Feed, error: &GetError) {
        let mut known = self.known();
        if *feed == Feed::Services && known.first_error.is_none() {
            known.first_error = Some(error.clone());
        }
        drop(known);
        self.set(
            feed,
            Standing::Lost {
                state: refused_state(feed.kind(), error),
                verb: "list",
                why: error.to_string(),
            },
        );
    }

    /// A whole list.
    pub fn replace(&self, feed: &Feed, decoded: Decoded) {
        let mut known = self.known();
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
        drop(known);
        self.changed.notify_all();
    }

    /// One event.
    pub fn apply(
        &self,
        feed: &Feed,
        key: Key,
        slim: Option<Slim>,
        conflict: Option<NotAServiceRange>,
    ) {
        let mut known = self.known();
        if known.standings.contains_key(feed) {
            let happened = known.store.apply(feed, key, slim);
            known.note(happened);
            known.conflict = known.conflict.take().or(conflict);
        }
    }

    /// Waits until every one of these feeds was listed, or cannot be; at most until `deadline`. Whether all are.
    pub fn wait(&self, feeds: &[Feed], deadline: Instant, over: &dyn Fn() -> bool) -> bool {
        /// `over` wakes nobody.
        const TICK: Duration = Duration::from_millis(100);
        let mut known = self.known();
        loop {
            let awaited = |feed: &Feed| matches!(known.standing(feed), Some(Standing::Awaited));
            if !feeds.iter().any(awaited) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || over() {
                return false;
            }
            let waited = self.changed.wait_timeout(known, left.min(TICK));
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
