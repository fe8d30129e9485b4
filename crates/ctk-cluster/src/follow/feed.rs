//! One followed list: read once, kept current by a stream of events, and read again after a failure.
//!
//! A stream ends every [`STREAM_SECONDS`]. A connection that died silently is detected by this, because its end never comes. Such an
//! end also proves that the state is current, so that it is more frequent for lists on which verdicts depend.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::connect::Login;
use super::event::{Event, Lines, Malformed, event};
use super::pace::{Pace, REFUSED_WAIT};
use super::reflector_state::{FeedHandle, Standing};
use super::store::Decoder;
use super::{DECIDING, Feed, Stream};
use crate::list_status::State;
use crate::lister::{self, Asking, Failure};
use crate::server::{GetError, Server, encoded};

/// Length in seconds that is requested for a stream.
const STREAM_SECONDS: u64 = 20;
/// Length for [`DECIDING`]: no entry is stale that is younger than the last proof of both.
const DECIDING_STREAM_SECONDS: u64 = 5;
/// Length for the Pods of one address, of which many streams may exist.
const ADDRESS_STREAM_SECONDS: u64 = 60;
/// Delay after which a stream without its expected end is dead.
const END_GRACE: Duration = Duration::from_secs(5);
/// Lifetime of a stream which shows that an earlier failure is over.
const MIN_STABLE_LIFETIME: Duration = Duration::from_secs(2);
/// Wait for the first byte of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest wait before the recovery of another reader ends it, so that readers that fail and recover in turn do not wake each
/// other all the time.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// Interval between two checks whether the reader is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// After a long interruption a stream first sends the missed events at once. A pause of this length, a bookmark, or
/// [`MAX_CATCH_UP`] marks their end. That is a guess, so that [`DECIDING`] feeds are listed again instead.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(500);
const MAX_CATCH_UP: Duration = Duration::from_secs(5);

pub(super) struct Reader {
    pub handle: FeedHandle,
    pub server: Box<dyn Stream>,
    /// Source of newer credentials, and the number of the current ones.
    pub login: Arc<dyn Login>,
    pub credential: u64,
    /// Time limit of a whole list.
    pub limit: Duration,
    pub ranges: Vec<IpNet>,
    pub decoder: Decoder,
    /// Time of the next list, set when some items cannot be read.
    pub partial: Option<Instant>,
    pub pace: Pace,
    /// The last attempt failed or was refused.
    pub troubled: bool,
    /// Number of recoveries that this reader has seen, its own included.
    pub recoveries: u64,
}

/// Position of a feed: none, or a version and the path that serves it.
pub(super) type At = Option<(String, &'static str)>;

/// Outcome of an attempt, and the position to continue from.
pub(super) enum AttemptOutcome {
    /// The list can be followed from this version on.
    Listed(String, &'static str),
    /// The stream ended as expected.
    Closed(At),
    /// A later attempt may succeed.
    Broken {
        at: At,
        why: String,
        after: Option<Duration>,
    },
    Refused {
        at: At,
        verb: &'static str,
    },
    /// The version is too old.
    Expired,
    /// An event was not understood, so that changes may be missing.
    Lost(String),
    /// The list is due to be read again.
    Again,
}

impl Reader {
    /// Runs until the feed is no longer needed.
    pub fn run(mut self) {
        if self.handle.feed == Feed::Slices {
            // Services come first, so that no slice lacks its Service only because that was listed too early.
            let far = Instant::now() + Duration::from_secs(24 * 3600);
            let over = || self.handle.is_over();
            self.handle.reflector.wait(&[Feed::Services], far, &over);
        }
        let mut at: At = None;
        while !self.handle.is_over() {
            let began = Instant::now();
            self.recoveries = self.handle.reflector.recoveries();
            let ended = match at.take() {
                None => self.list(),
                Some((version, path)) => self.follow(version, path),
            };
            if !matches!(ended, AttemptOutcome::Listed(..)) && began.elapsed() > MIN_STABLE_LIFETIME
            {
                self.pace.reset();
            }
            let wait;
            (at, wait) = self.conclude(ended);
            self.pause(wait);
        }
    }

    /// Records the outcome. Returns the position to continue from, and the wait before that.
    fn conclude(&mut self, ended: AttemptOutcome) -> (At, Duration) {
        let handle = &self.handle;
        let lost = |state, verb, why: &str| {
            let why = why.to_owned();
            handle.set(Standing::Lost { state, verb, why });
        };
        match ended {
            AttemptOutcome::Listed(version, path) => {
                self.recovered();
                (Some((version, path)), Duration::ZERO)
            }
            AttemptOutcome::Closed(at) => {
                handle.broken("the stream ended");
                (at, self.pace.after_end())
            }
            AttemptOutcome::Broken { at, why, after } => {
                handle.broken(&why);
                self.troubled = true;
                let wait = self.pace.after_failure();
                (at, after.unwrap_or_default().max(wait))
            }
            AttemptOutcome::Refused { at, verb } => {
                lost(State::Forbidden, verb, "forbidden (403)");
                self.troubled = true;
                (at, self.pace.after_refusal(self.handle.was_opened()))
            }
            AttemptOutcome::Expired => {
                handle.broken("it is listed anew after 410 Gone");
                (None, self.pace.after_end())
            }
            AttemptOutcome::Lost(why) => {
                lost(State::Partial, "watch", &why);
                self.troubled = true;
                (None, self.pace.after_failure())
            }
            AttemptOutcome::Again => (None, self.pace.after_end()),
        }
    }

    /// The cause of the failure may be over for other readers as well.
    fn recovered(&mut self) {
        if std::mem::take(&mut self.troubled) {
            self.recoveries = self.handle.reflector.recovered();
        }
    }

    /// Waits. Ends early when another reader recovered since the attempt began.
    fn pause(&self, time: Duration) {
        let began = Instant::now();
        let until = began + time;
        let is_woken =
            || began.elapsed() >= MIN_WAIT && self.handle.reflector.recoveries() != self.recoveries;
        while !self.handle.is_over() && !is_woken() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(STOP_POLL_INTERVAL));
        }
    }

    fn list(&mut self) -> AttemptOutcome {
        let asked = Instant::now();
        let deadline = asked + self.limit;
        self.server.until(deadline);
        let asking = Asking {
            deadline,
            consistent: false,
        };
        let (kind, selector) = (self.handle.feed.kind(), self.handle.feed.selector());
        let server = &mut *self.server as &mut dyn Server;
        let listed = lister::one(server, asking, kind, selector.as_deref(), &self.ranges);
        let list = match listed {
            Ok(list) => list,
            Err(failure) => return self.not_listed(failure),
        };
        let decoded = self.decoder.list(list.builder, kind);
        let Some(version) = list.version else {
            let error = GetError::Other("the list has no resourceVersion".to_owned());
            return self.not_listed(Failure::Get(error));
        };
        tracing::info!(feed = ?self.handle.feed, items = decoded.items.len(), %version, "listed");
        self.partial = decoded.broken.then(|| Instant::now() + REFUSED_WAIT);
        self.handle.replace(decoded, asked);
        AttemptOutcome::Listed(version, list.path)
    }

    fn not_listed(&mut self, failure: Failure) -> AttemptOutcome {
        let error = match failure {
            Failure::Get(error) => error,
            Failure::Midway(why) => GetError::Other(why),
        };
        self.handle.failed(&error);
        self.log_in(&error);
        let after = match error {
            GetError::Forbidden => Some(self.pace.after_refusal(self.handle.was_opened())),
            GetError::NotServed => Some(REFUSED_WAIT),
            GetError::Busy { after, .. } => after,
            _ => None,
        };
        AttemptOutcome::Broken {
            at: None,
            why: error.to_string(),
            after,
        }
    }

    /// Logs in again, because the credentials may have expired. One reader gets the new ones for all.
    fn log_in(&mut self, error: &GetError) {
        let were_good = || self.handle.reflector.known().store.has(&Feed::Services);
        if *error == GetError::Unauthorized
            && were_good()
            && let Some(newer) = self.login.renewed(self.credential)
        {
            (self.credential, self.server) = newer;
        }
    }

    fn decides(&self) -> bool {
        DECIDING.contains(&self.handle.feed)
    }

    /// Opens a stream from this version, and takes its events until it ends.
    fn follow(&mut self, version: String, path: &'static str) -> AttemptOutcome {
        let seconds = match self.handle.feed {
            Feed::PodsAt(_) => ADDRESS_STREAM_SECONDS,
            _ if self.decides() => DECIDING_STREAM_SECONDS,
            _ => STREAM_SECONDS,
        };
        let selector = self.handle.feed.selector();
        let selector = selector.map(|selector| format!("&{}", lister::field_selector(&selector)));
        let request = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}{}",
            encoded(&version),
            selector.unwrap_or_default()
        );
        let (whole, asked) = (self.handle.is_whole(), Instant::now());
        // The feed counts as interrupted until the stream is open.
        self.handle.opening();
        self.server.until(Instant::now() + ANSWER_TIMEOUT);
        let at = Some((version.clone(), path));
        let broken = |at, why: String, after| AttemptOutcome::Broken { at, why, after };
        match self.server.get(&request) {
            Ok(()) => {}
            Err(GetError::Expired) => return AttemptOutcome::Expired,
            Err(GetError::Forbidden) => {
                let verb = "watch";
                return AttemptOutcome::Refused { at, verb };
            }
            Err(GetError::TimedOut | GetError::Silent(_)) => {
                return broken(at, "the API server does not answer".to_owned(), None);
            }
            Err(GetError::Busy { status, after }) => {
                return broken(at, format!("the API server answers {status}"), after);
            }
            // The path is no longer served, or differently: the known state is useless.
            Err(error @ (GetError::NotServed | GetError::Other(_))) => {
                return AttemptOutcome::Lost(error.to_string());
            }
            Err(error) => {
                self.log_in(&error);
                return broken(at, error.to_string(), None);
            }
        }
        if !whole && self.decides() {
            // The stream does not show the end of the missed events.
            return self.list();
        }
        tracing::debug!(feed = ?self.handle.feed, %version, "stream opened");
        self.take(
            version,
            path,
            asked,
            Duration::from_secs(seconds) + END_GRACE,
        )
    }

    /// Takes events until the end of the stream, which was requested at `asked`. `silence` bounds the time without data.
    pub(super) fn take(
        &mut self,
        mut version: String,
        path: &'static str,
        asked: Instant,
        silence: Duration,
    ) -> AttemptOutcome {
        let opened = Instant::now();
        let mut heard = opened;
        let mut catching_up = !self.handle.is_whole();
        if !catching_up {
            self.is_current(asked);
        }
        let mut lines = Lines::default();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let mut bookmark = false;
            loop {
                match lines.next() {
                    Ok(None) => break,
                    Ok(Some(line)) => match self.event(line) {
                        Ok(EventOutcome::Version(now)) => version = now,
                        Ok(EventOutcome::Bookmark(now)) => (version, bookmark) = (now, true),
                        Ok(EventOutcome::Expired) => return AttemptOutcome::Expired,
                        Ok(EventOutcome::Error(why)) => return AttemptOutcome::Lost(why),
                        Err(Malformed) => return AttemptOutcome::Lost(Malformed.to_string()),
                    },
                    Err(Malformed) => return AttemptOutcome::Lost(Malformed.to_string()),
                }
            }
            let paused = heard.elapsed() >= CATCH_UP_PAUSE || opened.elapsed() >= MAX_CATCH_UP;
            if catching_up && (bookmark || paused) {
                catching_up = false;
                self.is_current(heard);
            }
            if !catching_up && heard != opened {
                self.handle.proven(heard);
            }
            let at = || Some((version.clone(), path));
            if self.handle.is_over() || self.partial.is_some_and(|again| again <= Instant::now()) {
                return AttemptOutcome::Again;
            }
            if heard.elapsed() > silence {
                return AttemptOutcome::Broken {
                    at: at(),
                    why: "the connection is silent".to_owned(),
                    after: None,
                };
            }
            self.server.until(Instant::now() + STOP_POLL_INTERVAL);
            match self.server.read(&mut buffer) {
                Ok(0) => {
                    if !catching_up {
                        self.handle.proven(Instant::now());
                    }
                    return AttemptOutcome::Closed(at());
                }
                Ok(length) => {
                    lines.push(buffer.get(..length).unwrap_or_default());
                    heard = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => {
                    return AttemptOutcome::Broken {
                        at: at(),
                        why: format!("the stream broke off: {error}"),
                        after: None,
                    };
                }
            }
        }
    }

    fn is_current(&mut self, proven: Instant) {
        self.recovered();
        self.handle.proven(proven);
        self.handle.is_followed();
        if self.partial.is_none() {
            self.handle.set(Standing::Current);
        }
    }

    /// Applies one line.
    fn event(&mut self, line: &[u8]) -> Result<EventOutcome, Malformed> {
        let kind = self.handle.feed.kind();
        let (item, version, is) = match event(line, kind)? {
            Event::Is(item, version) => (item, version, true),
            Event::Gone(item, version) => (item, version, false),
            Event::Bookmark(version) => return Ok(EventOutcome::Bookmark(version.to_owned())),
            Event::Expired => return Ok(EventOutcome::Expired),
            Event::Error(code) => {
                let code = code.map_or_else(String::new, |code| format!(" {code}"));
                return Ok(EventOutcome::Error(format!(
                    "the stream ended with error{code}"
                )));
            }
        };
        let metadata = item.metadata.as_ref().ok_or(Malformed)?;
        let key = Decoder::key(kind, metadata).ok_or(Malformed)?;
        let version = version.to_owned();
        if !is {
            self.handle.apply(key, None, None);
            return Ok(EventOutcome::Version(version));
        }
        let mut decoded = self.decoder.item(kind, &item);
        if decoded.broken {
            return Err(Malformed);
        }
        // An item that is not used, such as a slice of no Service, counts as none.
        let slim = decoded.items.remove(&key);
        self.handle.apply(key, slim, decoded.conflict);
        Ok(EventOutcome::Version(version))
    }
}

enum EventOutcome {
    Version(String),
    Bookmark(String),
    Expired,
    Error(String),
}

#[cfg(test)]
mod tests;
