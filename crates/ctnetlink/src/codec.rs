//! Conversion between the bytes of ctnetlink messages and entries. No I/O.

pub(crate) mod abi;
pub(crate) mod attr;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod expect;
pub(crate) mod insert;
pub(crate) mod stats;
pub(crate) mod tuple;

#[cfg(test)]
mod tests;

pub use decode::{DecodeError, flow as decode};
