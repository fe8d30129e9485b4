//! The lists of a live cluster, one GET after the other, whoever carries the requests.
//!
//! Every list ends in a [`State`] of its own: what cannot be had of one kind takes nothing away from the others. Services
//! come before EndpointSlices, so that no slice is met whose Service is only missing because it was listed too early.

use std::io::{BufReader, Read};
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;

use super::build::{Builder, NotAServiceRange};
use super::list::{self, ListError};
use super::listed::{Listed, State, gaps};
use super::object::Kind;
use super::source::{Loaded, Source, SourceKind};

/// Services first, and what only gives names last: where time runs out, verdicts are possible all the same.
const ORDER: [Kind; 5] = [
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Node,
    Kind::ServiceCidr,
    Kind::Pod,
];

/// Items of a page of a consistent list, as kubectl has it: small enough for the API server to collect at once.
const PAGE: u32 = 500;

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
    #[error("the time for reading the cluster is over")]
    TimedOut,
    #[error("{0}")]
    Other(String),
}

impl GetError {
    /// Other requests would end in the same way.
    pub fn ends_all(&self) -> bool {
        matches!(
            self,
            GetError::Unauthorized | GetError::Connection(_) | GetError::TimedOut
        )
    }
}

/// How to ask.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// When all must be read.
    pub deadline: Instant,
    /// Of every kind the newest state, as for a delete. Else only of Services and EndpointSlices, which decide verdicts;
    /// what gives names may come from the API server's cache.
    pub consistent: bool,
}

/// Why nothing at all could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Get(#[from] GetError),
    #[error(transparent)]
    ServiceRange(#[from] NotAServiceRange),
}

/// Reads the five lists.
///
/// # Errors
/// The first request shows that no other would succeed, or a given Service range holds an address of a Node or Pod.
pub fn read(
    server: &mut dyn Server,
    asking: Asking,
    service_ranges: &[IpNet],
) -> Result<Loaded, ReadError> {
    let source = Source {
        kind: SourceKind::Api,
        time: SystemTime::now(),
        path: None,
    };
    let mut reading = Reading {
        server,
        asking,
        builder: Builder::new(service_ranges),
    };
    let mut listed: Vec<Listed> = Vec::new();
    let mut ended: Option<GetError> = None;
    for kind in ORDER {
        let outcome = match &ended {
            Some(error) => Err(Failure::Get(error.clone())),
            None => reading.list(kind),
        };
        if let Err(Failure::Get(error)) = &outcome
            && error.ends_all()
        {
            if listed.is_empty() {
                return Err(error.clone().into());
            }
            ended.get_or_insert_with(|| error.clone());
        }
        let entry = reading.conclude(kind, outcome);
        tracing::info!(kind = kind.name(), state = ?entry.state, "listed");
        listed.push(entry);
    }
    let mut loaded = Loaded::build(reading.builder, source)?;
    loaded.warnings.extend(gaps(&listed));
    loaded.listed = listed;
    Ok(loaded)
}

struct Reading<'s> {
    server: &'s mut dyn Server,
    asking: Asking,
    builder: Builder,
}

/// Why a list is not whole.
enum Failure {
    /// Before its first page.
    Get(GetError),
    /// In it or behind it: something of it was taken.
    Midway(String),
}

impl Reading<'_> {
    fn list(&mut self, kind: Kind) -> Result<(), Failure> {
        let mut result = Err(Failure::Get(GetError::NotServed));
        for path in paths(kind) {
            result = self.pages(kind, path);
            if !matches!(result, Err(Failure::Get(GetError::NotServed))) {
                break;
            }
        }
        result
    }

    fn pages(&mut self, kind: Kind, path: &str) -> Result<(), Failure> {
        let whole = match self.asking.consistent || decides(kind) {
            true => String::new(),
            // With it the server answers from its cache, in one piece.
            false => "resourceVersion=0".to_owned(),
        };
        let mut paged = whole.is_empty();
        let mut token: Option<String> = None;
        loop {
            let query = match &token {
                None if paged => format!("limit={PAGE}"),
                None => whole.clone(),
                Some(token) => format!("limit={PAGE}&continue={}", encoded(token)),
            };
            let next = match self.page(kind, path, &query) {
                Ok(next) => next,
                // Once, and all of it: two halves of different age are no list.
                Err(Failure::Get(GetError::Expired)) if token.is_some() && paged => {
                    tracing::info!(
                        kind = kind.name(),
                        "the list expired, once more in one piece"
                    );
                    self.builder.forget(kind);
                    (token, paged) = (None, false);
                    continue;
                }
                Err(Failure::Get(error)) if token.is_some() => {
                    return Err(Failure::Midway(error.to_string()));
                }
                Err(failure) => return Err(failure),
            };
            if next.is_none() {
                return Ok(());
            }
            if next == token {
                let why = "the API server gives the same page again and again";
                return Err(Failure::Midway(why.to_owned()));
            }
            token = next;
        }
    }

    /// Reads one page, and says what to ask with for the next one.
    fn page(&mut self, kind: Kind, path: &str, query: &str) -> Result<Option<String>, Failure> {
        let request = match query {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        self.get(&request).map_err(Failure::Get)?;
        let body = BufReader::with_capacity(64 * 1024, &mut *self.server);
        match list::read_page(body, kind, &mut self.builder) {
            Ok(page) => Ok(page.token),
            Err(error) => Err(Failure::Midway(broken(&error))),
        }
    }

    /// Sends a GET again while the server is busy: it changes nothing, and nothing of an answer was taken yet.
    fn get(&mut self, path: &str) -> Result<(), GetError> {
        let mut wait = BACKOFF;
        let mut attempt = 1;
        loop {
            let (busy, pause) = match self.server.get(path) {
                Err(GetError::Busy { status, after }) => {
                    (GetError::Busy { status, after }, after.unwrap_or(wait))
                }
                other => return other,
            };
            if attempt == ATTEMPTS || Instant::now() + pause >= self.asking.deadline {
                return Err(busy);
            }
            std::thread::sleep(pause);
            wait *= 2;
            attempt += 1;
        }
    }

    fn conclude(&mut self, kind: Kind, outcome: Result<(), Failure>) -> Listed {
        let (state, why) = match outcome {
            Ok(()) => match self.builder.listed(kind) {
                true => (State::Complete, None),
                false => {
                    let why = "some items cannot be read".to_owned();
                    (State::Partial, Some(why))
                }
            },
            Err(failure) => {
                self.builder.not_listed(kind);
                match failure {
                    Failure::Get(GetError::NotServed) if kind == Kind::ServiceCidr => {
                        (State::NotServed, Some(GetError::NotServed.to_string()))
                    }
                    Failure::Get(GetError::Forbidden) => {
                        (State::Forbidden, Some(GetError::Forbidden.to_string()))
                    }
                    Failure::Get(error) => (State::Failed, Some(error.to_string())),
                    Failure::Midway(why) => (State::Partial, Some(why)),
                }
            }
        };
        Listed { kind, state, why }
    }
}

/// Whether a kind decides verdicts for itself.
fn decides(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::EndpointSlice)
}

/// Where a kind is listed, the newest version first.
fn paths(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Service => &["/api/v1/services"],
        Kind::EndpointSlice => &["/apis/discovery.k8s.io/v1/endpointslices"],
        Kind::Pod => &["/api/v1/pods"],
        Kind::Node => &["/api/v1/nodes"],
        Kind::ServiceCidr => &[
            "/apis/networking.k8s.io/v1/servicecidrs",
            "/apis/networking.k8s.io/v1beta1/servicecidrs",
        ],
    }
}

/// A query value: a token may be any text.
fn encoded(text: &str) -> String {
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

/// Why a body was no list, in words that hold nothing of it.
fn broken(error: &ListError) -> String {
    match error {
        ListError::Read(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            GetError::TimedOut.to_string()
        }
        ListError::Read(error) => format!("the answer broke off: {error}"),
        ListError::Empty | ListError::Cut { .. } => "the answer was cut short".to_owned(),
        ListError::Syntax { .. } | ListError::NotAList { .. } => {
            "the answer is not the list that was asked for".to_owned()
        }
    }
}

#[cfg(test)]
#[path = "lists_tests.rs"]
mod tests;
