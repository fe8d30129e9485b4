//! The committed manuals and completion scripts: current, correct, and complete.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use ctk::output::COLUMNS;
use ctk::verdict::{Reason, Refreshing, Replies, Verdict};
use serde_json::Value;

use crate::{has, repository};
use testkit::ctk_binary::ctk;

/// Files of a folder whose names pass the filter.
fn files(folder: &Path, wanted: fn(&str) -> bool) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| wanted(name))
        .map(|name| (name.clone(), fs::read_to_string(folder.join(name)).unwrap()))
        .collect()
}

#[test]
fn the_committed_manuals_and_completions_are_those_of_this_version() {
    for (what, wanted) in [
        ("man", (|name| name.ends_with(".1")) as fn(&str) -> bool),
        ("completions", |_| true),
    ] {
        let fresh = tempfile::tempdir().unwrap();
        ctk(["generate", what, fresh.path().to_str().unwrap()]).exits(0);
        let fresh = files(fresh.path(), wanted);
        let committed = files(&repository(what), wanted);
        assert!(fresh.len() >= 3, "{what}: {fresh:?}");
        let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            names(&committed),
            names(&fresh),
            "run: ctk generate {what} {what}"
        );
        for (name, text) in &fresh {
            assert!(
                committed[name] == *text,
                "{what}/{name}: run: ctk generate {what} {what}"
            );
        }
    }
}

/// Programs that read a page and report errors.
fn complaints(program: &str, args: &[&str]) {
    if !has(program, "manual pages") {
        return;
    }
    for name in files(&repository("man"), |_| true).into_keys() {
        let page = repository("man").join(&name);
        let output = Command::new(program)
            .args(args)
            .arg(page)
            .env("LC_ALL", "C.UTF-8")
            .env("MANWIDTH", "100")
            .env("MANROFFOPT", "-ww")
            .env("MANPAGER", "cat")
            .output()
            .unwrap();
        let lint = args.contains(&"-Tlint");
        let outcome = String::from_utf8_lossy(if lint { &output.stdout } else { &output.stderr });
        assert!(
            output.status.success() && outcome.is_empty(),
            "{program}: {name}: {outcome}"
        );
    }
}

#[test]
fn mandoc_reports_no_errors_in_a_manual() {
    complaints("mandoc", &["-Tlint"]);
}

#[test]
fn man_formats_each_manual_without_a_warning() {
    complaints("man", &["--warnings=w", "-l"]);
}

/// Words of a page after formatting: escapes resolved, without punctuation.
fn words(page: &str) -> Vec<String> {
    let page = fs::read_to_string(repository("man").join(page)).unwrap();
    let page = page.replace("\\-", "-");
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let words = page.split(|c| !inner(c)).map(|word| word.trim_matches('.'));
    words.map(str::to_owned).collect()
}

#[test]
fn the_manual_of_verdicts_has_every_word_that_an_entry_can_have() {
    let words = words("ctk-verdicts.7");
    let verdicts = Verdict::ALL.map(Verdict::name);
    let reasons = Reason::ALL.iter().map(|reason| reason.name());
    let refreshing = [Refreshing::Yes, Refreshing::No, Refreshing::Unknown].map(Refreshing::name);
    let replies = [
        Replies::TwoWay,
        Replies::OneWay,
        Replies::Stopped,
        Replies::Unknown,
    ];
    let all = verdicts.into_iter().chain(reasons).chain(refreshing);
    for word in all.chain(replies.map(Replies::name)) {
        assert!(words.iter().any(|known| known == word), "{word}");
    }
}

#[test]
fn the_manual_of_the_output_has_every_field() {
    let words = words("ctk-json.5");
    let has = |field: &str| words.iter().any(|word| word == field);
    for column in COLUMNS {
        assert!(has(column.key), "{}", column.key);
    }
    let schema = fs::read_to_string(repository("tests/schema/ctk-v1.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut fields = Vec::new();
    properties(&schema, &mut fields);
    assert!(fields.len() > 200, "{fields:?}");
    for field in fields {
        let dotted = format!(".{field}");
        let known = words
            .iter()
            .any(|word| *word == field || word.ends_with(&dotted));
        assert!(known, "{field}");
    }
    let cluster = schema["$defs"]["cluster"]["properties"].as_object();
    for field in cluster.unwrap().keys() {
        assert!(has(&format!("cluster.{field}")), "cluster.{field}");
    }
}

/// Names of all properties in a schema.
fn properties(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            let named = fields.get("properties").and_then(Value::as_object);
            names.extend(named.into_iter().flat_map(|all| all.keys().cloned()));
            fields.values().for_each(|field| properties(field, names));
        }
        Value::Array(members) => members.iter().for_each(|member| properties(member, names)),
        _ => {}
    }
}

#[test]
fn the_manual_of_the_output_and_the_schema_have_every_check_and_its_evidence() {
    let words = words("ctk-json.5");
    let schema = fs::read_to_string(repository("tests/schema/ctk-v1.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let checks = schema["$defs"]["finding_fields"]["properties"]["check"]["enum"].clone();
    let checks: Vec<&str> = checks
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let mut seen = Vec::new();
    let mut known = 0;
    for (file, text) in files(&repository("src/doctor/check"), |name| {
        name.ends_with(".rs")
    }) {
        let code = text.split("#[cfg(test)]").next().unwrap();
        for name in after(code, "const NAME: &str = \"") {
            assert!(checks.contains(&name), "the schema lacks {name}");
            assert!(words.iter().any(|word| word == name), "{file}: {name}");
            seen.push(name.to_owned());
        }
        let keys = [".with(\"", ".list(\""].map(|call| after(code, call));
        for key in keys.concat() {
            assert!(words.iter().any(|word| word == key), "{file}: {key}");
            known += 1;
        }
    }
    seen.sort_unstable();
    let mut checks: Vec<_> = checks.iter().map(|name| (*name).to_owned()).collect();
    checks.sort_unstable();
    assert_eq!(checks, seen, "the schema has checks that are none");
    assert!(known > 80, "{known}");
}

/// Text from a prefix to the next quotation mark.
fn after<'t>(text: &'t str, beginning: &str) -> Vec<&'t str> {
    let parts = text.split(beginning).skip(1);
    parts.filter_map(|part| part.split('"').next()).collect()
}
