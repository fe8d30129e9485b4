//! Everything that is printed for scripts fits the JSON Schema beside the tests.

use std::path::Path;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

use crate::mixed;
use crate::private_netns::private_netns;
use crate::tools::{Said, ctk, ctk_line};
use crate::{has_namespaces, repository};

/// The schema, compiled once a test.
struct Schema {
    compiler: Compiler,
    schemas: Schemas,
}

impl Schema {
    fn new() -> Self {
        let text = std::fs::read_to_string(repository("tests/schema/ctk-v1.json")).unwrap();
        let mut compiler = Compiler::new();
        compiler.enable_format_assertions();
        compiler
            .add_resource("ctk.json", serde_json::from_str(&text).unwrap())
            .unwrap();
        Schema {
            compiler,
            schemas: Schemas::new(),
        }
    }

    fn definition(&mut self, name: &str) -> SchemaIndex {
        let place = format!("ctk.json#/$defs/{name}");
        let compiled = self.compiler.compile(&place, &mut self.schemas);
        compiled.unwrap_or_else(|error| panic!("{name}: {error:#}"))
    }

    #[track_caller]
    fn fits(&mut self, definition: &str, value: &Value) {
        let index = self.definition(definition);
        if let Err(error) = self.schemas.validate(value, index) {
            panic!("{definition}: {error:#}\n{value}");
        }
    }

    fn refuses(&mut self, definition: &str, value: &Value) -> bool {
        let index = self.definition(definition);
        self.schemas.validate(value, index).is_err()
    }

    /// Lines of `-o jsonl`, and how many there were.
    #[track_caller]
    fn lines(&mut self, definition: &str, said: &Said) -> usize {
        let lines = said.jsonl();
        lines.iter().for_each(|line| self.fits(definition, line));
        lines.len()
    }
}

#[test]
fn what_the_demo_prints_fits_the_schema() {
    if !has_namespaces("schema") {
        return;
    }
    let mut schema = Schema::new();
    let demo = |command: &str| ctk_line(&format!("demo -- {command}")).ended(0);
    schema.fits("ls", &demo("ls -o json").json());
    schema.fits("ls", &demo("ls --cluster none -o json").json());
    schema.fits("ls", &demo("ls --sample 6s -o json").json());
    assert_eq!(schema.lines("item", &demo("ls -o jsonl")), 19);
    let purge = "purge --stale --settle 0 --verify 0";
    schema.fits("purge", &demo(&format!("{purge} --dry-run -o json")).json());
    let gone = demo(&format!("{purge} --yes -o json"));
    schema.fits("purge", &gone.json());
    assert_eq!(
        schema.lines("purge_item", &demo(&format!("{purge} --yes -o jsonl"))),
        2
    );
    let records = schema.lines("record", &demo("watch --until stale -o jsonl"));
    assert_eq!(records, 20, "19 entries and synced");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gone.json");
    std::fs::write(&file, &gone.stdout).unwrap();
    for dry in ["--dry-run", "--yes"] {
        let restore = |format| {
            let file = file.to_str().unwrap();
            ctk(["demo", "--", "restore", dry, "-o", format, file]).ended(0)
        };
        schema.fits("restore", &restore("json").json());
        assert_eq!(schema.lines("restore_item", &restore("jsonl")), 2);
    }
}

#[test]
fn what_a_table_with_everything_in_it_prints_fits_the_schema() {
    private_netns(|| {
        mixed::fill();
        let mut schema = Schema::new();
        let none = "--cluster none";
        let listed = schema.lines("item", &ctk_line(&format!("ls {none} -o jsonl")).ended(0));
        assert!(listed > mixed::ENTRIES, "{listed}");
        schema.fits(
            "ls",
            &ctk_line(&format!("ls {none} --limit 50 -o json"))
                .ended(0)
                .json(),
        );
        let watch = format!("watch {none} --until quiet --interval 1s --for 30s -o jsonl");
        let watched = schema.lines("record", &ctk_line(&watch));
        assert!(watched > listed, "{watched}");
        let purge = format!("purge --all --yes --max 20000 --verify 0 {none} -o json");
        let gone = ctk_line(&purge);
        let document = gone.json();
        assert!(
            document["summary"]["deleted"].as_u64() > Some(11_000),
            "{}",
            document["summary"]
        );
        schema.fits("purge", &document);
        let folder = tempfile::tempdir().unwrap();
        let file: &Path = &folder.path().join("gone.json");
        std::fs::write(file, &gone.stdout).unwrap();
        // Some cannot come back, which is in the lines.
        let back = ctk(["restore", "--yes", "-o", "json", file.to_str().unwrap()]);
        schema.fits("restore", &back.json());
    });
}

#[test]
fn the_schema_refuses_what_is_not_in_the_contract() {
    if !has_namespaces("schema") {
        return;
    }
    let mut schema = Schema::new();
    let items = ctk_line("demo -- ls --svc kube-dns --limit 1 -o jsonl")
        .ended(0)
        .jsonl();
    let item = items.first().unwrap();
    schema.fits("item", item);
    let changed = |change: fn(&mut Value)| {
        let mut item = item.clone();
        change(&mut item);
        item
    };
    for wrong in [
        changed(|item| item["surprise"] = 1.into()),
        changed(|item| drop(item.as_object_mut().unwrap().remove("labels"))),
        changed(|item| item["timeout"] = "118".into()),
        changed(|item| item["verdict"] = "healthy".into()),
        changed(|item| item["verdict"] = Value::Null),
        changed(|item| item["original"]["src"] = "10.244.1.300".into()),
        changed(|item| item["original"]["dport"] = 65_536.into()),
        changed(|item| item["client"]["ready"] = true.into()),
        changed(|item| item["result"] = "deleted".into()),
        changed(|item| item["nat"] = Value::Null),
    ] {
        assert!(schema.refuses("item", &wrong), "{wrong}");
    }
}
