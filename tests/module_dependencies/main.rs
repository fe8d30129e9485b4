//! Dependencies between modules: no cycles, and a few that are forbidden. Crates are kept apart by the compiler.

mod graph;

use graph::{Modules, cycles};

/// Source folders, each the root of a crate.
const CRATES: [&str; 3] = ["src", "crates/ctk-cluster/src", "crates/ctnetlink/src"];

#[test]
fn no_module_depends_on_one_that_depends_on_it() {
    for folder in CRATES {
        let modules = Modules::read(folder);
        assert!(modules.count() > 10, "{folder} has modules");
        let found = cycles(&modules.dependencies());
        assert!(found.is_empty(), "{folder}: {found:#?}");
    }
}

#[test]
fn a_cycle_is_found_whatever_form_its_imports_have() {
    let of = |files: &[(&str, &str)]| cycles(&Modules::of(files).dependencies());
    let grouped = of(&[
        ("a.rs", "use crate::{b, c::{D, e}};"),
        ("b.rs", "fn f() { crate::c::g() }"),
        ("c.rs", "use super::a::X;"),
    ]);
    assert_eq!(grouped, [["a", "b", "c"]]);
    let nested = of(&[
        ("a/mod.rs", "mod b;"),
        ("a/b.rs", "use super::c;"),
        ("a/c.rs", "use super::b::Y as Z;"),
    ]);
    assert_eq!(nested, [["a::b", "a::c"]]);
    let tests_apart = of(&[
        ("a.rs", "use crate::b;"),
        (
            "b.rs",
            "fn f() {}\n#[cfg(test)]\nmod tests { use crate::a; }",
        ),
    ]);
    assert!(tests_apart.is_empty());
    let parent = of(&[("a.rs", "mod b; use b::C;"), ("a/b.rs", "use super::D;")]);
    assert!(parent.is_empty(), "a module and its parts are one");
}

/// What is typed does not know how it is carried out, and what decides knows neither.
#[test]
fn decisions_know_nothing_of_the_command_line() {
    let modules = Modules::read("src");
    let dependencies = modules.dependencies();
    let forbidden: &[(&str, &[&str])] = &[
        (
            "args",
            &[
                "commands",
                "purge::execute",
                "query",
                "session",
                "terminal",
                "watch",
            ],
        ),
        (
            "attribution",
            &[
                "args", "commands", "session", "terminal", "output", "purge", "select", "verdict",
            ],
        ),
        (
            "doctor",
            &["args", "commands", "output", "purge", "session", "terminal"],
        ),
        (
            "filter",
            &[
                "args",
                "attribution",
                "commands",
                "session",
                "terminal",
                "entry",
                "output",
                "purge",
                "select",
                "verdict",
            ],
        ),
        (
            "output",
            &[
                "args", "commands", "session", "terminal", "filter", "purge", "select",
            ],
        ),
        (
            "purge",
            &["args", "commands", "session", "terminal", "output"],
        ),
        (
            "service",
            &[
                "args", "commands", "session", "terminal", "output", "purge", "select", "top",
            ],
        ),
        (
            "spread",
            &[
                "args",
                "attribution",
                "commands",
                "session",
                "terminal",
                "entry",
                "output",
                "purge",
                "select",
                "verdict",
            ],
        ),
        (
            "stat",
            &[
                "args",
                "attribution",
                "commands",
                "session",
                "terminal",
                "entry",
                "output",
                "purge",
                "select",
                "verdict",
            ],
        ),
        ("query", &["commands", "purge", "session", "shell", "watch"]),
        ("session", &["args", "commands", "purge::execute"]),
        ("shell", &["commands", "session", "terminal"]),
        ("terminal", &["commands", "session", "shell"]),
        (
            "top",
            &[
                "args", "commands", "session", "terminal", "output", "purge", "select",
            ],
        ),
        (
            "verdict",
            &[
                "args", "commands", "session", "terminal", "filter", "output", "purge", "select",
            ],
        ),
        (
            "watch",
            &[
                "args", "commands", "session", "terminal", "output", "purge", "select",
            ],
        ),
    ];
    for (module, others) in forbidden {
        let is = |path: &str, name: &str| path == name || path.starts_with(&format!("{name}::"));
        assert!(
            dependencies.keys().any(|path| is(path, module)),
            "{module} is a module"
        );
        for (path, known) in dependencies.iter().filter(|(path, _)| is(path, module)) {
            for other in *others {
                let knows = known.iter().find(|name| is(name, other));
                assert!(knows.is_none(), "{path} knows {knows:?}");
            }
        }
    }
}

#[test]
fn only_the_command_line_touches_standard_output() {
    let modules = Modules::read("src");
    let others = modules.iter().filter(|(path, _)| {
        let top = path.split("::").next().unwrap_or_default();
        !matches!(top, "commands" | "main" | "shell" | "terminal")
    });
    let mut seen = 0;
    for (path, code) in others {
        seen += 1;
        for word in ["stdout()", "println!", "eprintln!"] {
            assert!(!code.contains(word), "{path} has {word}");
        }
    }
    assert!(seen > 50);
}

#[test]
fn only_the_executor_of_a_purge_and_the_library_can_delete() {
    let modules = Modules::read("src");
    let named: Vec<&str> = modules
        .iter()
        .filter(|(_, code)| code.contains("DeleteTarget"))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(named, ["purge::execute"]);
}
