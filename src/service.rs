//! One Service: its frontends and endpoints, and the flows to them.
//!
//! Pure. [`KnownService`] is the Service as the cluster or the node's rules describe it. [`ServiceTally`] counts the entries of
//! a table by endpoint; its memory grows with the endpoints and clients of the Service, not with the table.
//! [`ServiceReport`] is the result.

mod known_service;
mod next_flow;
mod reach;
mod report;
mod tally;
#[cfg(test)]
mod tests;

pub use ctk_cluster::index::Affinity;
pub use known_service::{KnownEndpoint, KnownFrontend, KnownService};
pub use next_flow::{NextEndpoint, NextFlow};
pub use reach::{Reach, TrafficPolicy, is_inside};
pub use report::{NewFlowPath, NewFlowPaths, ServiceReport, chains_of};
pub use tally::{FlowCounts, OtherDestination, ServiceTally, is_open};
