//! ctk: conntrack inspection and surgery.
//!
//! The kernel remembers every connection it tracks as an entry with two tuples: the *original* one, what the client sent,
//! and the *reply* one, whose source is where the packets really go. ctk lists these entries, names the Kubernetes client,
//! Service and endpoint behind each, says which are *stale* (still translated to an endpoint that is gone), and deletes
//! exactly those.
//!
//! # Crates
//!
//! | crate | content |
//! |---|---|
//! | `crates/ctnetlink` | entries, their codec, the table, events, network namespaces; nothing of Kubernetes or of printing |
//! | `crates/ctk-cluster` | Services, endpoints, Pods and Nodes, and the translations of a node's rules; no entries |
//! | `src` | the program |
//! | `crates/testkit` | for tests: namespaces, tables, rules, cluster objects |
//! | `crates/fuzz` | fuzz targets of every reader, with their corpus; a workspace of its own |
//!
//! # Modules of the program
//!
//! Four modules take an argument to the output:
//!
//! | module | content |
//! |---|---|
//! | [`args`] | the command line as typed, one file a command |
//! | [`query`] | the meaning of the arguments, resolved once: entries, source, output |
//! | `session` | the cluster chosen and read, the identity of the node, and the one pipeline from a flow to a selected entry |
//! | [`commands`] | one file a command: wiring, progress, messages; [`error`] holds the exit statuses |
//!
//! They use the modules that know one subject each:
//!
//! | module | content |
//! |---|---|
//! | [`filter`], [`select`] | selectors on values of the kernel, one a file; selectors on names and verdicts |
//! | [`this_node`] | the node that a table belongs to |
//! | [`attribution`] | client, Service and endpoint of an entry |
//! | [`verdict`] | stale or not, with the reason (`judge`, `by_cluster`, `by_rules`); refreshed and answered or not (`refresh`, `sample`) |
//! | [`entry`] | one entry with its names and its verdict |
//! | [`purge`] | policy, plan, second decision and vetoes, the only executor of deletes, verification, restore |
//! | [`watch`] | the view of a table over time, and its records |
//! | [`top`], [`service`], [`spread`] | groups; one Service; evenness of flows over endpoints |
//! | [`doctor`] | checks, one a file |
//! | [`stat`], [`sysctl`], [`ethtool`], [`reverse_path`] | counters and settings of the kernel and of drivers |
//! | [`output`], [`saved_table`] | tables, JSON, CSV and conntrack's lines; saved tables as input |
//! | `terminal` | standard output, notes, questions, repainted tables, signals, the log |
//! | `shell` | completion, with names of the cluster from a small cache on disk |
//!
//! # Dependencies
//!
//! No module depends on one that depends on it, and no crate knows the program: `tests/module_dependencies` reads the imports.
//! `verdict`, `service` and `purge::{policy, plan, guard}` are pure: time and state are arguments. Only `purge::execute`
//! deletes, and [`purge`] explains why it deletes nothing else. Only `commands`, `terminal` and `shell` print.
//!
//! # Two walks through the code
//!
//! ## `ctk ls --svc kube-dns`, from the arguments to the printed row
//!
//! 1. `args/select.rs` parses the name with `select/name.rs` to a [`ServiceRef`](select::name::ServiceRef).
//! 2. `commands/ls.rs` makes an `EntryQuery` and a `SourceQuery` (`query/entries.rs`, `query/source.rs`).
//! 3. `session/read_scope.rs` limits the reading to the Service and those that share an address with it; `session/cluster.rs`
//!    reads the source that `session/cluster_source.rs` chooses, and finds the node with `session/node_identity.rs`.
//! 4. `session/pipeline.rs` resolves the query: `select/resolve.rs` turns the name into
//!    [`PortId`](ctk_cluster::index::PortId)s of the index.
//! 5. `Table::dump` of ctnetlink passes each flow to `EntryPipeline::show`, which asks `filter.rs`, `attribution.rs`,
//!    `verdict/judge.rs` and `select.rs`.
//! 6. `output/table.rs` writes the row.
//!
//! ## One entry from bytes to deleted by `ctk purge --stale`
//!
//! 1. `table/receive.rs` of ctnetlink receives a datagram, and `codec/decode.rs` makes a [`Flow`](ctnetlink::flow::Flow) of a
//!    message.
//! 2. `session/table_scan.rs` passes it to `session/pipeline.rs`, which names it (`attribution.rs`) and judges it
//!    (`verdict/judge.rs`, `verdict/by_cluster.rs`).
//! 3. `purge/policy.rs` decides, and `purge/plan.rs` plans.
//! 4. `commands/purge/apply.rs` asks for the second look: `commands/purge/cluster_readings.rs` reads the cluster again, and
//!    `purge/cluster_reading.rs` compares the two readings.
//! 5. `purge/execute.rs` takes a batch. `purge/guard.rs` judges each entry again and may veto.
//! 6. `purge/execute.rs` names the entry by reply tuple, id and zone, and `table/change.rs` of ctnetlink sends the delete.
#![forbid(unsafe_code)]

pub mod args;
pub mod attribution;
pub mod commands;
pub mod doctor;
pub mod entry;
pub mod error;
pub mod ethtool;
pub mod filter;
pub mod output;
pub mod percent;
pub mod plural;
pub mod purge;
pub mod query;
pub mod reverse_path;
pub mod saved_table;
pub mod select;
pub mod service;
mod session;
mod shell;
pub mod spread;
pub mod stat;
pub mod sysctl;
mod terminal;
pub mod this_node;
pub mod top;
pub mod verdict;
pub mod watch;
