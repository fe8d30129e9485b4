//! Runs of the built `ctk`, in the network namespace of the calling thread.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::tools::{Outcome, clean, readable_copy};

/// Path of the binary under test. Cargo builds it before the tests of its package and puts it into the folder above the
/// tests' own (`target/debug/deps`). The path is absolute and valid UTF-8.
pub fn ctk_path() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        let test = std::env::current_exe().expect("the path of this test");
        let built = test.ancestors().nth(2).expect("the folder of the build");
        let path: PathBuf =
            std::env::var_os("CARGO_BIN_EXE_ctk").map_or(built.join("ctk"), PathBuf::from);
        assert!(
            path.is_file(),
            "{} is missing: build ctk first",
            path.display()
        );
        path.into_os_string()
            .into_string()
            .expect("a path of UTF-8")
    });
    &PATH
}

/// `ctk` with these arguments, without the variables of the caller's environment that change its output.
pub fn ctk_command<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Command {
    clean(Command::new(ctk_path()), args)
}

/// The same with the default action of SIGHUP, which a program below nohup(1) ignores.
pub fn ctk_hearing_hangups<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Command {
    let mut env = Command::new("env");
    env.args(["--default-signal=HUP", ctk_path()]);
    clean(env, args)
}

/// Runs `ctk` to its end.
pub fn ctk<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Outcome {
    Outcome::of(ctk_command(args).output().expect("ctk starts"))
}

/// Runs `ctk` with arguments written as one line, separated by blanks.
pub fn ctk_line(line: &str) -> Outcome {
    ctk(line.split_whitespace())
}

/// Runs `ctk` to its end with a text on its standard input. `ctk` may end without reading all of it.
pub fn ctk_with_input<I: IntoIterator<Item: AsRef<OsStr>>>(args: I, input: &str) -> Outcome {
    let mut child = ctk_command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ctk starts");
    // A `ctk` that ended early is judged by its status.
    let _ = child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(input.as_bytes());
    Outcome::of(child.wait_with_output().expect("it ends"))
}

/// Copy of `ctk` that every user may run, because the build folder may be closed to others.
pub fn readable_binary() -> (tempfile::TempDir, String) {
    readable_copy(ctk_path().as_ref())
}
