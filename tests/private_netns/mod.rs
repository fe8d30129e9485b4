//! Runs a test's body in a network namespace of its own, as root or, where not, through `unshare -Urn`.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Set for the process that `unshare` started.
const INSIDE: &str = "CTK_TEST_INSIDE_UNSHARE";

/// Runs `body`, a closure written in the test function itself, on a thread in a new network namespace. Where that needs a user
/// namespace, the test is started again inside one. Where neither is possible it is skipped, loudly; with CI=true that is a
/// failure.
pub fn private_netns<F: FnOnce() + Send>(body: F) {
    let test = name_of::<F>();
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
        let output = Command::new("unshare")
            .arg("-Urn")
            .arg(std::env::current_exe().expect("this test's own path"))
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .expect("unshare ran a moment ago");
        let said = String::from_utf8_lossy(&output.stdout);
        // A name that matches no test would succeed as well.
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{test} in its user namespace: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
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

/// The test that a closure is written in, as libtest names it: `crate::module::test::{{closure}}` less both ends.
fn name_of<F>() -> &'static str {
    let path = std::any::type_name::<F>();
    let path = path.split_once("::").map_or(path, |(_, rest)| rest);
    path.split_once("::{{closure}}")
        .map_or(path, |(test, _)| test)
}
