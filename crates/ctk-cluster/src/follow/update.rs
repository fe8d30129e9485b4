//! What whoever judges takes from the board now and then: what happened, and an index of all that is known.

use std::time::{Duration, Instant, SystemTime};

use super::{EndpointChange, Follower};
use crate::build::{Builder, NotAServiceRange};
use crate::list_status::{Listed, State, refused};
use crate::object::Kind;
use crate::source::{Loaded, Source, SourceKind};

/// Changes of so long become one index.
const WINDOW: Duration = Duration::from_millis(150);
/// The same while it is asked who has an address that the next index may need. What that one could not decide would be
/// unknown for a moment.
const WINDOW_OF_ASKING: Duration = Duration::from_secs(1);
/// Of the time, building takes one part in so many at most.
const SHARE: u32 = 10;

/// What is new since somebody asked.
#[derive(Debug, Default)]
pub struct ClusterUpdate {
    /// A newer index.
    pub loaded: Option<Loaded>,
    /// For people.
    pub notes: Vec<String>,
}

impl Follower {
    /// What happened to endpoints since somebody asked, with the time at which each was heard. To be taken before
    /// [`Follower::news`]: there is time then to ask for what the judging by it will need.
    pub fn changes(&mut self) -> Vec<(SystemTime, EndpointChange)> {
        std::mem::take(&mut self.board.known().changes)
    }

    /// What is new. An index at most every now and then: building takes a small part of the time.
    pub fn news(&mut self) -> ClusterUpdate {
        let mut news = ClusterUpdate::default();
        let due = {
            let mut known = self.board.known();
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
                true => WINDOW_OF_ASKING,
                false => WINDOW,
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
                // What else changed must not wait for another change, and without ranges there is no conflict.
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

    /// An index of what is known now.
    pub(super) fn build(&mut self) -> Result<Loaded, NotAServiceRange> {
        let began = Instant::now();
        let mut builder = Builder::new(&self.ranges);
        let time = SystemTime::now();
        let (listed, asked) = {
            let mut known = self.board.known();
            // Readers go on telling of ranges that are given up.
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
        self.not_before = Instant::now() + took * SHARE;
        tracing::debug!(?took, "index");
        Ok(loaded)
    }
}

/// The same lists are whole.
fn same(now: &[Listed], before: &[Listed]) -> bool {
    let states = |all: &[Listed]| -> Vec<(Kind, State)> {
        all.iter().map(|one| (one.kind, one.state)).collect()
    };
    states(now) == states(before)
}

/// What is to be said of lists that are not whole any more, and of those that are whole again.
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
