//! Options of a connection to a live cluster, and the obstacles to it.

use std::path::PathBuf;
use std::time::Duration;

pub(crate) const MORE_TIME: &str = "--request-timeout gives it more time (without it 5s with --cluster auto, else 15s), \
                         if logging in, the API server or the network is slow";

/// Options of a connection to a live cluster, and its time limits.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// Path of the kubeconfig, in place of `KUBECONFIG`, `~/.kube/config`, and the service account of a pod.
    pub kubeconfig: Option<PathBuf>,
    /// Context, in place of the current one of the kubeconfig.
    pub context: Option<String>,
    /// Limit of one attempt to connect to the API server, TLS included. A connection that takes longer never comes.
    pub connect_limit: Duration,
    /// Limit of everything together: the login, the connection, all lists.
    pub limit: Duration,
    /// See [`Asking::consistent`](crate::lister::Asking::consistent).
    pub consistent: bool,
    /// An exec plugin may ask the user at the terminal.
    pub may_ask: bool,
}

/// Obstacle between this program and the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No configuration names a cluster.
    NoConfig,
    /// The kubeconfig is broken, or refers to an entry that it lacks.
    Config,
    /// The login needs a method that is not built in. kubectl may support it.
    NotBuilt,
    /// The exec plugin of the kubeconfig, not the cluster, refused.
    Plugin,
    Unauthorized,
    Unreachable,
    TimedOut,
    /// A Service range given on the command line is wrong.
    ServiceRange,
}

/// Reason why nothing was read of a live cluster. The message and the hint are for display and hold no credentials.
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
