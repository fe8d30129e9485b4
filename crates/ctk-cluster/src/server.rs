//! Transport for GET requests to the API server, and the errors of a request.

use std::io::Read;
use std::time::{Duration, Instant};

/// Number of times that one request is sent while the server is busy.
const MAX_ATTEMPTS: u32 = 4;

/// Wait before the second attempt. It doubles before each further attempt.
const INITIAL_BACKOFF: Duration = Duration::from_millis(200);

/// Transport that sends requests to the API server. Reading it yields the body of the last answer. A read fails with
/// [`std::io::ErrorKind::TimedOut`] after the deadline.
pub trait Server: Read {
    /// Sends a GET. `path` begins with a slash and includes the query.
    ///
    /// # Errors
    /// Every status other than 200, and every failure of the transport.
    fn get(&mut self, path: &str) -> Result<(), GetError>;
}

/// Reason why a GET has no readable body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    #[error("the API server does not accept these credentials (401 Unauthorized)")]
    Unauthorized,
    #[error("forbidden (403)")]
    Forbidden,
    #[error("not served (404)")]
    NotServed,
    /// The token for the next page has expired.
    #[error("the list expired while it was read (410 Gone)")]
    Expired,
    /// A later attempt may succeed.
    #[error("the API server answers {status}")]
    Busy {
        status: u16,
        after: Option<Duration>,
    },
    #[error("{0}")]
    Connection(String),
    #[error("the time for reading the cluster is over (--request-timeout)")]
    TimedOut,
    /// The request was sent, and the deadline passed. The text describes how far the connection came.
    #[error("{0}")]
    Silent(String),
    #[error("{0}")]
    Other(String),
}

impl GetError {
    /// Reports whether every other request would fail in the same way.
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

/// Repeats a GET while the server is busy, until `deadline`. This is safe: a GET changes nothing, and no part of the answer
/// was consumed.
pub(super) fn get_patiently(
    server: &mut dyn Server,
    path: &str,
    deadline: Instant,
) -> Result<(), GetError> {
    let mut wait = INITIAL_BACKOFF;
    let mut attempt = 1;
    loop {
        let (busy, pause) = match server.get(path) {
            Err(GetError::Busy { status, after }) => {
                (GetError::Busy { status, after }, after.unwrap_or(wait))
            }
            other => return other,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if attempt == MAX_ATTEMPTS || pause >= left {
            return Err(busy);
        }
        std::thread::sleep(pause);
        wait *= 2;
        attempt += 1;
    }
}

/// Percent-encodes a query value, because a token may hold any text.
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
