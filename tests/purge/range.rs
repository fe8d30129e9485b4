//! An address that no Service has may be that of a deleted Service: without the Service range that is not known, and reported.

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

/// Arguments, status, entries that are shown, and entries of which the note on stderr says that they are not judged.
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
fn entries_that_may_be_of_a_deleted_service_are_reported_and_make_the_answer_partial() {
    private_netns(|| {
        new_node();
        let rows = Rows::insert(ROWS);
        let file = cluster(&DNS);
        for (line, status, shown, open) in ASKED {
            let mut args: Vec<&str> = line.split_whitespace().collect();
            args.extend(["--cluster", file.path(), "-o", "json"]);
            let said = ctk(&args).exits(*status);
            assert_eq!(said.items().len(), *shown, "{line}: {said:?}");
            let words = match open {
                0 => None,
                1 => Some("1 entry is not judged: no Service has its destination".to_owned()),
                open => Some(format!(
                    "{open} entries are not judged: no Service has their"
                )),
            };
            let reported = said.stderr.contains("not judged");
            assert_eq!(reported, words.is_some(), "{line}: {said:?}");
            for word in words
                .iter()
                .map(String::as_str)
                .chain(["--service-cidr", "servicecidrs"])
            {
                assert!(
                    !reported || said.stderr.contains(word),
                    "{line}: {word}: {said:?}"
                );
            }
            // With the range, by an object or by the flag, nothing is open.
            let with_range = cluster(&[&DNS[..], &["cidr 10.96.0.0/16"]].concat());
            let by_object = line
                .split_whitespace()
                .chain(["--cluster", with_range.path()]);
            let by_object: Vec<&str> = by_object.collect();
            let by_flag = [&args[..], &["--service-cidr", "10.96.0.0/16"]].concat();
            for args in [by_object, by_flag] {
                let said = ctk(&args).exits(0);
                assert!(!said.stderr.contains("not judged"), "{args:?}: {said:?}");
            }
        }
        let args = ["purge", "--stale", "--yes", "--cluster", file.path()];
        let said = ctk([&args[..], &["--settle", "0", "--verify", "0"]].concat()).exits(3);
        assert!(said.stderr.contains("1 of 1 entry deleted"), "{said:?}");
        assert_eq!(rows.left(), [1, 2], "what is known to be stale is deleted");
    });
}
