//! Standard output, standard error and the terminal: printing, notes, questions, repainted tables, signals.

pub(crate) mod confirm;
pub(crate) mod frames;
pub(crate) mod interruptible_stdout;
pub(crate) mod log;
pub(crate) mod messages;
pub(crate) mod printing;
pub(crate) mod screen;
pub(crate) mod signals;
