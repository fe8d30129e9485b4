//! A living cluster as a source: over the API, or over `kubectl` where this program cannot log in by itself.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::kubectl::Kubectl;
use super::lists::{self, Asking, ReadError};
use super::server::{GetError, Server};
use super::source::Loaded;
use super::wanted::Wanted;

/// How long past its time the reading may take to notice.
const GRACE: Duration = Duration::from_millis(500);

const MORE_TIME: &str = "--request-timeout gives it more time (without it 5s with --cluster auto, else 15s), \
                         if logging in, the API server or the network is slow";

/// How a living cluster is reached, and how long that may take.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instead of `KUBECONFIG`, `~/.kube/config`, and the service account of a pod.
    pub kubeconfig: Option<PathBuf>,
    /// Instead of the kubeconfig's current one.
    pub context: Option<String>,
    /// For one try to reach the API server, TLS and all: a connection that is not there by then never comes.
    pub connect_limit: Duration,
    /// For everything: logging in, connecting, all lists.
    pub limit: Duration,
    /// See [`Asking::consistent`].
    pub consistent: bool,
    /// A plugin that logs in may ask the user at the terminal.
    pub may_ask: bool,
}

/// What stands between this program and the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing says where a cluster is.
    NoConfig,
    /// The kubeconfig is broken, or names what it does not hold.
    Config,
    /// Logging in takes something that is not built in. kubectl may know how.
    NotBuilt,
    /// The exec plugin of the kubeconfig, not the cluster, said no.
    Plugin,
    Unauthorized,
    Unreachable,
    TimedOut,
    /// A Service range that was given by hand is wrong.
    ServiceRange,
}

/// Why nothing was read of a living cluster. The message and the hint are for people and hold no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LiveError {
    pub obstacle: Obstacle,
    pub message: String,
    pub hint: Option<String>,
}

impl LiveError {
    pub(super) fn new(
        obstacle: Obstacle,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        LiveError {
            obstacle,
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    pub(super) fn no_thread(error: &std::io::Error) -> Self {
        let message = format!("no thread can be started: {error}");
        let hint = "see ulimit -u and the limits of the cgroup";
        LiveError::new(Obstacle::NotBuilt, message, hint)
    }

    pub(super) fn timed_out(limit: Duration) -> Self {
        let limit = humantime::format_duration(limit);
        let message = format!("nothing of the cluster could be read within {limit}");
        LiveError::new(Obstacle::TimedOut, message, MORE_TIME)
    }
}

/// Reads what is wanted of a cluster. Blocks no longer than `options.limit`: on a thread of its own, because a plugin that logs in
/// (or a name server) may keep a thread for longer. Such a thread is left behind.
///
/// # Errors
/// Nothing could be read at all. Whatever less is missing stands in [`Loaded::listed`].
pub fn load(
    options: &Options,
    wanted: Wanted,
    service_ranges: &[IpNet],
) -> Result<Loaded, LiveError> {
    let limit = options.limit;
    let deadline = Instant::now() + limit;
    let (sender, receiver) = sync_channel(1);
    let (options, ranges) = (options.clone(), service_ranges.to_vec());
    let work = move || {
        // Nobody waits any more when it takes too long.
        let _ = sender.send(load_here(&options, deadline, wanted, &ranges));
    };
    let spawned = std::thread::Builder::new()
        .name("cluster".to_owned())
        .spawn(work);
    if let Err(error) = spawned {
        return Err(LiveError::no_thread(&error));
    }
    match receiver.recv_timeout(limit + GRACE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Err(LiveError::timed_out(limit))
        }
    }
}

fn load_here(
    options: &Options,
    deadline: Instant,
    wanted: Wanted,
    service_ranges: &[IpNet],
) -> Result<Loaded, LiveError> {
    let asking = Asking {
        deadline,
        consistent: options.consistent,
    };
    let read = |server: &mut dyn Server, whom: &str| {
        lists::read(server, asking, wanted, service_ranges)
            .map_err(|error| explained(error, whom, options.limit))
    };
    match connect(options, deadline) {
        Ok((mut server, url)) => read(&mut *server, &url),
        Err(error) if error.obstacle == Obstacle::NotBuilt => {
            let Some(mut kubectl) = Kubectl::find(options, deadline) else {
                return Err(error);
            };
            tracing::warn!(%error, "kubectl is asked instead");
            read(&mut kubectl, "kubectl")
        }
        Err(error) => Err(error),
    }
}

#[cfg(feature = "kube")]
fn connect(options: &Options, deadline: Instant) -> Result<(Box<dyn Server>, String), LiveError> {
    let api = super::api::Api::connect(options, deadline)?;
    let url = api.url().to_owned();
    Ok((Box::new(api), url))
}

#[cfg(not(feature = "kube"))]
fn connect(options: &Options, _: Instant) -> Result<(Box<dyn Server>, String), LiveError> {
    if !super::kubectl::is_configured(options) {
        return Err(no_config());
    }
    Err(LiveError::new(
        Obstacle::NotBuilt,
        "this build of ctk has no API client, and there is no kubectl",
        "put kubectl into the PATH, or use a build with the feature kube",
    ))
}

pub(super) fn no_config() -> LiveError {
    LiveError::new(
        Obstacle::NoConfig,
        "no cluster is configured: there is no kubeconfig, and this is no pod with a service account",
        "--kubeconfig FILE (sudo changes HOME), or KUBECONFIG",
    )
}

pub(super) fn explained(error: ReadError, whom: &str, limit: Duration) -> LiveError {
    match error {
        ReadError::ServiceRange(error) => LiveError {
            obstacle: Obstacle::ServiceRange,
            message: error.to_string(),
            hint: None,
        },
        ReadError::Get(GetError::TimedOut) => LiveError::timed_out(limit),
        ReadError::Get(GetError::Silent(how)) => {
            LiveError::new(Obstacle::TimedOut, format!("{whom}: {how}"), MORE_TIME)
        }
        ReadError::Get(error @ GetError::Unauthorized) => LiveError::new(
            Obstacle::Unauthorized,
            format!("{whom}: {error}"),
            "the token or certificate may have expired: log in again; kubectl auth whoami shows whether it worked",
        ),
        ReadError::Get(error) => {
            let message = error.to_string();
            let hint = hint_for(&message);
            LiveError::new(Obstacle::Unreachable, format!("{whom}: {message}"), hint)
        }
    }
}

/// What helps against a broken connection. Libraries tell the reason only in words.
fn hint_for(message: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&["UnknownIssuer", "BadSignature", "unknown authority"]) {
        "the server's certificate is not signed by the CA in the kubeconfig (certificate-authority-data): \
         the cluster may have been made anew, or something stands in between"
    } else if has(&["NotValidForName", "not valid for name"]) {
        "the server's certificate is for another name: see server and tls-server-name in the kubeconfig"
    } else if has(&["certificate expired", "Expired", "NotValidYet"]) {
        "the server's certificate is not valid now: check the clock of both machines"
    } else {
        "is the API server up, and reachable from here? --cluster FILE works without it"
    }
}
