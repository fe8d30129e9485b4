//! Readers of streams without a server, for tests and fuzzing of other crates.

use std::io::{Cursor, Read};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::connect::Login;
use super::feed::{AttemptOutcome, Reader};
use super::pace::Pace;
use super::reflector_state::{FeedHandle, ReflectorState};
use super::store::Decoder;
use super::{EndpointChange, Feed, Stream};
use crate::build::Builder;
use crate::server::{GetError, Server};
use crate::source::{Loaded, Source, SourceKind};

/// State after some streams.
#[derive(Debug)]
pub struct Followed {
    /// End of each stream, and the version up to which it was taken.
    pub ends: Vec<String>,
    pub changes: Vec<EndpointChange>,
    pub loaded: Loaded,
}

/// Reads the body of one stream for each feed to its end, in this order, and builds an index of the objects. A server sends the
/// bodies in pieces of `piece` bytes.
pub fn follow(bodies: &[(Feed, &[u8])], piece: usize) -> Followed {
    let reflector: Arc<ReflectorState> = Arc::default();
    let mut ends = Vec::new();
    for (feed, body) in bodies {
        ends.push(ended(&read(&reflector, feed, body, piece)));
    }
    let mut builder = Builder::new(&[]);
    let mut known = reflector.known();
    known.store.fill(&mut builder);
    let source = Source {
        kind: SourceKind::Api,
        time: SystemTime::UNIX_EPOCH,
        path: None,
    };
    let changes = std::mem::take(&mut known.changes);
    Followed {
        ends,
        changes: changes.into_iter().map(|(_, change)| change).collect(),
        // Without ranges of the command line none conflicts.
        loaded: Loaded::build(builder, source).expect("no range is given"),
    }
}

fn read(reflector: &Arc<ReflectorState>, feed: &Feed, body: &[u8], piece: usize) -> AttemptOutcome {
    let mut reader = Reader {
        handle: FeedHandle::new(reflector, feed, &Arc::default()),
        server: Box::new(Body {
            bytes: Cursor::new(body.to_vec()),
            piece,
        }),
        login: Arc::new(NoLogin),
        credential: 0,
        limit: Duration::from_secs(1),
        ranges: Vec::new(),
        decoder: Decoder::new(&[]),
        partial: None,
        pace: Pace::of(feed),
        troubled: false,
        recoveries: 0,
    };
    reader.take("0".to_owned(), "/", Instant::now(), Duration::from_secs(60))
}

fn ended(outcome: &AttemptOutcome) -> String {
    match outcome {
        AttemptOutcome::Closed(at) => {
            let version = at.as_ref().map_or("", |(version, _)| version);
            format!("closed at {version}")
        }
        AttemptOutcome::Lost(why) => format!("lost: {why}"),
        AttemptOutcome::Expired => "expired".to_owned(),
        AttemptOutcome::Broken { why, .. } => format!("broken: {why}"),
        AttemptOutcome::Listed(..) => "listed".to_owned(),
        AttemptOutcome::Refused { verb, .. } => format!("refused to {verb}"),
        AttemptOutcome::Again => "again".to_owned(),
    }
}

/// A body, and its rest.
struct Body {
    bytes: Cursor<Vec<u8>>,
    piece: usize,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.piece.min(buffer.len());
        self.bytes.read(&mut buffer[..length])
    }
}

impl Server for Body {
    fn get(&mut self, _: &str) -> Result<(), GetError> {
        Ok(())
    }
}

impl Stream for Body {
    fn until(&mut self, _: Instant) {}
}

struct NoLogin;

impl Login for NoLogin {
    fn client(&self) -> (u64, Box<dyn Stream>) {
        let (bytes, piece) = (Cursor::default(), 1);
        (0, Box::new(Body { bytes, piece }))
    }

    fn renewed(&self, _: u64) -> Option<(u64, Box<dyn Stream>)> {
        None
    }
}
