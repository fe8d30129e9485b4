//! The walls between the rooms of `src/lib.rs`.

use std::fs;
use std::path::{Path, PathBuf};

/// Rust files of a room: `src/NAME.rs` and everything below `src/NAME/`.
fn files(room: &str) -> Vec<PathBuf> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = vec![src.join(format!("{room}.rs"))];
    let mut folders = vec![src.join(room)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.retain(|path| path.extension().is_some_and(|e| e == "rs") && path.is_file());
    found
}

/// The code without the unit tests behind it, which may look over walls, and without comments.
fn code(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let in_tests = path
        .parent()
        .is_some_and(|folder| folder.ends_with("tests"));
    if in_tests || name.contains("test") || name == "fixture.rs" || name == "cases.rs" {
        return String::new();
    }
    let text = fs::read_to_string(path).expect("a source file");
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn no_room_knows_one_that_it_must_not() {
    let all = [
        "cli", "cluster", "entry", "filter", "flow", "label", "netlink", "output", "purge",
        "select", "verdict",
    ];
    let walls: &[(&str, &[&str])] = &[
        ("cluster", &all),
        ("spread", &all),
        (
            "filter",
            &[
                "cli", "cluster", "entry", "label", "output", "purge", "select", "verdict",
            ],
        ),
        (
            "label",
            &["cli", "filter", "netlink", "output", "purge", "select"],
        ),
        (
            "verdict",
            &["cli", "filter", "netlink", "output", "purge", "select"],
        ),
        ("output", &["cli", "cluster", "filter", "purge", "select"]),
        (
            "watch",
            &[
                "cli", "cluster", "filter", "label", "netlink", "output", "purge", "select",
            ],
        ),
        (
            "top",
            &[
                "cli", "cluster", "filter", "label", "netlink", "output", "purge", "select",
            ],
        ),
        (
            "service",
            &[
                "cli", "filter", "label", "netlink", "output", "purge", "select", "top",
            ],
        ),
        (
            "doctor",
            &["cli", "filter", "netlink", "output", "purge", "select"],
        ),
        (
            "stat",
            &[
                "cli", "cluster", "entry", "filter", "label", "output", "purge", "select",
                "verdict",
            ],
        ),
        (
            "purge/plan",
            &["cli", "cluster", "label", "netlink", "output"],
        ),
    ];
    for (room, forbidden) in walls {
        let files = files(room);
        assert!(!files.is_empty(), "no such room: {room}");
        for path in files {
            let code = code(&path);
            for other in forbidden.iter().filter(|other| *other != room) {
                let known = code.contains(&format!("crate::{other}::"))
                    || code.contains(&format!("crate::{other};"));
                assert!(!known, "{} knows {other}", path.display());
            }
        }
    }
}

#[test]
fn only_the_command_line_touches_standard_output() {
    for room in [
        "cluster",
        "doctor",
        "entry",
        "error",
        "ethtool",
        "filter",
        "label",
        "output",
        "purge",
        "reverse_path",
        "select",
        "service",
        "spread",
        "stat",
        "sysctl",
        "tool",
        "top",
        "verdict",
        "watch",
    ] {
        for path in files(room) {
            let code = code(&path);
            for word in ["stdout()", "println!", "eprintln!"] {
                assert!(!code.contains(word), "{} has {word}", path.display());
            }
        }
    }
}

#[test]
fn only_two_rooms_can_delete() {
    for room in [
        "cluster",
        "doctor",
        "entry",
        "filter",
        "label",
        "output",
        "select",
        "stat",
        "top",
        "verdict",
        "watch",
        "purge/plan",
        "purge/verify",
    ] {
        for path in files(room) {
            assert!(!code(&path).contains("DeleteTarget"), "{}", path.display());
        }
    }
}
