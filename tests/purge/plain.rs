//! Purges for operators without Kubernetes, and selectors that must not reach further than they say.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::{at_once, cluster, new_node};
use testkit::ctk_binary::ctk;
use testkit::private_netns::private_netns;
use testkit::rows::Rows;
use testkit::tools::nft;

/// Purges a table of these rows once for each line of arguments, and compares what is left.
#[track_caller]
fn purges(rows: &[&str], purges: &[(&str, &[usize])]) {
    for (line, left) in purges {
        new_node();
        let rows = Rows::insert(rows);
        let mut args = vec!["purge", "--yes", "--verify", "0", "--cluster", "none"];
        args.extend(line.split_whitespace());
        let said = ctk(&args).exits(0);
        assert_eq!(rows.left(), *left, "{line}: {said:#?}");
    }
}

const SIP: &[&str] = &[
    "udp 17 29 src=10.0.0.1 dst=203.0.113.5 sport=5060 dport=5060 [UNREPLIED] src=203.0.113.5 dst=10.0.0.1 sport=5060 dport=5060",
    "udp 17 29 src=10.0.0.2 dst=203.0.113.5 sport=5060 dport=5060 src=203.0.113.5 dst=10.0.0.2 sport=5060 dport=5060 [ASSURED]",
    "udp 17 29 src=10.0.0.3 dst=203.0.113.5 sport=5060 dport=5060 src=203.0.113.5 dst=10.0.0.3 sport=5060 dport=5060",
    "udp 17 29 src=10.0.1.1 dst=203.0.113.5 sport=5060 dport=5060 [UNREPLIED] src=203.0.113.5 dst=10.0.1.1 sport=5060 dport=5060",
    "udp 17 29 src=10.0.0.4 dst=203.0.113.5 sport=5060 dport=5061 [UNREPLIED] src=203.0.113.5 dst=10.0.0.4 sport=5061 dport=5060",
    "tcp 6 100 SYN_SENT src=10.0.0.5 dst=203.0.113.5 sport=4000 dport=5060 [UNREPLIED] src=203.0.113.5 dst=10.0.0.5 sport=5060 dport=4000",
    "tcp 6 100 ESTABLISHED src=10.0.0.6 dst=203.0.113.5 sport=4000 dport=5060 src=203.0.113.5 dst=10.0.0.6 sport=5060 dport=4000 [ASSURED]",
    "icmp 1 29 src=10.0.0.7 dst=203.0.113.5 type=8 code=0 id=7 [UNREPLIED] src=203.0.113.5 dst=10.0.0.7 type=0 code=0 id=7",
    "udp 17 29 src=fd00::1 dst=fd00::2 sport=5060 dport=5060 [UNREPLIED] src=fd00::2 dst=fd00::1 sport=5060 dport=5060",
];

#[test]
fn plain_selectors_take_what_they_name_and_nothing_else() {
    private_netns(|| {
        purges(
            SIP,
            &[
                (
                    "--udp 5060 --src 10.0.0.0/24 --unreplied",
                    &[2, 3, 4, 5, 6, 7, 8, 9],
                ),
                // `conntrack -D -p udp -u UNREPLIED` takes assured ones, too.
                ("--udp --unreplied", &[2, 3, 6, 7, 8]),
                ("--udp --assured", &[1, 3, 4, 5, 6, 7, 8, 9]),
                ("--status !assured --udp", &[2, 6, 7, 8]),
                ("--src !10.0.0.1 --src !10.0.1.1", &[1, 4]),
                ("--src !10.0.0.0/24 --src !10.0.1.1 -4", &SIP_ALL),
                ("--src !10.0.0.0/24,10.0.1.1 -4", &SIP_ALL),
                (
                    "--src 10.0.0.1,10.0.0.2 --src !10.0.0.1",
                    &[1, 3, 4, 5, 6, 7, 8, 9],
                ),
                ("--packets <2", &SIP_ALL),
                ("--packets !>=2", &SIP_ALL),
                ("--bytes <1G", &SIP_ALL),
                ("--icmp", &[1, 2, 3, 4, 5, 6, 7, 9]),
                ("--tcp --state syn_sent", &[1, 2, 3, 4, 5, 7, 8, 9]),
                ("-6", &[1, 2, 3, 4, 5, 6, 7, 8]),
                ("--label 1", &SIP_ALL),
                ("--udp 53", &SIP_ALL),
                ("--all", &[]),
            ],
        );
    });
}

const SIP_ALL: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

#[test]
fn an_address_that_is_used_again_is_found_in_both_directions() {
    private_netns(|| {
        purges(
            &[
                "tcp 6 86000 ESTABLISHED src=10.13.1.2 dst=203.0.113.1 sport=1000 dport=443 src=203.0.113.1 dst=192.0.2.5 sport=443 dport=1000 [ASSURED] mark=0 use=1",
                "tcp 6 86000 ESTABLISHED src=198.51.100.1 dst=192.0.2.5 sport=2000 dport=2222 src=10.13.1.2 dst=198.51.100.1 sport=22 dport=2000 [ASSURED] mark=0 use=1",
                "tcp 6 86000 ESTABLISHED src=10.13.1.20 dst=203.0.113.1 sport=1001 dport=443 src=203.0.113.1 dst=192.0.2.5 sport=443 dport=1001 [ASSURED] mark=0 use=1",
            ],
            &[
                ("--ip 10.13.1.2", &[3]),
                ("--ip !10.13.1.2", &[1, 2]),
                ("--src 10.13.1.2", &[2, 3]),
                ("--dst 10.13.1.2", &[1, 2, 3]),
                ("--reply-src 10.13.1.2", &[1, 3]),
                ("--reply-dst 10.13.1.2", &[1, 2, 3]),
            ],
        );
    });
}

#[test]
fn a_label_is_not_in_what_has_none() {
    const LABELLED: &[&str] = &[
        "tcp 6 300 ESTABLISHED src=10.244.0.5 dst=203.0.113.9 sport=1 dport=443 src=203.0.113.9 dst=10.244.0.5 sport=443 dport=1 [ASSURED] mark=0 zone=7 labels=0x00000000020a0afe00000000 use=1",
        "tcp 6 300 ESTABLISHED src=10.244.0.5 dst=203.0.113.9 sport=2 dport=443 src=203.0.113.9 dst=10.244.0.5 sport=443 dport=2 [ASSURED] mark=0 zone=7 use=1",
    ];
    const VALUE: &str = "0x00000000020a0afe00000000";
    private_netns(|| {
        for (label, left) in [
            (VALUE, &[2][..]),
            ("0x1", &[1, 2]),
            // Row 2 has no labels, so it has no other ones either.
            (&format!("!{VALUE}"), &[1, 2]),
        ] {
            new_node();
            nft("table inet t { chain c { type filter hook input priority 0; ct label set 1; }; }");
            let rows = Rows::insert(LABELLED);
            let args = ["purge", "--yes", "--verify", "0", "--cluster", "none"];
            let said = ctk(args.into_iter().chain(["--label", label])).exits(0);
            assert_eq!(rows.left(), left, "{label}: {said:?}");
        }
    });
}

#[test]
fn a_negated_verdict_does_not_select_undecided_entries() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(&[
            // ok, stale, no frontend, another zone, link-local, and another Service's port.
            "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40001 dport=53 src=10.244.2.30 dst=10.244.1.5 sport=53 dport=40001 [ASSURED]",
            "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40002 dport=53 src=10.244.2.9 dst=10.244.1.5 sport=53 dport=40002 [ASSURED]",
            "udp 17 29 src=10.244.1.5 dst=203.0.113.9 sport=40003 dport=53 src=203.0.113.9 dst=192.0.2.11 sport=53 dport=40003 [ASSURED]",
            "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40004 dport=53 src=10.244.2.9 dst=10.244.1.5 sport=53 dport=40004 [ASSURED] zone=5",
            "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40005 dport=53 src=169.254.0.252 dst=10.244.1.5 sport=53 dport=40005 [ASSURED]",
            "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40006 dport=9999 [UNREPLIED] src=10.96.0.10 dst=10.244.1.5 sport=9999 dport=40006",
        ]);
        let file = cluster(&[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
        ]);
        for line in [
            "--verdict !stale",
            "--verdict !ok,stale",
            "--reason !endpoint-gone",
        ] {
            // Entries that are not stale here are ok or undecided. A purge takes the verdict ok where it is selected.
            let said = ctk(at_once(&file, &format!("{line} --verdict !ok"))).exits(0);
            rows.assert_untouched((line, said));
        }
        let said = ctk(at_once(&file, "--verdict !ok")).exits(0);
        assert_eq!(rows.left(), [1, 3, 4, 5, 6], "{said:?}");
    });
}

#[test]
fn a_broad_purge_says_how_many_before_it_deletes() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(SIP);
        let args = ["purge", "-p", "udp", "--yes", "--verify", "0"];
        let said = ctk(args.into_iter().chain(["--cluster", "none"])).exits(0);
        let deleting = said.stderr.find("ctk: deleting 6 entries");
        let deleted = said.stderr.find("ctk: 6 of 6 entries deleted");
        assert!(deleting.is_some() && deleting < deleted, "{said:?}");
        assert_eq!(rows.left(), [6, 7, 8]);
    });
}

#[test]
fn a_flow_that_is_back_at_once_is_told_and_counted_without_a_cluster() {
    private_netns(|| {
        new_node();
        // Connection tracking is on where a rule needs it.
        nft("table ip t { chain c { type filter hook output priority 0; ct state new accept; }; }");
        let socket = UdpSocket::bind("127.0.0.1:4000").unwrap();
        // Nobody listens on port 9: the answer is an ICMP error.
        let send = || drop(socket.send_to(b"x", "127.0.0.1:9"));
        send();
        let stop = AtomicBool::new(false);
        let said = thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    send();
                    thread::sleep(Duration::from_millis(50));
                }
            });
            let args = "purge --udp 9 --yes --cluster none --verify 500ms -o json";
            let said = ctk(args.split_whitespace());
            stop.store(true, Ordering::Relaxed);
            said
        });
        let said = said.exits(3);
        assert!(
            said.stderr.contains("came back to the same endpoint"),
            "{said:?}"
        );
        let summary = &said.json()["summary"];
        assert_eq!(
            (&summary["deleted"], &summary["came_back"]),
            (&json!(1), &json!(1))
        );
    });
}
