//! Bytes of ctnetlink and entries: attributes, decoder and encoder. No I/O.

pub(crate) mod abi;
pub mod attr;
pub mod decode;
pub mod encode;
pub mod expect;
pub mod insert;
pub mod stats;
#[cfg(test)]
mod tests;
pub mod tuple;
