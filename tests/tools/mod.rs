//! Module `tools` of the test kit, and runs of the built `ctk`.
#![allow(dead_code, unused_imports)] // each test file uses its part

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

pub use testkit::tools::*;

/// Path of the binary under test.
pub const CTK: &str = env!("CARGO_BIN_EXE_ctk");

/// `ctk` with these arguments, without the variables of the caller's environment that change its output.
pub fn ctk_command<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Command {
    clean(Command::new(CTK), args)
}

/// Runs `ctk` to its end.
pub fn ctk<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Said {
    Said::of(ctk_command(args).output().expect("ctk starts"))
}

/// Runs `ctk` with arguments written as one line, separated by blanks.
pub fn ctk_line(line: &str) -> Said {
    ctk(line.split_whitespace())
}

/// Copy of `ctk` that every user may run: the build folder may be closed to others.
pub fn readable_binary() -> (tempfile::TempDir, String) {
    readable_copy(Path::new(CTK))
}
