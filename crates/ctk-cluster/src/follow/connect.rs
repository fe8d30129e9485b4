//! Connection that all feeds share, and its replacement when the credentials expire.

use std::sync::Arc;
use std::time::Instant;

use super::Stream;
use crate::connection::{ConnectionOptions, LiveError, Obstacle};
use crate::kubectl::Kubectl;

/// Makes clients, each for one thread.
pub trait Login: Send + Sync {
    /// Returns a client, and the number of the credentials that it uses.
    fn client(&self) -> (u64, Box<dyn Stream>);

    /// Returns one with newer credentials than those that the server refused. `None`: none are available for now.
    fn renewed(&self, refused: u64) -> Option<(u64, Box<dyn Stream>)>;
}

/// Logs in. Also returns the URL of the server, for messages.
#[cfg(feature = "kube")]
pub fn connect(
    options: &ConnectionOptions,
    deadline: Instant,
) -> Result<(Arc<dyn Login>, String), LiveError> {
    let shared = crate::api::Shared::connect(options, deadline)
        .map_err(|error| without_kubectl(error, options, deadline))?;
    let url = shared.url().to_owned();
    Ok((Arc::new(again::Again::new(options, shared)), url))
}

#[cfg(not(feature = "kube"))]
pub fn connect(
    options: &ConnectionOptions,
    deadline: Instant,
) -> Result<(Arc<dyn Login>, String), LiveError> {
    let error = LiveError::new(
        Obstacle::NotBuilt,
        "this build of ctk has no API client, so it cannot follow the API",
        "use a build with the feature kube",
    );
    Err(without_kubectl(error, options, deadline))
}

/// kubectl cannot follow: it prints a list and exits.
fn without_kubectl(
    mut error: LiveError,
    options: &ConnectionOptions,
    deadline: Instant,
) -> LiveError {
    let built = error.obstacle != Obstacle::NotBuilt;
    if !built && Kubectl::find(options, deadline).is_some() {
        error.hint = Some(
            "kubectl, which other commands ask instead, cannot follow a cluster: \
             kubectl get nodes,svc,endpointslices,pods,servicecidrs -A -o json > cluster.json, now and then, and \
             ctk watch --cluster cluster.json, which reads it again whenever it changes"
                .to_owned(),
        );
    }
    error
}

/// The output of an exec plugin is valid for some minutes, and a watch may run for days.
#[cfg(feature = "kube")]
mod again {
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    use super::{ConnectionOptions, Login, Stream};
    use crate::api::Shared;

    /// Interval between two logins: a plugin may query a remote service.
    const PLUGIN_LOGIN_INTERVAL: Duration = Duration::from_secs(15);
    /// Interval where only files are read.
    const FILE_LOGIN_INTERVAL: Duration = Duration::from_secs(2);

    pub struct Again {
        options: ConnectionOptions,
        now: Mutex<Now>,
        /// Time of the last login or attempt. The lock is held meanwhile: one thread logs in, the others wait for it.
        tried: Mutex<Option<Instant>>,
    }

    struct Now {
        shared: Shared,
        /// Number of logins.
        number: u64,
    }

    impl Now {
        fn client(&self) -> (u64, Box<dyn Stream>) {
            (self.number, Box::new(self.shared.api()))
        }
    }

    impl Again {
        pub fn new(options: &ConnectionOptions, shared: Shared) -> Self {
            // A running watch has no user at the keyboard, and it may use the terminal itself.
            let options = ConnectionOptions {
                may_ask: false,
                ..options.clone()
            };
            let now = Mutex::new(Now { shared, number: 0 });
            Again {
                options,
                now,
                tried: Mutex::default(),
            }
        }

        fn now(&self) -> MutexGuard<'_, Now> {
            self.now.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Login for Again {
        fn client(&self) -> (u64, Box<dyn Stream>) {
            self.now().client()
        }

        fn renewed(&self, refused: u64) -> Option<(u64, Box<dyn Stream>)> {
            let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
            let pause = {
                let now = self.now();
                if now.number != refused {
                    return Some(now.client());
                }
                match now.shared.is_by_plugin() {
                    true => PLUGIN_LOGIN_INTERVAL,
                    false => FILE_LOGIN_INTERVAL,
                }
            };
            if tried.is_some_and(|tried| tried.elapsed() < pause) {
                return None;
            }
            let connected = Shared::connect(&self.options, Instant::now() + self.options.limit);
            *tried = Some(Instant::now());
            match connected {
                Ok(shared) => {
                    tracing::info!("logged in anew");
                    let mut now = self.now();
                    now.shared = shared;
                    now.number += 1;
                    Some(now.client())
                }
                Err(error) => {
                    tracing::warn!(%error, "logging in anew");
                    None
                }
            }
        }
    }
}
