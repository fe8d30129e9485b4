//! What changes the table: deleting entries, and putting them back.

pub mod undo;
