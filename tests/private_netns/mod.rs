//! Runs a test's body in a network namespace of its own, as root or, where not, through `unshare -Urn`.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Set for the process that `unshare` started.
const INSIDE: &str = "CTK_TEST_INSIDE_UNSHARE";

/// Runs `body` on a thread in a new network namespace. `test` is the name of the calling test, by which it is started again
/// where that needs a user namespace. Where neither is possible it is skipped, loudly; with CI=true that is a failure.
pub fn private_netns(test: &str, body: impl FnOnce() + Send) {
    if nix::unistd::geteuid().is_root() {
        let ran = std::thread::scope(|scope| {
            scope
                .spawn(|| unshare(CloneFlags::CLONE_NEWNET).map(|()| body()))
                .join()
        });
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(e)) => skip(test, &format!("no new network namespace: {e}")),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    } else if std::env::var_os(INSIDE).is_some() {
        skip(test, "not root inside the user namespace");
    } else if Command::new("unshare")
        .args(["-Urn", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        let status = Command::new("unshare")
            .arg("-Urn")
            .arg(std::env::current_exe().expect("this test's own path"))
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .status()
            .expect("unshare ran a moment ago");
        assert!(status.success(), "{test} failed in its user namespace");
    } else {
        skip(test, "not root, and user namespaces are forbidden");
    }
}

fn skip(test: &str, why: &str) {
    assert!(
        !std::env::var("CI").is_ok_and(|value| value == "true"),
        "{test} must run where CI=true: {why}"
    );
    eprintln!("skipped: {test}: {why}");
}
