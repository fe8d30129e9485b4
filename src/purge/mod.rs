//! Deleting exactly what was meant: a pure [`plan`], then [`execute`], which is the only place that deletes.

pub mod execute;
pub mod plan;
