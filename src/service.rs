//! What is known of one Service: its frontends and endpoints, and the flows that lie on them.
//!
//! Pure. [`KnownService`] is what the cluster or the node's rules say of it, [`ServiceTally`] counts the entries of a table against that:
//! its memory grows with the endpoints and the clients of the Service, not with the table. [`ServiceReport`] is what is shown.

mod known_service;
mod reach;
mod report;
mod tally;
#[cfg(test)]
mod tests;

pub use ctk_cluster::index::Affinity;
pub use known_service::{Frontend, KnownEndpoint, KnownService};
pub use reach::{Reach, TrafficPolicy, is_inside};
pub use report::{NewFlowPath, NewFlowPaths, ServiceReport};
pub use tally::{FlowCounts, OtherDestination, ServiceTally, is_open};
