//! TCP connections of this process to the API server: the kernel tracks them like any other.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Longest time since the last use of a connection. An older one may be closed and its port used by another process. Streams end
/// sooner.
const MAX_IDLE: Duration = Duration::from_secs(600);

/// Time of the last use of each connection, by its two ends.
type Ends = HashMap<(SocketAddr, SocketAddr), Instant>;

static OWN: LazyLock<RwLock<Ends>> = LazyLock::new(RwLock::default);

/// Notes that a request was answered over this connection.
pub fn used(local: SocketAddr, remote: SocketAddr) {
    let now = Instant::now();
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    own.retain(|_, used| now.duration_since(*used) < MAX_IDLE);
    own.insert((local, remote), now);
}

/// Reports whether this process made the connection.
pub fn is_own(local: SocketAddr, remote: SocketAddr) -> bool {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    let used = own.get(&(local, remote));
    used.is_some_and(|used| used.elapsed() < MAX_IDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_recognized_by_both_of_its_ends() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (local, remote) = (end("192.0.2.1:40000"), end("192.0.2.10:6443"));
        used(local, remote);
        assert!(is_own(local, remote));
        assert!(!is_own(end("192.0.2.1:40001"), remote));
        assert!(!is_own(local, end("192.0.2.11:6443")));
    }
}
