//! ctk: conntrack inspection and surgery.
#![forbid(unsafe_code)]
pub mod cluster;
pub mod entry;
pub mod filter;
pub mod flow;
pub mod label;
pub mod netlink;
pub mod netns;
pub mod sysctl;
pub mod verdict;
