//! Live cluster as a source: over the API, or by `kubectl` where this program cannot log in by itself.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::connection::{ConnectionOptions, LiveError, MORE_TIME, Obstacle};
use super::kubectl::Kubectl;
use super::lister::{self, Asking, ClusterReadError};
use super::read_scope::ReadScope;
use super::server::{GetError, Server};
use super::source::Loaded;

/// Extra time after the limit in which the reading thread can report its own error.
const GRACE: Duration = Duration::from_millis(500);

/// Reads the chosen part of a cluster. Blocks no longer than `options.limit`: the reading runs on a thread of its own, because an
/// exec plugin or a name server may block a thread for longer. Such a thread is abandoned.
///
/// # Errors
/// Nothing could be read at all. Smaller gaps are listed in [`Loaded::listed`].
pub fn load(
    options: &ConnectionOptions,
    wanted: ReadScope,
    service_ranges: &[IpNet],
) -> Result<Loaded, LiveError> {
    let limit = options.limit;
    let deadline = Instant::now() + limit;
    let (sender, receiver) = sync_channel(1);
    let (options, ranges) = (options.clone(), service_ranges.to_vec());
    let work = move || {
        // The receiver is gone after a time-out.
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
    options: &ConnectionOptions,
    deadline: Instant,
    wanted: ReadScope,
    service_ranges: &[IpNet],
) -> Result<Loaded, LiveError> {
    let asking = Asking {
        deadline,
        consistent: options.consistent,
    };
    let read = |server: &mut dyn Server, whom: &str| {
        lister::read(server, asking, wanted, service_ranges)
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
fn connect(
    options: &ConnectionOptions,
    deadline: Instant,
) -> Result<(Box<dyn Server>, String), LiveError> {
    let api = super::api::Api::connect(options, deadline)?;
    let url = api.url().to_owned();
    Ok((Box::new(api), url))
}

#[cfg(not(feature = "kube"))]
fn connect(
    options: &ConnectionOptions,
    _: Instant,
) -> Result<(Box<dyn Server>, String), LiveError> {
    if !super::kubectl::is_configured(options) {
        return Err(super::connection::no_config());
    }
    Err(LiveError::new(
        Obstacle::NotBuilt,
        "this build of ctk has no API client, and there is no kubectl",
        "put kubectl into the PATH, or use a build with the feature kube",
    ))
}

pub(super) fn explained(error: ClusterReadError, whom: &str, limit: Duration) -> LiveError {
    match error {
        ClusterReadError::ServiceRange(error) => LiveError {
            obstacle: Obstacle::ServiceRange,
            message: error.to_string(),
            hint: None,
        },
        ClusterReadError::Get(GetError::TimedOut) => LiveError::timed_out(limit),
        ClusterReadError::Get(GetError::Silent(how)) => {
            LiveError::new(Obstacle::TimedOut, format!("{whom}: {how}"), MORE_TIME)
        }
        ClusterReadError::Get(error @ GetError::Unauthorized) => LiveError::new(
            Obstacle::Unauthorized,
            format!("{whom}: {error}"),
            "the token or certificate may have expired: log in again; kubectl auth whoami shows whether it worked",
        ),
        ClusterReadError::Get(error) => {
            let message = error.to_string();
            let hint = hint_for(&message);
            LiveError::new(Obstacle::Unreachable, format!("{whom}: {message}"), hint)
        }
    }
}

/// Hint for a broken connection. The libraries give the reason as text only.
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
