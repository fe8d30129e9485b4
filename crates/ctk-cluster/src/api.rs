//! The Kubernetes API over HTTPS.
//!
//! kube implements the login (kubeconfig, exec plugins, service accounts, proxies) and the verification of the server. The lists
//! are read as bytes, because 50,000 typed Pods take 2 GB of memory. The async runtime stays inside this module: [`Api`] is a
//! plain blocking reader for its callers.

mod config;
mod error;
mod plugin;
mod reach;
mod shared;
mod token;

use std::io::{self, Read};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::header::{ACCEPT, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::connect::HttpInfo;
use kube::Client;
use kube::client::Body;
use tokio::runtime::Runtime;

use super::connection::{ConnectionOptions, LiveError, Obstacle};
use super::follow::Stream;
use super::lister::{GetError, Server};
use super::own;

use config::Connected;
pub use shared::Shared;

/// Longest accepted `Retry-After`. A longer one is cut to this, so that a mistake of a proxy does not end a watch.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Runtime that executes the requests.
enum Engine {
    /// Own runtime; the option is emptied on drop.
    Own(Option<Runtime>),
    /// Thread that is shared with other clients.
    Shared(Shared),
}

/// Client of one API server. Reading it yields the body of the last answer.
pub struct Api {
    engine: Engine,
    connected: Connected,
    deadline: Instant,
    body: Option<Body>,
    chunk: Bytes,
}

impl Api {
    /// Finds the configuration and logs in, as far as that needs no request to the server.
    pub fn connect(options: &ConnectionOptions, deadline: Instant) -> Result<Self, LiveError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                let message = format!("no runtime for network requests: {error}");
                LiveError::new(Obstacle::NotBuilt, message, "see ulimit -n")
            })?;
        let connected = runtime.block_on(config::client(options, deadline))?;
        Ok(Api {
            engine: Engine::Own(Some(runtime)),
            connected,
            deadline,
            body: None,
            chunk: Bytes::new(),
        })
    }

    /// Scheme, host and port of the server.
    pub fn url(&self) -> &str {
        &self.connected.url
    }

    /// Runs a future to completion, or until the deadline.
    fn run<F: Future>(&self, future: impl FnOnce(Client) -> F) -> Option<F::Output> {
        // The timer alone is not polled while data keeps arriving.
        if Instant::now() >= self.deadline {
            return None;
        }
        let until = tokio::time::Instant::from_std(self.deadline);
        let client = self.connected.client.clone();
        let bounded = async { tokio::time::timeout_at(until, future(client)).await.ok() };
        match &self.engine {
            Engine::Own(runtime) => runtime.as_ref()?.block_on(bounded),
            Engine::Shared(shared) => shared.block_on(bounded),
        }
    }
}

impl Stream for Api {
    fn until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }
}

impl Server for Api {
    fn get(&mut self, path: &str) -> Result<(), GetError> {
        self.body = None;
        self.chunk = Bytes::new();
        let request = Request::get(path)
            .header(ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|error| GetError::Other(error.to_string()))?;
        let send = |client: Client| async move { client.send(request).await };
        let (began, peer) = (Instant::now(), &self.connected.peer);
        if began >= self.deadline {
            return Err(GetError::TimedOut);
        }
        let answer = self.run(send);
        let answer = answer.ok_or_else(|| GetError::Silent(peer.silent(began.elapsed())))?;
        let answer = answer.map_err(|error| {
            let reason = error::reason(&error);
            GetError::Connection(peer.failed(&reason, began.elapsed(), self.deadline))
        })?;
        peer.is_reached();
        if let Some(connection) = answer.extensions().get::<HttpInfo>() {
            own::used(connection.local_addr(), connection.remote_addr());
        }
        refusal(&answer)?;
        self.body = Some(answer.into_body());
        Ok(())
    }
}

impl Read for Api {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            let Some(mut body) = self.body.take() else {
                return Ok(0);
            };
            match self.run(|_| body.frame()) {
                None => {
                    // A caller that waits for later data reads on.
                    self.body = Some(body);
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Some(None) => return Ok(0),
                Some(Some(Err(error))) => return Err(io::Error::other(error::chain(&error))),
                Some(Some(Ok(frame))) => {
                    self.body = Some(body);
                    self.chunk = frame.into_data().unwrap_or_default();
                }
            }
        }
        let length = buffer.len().min(self.chunk.len());
        if let Some(room) = buffer.get_mut(..length) {
            self.chunk.copy_to_slice(room);
        }
        Ok(length)
    }
}

impl Drop for Api {
    /// Shuts down without waiting: a name server that does not answer blocks a thread for a long time.
    fn drop(&mut self) {
        if let Engine::Own(runtime) = &mut self.engine
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_background();
        }
    }
}

/// Maps every status other than 200 to an error. The body of such an answer is not read.
fn refusal(answer: &Response<Body>) -> Result<(), GetError> {
    let status = answer.status();
    Err(match status {
        StatusCode::OK => return Ok(()),
        StatusCode::UNAUTHORIZED => GetError::Unauthorized,
        StatusCode::FORBIDDEN => GetError::Forbidden,
        StatusCode::NOT_FOUND => GetError::NotServed,
        StatusCode::GONE => GetError::Expired,
        _ if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
            let after = answer.headers().get(RETRY_AFTER);
            let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let after = after.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
            GetError::Busy {
                status: status.as_u16(),
                after,
            }
        }
        _ => GetError::Other(format!("the API server answers {status}")),
    })
}
