//! Files and forms of delivery: manuals, completion, examples, the schema of the output, and the plugin.

mod examples;
mod manual;
mod plugin;
mod schema;
mod shells;

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::ctk_binary::ctk_path;

/// A folder of the repository.
fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Reports whether this machine allows the test a network namespace.
fn has_namespaces(test: &str) -> bool {
    let mut unshare = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        unshare.arg("-Ur");
    }
    let may = unshare.args(["-n", "true"]).output();
    told(
        may.is_ok_and(|output| output.status.success()),
        test,
        "namespaces are forbidden",
    )
}

/// Reports whether a program is installed.
fn has(program: &str, test: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    told(found, test, &format!("there is no {program}"))
}

fn told(good: bool, test: &str, why: &str) -> bool {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(good || !ci, "{test} must run where CI=true: {why}");
    if !good {
        eprintln!("skipped: {test}: {why}");
    }
    good
}

/// Home of a user with `ctk` in the PATH under some name.
struct Home(tempfile::TempDir);

impl Home {
    fn new(program: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(ctk_path(), bin.join(program)).unwrap();
        Home(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn search_path(&self) -> OsString {
        let mut path = self.path().join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path
    }

    /// Command that this user runs.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", self.search_path())
            .env("LC_ALL", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color");
        command
    }
}
