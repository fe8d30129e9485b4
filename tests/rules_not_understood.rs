//! Rules of kube-proxy in a form that no version writes: each command reports that it does not know, ends with 3, and
//! deletes nothing.

use testkit::ctk_binary::ctk_line;
use testkit::lab::{BACKENDS, add_node_address, cluster};
use testkit::private_netns::private_netns;
use testkit::tools::{Outcome, nft, run};

/// kube-dns with two endpoints, chosen by a hash of the client's address, which kube-proxy never did, and another Service
/// in a known form.
const RULES: &str = "table ip kube-proxy {
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
    chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain service-NWBZK7IH-kube-system/kube-dns/udp/dns {
        meta l4proto udp dnat ip addr . port to jhash ip saddr mod 2 map { 0 : 10.244.1.7 . 53, 1 : 10.244.2.33 . 53 }
    }
    chain service-TWN6R7T6-net/sflow/udp/p {
        meta l4proto udp dnat ip addr . port to numgen random mod 1 map { 0 : 10.244.1.8 . 6343 }
    }
}
add element ip kube-proxy service-ips { 10.96.0.10 . udp . 53 : goto service-NWBZK7IH-kube-system/kube-dns/udp/dns }
add element ip kube-proxy service-ips { 10.96.0.20 . udp . 6343 : goto service-TWN6R7T6-net/sflow/udp/p }
";

/// Table with kube-proxy's name but none of its structure.
const OTHER_TABLE: &str = "table ip kube-proxy {
    map frontends { type ipv4_addr . inet_proto . inet_service : verdict; }
    chain to-dns { meta l4proto udp dnat to 10.244.1.7:53; }
    chain nat-output { type nat hook output priority -100; ip daddr . meta l4proto . th dport vmap @frontends; }
}
add element ip kube-proxy frontends { 10.96.0.10 . udp . 53 : goto to-dns }
";

/// Entry of a client of kube-dns to an address that the rules list, or do not.
fn entry(port: u16, to: &str) {
    let line = format!(
        "-I -p udp -t 100 -s 10.244.1.5 --sport {port} -d 10.96.0.10 --dport 53 -r {to} --reply-port-src 53 -q 10.244.1.5 \
         --reply-port-dst {port} -u SEEN_REPLY,ASSURED"
    );
    run("conntrack", &line.split_whitespace().collect::<Vec<_>>());
}

fn node(rules: &str) {
    add_node_address();
    nft(rules);
    entry(40_001, "10.244.1.7");
    entry(40_002, "10.244.1.99");
}

/// Namespace for one of several trials.
fn fresh() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
}

fn says(outcome: &Outcome, parts: &[&str]) {
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?} in {outcome:?}");
    }
}

#[test]
fn entries_of_a_service_whose_rule_is_not_understood_are_unknown_and_the_status_is_3() {
    private_netns(|| {
        node(RULES);
        for command in [
            "ls --stale",
            "ls",
            "ls --svc kube-dns",
            "top --by svc",
            "ls --verdict suspect",
        ] {
            let outcome = ctk_line(&format!("{command} --cluster rules -o json")).exits(3);
            says(
                &outcome,
                &[
                    "1 rule of kube-proxy on this node has a form that is not understood",
                    "2 entries are not judged, because some rules of this node are not understood",
                ],
            );
            let rules = &outcome.json()["summary"]["cluster"]["rules"];
            assert_eq!(rules["not_understood"], 1, "{outcome:?}");
        }
        let outcome = ctk_line("ls --cluster rules -o json").exits(3);
        for item in outcome.items() {
            assert_eq!(item["verdict"], "unknown", "{item}");
            assert_eq!(item["service"]["name"], "kube-dns", "{item}");
        }
    });
}

#[test]
fn a_service_outside_the_unknown_rule_is_judged() {
    private_netns(|| {
        node(RULES);
        let outcome = ctk_line("ls --svc sflow --cluster rules -o json").exits(0);
        assert!(outcome.items().is_empty());
        let report = ctk_line("svc sflow --cluster rules -o json")
            .exits(0)
            .json();
        assert_eq!(report["endpoints"][0]["address"], "10.244.1.8", "{report}");
        assert_eq!(report["summary"]["endpoints_complete"], true);
    });
}

#[test]
fn svc_does_not_report_zero_endpoints_for_an_unknown_rule() {
    private_netns(|| {
        node(RULES);
        let outcome = ctk_line("svc kube-dns --cluster rules").exits(3);
        assert!(
            outcome.stdout.contains("endpoints are not known"),
            "{outcome:?}"
        );
        assert!(
            outcome.stdout.contains("a rule of it is not understood"),
            "{outcome:?}"
        );
        assert!(!outcome.stdout.contains("no endpoints"), "{outcome:?}");
        assert!(
            !outcome.stdout.contains("no rule that translates"),
            "{outcome:?}"
        );
        let report = ctk_line("svc kube-dns --cluster rules -o json")
            .exits(3)
            .json();
        assert_eq!(report["summary"]["endpoints_complete"], false, "{report}");
    });
}

#[test]
fn a_table_of_an_unknown_form_is_not_taken_for_an_absent_one() {
    private_netns(|| {
        node(OTHER_TABLE);
        for command in [
            "ls --stale",
            "ls --svc kube-dns",
            "purge --stale --yes",
            "purge --svc kube-dns --yes",
        ] {
            let outcome = ctk_line(&format!("{command} --cluster rules")).exits(3);
            says(&outcome, &["not understood"]);
            assert!(
                outcome.stdout.lines().count() <= 1,
                "no entry is listed: {outcome:?}"
            );
        }
        let outcome = ctk_line("ls --cluster rules -o json").exits(3);
        assert_eq!(outcome.items().len(), 2);
        for item in outcome.items() {
            assert_eq!(item["reason"], "source-incomplete", "{item}");
        }
    });
}

#[test]
fn watch_notes_that_it_cannot_follow_these_endpoints() {
    private_netns(|| {
        node(RULES);
        let file = cluster(&BACKENDS);
        let outcome = ctk_line(&format!("watch --for 1500ms --cluster {}", file.path())).exits(0);
        says(
            &outcome,
            &["1 rule of kube-proxy on this node has a form that is not understood"],
        );
        says(&outcome, &["changes of their endpoints are not shown"]);
    });
}

#[test]
fn purge_deletes_nothing_by_a_verdict_that_depends_on_an_unknown_rule() {
    private_netns(|| {
        node(RULES);
        for flags in ["--stale", "--stale --include suspect", "--reason no-dnat"] {
            let outcome =
                ctk_line(&format!("purge {flags} --yes --cluster rules -o json")).exits(3);
            says(&outcome, &["not understood"]);
            assert_eq!(outcome.json()["summary"]["deleted"], 0, "{outcome:?}");
        }
        assert_eq!(
            ctk_line("ls --cluster none -o json").exits(0).items().len(),
            2
        );
    });
}

#[test]
fn purge_by_a_file_leaves_entries_of_unknown_age_and_names_the_reason() {
    private_netns(|| {
        node(RULES);
        let file = cluster(&BACKENDS);
        for flags in ["--yes --settle 0 --verify 0", "--dry-run"] {
            let line = format!("purge --stale {flags} -o json --cluster {}", file.path());
            let outcome = ctk_line(&line).exits(3);
            says(
                &outcome,
                &["1 entry is left: whether this node's rules lead to its endpoint is not known"],
            );
            assert!(
                !outcome.stderr.contains("rules lead to its endpoint,"),
                "{outcome:?}"
            );
            assert_eq!(outcome.json()["summary"]["changed"], 1, "{outcome:?}");
        }
        assert_eq!(
            ctk_line("ls --cluster none -o json").exits(0).items().len(),
            2
        );
    });
}

#[test]
fn an_entry_that_was_never_translated_is_left_where_the_rules_may_translate_or_not() {
    private_netns(|| {
        for rules in [RULES, OTHER_TABLE] {
            fresh();
            add_node_address();
            nft(rules);
            entry(40_003, "10.96.0.10");
            let file = cluster(&BACKENDS);
            for flags in ["--yes --settle 0 --verify 0", "--dry-run"] {
                let line = format!("purge --stale {flags} -o json --cluster {}", file.path());
                let outcome = ctk_line(&line).exits(3);
                says(&outcome, &["1 entry is not judged and left"]);
                assert_eq!(outcome.json()["summary"]["matched"], 0, "{outcome:?}");
            }
            assert_eq!(
                ctk_line("ls --cluster none -o json").exits(0).items().len(),
                1
            );
        }
    });
}

#[test]
fn doctor_warns_of_rules_of_an_unknown_form_and_names_the_number() {
    private_netns(|| {
        for (rules, number) in [(RULES, 1), (OTHER_TABLE, 2)] {
            fresh();
            node(rules);
            let outcome = ctk_line("doctor --sample 0 --cluster rules -o json").exits(3);
            let items = outcome.items();
            let found: Vec<_> = items
                .iter()
                .filter(|item| item["check"] == "rules-not-understood")
                .collect();
            let [finding] = found[..] else {
                panic!("{outcome:?}")
            };
            assert_eq!(finding["severity"], "warning");
            assert_eq!(finding["evidence"]["not_understood"], number, "{finding}");
        }
    });
}
