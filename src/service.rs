//! What is known of one Service: its frontends and endpoints, and the flows that lie on them.
//!
//! Pure. [`Known`] is what the cluster or the node's rules say of it, [`Tally`] counts the entries of a table against that:
//! its memory grows with the endpoints and the clients of the Service, not with the table. [`Report`] is what is shown.

mod known;
mod policy;
mod reach;
mod report;
mod tally;
#[cfg(test)]
mod tests;

pub use ctk_cluster::index::Affinity;
pub use known::{Frontend, Known, Listed};
pub use policy::Policy;
pub use reach::{Reach, is_inside};
pub use report::{Ahead, Report, Way};
pub use tally::{Load, Other, Tally, is_open};
