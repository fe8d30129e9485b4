//! The command line: what was typed, and what is meant by it.

pub mod select;
