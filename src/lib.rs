//! ctk: conntrack inspection and surgery.
#![forbid(unsafe_code)]
pub mod cli;
pub mod cluster;
pub mod entry;
pub mod filter;
pub mod flow;
pub mod netlink;
pub mod select;
pub mod verdict;
