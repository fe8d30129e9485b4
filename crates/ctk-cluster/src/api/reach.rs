//! Explains why a request got no answer, with the address, the elapsed time and the flag that bounds it.
//!
//! The libraries bound the whole connection (name, TCP, TLS) with one time-out and do not report the stage it reached. A short
//! probe of its own finds the stage.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use http::Uri;
use kube::Config;

/// Bounds of the time for the probe: at most, and at least where no time is left.
const MAX_PROBE_TIME: Duration = Duration::from_millis(500);
const MIN_PROBE_TIME: Duration = Duration::from_millis(250);

/// Endpoint of the connections: the API server, or the proxy in front of it.
#[derive(Clone, Debug)]
pub struct Peer {
    host: String,
    port: u16,
    is_proxy: bool,
    /// Limit of connecting (`--connect-timeout`).
    limit: Duration,
    /// A request was answered, so that later ones may use the same connection.
    reached: Arc<AtomicBool>,
}

/// Stage that a connection reaches.
#[derive(Debug)]
enum Stage {
    NotResolved(Option<io::Error>),
    NoConnection(SocketAddr, io::Error),
    Connected(SocketAddr),
}

impl Peer {
    pub fn of(config: &Config, limit: Duration) -> Self {
        let uri = config.proxy_url.as_ref().unwrap_or(&config.cluster_url);
        Peer {
            host: host(uri),
            port: uri.port_u16().unwrap_or(match uri.scheme_str() {
                Some("http") => 80,
                Some("socks5") => 1080,
                _ => 443,
            }),
            is_proxy: config.proxy_url.is_some(),
            limit,
            reached: Arc::default(),
        }
    }

    pub fn is_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Describes a request that failed after the given time. `reason` is the message of the library.
    pub fn failed(&self, reason: &str, took: Duration, deadline: Instant) -> String {
        let Some((_, reason)) = reason.split_once("client error (Connect)") else {
            return format!("{reason} (after {})", rounded(took));
        };
        let reason = reason.trim_start_matches(": ");
        let (place, after) = (self.place(), rounded(took));
        if reason.contains("deadline has elapsed") {
            let limit = format!("within {} (--connect-timeout)", rounded(self.limit));
            return self.stage(look_time(deadline)).text(self, &limit);
        }
        if let Some(why) = reason.strip_prefix("dns error: ") {
            return format!("{} does not resolve: {why} (after {after})", self.name());
        }
        match reason.strip_prefix("tcp connect error: ") {
            Some(why) => format!("no connection to {place}: {why} (after {after})"),
            None => format!("no TLS with {place}: {reason} (after {after})"),
        }
    }

    /// Describes a request that was sent and not answered before the deadline.
    pub fn silent(&self, waited: Duration) -> String {
        let within = format!("within {} (--request-timeout)", rounded(waited));
        // A connection that is not established within its own limit is never established.
        if waited > self.limit || self.reached.load(Ordering::Relaxed) {
            return format!(
                "{} is connected, and gives no answer {within}",
                self.place()
            );
        }
        self.stage(MIN_PROBE_TIME).text(self, &within)
    }

    fn stage(&self, time: Duration) -> Stage {
        let addresses = match resolve(self.host.clone(), self.port, time) {
            Ok(addresses) => addresses,
            Err(error) => return Stage::NotResolved(error),
        };
        let mut last = Stage::NotResolved(None);
        for address in addresses {
            match TcpStream::connect_timeout(&address, time) {
                Ok(_) => return Stage::Connected(address),
                Err(error) => last = Stage::NoConnection(address, error),
            }
        }
        last
    }

    fn place(&self) -> String {
        let proxy = if self.is_proxy { "the proxy " } else { "" };
        match self.host.contains(':') {
            true => format!("{proxy}[{}]:{}", self.host, self.port),
            false => format!("{proxy}{}:{}", self.host, self.port),
        }
    }

    fn name(&self) -> String {
        let of_proxy = if self.is_proxy { " of the proxy" } else { "" };
        format!("the name {}{of_proxy}", self.host)
    }
}

impl Stage {
    fn text(&self, peer: &Peer, within: &str) -> String {
        let place = peer.place();
        match self {
            Stage::NotResolved(None) => format!("{} is not resolved {within}", peer.name()),
            Stage::NotResolved(Some(error)) => {
                format!("{} does not resolve: {error}", peer.name())
            }
            Stage::NoConnection(address, error) if error.kind() == io::ErrorKind::TimedOut => {
                let at = at(&place, address);
                format!("{place}{at} does not answer to the connection {within}")
            }
            Stage::NoConnection(address, error) => {
                format!(
                    "no connection to {place}{} {within}: {error}",
                    at(&place, address)
                )
            }
            Stage::Connected(address) => format!(
                "{place}{} takes the connection and does not answer to TLS {within}: it hangs, or is no API server",
                at(&place, address)
            ),
        }
    }
}

/// Resolves a name to an address.
fn at(place: &str, address: &SocketAddr) -> String {
    match place.ends_with(&address.to_string()) {
        true => String::new(),
        false => format!(" ({address})"),
    }
}

/// Resolves on a thread of its own, which is abandoned when a name server hangs: `Err(None)`.
fn resolve(host: String, port: u16, time: Duration) -> Result<Vec<SocketAddr>, Option<io::Error>> {
    let (sender, receiver) = sync_channel(1);
    let work = move || {
        let found = (host.as_str(), port).to_socket_addrs();
        // The receiver is gone after a time-out.
        let _ = sender.send(found.map(Iterator::collect));
    };
    let spawned = std::thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(work);
    spawned.map_err(Some)?;
    match receiver.recv_timeout(time) {
        Ok(found) => found.map_err(Some),
        Err(_) => Err(None),
    }
}

fn look_time(deadline: Instant) -> Duration {
    deadline
        .saturating_duration_since(Instant::now())
        .clamp(MIN_PROBE_TIME, MAX_PROBE_TIME)
}

/// Strips the brackets of an IPv6 address.
fn host(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned()
}

/// Rounds to two digits, which suffice for messages.
fn rounded(time: Duration) -> humantime::FormattedDuration {
    let step: u64 = match time.as_millis() {
        0..100 => 1,
        100..1000 => 10,
        _ => 100,
    };
    let millis = (time.as_millis() as u64 + step / 2).max(1) / step * step;
    humantime::format_duration(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn peer(host: &str, port: u16) -> Peer {
        Peer {
            host: host.to_owned(),
            port,
            is_proxy: false,
            limit: Duration::from_millis(300),
            reached: Arc::default(),
        }
    }

    const TIMED_OUT: &str = "client error (Connect): deadline has elapsed";

    fn failed(peer: &Peer, reason: &str) -> String {
        peer.failed(reason, Duration::from_millis(2345), Instant::now())
    }

    #[test]
    fn a_time_out_names_the_stage_that_the_connection_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let hangs = failed(&peer("127.0.0.1", port), TIMED_OUT);
        let place = format!("127.0.0.1:{port} takes the connection");
        assert!(hangs.starts_with(&place), "{hangs}");
        assert!(hangs.contains("300ms (--connect-timeout)"), "{hangs}");
        drop(listener);
        let refuses = failed(&peer("127.0.0.1", port), TIMED_OUT);
        assert!(refuses.contains("Connection refused"), "{refuses}");
        let named = failed(&peer("no such name.invalid", port), TIMED_OUT);
        assert!(named.contains("the name no such name.invalid"), "{named}");
    }

    #[test]
    fn a_library_error_is_reported_with_address_and_time() {
        for (reason, told) in [
            (
                "client error (Connect): tcp connect error: Connection refused (os error 111)",
                "no connection to [fd00::1]:6443: Connection refused (os error 111) (after 2s 300ms)",
            ),
            (
                "client error (Connect): invalid peer certificate: UnknownIssuer",
                "no TLS with [fd00::1]:6443: invalid peer certificate: UnknownIssuer (after 2s 300ms)",
            ),
            (
                "client error (Connect): dns error: no such host",
                "the name fd00::1 does not resolve: no such host (after 2s 300ms)",
            ),
            (
                "connection closed before message completed",
                "connection closed before message completed (after 2s 300ms)",
            ),
        ] {
            assert_eq!(failed(&peer("fd00::1", 6443), reason), told);
        }
    }

    #[test]
    fn a_request_that_exceeds_the_connect_limit_was_sent_to_a_hanging_server() {
        let told = peer("192.0.2.1", 6443).silent(Duration::from_secs(5));
        assert_eq!(
            told,
            "192.0.2.1:6443 is connected, and gives no answer within 5s (--request-timeout)"
        );
    }
}
