//! One list that is followed: read once, then kept current by a stream of events, and read anew where that broke.
//!
//! A stream ends every [`SECONDS`]: a connection that died in silence is noticed by that, because its end never comes. What
//! verdicts hang on is proven to be current by such an end, so it comes more often there.

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

/// The API server is asked to end a stream after so many seconds.
const SECONDS: u64 = 20;
/// The same for [`DECIDING`]: nobody calls an entry stale that is younger than the last proof of both.
const SECONDS_OF_DECIDING: u64 = 5;
/// The same for the Pods of one address, of which there may be many.
const SECONDS_OF_ADDRESS: u64 = 60;
/// A stream that did not end by so much later is dead.
const LATE: Duration = Duration::from_secs(5);
/// A stream that lived for so long shows that the trouble before it is over.
const LIVED: Duration = Duration::from_secs(2);
/// For the first byte of an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// A wait is this long at least before the recovery of another reader ends it, so that readers that fail and recover in turn
/// do not wake each other all the time.
const LEAST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait: in between it is looked whether to go on.
const TICK: Duration = Duration::from_millis(250);
/// A stream that was opened after a long break first brings what was missed, in one go: with a pause of this length, a
/// bookmark, or after [`CAUGHT_UP`] that is over. That is a guess, so [`DECIDING`] are listed anew instead.
const PAUSE: Duration = Duration::from_millis(500);
const CAUGHT_UP: Duration = Duration::from_secs(5);

pub(super) struct Reader {
    pub post: FeedHandle,
    pub server: Box<dyn Stream>,
    /// Where there may be newer credentials, and the number of those that are shown.
    pub login: Arc<dyn Login>,
    pub credential: u64,
    /// For a whole list.
    pub limit: Duration,
    pub ranges: Vec<IpNet>,
    pub decoder: Decoder,
    /// Some items of the list cannot be read: when to list it again.
    pub partial: Option<Instant>,
    pub pace: Pace,
    /// The last attempt failed, or was refused.
    pub troubled: bool,
    /// The recoveries that this reader knows of, its own among them.
    pub recoveries: u64,
}

/// Where a feed is: nothing is known, or this version, which is served there.
type At = Option<(String, &'static str)>;

/// What came of an attempt, and where to go on from.
enum StreamEnd {
    /// From this version on it can be followed.
    Listed(String, &'static str),
    /// As it should.
    Closed(At),
    /// Later it may be better.
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
    /// Something was not understood, so something may have been missed.
    Lost(String),
    /// It is time to list it again.
    Again,
}

impl Reader {
    /// Until nobody wants it any more.
    pub fn run(mut self) {
        if self.post.feed == Feed::Slices {
            // No slice is to be met whose Service is only missing because it was listed too early.
            let far = Instant::now() + Duration::from_secs(24 * 3600);
            let over = || self.post.is_over();
            self.post.board.wait(&[Feed::Services], far, &over);
        }
        let mut at: At = None;
        while !self.post.is_over() {
            let began = Instant::now();
            self.recoveries = self.post.board.recoveries();
            let ended = match at.take() {
                None => self.list(),
                Some((version, path)) => self.follow(version, path),
            };
            if !matches!(ended, StreamEnd::Listed(..)) && began.elapsed() > LIVED {
                self.pace.reset();
            }
            let wait;
            (at, wait) = self.conclude(ended);
            self.pause(wait);
        }
    }

    /// Notes how it stands; where to go on from, and after which time.
    fn conclude(&mut self, ended: StreamEnd) -> (At, Duration) {
        let post = &self.post;
        let lost = |state, verb, why: &str| {
            let why = why.to_owned();
            post.set(Standing::Lost { state, verb, why });
        };
        match ended {
            StreamEnd::Listed(version, path) => {
                self.recovered();
                (Some((version, path)), Duration::ZERO)
            }
            StreamEnd::Closed(at) => {
                post.broken("the stream ended");
                (at, self.pace.after_end())
            }
            StreamEnd::Broken { at, why, after } => {
                post.broken(&why);
                self.troubled = true;
                let wait = self.pace.after_failure();
                (at, after.unwrap_or_default().max(wait))
            }
            StreamEnd::Refused { at, verb } => {
                lost(State::Forbidden, verb, "forbidden (403)");
                self.troubled = true;
                (at, self.pace.after_refusal(self.post.was_opened()))
            }
            StreamEnd::Expired => {
                post.broken("it is listed anew after 410 Gone");
                (None, self.pace.after_end())
            }
            StreamEnd::Lost(why) => {
                lost(State::Partial, "watch", &why);
                self.troubled = true;
                (None, self.pace.after_failure())
            }
            StreamEnd::Again => (None, self.pace.after_end()),
        }
    }

    /// What was the matter with it may be over for others, too.
    fn recovered(&mut self) {
        if std::mem::take(&mut self.troubled) {
            self.recoveries = self.post.board.recovered();
        }
    }

    /// Ends early when another reader recovered since the attempt began.
    fn pause(&self, time: Duration) {
        let began = Instant::now();
        let until = began + time;
        let is_woken =
            || began.elapsed() >= LEAST_WAIT && self.post.board.recoveries() != self.recoveries;
        while !self.post.is_over() && !is_woken() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(TICK));
        }
    }

    fn list(&mut self) -> StreamEnd {
        let asked = Instant::now();
        let deadline = asked + self.limit;
        self.server.until(deadline);
        let asking = Asking {
            deadline,
            consistent: false,
        };
        let (kind, selector) = (self.post.feed.kind(), self.post.feed.selector());
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
        tracing::info!(feed = ?self.post.feed, items = decoded.items.len(), %version, "listed");
        self.partial = decoded.broken.then(|| Instant::now() + REFUSED_WAIT);
        self.post.replace(decoded, asked);
        StreamEnd::Listed(version, list.path)
    }

    fn not_listed(&mut self, failure: Failure) -> StreamEnd {
        let error = match failure {
            Failure::Get(error) => error,
            Failure::Midway(why) => GetError::Other(why),
        };
        self.post.failed(&error);
        self.log_in(&error);
        let after = match error {
            GetError::Forbidden => Some(self.pace.after_refusal(self.post.was_opened())),
            GetError::NotServed => Some(REFUSED_WAIT),
            GetError::Busy { after, .. } => after,
            _ => None,
        };
        StreamEnd::Broken {
            at: None,
            why: error.to_string(),
            after,
        }
    }

    /// Credentials that were good once may be over: a plugin gives newer ones, to one reader for all.
    fn log_in(&mut self, error: &GetError) {
        let were_good = || self.post.board.known().store.has(&Feed::Services);
        if *error == GetError::Unauthorized
            && were_good()
            && let Some(newer) = self.login.renewed(self.credential)
        {
            (self.credential, self.server) = newer;
        }
    }

    fn decides(&self) -> bool {
        DECIDING.contains(&self.post.feed)
    }

    /// Opens a stream from this version, and takes from it until it ends.
    fn follow(&mut self, version: String, path: &'static str) -> StreamEnd {
        let seconds = match self.post.feed {
            Feed::PodsAt(_) => SECONDS_OF_ADDRESS,
            _ if self.decides() => SECONDS_OF_DECIDING,
            _ => SECONDS,
        };
        let selector = self.post.feed.selector();
        let selector = selector.map(|selector| format!("&{}", lister::field_selector(&selector)));
        let request = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}{}",
            encoded(&version),
            selector.unwrap_or_default()
        );
        let (whole, asked) = (self.post.is_whole(), Instant::now());
        // Not followed until it is open.
        self.post.opening();
        self.server.until(Instant::now() + ANSWER);
        let at = Some((version.clone(), path));
        let broken = |at, why: String, after| StreamEnd::Broken { at, why, after };
        match self.server.get(&request) {
            Ok(()) => {}
            Err(GetError::Expired) => return StreamEnd::Expired,
            Err(GetError::Forbidden) => {
                let verb = "watch";
                return StreamEnd::Refused { at, verb };
            }
            Err(GetError::TimedOut | GetError::Silent(_)) => {
                return broken(at, "the API server does not answer".to_owned(), None);
            }
            Err(GetError::Busy { status, after }) => {
                return broken(at, format!("the API server answers {status}"), after);
            }
            // Not served any more, or not as it was: what is known is of no use.
            Err(error @ (GetError::NotServed | GetError::Other(_))) => {
                return StreamEnd::Lost(error.to_string());
            }
            Err(error) => {
                self.log_in(&error);
                return broken(at, error.to_string(), None);
            }
        }
        if !whole && self.decides() {
            // What was missed has no end that would show in the stream.
            return self.list();
        }
        tracing::debug!(feed = ?self.post.feed, %version, "stream opened");
        self.take(version, path, asked, Duration::from_secs(seconds) + LATE)
    }

    /// Takes events until the stream ends, for which was asked at `asked`. `silence`: so long nothing may be heard.
    fn take(
        &mut self,
        mut version: String,
        path: &'static str,
        asked: Instant,
        silence: Duration,
    ) -> StreamEnd {
        let opened = Instant::now();
        let mut heard = opened;
        let mut catching_up = !self.post.is_whole();
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
                        Ok(EventOutcome::Expired) => return StreamEnd::Expired,
                        Ok(EventOutcome::Error(why)) => return StreamEnd::Lost(why),
                        Err(Malformed) => return StreamEnd::Lost(Malformed.to_string()),
                    },
                    Err(Malformed) => return StreamEnd::Lost(Malformed.to_string()),
                }
            }
            let paused = heard.elapsed() >= PAUSE || opened.elapsed() >= CAUGHT_UP;
            if catching_up && (bookmark || paused) {
                catching_up = false;
                self.is_current(heard);
            }
            if !catching_up && heard != opened {
                self.post.proven(heard);
            }
            let at = || Some((version.clone(), path));
            if self.post.is_over() || self.partial.is_some_and(|again| again <= Instant::now()) {
                return StreamEnd::Again;
            }
            if heard.elapsed() > silence {
                return StreamEnd::Broken {
                    at: at(),
                    why: "the connection is silent".to_owned(),
                    after: None,
                };
            }
            self.server.until(Instant::now() + TICK);
            match self.server.read(&mut buffer) {
                Ok(0) => {
                    if !catching_up {
                        self.post.proven(Instant::now());
                    }
                    return StreamEnd::Closed(at());
                }
                Ok(length) => {
                    lines.push(buffer.get(..length).unwrap_or_default());
                    heard = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => {
                    return StreamEnd::Broken {
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
        self.post.proven(proven);
        self.post.is_followed();
        if self.partial.is_none() {
            self.post.set(Standing::Current);
        }
    }

    /// Takes one line in.
    fn event(&mut self, line: &[u8]) -> Result<EventOutcome, Malformed> {
        let kind = self.post.feed.kind();
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
            self.post.apply(key, None, None);
            return Ok(EventOutcome::Version(version));
        }
        let mut decoded = self.decoder.item(kind, &item);
        if decoded.broken {
            return Err(Malformed);
        }
        // An item that is of no interest here, such as a slice of no Service, is none.
        let slim = decoded.items.remove(&key);
        self.post.apply(key, slim, decoded.conflict);
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
