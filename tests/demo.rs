//! `ctk demo`: as root, as an ordinary user, and where it is forbidden.

use std::process::Command;

use testkit::ctk_binary::{ctk_line, ctk_path, readable_binary};
use testkit::tools::{Outcome, as_nobody};

/// Reports whether this machine allows an ordinary user a network namespace.
fn users_may() -> bool {
    let may = as_nobody("unshare", &["-Urn", "true"]).output();
    let may = may.is_ok_and(|output| output.status.success());
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(may || !ci, "user namespaces must be allowed where CI=true");
    may
}

#[test]
fn the_tour_shows_a_stale_entry_and_its_commands() {
    if !nix::unistd::geteuid().is_root() && !users_may() {
        eprintln!("skipped: not root, and user namespaces are forbidden");
        return;
    }
    assert_is_the_tour(&ctk_line("demo"));
}

#[test]
fn the_tour_needs_no_root() {
    if !users_may() {
        eprintln!("skipped: user namespaces are forbidden");
        return;
    }
    let (_folder, binary) = readable_binary();
    let output = as_nobody(&binary, &["demo"]).output().unwrap();
    assert_is_the_tour(&Outcome::of(output));
}

#[test]
fn one_command_runs_in_the_demo_and_keeps_its_status() {
    if !nix::unistd::geteuid().is_root() && !users_may() {
        eprintln!("skipped: not root, and user namespaces are forbidden");
        return;
    }
    let outcome = ctk_line("demo -- ls --stale -o jsonl").exits(0);
    let reasons: Vec<_> = outcome
        .jsonl()
        .iter()
        .map(|i| i["reason"].clone())
        .collect();
    assert_eq!(reasons.len(), 2, "{outcome:#?}");
    assert!(reasons.iter().any(|reason| reason == "endpoint-gone"));
    assert!(reasons.iter().any(|reason| reason == "no-dnat"));
    let hairpin = ctk_line("demo -- ls --hairpin -o jsonl").exits(0).jsonl();
    assert_eq!(hairpin.len(), 1);
    let busy = ctk_line("demo -- ls --tcp --svc shop/api --endpoint api-a -o jsonl").exits(0);
    assert_eq!(busy.jsonl().len(), 9);
    // Status and errors are those of the command.
    ctk_line("demo -- ls --stale --exit-code").exits(5);
    let wrong = ctk_line("demo -- ls --udp 99999").exits(2);
    assert!(
        wrong.stderr.contains("--udp") && wrong.stdout.is_empty(),
        "{wrong:#?}"
    );
}

#[test]
fn forbidden_namespaces_are_an_error_with_a_hint() {
    // In an own user namespace the limits are writable.
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > /proc/sys/user/max_user_namespaces || exit 99
        \"$0\" demo";
    let output = Command::new("unshare")
        .args(["-Ur", "sh", "-c", script, ctk_path()])
        .output();
    let outcome = Outcome::of(output.unwrap());
    if outcome.status == Some(99) || outcome.stderr.contains("unshare") && outcome.status == Some(1)
    {
        eprintln!("skipped: no user namespace to forbid it in: {outcome:?}");
        return;
    }
    assert_eq!(
        (outcome.status, &*outcome.stdout),
        (Some(1), ""),
        "{outcome:#?}"
    );
    let mut lines = outcome.stderr.lines();
    let error = lines.next().unwrap();
    assert!(
        error.starts_with("ctk: error: no private namespace for the demo"),
        "{error}"
    );
    let hint = lines.next().unwrap();
    assert!(
        hint.starts_with("hint: ") && hint.contains("sudo ctk demo"),
        "{hint}"
    );
}

fn assert_is_the_tour(outcome: &Outcome) {
    assert_eq!(
        (outcome.status, &*outcome.stderr),
        (Some(0), ""),
        "{outcome:#?}"
    );
    let out = &outcome.stdout;
    for command in [
        "$ ctk ls\n",
        "$ ctk ls --svc kube-dns\n",
        "$ ctk ls --stale -o json\n",
    ] {
        assert!(out.contains(command), "{out}");
    }
    let stale = out
        .lines()
        .filter(|line| line.ends_with("stale  endpoint-gone"));
    let stale: Vec<&str> = stale.collect();
    // In the table of all entries, and in that of kube-dns.
    assert_eq!(stale.len(), 2, "{out}");
    assert!(stale.iter().all(|row| row.contains("(gone)")), "{out}");
    assert!(out.contains("10.244.1.7:53 is no endpoint of kube-system/kube-dns, which has 2"));
}
