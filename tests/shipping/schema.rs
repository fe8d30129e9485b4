//! JSON of every command fits the schema beside the tests.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

use crate::{has_namespaces, repository};
use testkit::ctk_binary::{ctk, ctk_command, ctk_line};
use testkit::lab::{self, BACKENDS, Lab, Proxy};
use testkit::mixed;
use testkit::other_netns::OtherNetns;
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, sysctl};

/// Compiled schema, once for each test.
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

    /// Number of lines of `-o jsonl`, each of which fits the schema.
    #[track_caller]
    fn lines(&mut self, definition: &str, outcome: &Outcome) -> usize {
        let lines = outcome.jsonl();
        lines.iter().for_each(|line| self.fits(definition, line));
        lines.len()
    }

    /// Lines of a command that runs until it is ended, up to the first accepted one. `then` runs after the first line.
    #[track_caller]
    fn lines_until(
        &mut self,
        definition: &str,
        command: &str,
        then: impl FnOnce(),
        wanted: impl Fn(&Value) -> bool,
    ) {
        let mut command = ctk_command(command.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let lines = BufReader::new(out)
            .lines()
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let (mut then, mut found) = (Some(then), false);
        for line in lines {
            self.fits(definition, &line);
            then.take().into_iter().for_each(|then| then());
            found = wanted(&line);
            if found {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found, "{command:?} ended too early");
    }
}

/// All keys of `top --by`.
const KEYS: &str = "client,src,dst,sport,dport,reply-src,reply-dst,reply-sport,reply-dport,svc,endpoint,pod,namespace,proto,state,status,\
     verdict,reason,helper,netns,zone,mark,snat-dst";

#[test]
fn output_of_several_namespaces_fits_the_schema() {
    private_netns(|| {
        let mut schema = Schema::new();
        let (one, other) = (OtherNetns::start(), OtherNetns::start());
        one.fill(3);
        let list = format!("{},{}", one.pid(), other.pid());
        let several = |command: &str| ctk_line(&format!("{command} --netns {list}")).exits(0);
        schema.fits("ls", &several("ls -o json").json());
        assert_eq!(schema.lines("item", &several("ls -o jsonl")), 3);
        schema.fits("top", &several("top -o json").json());
        schema.fits("stat_namespaces", &several("stat -o json").json());
        assert_eq!(schema.lines("stat_absolute", &several("stat -o jsonl")), 2);
        schema.fits("doctor", &several("doctor --sample 0 -o json").json());
        assert!(schema.lines("finding", &several("doctor --sample 0 -o jsonl")) > 0);
    });
}

#[test]
fn output_of_the_demo_fits_the_schema() {
    if !has_namespaces("schema") {
        return;
    }
    let mut schema = Schema::new();
    let demo = |command: &str| ctk_line(&format!("demo -- {command}")).exits(0);
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
    schema.fits("top", &demo("top -o json").json());
    schema.fits("top", &demo(&format!("top --by {KEYS} -o json")).json());
    assert_eq!(schema.lines("group", &demo("top --by svc -o jsonl")), 6);
    schema.fits("svc", &demo("svc kube-dns -o json").json());
    schema.fits("svc", &demo("svc shop/api:http -o json").json());
    schema.fits("stat_absolute", &demo("stat -o json").json());
    schema.fits("stat_absolute", &demo("stat --per-cpu -o jsonl").json());
    let doctor = |format: &str| ctk_line(&format!("demo -- doctor --sample {format}")).exits(5);
    let findings = doctor("0 -o json").json();
    schema.fits("doctor", &findings);
    let findings = findings["items"].as_array().unwrap().len();
    assert_eq!(schema.lines("finding", &doctor("6s -o jsonl")), findings);
    for dry in ["--dry-run", "--yes"] {
        let restore = |format| {
            let file = file.to_str().unwrap();
            ctk(["demo", "--", "restore", dry, "-o", format, file]).exits(0)
        };
        schema.fits("restore", &restore("json").json());
        assert_eq!(schema.lines("restore_item", &restore("jsonl")), 2);
    }
}

#[test]
fn output_of_a_table_with_every_kind_of_entry_fits_the_schema() {
    private_netns(|| {
        mixed::fill();
        let mut schema = Schema::new();
        let none = "--cluster none";
        let listed = schema.lines("item", &ctk_line(&format!("ls {none} -o jsonl")).exits(0));
        assert!(listed > mixed::ENTRIES, "{listed}");
        schema.fits(
            "ls",
            &ctk_line(&format!("ls {none} --limit 50 -o json"))
                .exits(0)
                .json(),
        );
        let top = |by: &str| ctk_line(&format!("top {none} --by {by} -o json")).exits(0);
        for by in "src,dst,sport,reply-src,reply-dst,reply-sport,reply-dport,dport,proto,state,status,helper,netns,zone,mark,snat-dst".split(',') {
            schema.fits("top", &top(by).json());
        }
        let low = "--table-used 1 --half-closed 1 --lost-entries 1 --hairpin-unreplied 1";
        let doctor = ctk_line(&format!("doctor {none} --sample 0 {low} -o json")).json();
        assert!(doctor["items"].as_array().unwrap().len() > 1, "{doctor}");
        schema.fits("doctor", &doctor);
        schema.fits("stat_absolute", &ctk_line("stat --per-cpu -o json").json());
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
        // Some entries cannot be restored, and their lines say so.
        let back = ctk(["restore", "--yes", "-o", "json", file.to_str().unwrap()]);
        schema.fits("restore", &back.json());
    });
}

#[test]
fn output_of_repeating_commands_fits_the_schema() {
    private_netns(|| {
        let lab = Lab::new(Proxy::Iptables);
        lab.set_endpoints(&BACKENDS);
        sysctl("acct", "1");
        lab.client_of_each();
        let file = lab::cluster(&BACKENDS);
        let cluster = file.path();
        let mut schema = Schema::new();
        let nothing = || ();
        let second = std::cell::Cell::new(0);
        let third = |_: &Value| second.replace(second.get() + 1) == 2;
        let stat = "stat --interval 200ms --per-cpu -o jsonl";
        schema.lines_until("stat_record", stat, nothing, third);
        let top = format!("top --interval 1s --by client --cluster {cluster} -o jsonl");
        second.set(0);
        schema.lines_until("group_line", &top, nothing, third);
        let doctor = format!("doctor --watch 1s --sample 0 --cluster {cluster} -o jsonl");
        second.set(0);
        schema.lines_until("finding_line", &doctor, nothing, third);
        let watch = format!("watch --cluster {cluster} --for 60s -o jsonl");
        // The rules are read at the first look: a change before that is not recorded.
        let move_on = || {
            std::thread::sleep(std::time::Duration::from_secs(5));
            lab.set_endpoints(&BACKENDS[..1]);
        };
        let wanted = |record: &Value| record["type"] == "endpoint" && record["change"] == "gone";
        schema.lines_until("record", &watch, move_on, wanted);
    });
}

#[test]
fn output_of_a_node_with_rules_fits_the_schema() {
    private_netns(|| {
        for proxy in [Proxy::Iptables, Proxy::Nftables] {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let lab = Lab::new(proxy);
            lab.set_endpoints(&BACKENDS);
            sysctl("acct", "1");
            lab.client_of_each();
            let file = lab::cluster(&BACKENDS[1..]);
            let mut schema = Schema::new();
            for source in [file.path(), "rules"] {
                let ask = |command| ctk_line(&format!("{command} --cluster {source} -o json"));
                let document = ask("svc kube-dns").json();
                let ways = document["new_packets"].as_array().map(Vec::len);
                assert_eq!(ways, Some(BACKENDS.len()), "{document:#}");
                schema.fits("svc", &document);
                schema.fits("ls", &ask("ls").json());
                schema.fits("top", &ask("top --by svc,endpoint").json());
                schema.fits("doctor", &ask("doctor --sample 0").json());
            }
        }
    });
}

#[test]
fn the_schema_rejects_unknown_fields_and_values() {
    if !has_namespaces("schema") {
        return;
    }
    let mut schema = Schema::new();
    let items = ctk_line("demo -- ls --svc kube-dns --limit 1 -o jsonl")
        .exits(0)
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
    for (command, definition, place) in [
        ("top --by svc", "top", "/items/0/count"),
        ("svc kube-dns", "svc", "/endpoints/0/open"),
        ("svc kube-dns", "svc", "/skew/reason"),
        ("stat", "stat_absolute", "/counters/drop"),
        ("doctor --sample 0", "doctor", "/items/0/severity"),
    ] {
        let document = ctk_line(&format!("demo -- {command} -o json")).json();
        schema.fits(definition, &document);
        let mut wrong = document.clone();
        *wrong.pointer_mut(place).unwrap() = "many".into();
        assert!(schema.refuses(definition, &wrong), "{command}: {place}");
        let mut wrong = document;
        wrong["surprise"] = 1.into();
        assert!(schema.refuses(definition, &wrong), "{command}: {wrong}");
    }
}
