//! What a list is asked of: whoever sends a GET to the API server, and why there may be no answer.

use std::io::Read;
use std::time::{Duration, Instant};

/// How often one request is sent when the server is busy.
const ATTEMPTS: u32 = 4;

/// The wait before the second attempt, twice as long before each further one.
const BACKOFF: Duration = Duration::from_millis(200);

/// What carries requests to the API server. It reads as the body of its last answer, and fails so with
/// [`std::io::ErrorKind::TimedOut`] when the time is over.
pub trait Server: Read {
    /// Sends a GET; `path` begins with a slash and has its query.
    ///
    /// # Errors
    /// Whatever is not the status 200.
    fn get(&mut self, path: &str) -> Result<(), GetError>;
}

/// Why a GET has no body that could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    #[error("the API server does not accept these credentials (401 Unauthorized)")]
    Unauthorized,
    #[error("forbidden (403)")]
    Forbidden,
    #[error("not served (404)")]
    NotServed,
    /// The token for the next page is too old.
    #[error("the list expired while it was read (410 Gone)")]
    Expired,
    /// Later it may be answered.
    #[error("the API server answers {status}")]
    Busy {
        status: u16,
        after: Option<Duration>,
    },
    #[error("{0}")]
    Connection(String),
    #[error("the time for reading the cluster is over (--request-timeout)")]
    TimedOut,
    /// A request was sent, and its time is over: how far it came.
    #[error("{0}")]
    Silent(String),
    #[error("{0}")]
    Other(String),
}

impl GetError {
    /// Other requests would end in the same way.
    pub fn ends_all(&self) -> bool {
        matches!(
            self,
            GetError::Unauthorized
                | GetError::Connection(_)
                | GetError::TimedOut
                | GetError::Silent(_)
        )
    }
}

/// Sends a GET again while the server is busy: it changes nothing, and nothing of an answer was taken yet. Not beyond
/// `deadline`.
pub(super) fn get_patiently(
    server: &mut dyn Server,
    path: &str,
    deadline: Instant,
) -> Result<(), GetError> {
    let mut wait = BACKOFF;
    let mut attempt = 1;
    loop {
        let (busy, pause) = match server.get(path) {
            Err(GetError::Busy { status, after }) => {
                (GetError::Busy { status, after }, after.unwrap_or(wait))
            }
            other => return other,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if attempt == ATTEMPTS || pause >= left {
            return Err(busy);
        }
        std::thread::sleep(pause);
        wait *= 2;
        attempt += 1;
    }
}

/// A query value: a token may be any text.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
