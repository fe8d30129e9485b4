//! What changes the table: a pure [`plan`] of what is deleted, the [`veto`]es on it, [`execute`], the only place that deletes,
//! [`verify`], and [`undo`], which puts entries back.

pub mod execute;
pub mod plan;
pub mod undo;
pub mod verify;
pub mod veto;
