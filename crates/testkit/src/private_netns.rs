//! Network namespace for one test: of root, or of an ordinary user through `unshare -Urn`.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Set for the process that `unshare` started.
const INSIDE: &str = "CTK_TEST_INSIDE_UNSHARE";

/// Runs `body`, a closure written in the test function itself, on a thread in a new network namespace. An ordinary user needs a
/// user namespace, so the test starts itself again in one. Where neither is possible the test is skipped with a message; with
/// CI=true that is a failure.
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

/// Moves the calling thread into a new network namespace.
pub fn enter_new_netns() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a new network namespace");
}

/// Drops all capabilities of the calling thread. Sockets opened before keep theirs.
pub fn drop_capabilities() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).expect("capabilities may be dropped");
}

fn skip(test: &str, why: &str) {
    assert!(
        !std::env::var("CI").is_ok_and(|value| value == "true"),
        "{test} must run where CI=true: {why}"
    );
    eprintln!("skipped: {test}: {why}");
}

/// Name that libtest gives the test of a closure: `crate::module::test::{{closure}}` without both ends.
fn name_of<F>() -> &'static str {
    let path = std::any::type_name::<F>();
    let path = path.split_once("::").map_or(path, |(_, rest)| rest);
    path.split_once("::{{closure}}")
        .map_or(path, |(test, _)| test)
}
