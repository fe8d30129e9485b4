//! Deleting exactly what was meant: a pure [`plan`], then [`execute`], the only place that deletes, then [`verify`].

pub mod execute;
pub mod plan;
pub mod verify;
