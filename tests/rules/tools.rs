//! Choice of the tools that print rules, and their errors.

use testkit::ctk_binary::{ctk, ctk_command, ctk_line, readable_binary};
use testkit::lab::cluster::{ClusterFile, minimal, service, slice};
use testkit::lab::{NODE, add_node_address};
use testkit::private_netns::private_netns;
use testkit::tools::{LoggedTools, Outcome, as_nobody, assert_error, nft, run, run_with, succeeds};

use crate::{ASSURED, UNREPLIED, address, entry, expected, fresh, verdict, verdicts};

#[test]
fn a_missing_tool_and_a_missing_privilege_are_named() {
    private_netns(|| {
        fresh();
        let (_folder, binary) = readable_binary();
        let mut command = as_nobody(&binary, &["ls", "--cluster", "rules"]);
        let outcome = Outcome::of(command.output().unwrap());
        // Root of a user namespace cannot become another user.
        if std::env::var_os("CTK_TEST_INSIDE_UNSHARE").is_none() {
            assert_error(&outcome, 4, &["refused", "CAP_NET_ADMIN"]);
        }
        let outcome = ctk_line("ls --cluster rules").exits(0);
        assert!(
            outcome
                .stderr
                .contains("none that translates a destination"),
            "{outcome:?}"
        );
    });
}

/// Rules of kube-dns with one endpoint, as kube-proxy writes them.
fn kube_dns(endpoint: &str) -> String {
    format!(
        "*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/kube-dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-A
-A KUBE-SVC-A -j KUBE-SEP-A
-A KUBE-SEP-A -p udp -m udp -j DNAT --to-destination {endpoint}
COMMIT
"
    )
}

#[test]
fn kube_proxys_rules_in_both_flavours_of_iptables_are_reported() {
    private_netns(|| {
        fresh();
        address("lo", "192.0.2.11/32");
        entry("10.244.1.5:40000 10.96.0.10:53 10.244.1.7:53", ASSURED);
        entry("10.244.1.5:40001 10.96.0.10:53 10.244.1.8:53", ASSURED);
        run_with(
            "iptables-nft-restore",
            &["--noflush"],
            &kube_dns("10.244.1.7:53"),
        );
        let told = "both flavours of iptables hold kube-proxy's rules (nft and legacy)";
        let outcome = ctk_line("ls --cluster rules -o json").exits(0);
        assert!(!outcome.stderr.contains(told), "{outcome:?}");
        if !succeeds("iptables-legacy-save", &["-t", "nat"]) {
            eprintln!("skipped: this kernel has no iptables-legacy");
            return;
        }
        // An empty table of the other flavour does not count.
        let outcome = ctk_line("ls --cluster rules -o json").exits(0);
        assert!(!outcome.stderr.contains(told), "{outcome:?}");
        run_with(
            "iptables-legacy-restore",
            &["--noflush"],
            &kube_dns("10.244.1.8:53"),
        );
        let outcome = ctk_line("ls --cluster rules -o json").exits(0);
        assert!(outcome.stderr.contains(told), "{outcome:?}");
        // Both are in force, so new flows may go to either.
        assert_eq!(
            verdicts("--cluster rules"),
            expected(&[(40_000, "ok endpoint"), (40_001, "ok endpoint")])
        );
        // Only the remaining flavour holds rules.
        run("iptables-nft", &["-t", "nat", "-F"]);
        run("iptables-nft", &["-t", "nat", "-X"]);
        let outcome = ctk_line("ls --cluster rules -o json").exits(0);
        assert!(!outcome.stderr.contains(told), "{outcome:?}");
        assert_eq!(
            verdicts("--cluster rules"),
            expected(&[
                (40_000, "suspect not-in-node-rules"),
                (40_001, "ok endpoint")
            ])
        );
    });
}

#[test]
fn with_ipvs_a_note_says_that_ipvs_may_recreate_the_entry() {
    private_netns(|| {
        fresh();
        add_node_address();
        entry(
            "192.0.2.19:45117 10.96.127.9:514 10.244.129.16:514",
            UNREPLIED,
        );
        let mut objects = minimal(NODE);
        objects.push(service("log", "syslog", "10.96.127.9", &[("", 514, "UDP")]));
        objects.push(slice(
            "log",
            "syslog",
            &[("", 514, "UDP")],
            &[("10.244.128.3", "")],
        ));
        let file = ClusterFile::of(&objects);
        let note = "IPVS mode: the IPVS connection entry may re-create these";
        for ipvs in [false, true] {
            if ipvs {
                address("kube-ipvs0", "10.96.127.9/32");
            }
            let list = ["ls", "--cluster", file.path(), "-o", "json"];
            let purge = [
                "purge",
                "--cluster",
                file.path(),
                "--stale",
                "--dry-run",
                "-o",
                "json",
            ];
            for args in [&list[..], &purge[..]] {
                let outcome = ctk(args).exits(0);
                assert_eq!(verdict(&outcome.items()[0]).1, "stale endpoint-gone");
                assert_eq!(outcome.stderr.contains(note), ipvs, "{args:?} {outcome:?}");
                assert_eq!(outcome.json()["summary"]["cluster"]["ipvs"], ipvs);
            }
        }
    });
}

#[test]
fn no_tool_is_run_where_the_namespace_holds_no_rules() {
    private_netns(|| {
        fresh();
        let tools = LoggedTools::new();
        let ls = || {
            let mut command = ctk_command(["ls"]);
            Outcome::of(command.env("PATH", tools.path()).output().unwrap()).exits(0)
        };
        ls();
        // A table of another family translates nothing.
        nft("table bridge b { }");
        ls();
        assert_eq!(tools.runs(), [""; 0]);
        nft("table inet b { }");
        ls();
        assert!(!tools.runs().is_empty());
    });
}

#[test]
fn nft_is_run_only_for_tables_that_iptables_did_not_write() {
    private_netns(|| {
        fresh();
        let tools = LoggedTools::new();
        let of_nft = || {
            let runs = tools.runs().into_iter();
            runs.filter(|run| run.starts_with("nft "))
                .collect::<Vec<_>>()
        };
        let frontends = || {
            let mut command = ctk_command(["ls", "--cluster", "rules", "-o", "json"]);
            let outcome = Outcome::of(command.env("PATH", tools.path()).output().unwrap());
            outcome.exits(0).json()["summary"]["cluster"]["rules"]["frontends"].clone()
        };
        run_with("iptables-nft-restore", &[], &kube_dns("10.244.1.7:53"));
        assert_eq!(frontends(), 1);
        assert_eq!(of_nft(), [""; 0]);
        nft("table netdev n { }\ntable ip6 other { }\ntable inet other { }");
        assert_eq!(frontends(), 1);
        let mut runs = of_nft();
        runs.sort();
        assert_eq!(
            runs,
            [
                "nft -j list table inet other",
                "nft -j list table ip6 other"
            ]
        );
    });
}
