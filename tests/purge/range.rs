//! Address without a Service: it may belong to a deleted one. Without the Service range this is unknown, and reported.

use crate::{cluster, new_node};
use testkit::ctk_binary::ctk;
use testkit::private_netns::private_netns;
use testkit::rows::Rows;

/// Entries of a Service that was deleted, by UDP and TCP, and a stale one of another Service.
const ROWS: &[&str] = &[
    "udp 17 29 src=10.244.1.5 dst=10.96.0.99 sport=40001 dport=514 src=10.244.2.9 dst=10.244.1.5 sport=514 dport=40001 [ASSURED]",
    "tcp 6 9 ESTABLISHED src=10.244.1.5 dst=10.96.0.99 sport=40002 dport=514 src=10.244.2.9 dst=10.244.1.5 sport=514 dport=40002 [ASSURED]",
    "udp 17 29 src=10.244.1.5 dst=10.96.0.10 sport=40003 dport=53 src=10.244.2.9 dst=10.244.1.5 sport=53 dport=40003 [ASSURED]",
];
const DNS: [&str; 3] = [
    "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP",
    "slice kube-system/kube-dns dns:53/UDP 10.244.2.30(ready)",
    "pod shop/web-1 10.244.1.5 @node1",
];

/// Arguments, exit status, entries shown, and entries that the note on stderr counts as not judged.
const ASKED: &[(&str, i32, usize, usize)] = &[
    ("ls", 0, 3, 2),
    ("ls --udp", 0, 2, 1),
    ("ls --stale", 3, 1, 1),
    ("ls --stale --tcp --udp", 3, 1, 2),
    ("ls --stale --svc kube-dns", 0, 1, 0),
    ("ls --stale --dst 10.96.0.10", 0, 1, 0),
    ("ls --verdict stale", 3, 1, 2),
    ("ls --verdict unrelated", 3, 0, 2),
    ("ls --verdict unknown", 0, 2, 0),
    ("ls --verdict !ok", 0, 3, 0),
    ("ls --verdict ok", 0, 0, 0),
    ("ls --reason service-gone", 3, 0, 2),
    ("ls --reason endpoint-gone", 0, 1, 0),
    ("ls --reason service-range-unknown", 0, 2, 0),
    ("purge --stale --dry-run", 3, 1, 1),
    ("purge --reason endpoint-gone --dry-run", 0, 1, 0),
    ("purge --svc kube-dns --dry-run", 0, 1, 0),
    ("purge --udp --dry-run", 0, 2, 0),
];

#[test]
fn entries_possibly_of_a_deleted_service_are_counted_and_make_the_answer_partial() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let file = cluster(&DNS);
        for (line, status, shown, open) in ASKED {
            let mut args: Vec<&str> = line.split_whitespace().collect();
            args.extend(["--cluster", file.path(), "-o", "json"]);
            let outcome = ctk(&args).exits(*status);
            assert_eq!(outcome.items().len(), *shown, "{line}: {outcome:?}");
            let words = match open {
                0 => None,
                1 => Some("1 entry is not judged: no Service has its destination".to_owned()),
                open => Some(format!(
                    "{open} entries are not judged: no Service has their"
                )),
            };
            let told = outcome.stderr.contains("not judged");
            assert_eq!(told, words.is_some(), "{line}: {outcome:?}");
            for word in words
                .iter()
                .map(String::as_str)
                .chain(["--service-cidr", "servicecidrs"])
            {
                assert!(
                    !told || outcome.stderr.contains(word),
                    "{line}: {word}: {outcome:?}"
                );
            }
            // With the range, by an object or by the flag, every entry is judged.
            let with_range = cluster(&[&DNS[..], &["cidr 10.96.0.0/16"]].concat());
            let by_object = line
                .split_whitespace()
                .chain(["--cluster", with_range.path()]);
            let by_object: Vec<&str> = by_object.collect();
            let by_flag = [&args[..], &["--service-cidr", "10.96.0.0/16"]].concat();
            for args in [by_object, by_flag] {
                let outcome = ctk(&args).exits(0);
                assert!(
                    !outcome.stderr.contains("not judged"),
                    "{args:?}: {outcome:?}"
                );
            }
        }
        let args = ["purge", "--stale", "--yes", "--cluster", file.path()];
        let outcome = ctk([&args[..], &["--settle", "0", "--verify", "0"]].concat()).exits(3);
        assert!(
            outcome.stderr.contains("1 of 1 entry deleted"),
            "{outcome:?}"
        );
        assert_eq!(rows.left(), [1, 2], "what is known to be stale is deleted");
    });
}
