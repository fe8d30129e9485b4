//! The checks, one a file.

mod stale_udp;

pub use stale_udp::StaleUdp;
