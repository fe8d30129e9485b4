//! One connection to the API server that several threads share. Each thread sends requests of its own.
//!
//! The client of kube belongs to the runtime that made it. A thread runs that runtime until the last handle is dropped.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Instant;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::config::{self, Connected};
use super::{Api, Engine};
use crate::connection::{ConnectionOptions, LiveError, Obstacle};

/// Client, with the thread that runs its requests. The thread ends with the last clone.
#[derive(Clone)]
pub struct Shared {
    handle: Handle,
    connected: Connected,
    /// The thread waits until this sender is dropped.
    _held: Arc<oneshot::Sender<()>>,
}

impl Shared {
    /// Finds the configuration and logs in, as far as that needs no request to the server. Abandons a plugin that hangs.
    ///
    /// # Errors
    /// Those of [`Api::connect`], and a time-out at `deadline`.
    pub fn connect(options: &ConnectionOptions, deadline: Instant) -> Result<Self, LiveError> {
        let (sender, receiver) = sync_channel(1);
        let asked = options.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(sender.send(Err(cannot(&error)))),
            };
            let (held, released) = oneshot::channel();
            let connected = runtime.block_on(config::client(&asked, deadline));
            let shared = connected.map(|connected| Shared {
                handle: runtime.handle().clone(),
                connected,
                _held: Arc::new(held),
            });
            // The receiver may be gone; the client is then dropped at once.
            drop(sender.send(shared));
            let _ = runtime.block_on(released);
            runtime.shutdown_background();
        };
        std::thread::Builder::new()
            .name("api".to_owned())
            .spawn(work)
            .map_err(|error| cannot(&error))?;
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(connected) => connected,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(LiveError::timed_out(options.limit))
            }
        }
    }

    /// Scheme, host and port of the server.
    pub fn url(&self) -> &str {
        &self.connected.url
    }

    /// Reports whether an exec plugin supplied the credentials.
    pub fn is_by_plugin(&self) -> bool {
        self.connected.by_plugin
    }

    /// Blocks the calling thread; the work runs on the other thread.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Returns a client for one thread.
    pub fn api(&self) -> Api {
        Api {
            engine: Engine::Shared(self.clone()),
            connected: self.connected.clone(),
            deadline: Instant::now(),
            body: None,
            chunk: Bytes::new(),
        }
    }
}

fn cannot(error: &std::io::Error) -> LiveError {
    LiveError::new(
        Obstacle::NotBuilt,
        format!("no thread for network requests: {error}"),
        "see ulimit -n and ulimit -u",
    )
}
