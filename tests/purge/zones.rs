//! Entries with one tuple in several zones are several entries.

use crate::{at_once, cluster, new_node};
use testkit::ctk_binary::ctk;
use testkit::private_netns::private_netns;
use testkit::rows::Rows;

fn twin(zone: &str) -> String {
    format!(
        "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40001 dport=53 src=10.244.2.9 dst=10.244.1.5 sport=53 dport=40001 [ASSURED] {zone}"
    )
}

#[test]
fn twins_in_other_zones_stay() {
    private_netns(|| {
        for (line, left) in [
            ("--zone 12", &[1, 3][..]),
            ("--zone 0", &[2, 3]),
            ("--zone !12", &[2]),
            ("--zone 12,13", &[1]),
            ("--ip 10.244.2.9", &[]),
        ] {
            new_node();
            let rows = Rows::insert(&[twin(""), twin("zone=12"), twin("zone=13")]);
            let mut args = vec!["purge", "--yes", "--verify", "0", "--cluster", "none"];
            args.extend(line.split_whitespace());
            let said = ctk(&args).exits(0);
            assert_eq!(rows.left(), left, "{line}: {said:?}");
        }
    });
}

#[test]
fn stale_twins_go_only_from_the_zone_that_is_named() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(&[twin(""), twin("zone=12"), twin("zone=13")]);
        let file = cluster(&[
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
            "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
        ]);
        let said = ctk(at_once(&file, "--stale")).exits(0);
        assert_eq!(rows.left(), [2, 3], "{said:?}");
        let held = "2 entries held back (foreign-zone): --zone N";
        assert!(said.stderr.contains(held), "{said:?}");
        ctk(at_once(&file, "--stale --zone 13")).exits(0);
        assert_eq!(rows.left(), [2]);
    });
}

#[test]
fn a_zone_of_one_direction_is_purged_like_any_other() {
    private_netns(|| {
        // Two flows for each direction: the one that is purged, and one beside it.
        let flow = |port: u16, zone: &str| {
            format!(
                "udp 17 29 src=10.244.1.5 dst=203.0.113.9 sport={port} dport=53 src=203.0.113.9 dst=192.0.2.11 sport=53 dport={port} [ASSURED] {zone}"
            )
        };
        let lines = [
            flow(1, "zone-orig=14"),
            flow(2, "zone-orig=14"),
            flow(3, "zone-reply=15"),
            flow(4, "zone-reply=15"),
            flow(5, ""),
        ];
        for (line, left) in [
            ("--zone 14 --sport 1", &[2, 3, 4, 5][..]),
            ("--zone 15 --sport 3", &[1, 2, 4, 5]),
            ("--zone 14,15", &[5]),
            ("--zone 0", &[1, 2, 3, 4]),
            ("--sport 1-5", &[]),
            // Second looks go by the original tuple, which is in a zone of its own.
            ("--assured", &[]),
        ] {
            new_node();
            let rows = Rows::insert(&lines);
            let mut args = vec!["purge", "--yes", "--verify", "0", "--cluster", "none"];
            args.extend(["-o", "json"]);
            args.extend(line.split_whitespace());
            let said = ctk(&args).exits(0);
            assert_eq!(rows.left(), left, "{line}: {said:?}");
            let summary = &said.json()["summary"];
            assert_eq!(summary["deleted"], lines.len() - left.len(), "{summary}");
        }
    });
}
