//! Saved tables: text that entries were written to, read back as entries.
//!
//! Knows `flow` and the formats, no kernel and no file names: whoever opens the file says where it came from.

pub mod json;
