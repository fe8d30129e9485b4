//! Following of flows: a view of the entries that match, kept by events and by dumps, and the records of its changes.
//!
//! Events alone are not enough: the refill of a UDP timer sends none, and with `nf_conntrack_events` at 2 (the kernel's
//! default) entries that are older than the first listener send none. Dumps alone miss short flows. Both therefore feed one
//! [`view::View`]. This module is pure: time and state are passed in, and it neither reads the kernel nor prints.

pub mod endpoint_event;
mod flow_diff;
mod former_pods;
pub mod freshness;
pub mod look_schedule;
pub mod record;
pub mod view;
