//! ctk: conntrack inspection and surgery.
//!
//! The kernel remembers every connection it tracks as an entry with two tuples: the *original* one, what the client sent,
//! and the *reply* one, whose source is where the packets really go. ctk lists these entries, names the Kubernetes client,
//! Service and endpoint behind each, says which are *stale* (still translated to an endpoint that is gone), and deletes
//! exactly those.
//!
//! # Crates and modules
//!
//! | crate | content |
//! |---|---|
//! | `crates/ctnetlink` | entries, their codec, the table, events, network namespaces; nothing of Kubernetes or of printing |
//! | `crates/ctk-cluster` | Services, endpoints, Pods and Nodes, and what a node's rules translate; no entries |
//! | `src` | the program |
//! | `crates/testkit` | for tests: namespaces, tables, rules, cluster objects |
//!
//! | module of the program | content |
//! |---|---|
//! | [`args`] | the command line as it is typed, one file a command; [`error`]: how a command ends |
//! | `query` | what the arguments mean, resolved once: entries, source |
//! | [`filter`], [`select`] | predicates on what the kernel says, one a file; names and verdicts as predicates |
//! | [`this_node`] | the node that a table belongs to |
//! | [`attribution`] | client, Service and endpoint of an entry |
//! | [`verdict`] | stale or not, and why (`judge`, `by_cluster`, `by_rules`); whether it is refreshed and answered (`refresh`, `sample`) |
//! | [`entry`] | one entry with its names and its verdict |
//! | [`purge`] | policy, plan, second decision and vetoes, the only executor of deletes, verification, restore |
//! | [`watch`] | the view of a table over time, and its records |
//! | [`top`], [`service`], [`spread`] | groups; one Service; how evenly flows lie on endpoints |
//! | [`doctor`] | checks, one a file |
//! | [`stat`], [`sysctl`], [`ethtool`], [`reverse_path`] | counters and settings of the kernel and of drivers |
//! | [`output`], [`saved_table`] | tables, JSON, CSV and conntrack's lines; saved tables read back |
//! | `session` | the cluster chosen and read, the node it is, and the one pipeline from a flow to a selected entry |
//! | [`commands`] | one file a command: wiring, progress, messages, exit statuses |
//! | `terminal` | standard output, notes, questions, repainted tables, signals |
//! | `shell` | completion: names of the cluster from a small cache on disk |
//!
//! # Dependencies
//!
//! They point one way, and no module depends on one that depends on it: `tests/module_dependencies` reads the imports. The
//! crates know nothing of the program. `verdict`, `service` and `purge::{policy, plan, guard}` are pure: time and state are passed in.
//! Only `purge::execute` deletes, and [`purge`] says why it deletes nothing else; only `commands`, `terminal` and `shell` print.
//!
//! # Two walks through the code
//!
//! `ctk ls --svc kube-dns`, from the arguments to the printed row: `args/ls.rs` and `args/select.rs` parse; `select.rs` and
//! `select/resolve.rs` turn the name into ports of a Service; `session/wanted.rs` says how little of the cluster is read;
//! `session/cluster.rs` reads it; `session/pipeline.rs` takes each [`ctnetlink::Flow`] through `filter`, `attribution`, `verdict` and
//! `select`; `commands/ls.rs` gives it to `output/table.rs`.
//!
//! One entry from bytes to deleted by `ctk purge --stale`: `Table::dump` and `codec/decode.rs` in ctnetlink make the flow;
//! `session/pipeline.rs` judges it; `purge/plan.rs` takes it in by [`purge::policy::VerdictPolicy`]; `commands/purge/cluster_readings.rs`
//! reads the cluster again; `purge/guard.rs` decides anew and may forbid; `purge/execute.rs` sends the delete by reply tuple, id
//! and zone.
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
mod query;
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
