//! ctk: conntrack inspection and surgery.
//!
//! The kernel remembers every connection it tracks as an entry with two tuples: the *original* one, what the client sent,
//! and the *reply* one, whose source is where the packets really go. ctk lists these entries, names the Kubernetes client,
//! Service and endpoint behind each, says which are *stale* (still translated to an endpoint that is gone), and deletes
//! exactly those.
//!
//! # The rooms
//!
//! | question | room |
//! |---|---|
//! | What is an entry? | [`flow`] |
//! | Where do kernel bytes become one, and the other way round? | [`netlink`] (`codec` in `crates/ctnetlink`) |
//! | Whose table? | [`netns`], [`sysctl`] |
//! | How full is it, and what did the kernel count? | [`stat`]; drivers: [`ethtool`] |
//! | Which packets never make an entry? | [`reverse_path`] |
//! | Which programs of the machine are asked? | [`tool`] |
//! | Which entries, by what the kernel says? | [`filter`], one predicate a file |
//! | Which Services, Pods and Nodes are there? | [`cluster`] |
//! | What do the rules of this node translate, and to where? | `cluster/rules` (`iptables`, `nft`, `ipvs`; `reach` walks kube-proxy's chains, `read` runs the tools) |
//! | Where do the two differ, and who else may translate here? | `cluster/compare`, `cluster/datapath` |
//! | Which of them are behind an entry? | [`label`], the one place where flow and cluster meet |
//! | Is it stale, and why? | [`verdict`] (`rule`, `case`) |
//! | Is it kept alive, and does anybody answer? | [`verdict`] (`refresh`, `sample`) |
//! | What is shown of an entry? | [`entry`] |
//! | Which entries, by name and verdict? | [`select`] |
//! | How is it printed? | [`output`] (a column: `output/column.rs`) |
//! | What is known of one Service, and what lies on its endpoints? | [`service`], `output/service.rs` |
//! | How evenly do flows lie on endpoints, and why? | [`spread`] |
//! | Who fills the table? | [`top`] (`heavy`: counting with a bound), `output/groups.rs` |
//! | What changes while somebody looks? | [`watch`] (the view and its records), `ctnetlink` ([`netlink::EventQueue`]) |
//! | What is wrong here, with evidence? | [`doctor`] (`check`, one a file) |
//! | How does the cluster stay current meanwhile? | `cluster/follow` (`feed`, `board`, `store`), `cli/watch/source.rs` |
//! | What can destroy? | [`purge`], and [`netlink::Table`] below it |
//! | What was typed, what is meant, how does it end? | [`cli`], [`error`] |
//! | What does TAB offer, and what do the manuals say? | `cli/shell` (names kept by the last reading), `cli/generate` |
//!
//! # Who may know whom
//!
//! `flow` knows nothing else of ours, and `cluster` and `spread` stand alone. `netlink`, `filter` and `output` know `flow`.
//! `verdict`, `service` and `purge::plan` are pure: time and state are passed in. Only `purge::execute` and `netlink` change
//! the kernel's table; only `cli` reads the command line (`output`, `filter` and `top` lend it types that parse themselves),
//! and only `cli` touches stdout. `tests/rooms.rs` holds these walls.
//!
//! # The way of an entry
//!
//! [`netlink::Table::dump`] receives 32 KiB at a time and decodes one message after the other into a [`flow::Flow`], which
//! is moved along: `filter` drops what was not asked for, `label` finds the frontend that its destination is, `verdict`
//! judges it by that, `select` chooses, `output` prints it into one reused line. Nothing is kept, so memory does not grow
//! with the table.
#![forbid(unsafe_code)]

pub use ctk_cluster as cluster;
pub use ctnetlink as netlink;
pub use ctnetlink::{flow, netns, rtnetlink};

pub mod args;
pub mod attribution;
pub mod cli;
pub mod doctor;
pub mod entry;
pub mod error;
pub mod ethtool;
pub mod filter;
pub mod output;
pub mod plural;
pub mod purge;
pub mod reverse_path;
pub mod select;
pub mod service;
pub mod spread;
pub mod stat;
pub mod sysctl;
pub mod text;
pub mod this_node;
pub mod top;
pub mod verdict;
pub mod watch;
