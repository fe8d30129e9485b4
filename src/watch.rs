//! Following flows: a view of the entries that match, kept by events and by dumps, and the records of what changes in it.
//!
//! Events alone cannot tell everything: a refill of a UDP timer makes none, and with `nf_conntrack_events` at 2 (the
//! kernel's default) entries older than the first listener stay silent. Dumps alone miss what is short. So both feed one
//! [`view::View`], which is pure: who reads the kernel, and who prints, is not its business.

mod pods;
pub mod record;
pub mod view;
