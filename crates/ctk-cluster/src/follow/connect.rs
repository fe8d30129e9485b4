//! Who asks: the connection that all feeds share, and another one when its credentials are over.

use std::sync::Arc;
use std::time::Instant;

use super::Stream;
use crate::connection::{LiveError, Obstacle, Options};
use crate::kubectl::Kubectl;

/// Makes clients, each for one thread.
pub trait Login: Send + Sync {
    /// A client, and the number of the credentials that it shows.
    fn client(&self) -> (u64, Box<dyn Stream>);

    /// One with newer credentials than those, which the server refuses. `None`: there are none for now.
    fn renewed(&self, refused: u64) -> Option<(u64, Box<dyn Stream>)>;
}

/// Logs in; and whom that asks, for messages.
#[cfg(feature = "kube")]
pub fn connect(
    options: &Options,
    deadline: Instant,
) -> Result<(Arc<dyn Login>, String), LiveError> {
    let shared = crate::api::Shared::connect(options, deadline)
        .map_err(|error| without_kubectl(error, options, deadline))?;
    let url = shared.url().to_owned();
    Ok((Arc::new(again::Again::new(options, shared)), url))
}

#[cfg(not(feature = "kube"))]
pub fn connect(
    options: &Options,
    deadline: Instant,
) -> Result<(Arc<dyn Login>, String), LiveError> {
    let error = LiveError::new(
        Obstacle::NotBuilt,
        "this build of ctk has no API client, so it cannot follow the API",
        "use a build with the feature kube",
    );
    Err(without_kubectl(error, options, deadline))
}

/// What other commands ask kubectl for cannot be had here: it prints a list and ends.
fn without_kubectl(mut error: LiveError, options: &Options, deadline: Instant) -> LiveError {
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

/// What an exec plugin prints is good for some minutes, and a watch may run for days.
#[cfg(feature = "kube")]
mod again {
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    use super::{Login, Options, Stream};
    use crate::api::Shared;

    /// Between two logins: a plugin may ask a service far away.
    const PLUGIN_PAUSE: Duration = Duration::from_secs(15);
    /// The same where only files are read.
    const FILE_PAUSE: Duration = Duration::from_secs(2);

    pub struct Again {
        options: Options,
        now: Mutex<Now>,
        /// When it was logged in again last, or tried. Held meanwhile: one thread does it, the others wait for it.
        tried: Mutex<Option<Instant>>,
    }

    struct Now {
        shared: Shared,
        /// Counts the logins.
        number: u64,
    }

    impl Now {
        fn client(&self) -> (u64, Box<dyn Stream>) {
            (self.number, Box::new(self.shared.api()))
        }
    }

    impl Again {
        pub fn new(options: &Options, shared: Shared) -> Self {
            // Nobody sits before a watch to type a password, and it may have the terminal for itself.
            let options = Options {
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
                    true => PLUGIN_PAUSE,
                    false => FILE_PAUSE,
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
