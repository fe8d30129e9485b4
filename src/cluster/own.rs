//! TCP connections that this process made to the API server: the kernel tracks them as any other.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A connection that was not used for so long may be over, and its port somebody else's. Streams end sooner.
const LASTS: Duration = Duration::from_secs(600);

/// When each was used last, by its two ends.
type Ends = HashMap<(SocketAddr, SocketAddr), Instant>;

static OWN: LazyLock<RwLock<Ends>> = LazyLock::new(RwLock::default);

/// A request was answered over this connection.
pub fn used(local: SocketAddr, remote: SocketAddr) {
    let now = Instant::now();
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    own.retain(|_, used| now.duration_since(*used) < LASTS);
    own.insert((local, remote), now);
}

/// This process made the connection.
pub fn is_own(local: SocketAddr, remote: SocketAddr) -> bool {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    let used = own.get(&(local, remote));
    used.is_some_and(|used| used.elapsed() < LASTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_known_by_both_of_its_ends() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (local, remote) = (end("192.0.2.1:40000"), end("192.0.2.10:6443"));
        used(local, remote);
        assert!(is_own(local, remote));
        assert!(!is_own(end("192.0.2.1:40001"), remote));
        assert!(!is_own(local, end("192.0.2.11:6443")));
    }
}
