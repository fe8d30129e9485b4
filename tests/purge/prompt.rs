//! Prompt on a terminal.

use crate::started::Seated;
use crate::{cluster, new_node};
use testkit::private_netns::private_netns;
use testkit::rows::Rows;

const ROWS: &[&str] = &[
    "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40001 dport=53 src=10.244.2.9 dst=10.244.1.5 sport=53 dport=40001 [ASSURED]",
    "udp 17 29 src=10.244.1.6 dst=10.96.0.10 sport=40002 dport=53 [UNREPLIED] src=10.244.2.9 dst=10.244.1.6 sport=53 dport=40002",
    "udp 17 29 src=10.244.1.7 dst=10.96.0.10 sport=40003 dport=53 src=10.244.2.30 dst=10.244.1.7 sport=53 dport=40003 [ASSURED]",
];
const DNS: &[&str] = &[
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
    "pod shop/web-1 10.244.1.5 @node1",
];

#[test]
fn only_a_yes_deletes() {
    private_netns(|| {
        for (answer, status, left) in [
            ("n\n", 1, &[1, 2, 3][..]),
            ("\n", 1, &[1, 2, 3]),
            ("yeah\n", 1, &[1, 2, 3]),
            // Control-D ends the input.
            ("\u{4}", 1, &[1, 2, 3]),
            ("y\n", 0, &[3]),
            ("YES\n", 0, &[3]),
        ] {
            new_node();
            let rows = Rows::insert(ROWS);
            let file = cluster(DNS);
            let mut args = vec!["purge", "--stale", "--cluster", file.path()];
            args.extend(["--settle", "0", "--verify", "0", "-o", "jsonl"]);
            let mut purge = Seated::new(&args);
            let shown = purge.wait_for("Delete these 2 entries? [y/N] ");
            for word in [
                "CLIENT",
                "SERVICE",
                "VERDICT",
                "shop/web-1:40001",
                "kube-system/kube-dns:dns",
                "10.244.2.9:53 (gone)",
                "endpoint-gone",
                "40002",
            ] {
                assert!(shown.contains(word), "{word}: {shown}");
            }
            assert!(!shown.contains("40003"), "{shown}");
            rows.assert_untouched("before the answer");
            purge.answer(answer);
            let outcome = purge.finish();
            assert_eq!(outcome.status, Some(status), "{answer:?}: {outcome:?}");
            assert_eq!(rows.left(), left, "{answer:?}: {outcome:?}");
            let deleted = ROWS.len() - left.len();
            assert_eq!(
                outcome.stdout.lines().count(),
                deleted,
                "stdout has data only"
            );
            if status == 1 {
                assert!(outcome.stderr.contains("not confirmed"), "{outcome:?}");
            } else {
                assert!(
                    outcome.stderr.contains("2 of 2 entries deleted"),
                    "{outcome:?}"
                );
            }
        }
    });
}

#[test]
fn a_purge_of_all_asks_and_a_set_above_the_maximum_is_refused_without_a_prompt() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let args = ["purge", "--all", "--cluster", "none", "--verify", "0"];
        let mut purge = Seated::new(&args);
        purge.wait_for("Delete these 3 entries? [y/N] ");
        purge.answer("n\n");
        assert_eq!(purge.finish().status, Some(1));
        let args = ["purge", "--all", "--cluster", "none", "--max", "2"];
        let outcome = Seated::new(&args).finish();
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(!outcome.stderr.contains("[y/N]"), "{outcome:?}");
        rows.assert_untouched(outcome);
        let args = ["purge", "--all", "--cluster", "none", "--dry-run"];
        let outcome = Seated::new(&args).finish();
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(!outcome.stderr.contains("[y/N]"), "{outcome:?}");
        rows.assert_untouched(outcome);
    });
}
