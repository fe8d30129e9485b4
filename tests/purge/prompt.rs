//! The question on a terminal.

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
fn a_yes_from_before_the_question_deletes_nothing() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let file = cluster(DNS);
        let mut args = vec!["purge", "--stale", "--cluster", file.path()];
        args.extend(["--settle", "0", "--verify", "0", "-o", "jsonl"]);
        let mut purge = Seated::new(&args);
        purge.answer("y\n");
        purge.wait_for("Delete these 2 entries? [y/N] ");
        // Time for an answer that waits to have its effect.
        std::thread::sleep(std::time::Duration::from_millis(300));
        rows.assert_untouched("before the answer");
        purge.answer("n\n");
        let said = purge.finish();
        assert_eq!(said.status, Some(1), "{said:?}");
        assert_eq!(rows.left(), [1, 2, 3], "{said:?}");
    });
}

#[test]
fn only_a_yes_deletes() {
    private_netns(|| {
        for (answer, status, left) in [
            ("n\n", 1, &[1, 2, 3][..]),
            ("\n", 1, &[1, 2, 3]),
            ("yeah\n", 1, &[1, 2, 3]),
            // Control-D: the end of the input.
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
            let said = purge.finish();
            assert_eq!(said.status, Some(status), "{answer:?}: {said:?}");
            assert_eq!(rows.left(), left, "{answer:?}: {said:?}");
            let deleted = ROWS.len() - left.len();
            assert_eq!(said.stdout.lines().count(), deleted, "stdout has data only");
            if status == 1 {
                assert!(said.stderr.contains("not confirmed"), "{said:?}");
            } else {
                assert!(said.stderr.contains("2 of 2 entries deleted"), "{said:?}");
            }
        }
    });
}

#[test]
fn all_asks_and_a_larger_set_than_allowed_is_not_even_asked_about() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let args = ["purge", "--all", "--cluster", "none", "--verify", "0"];
        let mut purge = Seated::new(&args);
        purge.wait_for("Delete these 3 entries? [y/N] ");
        purge.answer("n\n");
        assert_eq!(purge.finish().status, Some(1));
        let args = ["purge", "--all", "--cluster", "none", "--max", "2"];
        let said = Seated::new(&args).finish();
        assert_eq!(said.status, Some(2), "{said:?}");
        assert!(!said.stderr.contains("[y/N]"), "{said:?}");
        rows.assert_untouched(said);
        let args = ["purge", "--all", "--cluster", "none", "--dry-run"];
        let said = Seated::new(&args).finish();
        assert_eq!(said.status, Some(0), "{said:?}");
        assert!(!said.stderr.contains("[y/N]"), "{said:?}");
        rows.assert_untouched(said);
    });
}
