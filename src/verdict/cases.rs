//! Verdicts on incidents that were reported in public.

use ctk_cluster::testing::world;

use super::tests::{Setting, local};
use crate::this_node::{NetnsOwner, ThisNode};
use testkit::incidents::CASES;

#[test]
fn reported_incidents_get_the_right_verdict() {
    let node = ThisNode {
        name: Some("node1".to_owned()),
        local: Some(vec![
            local("eth0", "192.0.2.11/24"),
            local("lo", "203.0.113.77/32"),
        ]),
        routes: None,
        namespace: NetnsOwner::Node,
    };
    for case in CASES {
        let mut lines = vec![
            "node node1 192.0.2.11",
            "node node2 192.0.2.12",
            "pod x/some 10.244.99.99",
        ];
        lines.extend(case.lines);
        let index = world(&lines);
        let setting = Setting {
            index: Some(&index),
            rules: None,
            node: &node,
            zones: &[],
            time: None,
        };
        for (entry, expected) in case.entries {
            assert_eq!(
                setting.judge(entry).unwrap().0,
                *expected,
                "{}: {entry}",
                case.name
            );
        }
    }
}
