//! ctk: conntrack inspection and surgery.
#![forbid(unsafe_code)]
pub mod flow;
