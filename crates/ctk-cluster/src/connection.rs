//! How a living cluster is reached, and what stands in the way.

use std::path::PathBuf;
use std::time::Duration;

pub(crate) const MORE_TIME: &str = "--request-timeout gives it more time (without it 5s with --cluster auto, else 15s), \
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
    pub(crate) fn new(
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

    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        let message = format!("no thread can be started: {error}");
        let hint = "see ulimit -u and the limits of the cgroup";
        LiveError::new(Obstacle::NotBuilt, message, hint)
    }

    pub(crate) fn timed_out(limit: Duration) -> Self {
        let limit = humantime::format_duration(limit);
        let message = format!("nothing of the cluster could be read within {limit}");
        LiveError::new(Obstacle::TimedOut, message, MORE_TIME)
    }
}

pub(crate) fn no_config() -> LiveError {
    LiveError::new(
        Obstacle::NoConfig,
        "no cluster is configured: there is no kubeconfig, and this is no pod with a service account",
        "--kubeconfig FILE (sudo changes HOME), or KUBECONFIG",
    )
}
