//! Test kit of the workspace. For tests and benches only.
//!
//! | module | content |
//! |---|---|
//! | [`private_netns`] | runs a test in a network namespace of its own |
//! | [`tools`] | runs programs and reads their output |
//! | [`ctk_binary`] | runs the built `ctk` |
//! | [`watch_process`] | `ctk watch` as a child, and its records |
//! | [`terminal`] | terminal for commands that repaint it |
//! | [`rows`] | table filled from lines of `conntrack -L`, and the entries left later |
//! | [`alternating`] | clients whose entries alternate between a dead and a live endpoint under purges |
//! | [`other_netns`] | network namespaces beside that of the test |
//! | [`mixed`] | table with every kind of entry |
//! | [`lab`] | node with real packets and kube-proxy's rules |
//! | [`incidents`] | reported incidents: entries, cluster objects, expected verdicts |
//! | `api_server` | HTTPS server with the list protocol of the Kubernetes API; behind the feature `api-server` |
//! | [`conntrack_tool`] | output of `conntrack` as JSON items |
//! | [`dice`] | pseudo-random choices that a seed repeats |
//! | [`usage`] | time and memory that programs take |
//! | [`bench`](mod@bench), [`conntrack_max`] | namespace and limit of entries for benches |
#![forbid(unsafe_code)]

pub mod alternating;
#[cfg(feature = "api-server")]
pub mod api_server;
pub mod bench;
pub mod conntrack_max;
pub mod conntrack_tool;
pub mod ctk_binary;
pub mod dice;
pub mod incidents;
pub mod lab;
pub mod mixed;
pub mod other_netns;
pub mod private_netns;
pub mod rows;
pub mod terminal;
pub mod tools;
pub mod usage;
pub mod watch_process;
