//! Linux connection tracking over ctnetlink: list, look up, insert, follow and delete the kernel's entries.
//!
//! * [`flow`]: an entry with its two tuples, status, counters and protocol state.
//! * [`Table`]: one namespace's table. A dump is streamed in constant memory, and says whether it was consistent.
//! * [`DumpFilter`]: the part of a selection that the kernel can make.
//! * [`Events`]: entries as they come, change and end; [`Feed`] keeps up while the program prints. Lost events are told.
//! * [`DeleteTarget`]: names one entry by its reply tuple, id and zone. A delete without a tuple, which the kernel takes as
//!   a flush of the table, cannot be built.
//! * [`netns`]: other network namespaces; [`rtnetlink`]: their addresses, links and bridge ports.
//! * [`codec`]: bytes and entries, without I/O.
//!
//! Reading a table needs CAP_NET_ADMIN in the user namespace of the network namespace; root of an own user and network
//! namespace (`unshare -Urn`) has it.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use ctnetlink::{DumpFilter, Netns, Table, TableKind};
//!
//! let mut table = Table::open(&Netns::current())?;
//! let report = table.dump(TableKind::Conntrack, &DumpFilter::default(), &mut |flow| {
//!     println!("{} -> {}", flow.original.src, flow.original.dst);
//!     ControlFlow::Continue(())
//! })?;
//! assert!(report.is_consistent());
//! # Ok::<(), ctnetlink::NetlinkError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
pub mod codec;
mod error;
mod event;
mod feed;
mod filter;
pub mod flow;
pub mod netns;
pub mod rtnetlink;
pub mod socket;
mod table;

pub use codec::decode::DecodeError;
pub use codec::encode::DeleteTarget;
pub use codec::expect::{Expectation, expectation};
pub use codec::insert::{Incomplete, check, insert};
pub use codec::stats::{CpuStats, cpu_stats};
pub use error::{ErrorKind, InsertError, NetlinkError};
pub use event::{Event, EventKind, EventOptions, Events, Received};
pub use feed::{Batch, Feed, FeedItem, Gap};
pub use filter::{DumpFilter, Masked, TableKind, TupleMatch};
pub use flow::Flow;
pub use netns::Netns;
pub use table::{BATCH, Drained, DumpReport, Table};
