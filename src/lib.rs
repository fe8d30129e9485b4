//! ctk: conntrack inspection and surgery.
#![forbid(unsafe_code)]
pub mod cli;
pub mod cluster;
pub mod entry;
pub mod error;
pub mod filter;
pub mod flow;
pub mod label;
pub mod netlink;
pub mod netns;
pub mod output;
pub mod purge;
pub mod select;
pub mod sysctl;
pub mod text;
pub mod verdict;
