//! ctk: conntrack inspection and surgery.
#![forbid(unsafe_code)]
pub mod cluster;
pub mod entry;
pub mod flow;
pub mod netlink;
pub mod netns;
pub mod output;
pub mod sysctl;
pub mod verdict;
