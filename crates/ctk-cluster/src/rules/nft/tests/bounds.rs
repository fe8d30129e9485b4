//! Rules whose number of destinations or conditions is the product of two sizes.

use super::super::super::{Condition, NodeRules};
use super::*;

/// This many rules that each use a map of as many elements.
fn mapped(number: u16) -> NodeRules {
    let elements: Vec<Value> = (1..=number)
        .map(|port| json!([port, place("10.0.0.2", 80)]))
        .collect();
    let mut map = map("m", json!(elements));
    map["map"]["table"] = json!("t");
    let key = payload("tcp", "dport");
    let dnat = json!([{"dnat": {"family": "ip", "addr": {"map": {"key": key, "data": "@m"}}}}]);
    let mut objects = vec![chain("ip", "t", "c", Some("prerouting")), map];
    objects.extend((0..number).map(|_| rule("ip", "t", "c", dnat.clone())));
    read(&document(objects), &[]).unwrap()
}

#[test]
fn a_map_that_very_many_rules_use_is_read_up_to_a_bound_which_is_told() {
    let few = mapped(40);
    assert!(few.is_whole());
    assert_eq!(few.forwards.len(), 40 * 40);
    let many = mapped(600);
    assert!(many.cut, "rules are missing");
    assert!(many.forwards.len() <= 200_000);
}

/// A match that the reader does not know.
fn odd(number: usize) -> Value {
    is(json!({"meta": {"key": "mark"}}), "==", json!(number))
}

fn behind(guards: Vec<Vec<Value>>, conditions: Vec<Value>) -> NodeRules {
    let mut objects = vec![chain("ip", "t", "c", Some("prerouting"))];
    for mut guard in guards {
        guard.push(json!({"return": null}));
        objects.push(rule("ip", "t", "c", json!(guard)));
    }
    let mut expr = vec![is(payload("tcp", "dport"), "==", json!(80))];
    expr.extend(conditions);
    expr.push(json!({"dnat": {"family": "ip", "addr": "10.0.0.2", "port": 80}}));
    objects.push(rule("ip", "t", "c", json!(expr)));
    read(&document(objects), &[]).unwrap()
}

#[test]
fn conditions_beyond_a_bound_are_one_that_is_not_understood() {
    let rules = behind((0..100).map(|n| vec![odd(n)]).collect(), Vec::new());
    let [forward] = &*rules.forwards else {
        panic!("{:?}", rules.forwards);
    };
    let further = Condition::Other("further conditions".to_owned());
    assert_eq!(forward.conditions.last(), Some(&further));
    assert!(
        forward.conditions.len() < 20,
        "{}",
        forward.conditions.len()
    );
}

#[test]
fn a_rule_with_more_conditions_than_are_held_excludes_no_later_rule() {
    let common = || (0..20).map(odd).collect::<Vec<_>>();
    let mut guard = common();
    guard.push(odd(99));
    assert_eq!(behind(vec![guard], common()).forwards.len(), 1);
    let short = vec![odd(1), odd(2)];
    assert!(
        behind(vec![short.clone()], short).forwards.is_empty(),
        "the same packets returned before"
    );
}

#[test]
fn a_loop_of_chains_ends_the_walk_which_is_told() {
    let jump = || json!([{"jump": {"target": "c"}}]);
    let dnat = json!([is(payload("tcp", "dport"), "==", json!(80)),
        {"dnat": {"family": "ip", "addr": "10.0.0.2", "port": 80}}]);
    let rules = read(
        &document(vec![
            chain("ip", "t", "c", Some("prerouting")),
            rule("ip", "t", "c", dnat),
            rule("ip", "t", "c", jump()),
            rule("ip", "t", "c", jump()),
        ]),
        &[],
    )
    .unwrap();
    assert!(rules.cut, "no kernel has such rules");
    assert!(
        (1..100).contains(&rules.forwards.len()),
        "{}",
        rules.forwards.len()
    );
}
