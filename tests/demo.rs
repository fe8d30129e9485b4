//! `ctk demo`: as root, as an ordinary user, and where it is forbidden.

use std::process::Command;

use testkit::ctk_binary::{ctk_line, ctk_path, readable_binary};
use testkit::tools::{Outcome, as_nobody};

/// Whether this machine lets an ordinary user have a namespace of their own.
fn users_may() -> bool {
    let may = as_nobody("unshare", &["-Urn", "true"]).output();
    let may = may.is_ok_and(|output| output.status.success());
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(may || !ci, "user namespaces must be allowed where CI=true");
    may
}

#[test]
fn the_tour_shows_a_stale_entry_and_what_it_ran() {
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
fn one_command_runs_in_the_same_world() {
    if !nix::unistd::geteuid().is_root() && !users_may() {
        eprintln!("skipped: not root, and user namespaces are forbidden");
        return;
    }
    let said = ctk_line("demo -- ls --stale -o jsonl").exits(0);
    let reasons: Vec<_> = said.jsonl().iter().map(|i| i["reason"].clone()).collect();
    assert_eq!(reasons.len(), 2, "{said:#?}");
    assert!(reasons.iter().any(|reason| reason == "endpoint-gone"));
    assert!(reasons.iter().any(|reason| reason == "no-dnat"));
    let hairpin = ctk_line("demo -- ls --hairpin -o jsonl").exits(0).jsonl();
    assert_eq!(hairpin.len(), 1);
    let busy = ctk_line("demo -- ls --tcp --svc shop/api --endpoint api-a -o jsonl").exits(0);
    assert_eq!(busy.jsonl().len(), 9);
    // Its status and its errors are those of the command.
    ctk_line("demo -- ls --stale --exit-code").exits(5);
    let wrong = ctk_line("demo -- ls --udp 99999").exits(2);
    assert!(
        wrong.stderr.contains("--udp") && wrong.stdout.is_empty(),
        "{wrong:#?}"
    );
}

#[test]
fn where_namespaces_are_forbidden_it_says_what_to_do() {
    // In a user namespace of our own the limits are ours to set.
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > /proc/sys/user/max_user_namespaces || exit 99
        \"$0\" demo";
    let output = Command::new("unshare")
        .args(["-Ur", "sh", "-c", script, ctk_path()])
        .output();
    let said = Outcome::of(output.unwrap());
    if said.status == Some(99) || said.stderr.contains("unshare") && said.status == Some(1) {
        eprintln!("skipped: no user namespace to forbid it in: {said:?}");
        return;
    }
    assert_eq!((said.status, &*said.stdout), (Some(1), ""), "{said:#?}");
    let mut lines = said.stderr.lines();
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

fn assert_is_the_tour(said: &Outcome) {
    assert_eq!((said.status, &*said.stderr), (Some(0), ""), "{said:#?}");
    let out = &said.stdout;
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
    // In the table of all, and in that of kube-dns.
    assert_eq!(stale.len(), 2, "{out}");
    assert!(stale.iter().all(|row| row.contains("(gone)")), "{out}");
    assert!(out.contains("10.244.1.7:53 is no endpoint of kube-system/kube-dns, which has 2"));
}
