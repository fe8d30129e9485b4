//! Linux connection tracking over ctnetlink: list, filter, look up, insert, follow and delete the entries of a network
//! namespace.
//!
//! | task | item |
//! |---|---|
//! | list entries | [`Table::dump`]: in constant memory, with a report of consistency |
//! | filter in the kernel | [`DumpFilter`] |
//! | look up | [`Table::get`], [`Table::get_all`] |
//! | insert | [`Table::insert`], [`Table::insert_all`] |
//! | delete | [`Table::delete`] with a [`DeleteTarget`]. A delete without a tuple, which the kernel takes as a flush of the table, cannot be expressed. |
//! | follow | [`Events`], and [`EventQueue`] with a thread of its own. Losses are reported. |
//! | statistics, expectations | [`Table::count`], [`Table::cpu_stats`], [`Table::dump_expectations`] |
//! | other namespaces | [`Netns`], [`rtnetlink`] |
//! | entries without a kernel | [`flow`], [`decode()`] |
//!
//! # Permission
//!
//! Every request about entries needs CAP_NET_ADMIN in the user namespace that owns the network namespace. Root of an own user
//! and network namespace (`unshare -Urn`) has it. Entering another namespace needs CAP_SYS_ADMIN, too.
//!
//! # Versions
//!
//! [`Errno`] and [`IpNet`] are types of `rustix` 1 and `ipnet` 2. Enums that a consumer must handle case by case
//! ([`QueueItem`], [`Received`], [`EventKind`], [`flow::L4`]) are exhaustive; a new case is a breaking release. Errors and
//! reports may grow in any release.
//!
//! # Example
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use ctnetlink::{DumpFilter, Netns, Table, TableKind};
//!
//! let mut table = Table::open(&Netns::current())?;
//! let report = table.dump(TableKind::Conntrack, &DumpFilter::default(), &mut |flow| {
//!     println!("{} -> {}", flow.original.source(), flow.original.destination());
//!     ControlFlow::Continue(())
//! })?;
//! assert!(report.is_consistent());
//! # Ok::<(), ctnetlink::NetlinkError>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations)]

mod batch;
mod codec;
mod error;
mod event;
mod filter;
pub mod flow;
pub mod netns;
pub mod rtnetlink;
mod socket;
mod table;
#[cfg(feature = "testing")]
pub mod testing;

pub use ipnet::IpNet;
pub use rustix::io::Errno;

pub use codec::encode::DeleteTarget;
pub use codec::expect::Expectation;
pub use codec::insert::{Incomplete, check_insertable};
pub use codec::stats::CpuStats;
pub use codec::{DecodeError, decode};
pub use error::{ErrorKind, InsertError, NetlinkError, Operation};
pub use event::queue::{EventBatch, EventQueue, Gap, QueueItem};
pub use event::{Event, EventKind, EventOptions, Events, Received};
pub use filter::{DumpFilter, Masked, TableKind, TupleMatch};
pub use flow::Flow;
pub use netns::{Netns, NetnsError};
pub use table::{DumpReport, MAX_BATCH, Table};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
