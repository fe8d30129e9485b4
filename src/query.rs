//! The meaning of a command line, resolved once from what was typed: entries, source and output.
//!
//! [`crate::args`] knows flags; everything after this module knows only their meaning.

pub mod entries;
mod kernel_selectors;
pub mod output;
pub mod source;
mod usage_error;

pub use entries::EntryQuery;
pub use source::{ALL_NAMESPACES, BuiltinCluster, SourceQuery};

#[cfg(test)]
mod tests;
