//! Updates that consumers take from the state of the reflector: changes, and an index of the whole state.

use std::time::{Duration, Instant, SystemTime};

use super::{EndpointChange, Follower};
use crate::build::{Builder, NotAServiceRange};
use crate::list_status::{Listed, State, refused};
use crate::object::Kind;
use crate::source::{Loaded, Source, SourceKind};

/// Interval over which changes are collected into one index.
const INDEX_INTERVAL: Duration = Duration::from_millis(150);
/// Interval while an address that the next index may need is being looked up. Without it the verdict on that address would be
/// unknown for a moment.
const LOOKUP_INDEX_INTERVAL: Duration = Duration::from_secs(1);
/// Building takes at most one part in this many of the time.
const MAX_BUILD_SHARE: u32 = 10;

/// Changes since the last call.
#[derive(Debug, Default)]
pub struct ClusterUpdate {
    /// A newer index.
    pub loaded: Option<Loaded>,
    /// Notes for display.
    pub notes: Vec<String>,
}

impl Follower {
    /// Changes of endpoints since the last call, each with the time of its event. Take them before [`Follower::news`], which leaves
    /// time to request the objects that the verdicts will need.
    pub fn changes(&mut self) -> Vec<(SystemTime, EndpointChange)> {
        std::mem::take(&mut self.reflector.known().changes)
    }

    /// Returns the news. A new index is rate-limited, so that building takes a small part of the time.
    pub fn news(&mut self) -> ClusterUpdate {
        let mut news = ClusterUpdate::default();
        let due = {
            let mut known = self.reflector.known();
            let dropped = std::mem::take(&mut known.dropped);
            if dropped > 0 {
                let text = format!("{dropped} changes of endpoints were too many to be told");
                news.notes.push(text);
            }
            let warnings = std::mem::take(&mut known.warnings);
            warnings
                .iter()
                .for_each(|text| tracing::info!(text, "cluster"));
            let told = same(&known.listed(), &self.listed);
            if !told || known.asked() != self.asked {
                known.unbuilt.get_or_insert_with(Instant::now);
            }
            let window = match known.is_asking() || !known.changes.is_empty() {
                true => LOOKUP_INDEX_INTERVAL,
                false => INDEX_INTERVAL,
            };
            let due = known.unbuilt.is_some_and(|since| since.elapsed() >= window);
            due && (!told || Instant::now() >= self.not_before)
        };
        if due {
            self.renew(&mut news);
        }
        news
    }

    fn renew(&mut self, news: &mut ClusterUpdate) {
        let before = std::mem::take(&mut self.listed);
        let built = match self.build() {
            Err(error) => {
                news.notes.push(format!("{error}; it is not used any more"));
                // Other changes must not wait for a further one, and without ranges no conflict exists.
                self.ranges.clear();
                self.build()
            }
            built => built,
        };
        let Ok(loaded) = built else {
            self.listed = before;
            return;
        };
        news.notes.extend(notes(&before, &loaded.listed));
        news.loaded = Some(loaded);
    }

    /// Builds an index of the current state.
    pub(super) fn build(&mut self) -> Result<Loaded, NotAServiceRange> {
        let began = Instant::now();
        let mut builder = Builder::new(&self.ranges);
        let time = SystemTime::now();
        let (listed, asked) = {
            let mut known = self.reflector.known();
            // Readers still report ranges that were dropped.
            let conflict = known.conflict.take();
            if let Some(conflict) = conflict.filter(|_| !self.ranges.is_empty()) {
                return Err(conflict);
            }
            known.unbuilt = None;
            known.store.fill(&mut builder);
            (known.listed(), known.asked())
        };
        for one in &listed {
            match one.state {
                State::Complete => drop(builder.listed(one.kind)),
                _ => builder.not_listed(one.kind),
            }
        }
        self.asked = asked;
        if self.chooses_pods() {
            builder.chose_pods(self.asked.clone());
        }
        let source = Source {
            kind: SourceKind::Api,
            time,
            path: None,
        };
        let mut loaded = Loaded::build(builder, source)?;
        self.listed.clone_from(&listed);
        loaded.listed = listed;
        let took = began.elapsed();
        self.not_before = Instant::now() + took * MAX_BUILD_SHARE;
        tracing::debug!(?took, "index");
        Ok(loaded)
    }
}

/// Reports whether the same lists are complete.
fn same(now: &[Listed], before: &[Listed]) -> bool {
    let states = |all: &[Listed]| -> Vec<(Kind, State)> {
        all.iter().map(|one| (one.kind, one.state)).collect()
    };
    states(now) == states(before)
}

/// Notes about lists that became incomplete, and about those that are complete again.
pub(super) fn notes(before: &[Listed], now: &[Listed]) -> Vec<String> {
    let was = |kind: Kind| before.iter().find(|one| one.kind == kind).map(|o| o.state);
    let whole = |state: Option<State>| state.is_none_or(|state| state == State::Complete);
    let (mut lost, mut found) = (Vec::new(), Vec::new());
    let mut why = None;
    for one in now {
        match (whole(was(one.kind)), whole(Some(one.state))) {
            (true, false) => {
                lost.push(one.clone());
                why = why.or(one.why.as_deref());
            }
            (false, true) => found.push(one.kind.resource()),
            _ => {}
        }
    }
    let mut notes = Vec::new();
    if !lost.is_empty() {
        let rule = refused(&lost).map_or_else(String::new, |rule| format!("; grant {rule}"));
        let kinds: Vec<&str> = lost.iter().map(|one| one.kind.resource()).collect();
        notes.push(format!(
            "the API: {} may be out of date ({}{rule}); what they decide is unknown until they are read again",
            kinds.join(", "),
            why.unwrap_or("unknown")
        ));
    }
    if !found.is_empty() {
        notes.push(format!(
            "the API: {} are up to date again",
            found.join(", ")
        ));
    }
    notes
}
