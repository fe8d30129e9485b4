//! Plugin of kubectl.

use crate::{Home, has_namespaces};
use testkit::tools::Outcome;

#[test]
fn help_of_the_plugin_shows_the_typed_name() {
    let home = Home::new("kubectl-ctk");
    let run = |args: &[&str]| {
        let mut command = home.command(home.path().join("bin/kubectl-ctk"));
        Outcome::of(command.args(args).output().unwrap())
    };
    let help = run(&["--help"]).exits(0).stdout;
    assert!(
        help.contains("Usage: kubectl ctk [OPTIONS] <COMMAND>"),
        "{help}"
    );
    let help = run(&["ls", "--help"]).exits(0).stdout;
    assert!(help.contains("Usage: kubectl ctk ls"), "{help}");
    assert!(help.contains("\n  kubectl ctk ls --stale"), "{help}");
    assert!(!help.contains("\n  ctk "), "{help}");
    let wrong = run(&["ls", "--udp", "99999"]).exits(2);
    assert!(wrong.stderr.contains("--udp"), "{wrong:#?}");
}

#[test]
fn kubectl_finds_and_runs_the_plugin() {
    let test = "kubectl ctk";
    if !has_namespaces(test) {
        return;
    }
    let home = Home::new("kubectl-ctk");
    // .ci/run does not install kubectl, which has no package that exists everywhere.
    let program = match std::env::split_paths(&home.search_path())
        .any(|folder| folder.join("kubectl").exists())
    {
        true => ("kubectl", vec!["ctk"]),
        false => ("kubectl-ctk", Vec::new()),
    };
    if program.0 == "kubectl-ctk" {
        eprintln!("skipped: {test}: there is no kubectl; the plugin is called by its own name");
    }
    let mut command = home.command("env");
    command.arg(program.0).args(program.1);
    let output = command
        .args(["demo", "--", "ls", "--stale", "-o", "jsonl"])
        .output();
    let outcome = Outcome::of(output.unwrap()).exits(0);
    assert_eq!(outcome.jsonl().len(), 2, "{outcome:#?}");
}
