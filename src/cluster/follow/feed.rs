//! One list that is followed: read once, then kept current by a stream of events, and read anew where that broke.
//!
//! A stream ends every [`SECONDS`]: a connection that died in silence is noticed by that, because its end never comes.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;

use super::board::{Board, Standing};
use super::event::{Event, Lines, Malformed, event};
use super::store::Decoder;
use super::{Feed, Stream};
use crate::cluster::listed::State;
use crate::cluster::lists::{self, Asking, Failure, GetError, encoded};

/// The API server is asked to end a stream after so many seconds.
const SECONDS: u64 = 20;
/// The same for the Pods of one address, of which there may be many.
const SECONDS_OF_ADDRESS: u64 = 60;
/// A stream that did not end by so much later is dead.
const LATE: Duration = Duration::from_secs(5);
/// For the first byte of an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The longest wait: in between it is looked whether to go on.
const TICK: Duration = Duration::from_millis(250);
/// A stream that was opened after a long break first brings what was missed, in one go: with a pause of this length, a
/// bookmark, or after [`CAUGHT_UP`] that is over.
const PAUSE: Duration = Duration::from_millis(500);
const CAUGHT_UP: Duration = Duration::from_secs(5);
/// Between two attempts, twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Until it is looked again whether what was refused is granted, and whether what could not be read can be.
const REFUSED_WAIT: Duration = Duration::from_secs(30);

pub(super) struct Reader {
    pub feed: Feed,
    pub server: Box<dyn Stream>,
    pub board: Arc<Board>,
    pub over: Arc<AtomicBool>,
    /// For a whole list.
    pub limit: Duration,
    pub ranges: Vec<IpNet>,
    pub decoder: Decoder,
    /// Some items of the list cannot be read: when to list it again.
    pub partial: Option<Instant>,
}

/// Where a feed is: nothing is known, or this version, which is served there.
type At = Option<(String, &'static str)>;

/// What came of an attempt, and where to go on from.
enum Ended {
    Listed(At),
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
        if self.feed == Feed::Slices {
            // No slice is to be met whose Service is only missing because it was listed too early.
            let far = Instant::now() + Duration::from_secs(24 * 3600);
            let over = Arc::clone(&self.over);
            let over = move || over.load(Ordering::Relaxed);
            self.board.wait(&[Feed::Services], far, &over);
        }
        let mut at: At = None;
        let mut failures = 0;
        while !self.is_over() {
            let began = Instant::now();
            let ended = match at.take() {
                None => self.list(),
                Some((version, path)) => self.follow(version, path),
            };
            // A stream that lived shows that the trouble before it is over.
            if !matches!(ended, Ended::Listed(_)) && began.elapsed() > LATE {
                failures = 0;
            }
            let wait;
            (at, wait) = self.conclude(ended, &mut failures);
            self.pause(wait);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Notes how it stands; where to go on from, and after which time.
    fn conclude(&self, ended: Ended, failures: &mut u32) -> (At, Duration) {
        let (board, feed) = (&self.board, &self.feed);
        let lost = |state, verb, why: &str| {
            let why = why.to_owned();
            board.set(feed, Standing::Lost { state, verb, why });
        };
        let at = match ended {
            Ended::Listed(at) => return (at, Duration::ZERO),
            Ended::Closed(at) => {
                board.broken(feed, "the stream ended");
                at
            }
            Ended::Broken { at, why, after } => {
                board.broken(feed, &why);
                *failures += 1;
                return (at, after.unwrap_or_default().max(backoff(*failures)));
            }
            Ended::Refused { at, verb } => {
                lost(State::Forbidden, verb, "forbidden (403)");
                return (at, REFUSED_WAIT);
            }
            Ended::Expired => {
                lost(State::Failed, "watch", "listed anew after 410 Gone");
                None
            }
            Ended::Lost(why) => {
                lost(State::Partial, "watch", &why);
                *failures += 1;
                return (None, backoff(*failures));
            }
            Ended::Again => None,
        };
        // The first time at once.
        *failures += 1;
        let wait = match *failures {
            1 => Duration::ZERO,
            failures => backoff(failures - 1),
        };
        (at, wait)
    }

    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(TICK));
        }
    }

    fn list(&mut self) -> Ended {
        let deadline = Instant::now() + self.limit;
        self.server.until(deadline);
        let asking = Asking {
            deadline,
            consistent: false,
        };
        let (kind, selector) = (self.feed.kind(), self.feed.selector());
        let server = &mut *self.server as &mut dyn lists::Server;
        let listed = lists::one(server, asking, kind, selector.as_deref(), &self.ranges);
        let list = match listed {
            Ok(list) => list,
            Err(failure) => return self.not_listed(failure),
        };
        let decoded = self.decoder.list(list.builder, kind);
        let Some(version) = list.version else {
            let error = GetError::Other("the list has no resourceVersion".to_owned());
            return self.not_listed(Failure::Get(error));
        };
        tracing::info!(feed = ?self.feed, items = decoded.items.len(), %version, "listed");
        self.partial = decoded.broken.then(|| Instant::now() + REFUSED_WAIT);
        self.board.replace(&self.feed, decoded);
        Ended::Listed(Some((version, list.path)))
    }

    fn not_listed(&self, failure: Failure) -> Ended {
        let error = match failure {
            Failure::Get(error) => error,
            Failure::Midway(why) => GetError::Other(why),
        };
        self.board.failed(&self.feed, &error);
        let after = match error {
            GetError::Forbidden | GetError::NotServed => Some(REFUSED_WAIT),
            GetError::Busy { after, .. } => after,
            _ => None,
        };
        Ended::Broken {
            at: None,
            why: error.to_string(),
            after,
        }
    }

    /// Opens a stream from this version, and takes from it until it ends.
    fn follow(&mut self, version: String, path: &'static str) -> Ended {
        let seconds = match self.feed {
            Feed::PodsAt(_) => SECONDS_OF_ADDRESS,
            _ => SECONDS,
        };
        let selector = self.feed.selector();
        let selector = selector.map(|selector| format!("&{}", lists::field_selector(&selector)));
        let request = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}{}",
            encoded(&version),
            selector.unwrap_or_default()
        );
        // Not followed until it is open.
        self.board.broken(&self.feed, "the stream is being opened");
        self.server.until(Instant::now() + ANSWER);
        let at = Some((version.clone(), path));
        let broken = |at, why: String, after| Ended::Broken { at, why, after };
        match self.server.get(&request) {
            Ok(()) => {}
            Err(GetError::Expired) => return Ended::Expired,
            Err(GetError::Forbidden) => {
                let verb = "watch";
                return Ended::Refused { at, verb };
            }
            Err(GetError::TimedOut) => {
                return broken(at, "the API server does not answer".to_owned(), None);
            }
            Err(GetError::Busy { status, after }) => {
                return broken(at, format!("the API server answers {status}"), after);
            }
            // Not served any more, or not as it was: what is known is of no use.
            Err(error @ (GetError::NotServed | GetError::Other(_))) => {
                return Ended::Lost(error.to_string());
            }
            Err(error) => return broken(at, error.to_string(), None),
        }
        tracing::debug!(feed = ?self.feed, %version, "stream opened");
        self.take(version, path, Duration::from_secs(seconds) + LATE)
    }

    /// Takes events until the stream ends. `silence`: so long nothing may be heard.
    fn take(&mut self, mut version: String, path: &'static str, silence: Duration) -> Ended {
        let opened = Instant::now();
        let mut heard = opened;
        let mut catching_up = !self.board.is_whole(&self.feed);
        if !catching_up {
            self.is_current();
        }
        let mut lines = Lines::default();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let mut bookmark = false;
            loop {
                match lines.next() {
                    Ok(None) => break,
                    Ok(Some(line)) => match self.event(line) {
                        Ok(Told::Version(now)) => version = now,
                        Ok(Told::Bookmark(now)) => (version, bookmark) = (now, true),
                        Ok(Told::Expired) => return Ended::Expired,
                        Ok(Told::Error(why)) => return Ended::Lost(why),
                        Err(Malformed) => return Ended::Lost(Malformed.to_string()),
                    },
                    Err(Malformed) => return Ended::Lost(Malformed.to_string()),
                }
            }
            let paused = heard.elapsed() >= PAUSE || opened.elapsed() >= CAUGHT_UP;
            if catching_up && (bookmark || paused) {
                catching_up = false;
                self.is_current();
            }
            let at = || Some((version.clone(), path));
            if self.is_over() || self.partial.is_some_and(|again| again <= Instant::now()) {
                return Ended::Again;
            }
            if heard.elapsed() > silence {
                return Ended::Broken {
                    at: at(),
                    why: "the connection is silent".to_owned(),
                    after: None,
                };
            }
            self.server.until(Instant::now() + TICK);
            match self.server.read(&mut buffer) {
                Ok(0) => return Ended::Closed(at()),
                Ok(length) => {
                    lines.push(buffer.get(..length).unwrap_or_default());
                    heard = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => {
                    return Ended::Broken {
                        at: at(),
                        why: format!("the stream broke off: {error}"),
                        after: None,
                    };
                }
            }
        }
    }

    fn is_current(&self) {
        if self.partial.is_none() {
            self.board.set(&self.feed, Standing::Current);
        }
    }

    /// Takes one line in.
    fn event(&mut self, line: &[u8]) -> Result<Told, Malformed> {
        let kind = self.feed.kind();
        let (item, version, is) = match event(line, kind)? {
            Event::Is(item, version) => (item, version, true),
            Event::Gone(item, version) => (item, version, false),
            Event::Bookmark(version) => return Ok(Told::Bookmark(version.to_owned())),
            Event::Expired => return Ok(Told::Expired),
            Event::Error(code) => {
                let code = code.map_or_else(String::new, |code| format!(" {code}"));
                return Ok(Told::Error(format!("the stream ended with error{code}")));
            }
        };
        let metadata = item.metadata.as_ref().ok_or(Malformed)?;
        let key = Decoder::key(kind, metadata).ok_or(Malformed)?;
        let version = version.to_owned();
        if !is {
            self.board.apply(&self.feed, key, None, None);
            return Ok(Told::Version(version));
        }
        let mut decoded = self.decoder.item(kind, &item);
        if decoded.broken {
            return Err(Malformed);
        }
        // An item that is of no interest here, such as a slice of no Service, is none.
        let slim = decoded.items.remove(&key);
        self.board.apply(&self.feed, key, slim, decoded.conflict);
        Ok(Told::Version(version))
    }
}

enum Told {
    Version(String),
    Bookmark(String),
    Expired,
    Error(String),
}

/// With some chance in it, so that many of us do not come back at once.
fn backoff(failures: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(10));
    let wait = doubled.min(LONGEST_WAIT);
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let chance = nanos.map_or(0, |time| time.subsec_nanos() % 100);
    wait / 2 + wait / 200 * chance
}
