//! Test kit of the workspace. For tests and benches only.
//!
//! | module | content |
//! |---|---|
//! | [`private_netns`] | runs a test in a network namespace of its own |
//! | [`tools`] | runs programs and reads their output |
//! | [`rows`] | table filled from lines of `conntrack -L`, and the entries left later |
//! | [`mixed`] | table with every kind of entry |
//! | [`lab`] | node with real packets and kube-proxy's rules |
//! | [`conntrack_tool`] | output of `conntrack` as JSON items |
//! | [`terminal`] | terminal for commands that repaint it |
#![forbid(unsafe_code)]

pub mod conntrack_tool;
pub mod lab;
pub mod mixed;
pub mod private_netns;
pub mod rows;
pub mod terminal;
pub mod tools;
