//! Clusters for tests, written in [`shorthand`].

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use super::index::{Endpoint, Index, ServicePort};
use super::source::{ClusterError, Loaded, Source, SourceKind, load};

mod shorthand;

pub use shorthand::{API, list, object};

/// A complete source with these objects. As with a file, Pods, Nodes and ranges count as missing where no line gives one.
pub fn world(lines: &[&str]) -> Index {
    loaded(lines).index
}

/// The same source with warnings and summary.
pub fn loaded(lines: &[&str]) -> Loaded {
    let all: Vec<&str> = API.iter().chain(lines).copied().collect();
    read(&list(&all)).expect("the shorthand makes a list")
}

/// A source of these objects only: without the lines of [`API`] it is not complete.
pub fn bare_world(lines: &[&str]) -> Index {
    read(&list(lines))
        .expect("the shorthand makes a list")
        .index
}

/// Reads a text as if it came from standard input.
pub fn read(text: &str) -> Result<Loaded, ClusterError> {
    let source = Source {
        kind: SourceKind::Stdin,
        time: SystemTime::UNIX_EPOCH,
        path: None,
    };
    load(text.as_bytes(), source, &[])
}

/// Parses an address that the test knows to be valid.
pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the only port that a frontend leads to.
pub fn port<'i>(index: &'i Index, address: &str, protocol: u8, port: u16) -> &'i ServicePort {
    match index.frontends(ip(address), protocol, port) {
        [one] => index.port(one.port),
        other => panic!("{address}:{port} has {} frontends", other.len()),
    }
}

/// `address:port` of each endpoint, sorted by address.
pub fn addresses(port: &ServicePort) -> Vec<String> {
    let text = |e: &Endpoint| SocketAddr::new(e.address, e.port).to_string();
    port.endpoints.iter().map(text).collect()
}
