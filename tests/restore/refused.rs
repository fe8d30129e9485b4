//! Inputs that are refused, and entries that fail.

use ctnetlink::flow::{Flow, ProtocolState};
use serde_json::{Value, json};
use testkit::ctk_binary::ctk_line;
use testkit::mixed::{REPLIED, insert, plain, ports, tuple};
use testkit::private_netns::private_netns;

use crate::{
    Folder, RestoreOutcome as _, changed, delete_all, dump, purged, restore, restore_stdin, saved,
    udp,
};

#[test]
fn an_input_with_one_error_is_refused_as_a_whole() {
    private_netns(|| {
        let flows: Vec<Flow> = (1..=300).map(udp).collect();
        let lines = purged(&flows);
        let without = changed(&lines, 280, |item| {
            item.as_object_mut().unwrap().remove("result");
        });
        let null = changed(&lines, 1, |item| item["result"] = Value::Null);
        let port = changed(&lines, 280, |item| {
            item["original"]["sport"] = json!(99_999)
        });
        // Skipped items must be readable, too.
        let skipped = changed(&lines, 1, |item| {
            item["result"] = json!("failed");
            item["reply"]["src"] = json!("nowhere");
        });
        let cut = &lines[..lines.len() - 100];
        let listing = ctk_line("ls --cluster none -o json").exits(0).stdout;
        let foreign = listing.replace("ctk/v1", "ctk/v9");
        let listed = format!(
            "{{\"schema\":\"ctk/v1\",\"items\":[{}]}}",
            without.lines().nth(280).unwrap()
        );
        let folder = Folder::new();
        for (text, code, words) in [
            (without.as_str(), 2, &["line 281", "no result", "hint:"][..]),
            (&null, 2, &["line 2:", "no result"]),
            (&port, 1, &["line 281: original.sport", "99999"]),
            (&skipped, 1, &["line 2: reply.src"]),
            (cut, 1, &["line 300", "cut short", "hint:"]),
            (&format!("{lines}oops\n"), 1, &["line 301"]),
            (&listed, 2, &["no result"]),
            (&foreign, 2, &["ctk/v9", "ctk/v1", "hint:"]),
            ("udp 17 29 src=10.0.0.1\n", 2, &["line 1", "ctk purge"]),
        ] {
            let file = folder.file(text);
            restore(&["--yes"], &file).refused(code, words);
            restore(&["--dry-run"], &file).refused(code, words);
            restore_stdin(&["--yes", "-"], text).refused(code, words);
            assert_eq!(dump(), []);
        }
        let missing = folder.0.path().join("missing");
        restore(&["--yes"], &missing).refused(1, &["missing", "No such file"]);
        restore(&["--yes"], folder.0.path()).refused(1, &["directory"]);
        let file = folder.file(&lines);
        restore(&["--yes", "--sort", "id"], &file).refused(2, &["--sort"]);
        restore(&["--yes", "--limit", "1"], &file).refused(2, &["--limit"]);
        restore(&["--yes", "-o", "json", "--columns", "id"], &file).refused(2, &["--columns"]);
        assert_eq!(dump(), []);
    });
}

#[test]
fn only_deleted_entries_are_restored_and_the_rest_is_counted() {
    private_netns(|| {
        let mut lines = purged(&[1, 2, 3, 4, 5, 6].map(udp));
        for (index, result) in ["already-gone", "replaced", "changed", "failed"]
            .into_iter()
            .enumerate()
        {
            lines = changed(&lines, index, |item| item["result"] = json!(result));
        }
        let ran = restore_stdin(&["--yes", "-o", "json", "-"], &lines);
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(document["schema"], "ctk/v1");
        assert_eq!(document["items"].as_array().unwrap().len(), 2);
        assert_eq!(document["items"][0]["result"], "restored");
        assert_eq!(document["items"][0]["error"], Value::Null);
        for (name, count) in [
            ("matched", 2),
            ("restored", 2),
            ("exists", 0),
            ("failed", 0),
            ("skipped", 4),
            ("shown", 2),
            ("scanned", 6),
        ] {
            assert_eq!(document["summary"][name], count, "{name}");
        }
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        for part in ["2 restored", "0 failed", "4 skipped"] {
            assert!(ran.stderr.contains(part), "{}", ran.stderr);
        }
        assert_eq!(dump().len(), 2);
        // An empty input succeeds.
        let nothing = restore_stdin(&["--yes", "-o", "json", "-"], "");
        assert_eq!(nothing.status, Some(0), "{}", nothing.stderr);
        let document: Value = serde_json::from_str(&nothing.stdout).unwrap();
        assert_eq!(document["summary"]["matched"], 0);
    });
}

#[test]
fn a_timeout_that_the_kernel_would_change_is_not_restored() {
    private_netns(|| {
        let lines = purged(&[1, 2, 3].map(udp));
        let lines = changed(&lines, 0, |item| item["timeout"] = json!(0));
        let lines = changed(&lines, 1, |item| item["timeout"] = json!(u32::MAX));
        let ran = restore_stdin(&["--yes", "-o", "json", "-"], &lines).exits(3);
        let items = ran.items();
        let results: Vec<_> = items.iter().map(|item| &item["result"]).collect();
        assert_eq!(results, ["failed", "failed", "restored"], "{ran:#?}");
        for (item, word) in items.iter().zip(["no time left", "longer than"]) {
            let error = item["error"].as_str().unwrap();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(dump().len(), 1);
    });
}

#[test]
fn a_line_with_a_schema_is_no_item() {
    private_netns(|| {
        let lines = purged(&[1].map(udp));
        // A map of serde_json is sorted, so that the schema is not the first key.
        let other = changed(&lines, 0, |item| item["schema"] = json!("ctk/v9"));
        let ran = restore_stdin(&["--yes", "-"], &other);
        assert_eq!(ran.status, Some(1), "{ran:#?}");
        assert!(ran.stderr.contains("ctk/v9"), "{ran:#?}");
        assert_eq!(dump(), []);
    });
}

#[test]
fn an_entry_that_cannot_be_restored_does_not_affect_the_others() {
    private_netns(|| {
        let mut sctp = plain(tuple(132, "10.0.0.1", "10.0.0.2", ports(1, 2)), REPLIED);
        sctp.state = Some(ProtocolState::Sctp {
            state: 4,
            vtag_original: Some(1),
            vtag_reply: Some(2),
        });
        let mut flows: Vec<Flow> = (1..=4).map(udp).collect();
        flows.push(sctp);
        insert(&flows);
        let mut lines = saved();
        let line_of =
            |lines: &str, part: &str| lines.lines().position(|l| l.contains(part)).unwrap();
        delete_all();
        let index = line_of(&lines, "\"sctp\"");
        lines = changed(&lines, index, |item| item["reply"]["vtag"] = Value::Null);
        let offloaded = line_of(&lines, "\"sport\":4,");
        lines = changed(&lines, offloaded, |item| {
            item["timeout"] = Value::Null;
            item["status"] = json!(["seen-reply", "confirmed", "offload"]);
        });
        let helped = line_of(&lines, "\"sport\":3,");
        lines = changed(&lines, helped, |item| item["helper"] = json!("no-such"));

        let dry = restore_stdin(&["--dry-run", "-o", "jsonl", "-"], &lines);
        assert_eq!(dry.status, Some(3), "{}", dry.stderr);
        assert!(
            dry.stderr.contains("3 would be restored, 2 would fail"),
            "{}",
            dry.stderr
        );
        assert_eq!(dump(), []);

        let ran = restore_stdin(&["--yes", "-o", "jsonl", "-"], &lines);
        assert_eq!(ran.status, Some(3), "{}", ran.stderr);
        let error = |index: usize| {
            let item: Value = serde_json::from_str(ran.stdout.lines().nth(index).unwrap()).unwrap();
            assert_eq!(item["result"], "failed");
            item["error"].as_str().unwrap().to_owned()
        };
        assert!(error(index).contains("tags"), "{}", error(index));
        assert!(
            error(offloaded).contains("offloaded"),
            "{}",
            error(offloaded)
        );
        assert!(error(helped).contains("no-such"), "{}", error(helped));
        assert!(
            ran.stderr.contains("2 restored, 0 exist already, 3 failed"),
            "{}",
            ran.stderr
        );
        assert_eq!(dump().len(), 2);
    });
}
