//! Runs the examples of every `--help` in the demo, on a terminal, with the answer yes.

use crate::{Home, has, has_namespaces};
use testkit::ctk_binary::ctk_line;
use testkit::terminal::answered;
use testkit::tools::Outcome;

/// Names of all commands, from `ctk --help`.
fn commands() -> Vec<String> {
    let help = ctk_line("--help").exits(0).stdout;
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    let starts = lines.filter(|line| !line.starts_with("   "));
    let names = starts.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Command lines at the end of a help text, without their remarks.
fn examples(help: &str) -> Vec<String> {
    let (_, lines) = help.rsplit_once("Examples:\n").expect("examples");
    let lines = lines.lines().filter(|line| line.starts_with("  ctk "));
    let command = |line: &str| {
        line.trim()
            .split("  ")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    lines.map(command).collect()
}

/// Example as a command line in the demo.
fn in_the_demo(example: &str) -> String {
    match example.strip_prefix("ctk demo") {
        Some(_) => example.to_owned(),
        None => example.replacen("ctk ", "ctk demo -- ", 1),
    }
}

fn run(home: &Home, line: &str) -> Outcome {
    let mut script = home.command("script");
    script.args(["--quiet", "--return", "--command", line, "/dev/null"]);
    answered(script, "y\n")
}

#[test]
fn every_example_of_every_help_works_in_the_demo() {
    let test = "examples";
    if !has_namespaces(test) || !has("script", test) {
        return;
    }
    let commands = commands();
    assert!(commands.len() >= 5, "{commands:?}");
    std::thread::scope(|scope| {
        for command in std::iter::once("").chain(commands.iter().map(String::as_str)) {
            scope.spawn(move || {
                let help = ctk_line(&format!("{command} --help")).exits(0).stdout;
                let examples = examples(&help);
                assert!((2..=3).contains(&examples.len()), "{command}: {examples:?}");
                // One folder for each command, because an example may need the file of the one before.
                let home = Home::new("ctk");
                for example in examples {
                    let outcome = run(&home, &in_the_demo(&example));
                    // The doctor finds the faults of the demo.
                    let found = example.starts_with("ctk doctor") && outcome.status == Some(5);
                    assert!(
                        outcome.status == Some(0) || found,
                        "{example}: {outcome:#?}"
                    );
                    let wrong =
                        outcome.stdout.contains("error:") || outcome.stdout.contains("panicked");
                    assert!(!wrong, "{example}: {outcome:#?}");
                }
            });
        }
    });
}
