//! kube-proxy as the oracle: it is stopped while a random world changes, ctk judges by the API, and kube-proxy continues.
//! Its deletes are compared with ctk's stale entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::differences::Differences;
use crate::lab::Lab;
use crate::labels::Names;
use crate::table::{Key, ctk_on_node, listed, udp_entries, verdict};
use crate::world::World;

pub fn world(lab: &mut Lab, seed: u64) {
    let mut world = World::make(seed, lab.api());
    lab.settle(&world.namespace);
    lab.sync();
    world.ask_all(&lab.clients);
    std::thread::sleep(Duration::from_millis(1500));
    lab.proxy().freeze();
    world.change(lab.api());
    world.add_late(lab.api(), &lab.clients);
    lab.settle(&world.namespace);
    std::thread::sleep(Duration::from_millis(1200));
    lab.clients.pause();
    std::thread::sleep(Duration::from_millis(200));

    let judged = listed(&lab.by_api());
    let names = Names::read(lab.api());
    let minor = lab.proxy().minor();
    let differences = Differences::read(lab.api(), minor);
    let before: BTreeSet<Key> = udp_entries().into_iter().collect();
    lab.proxy().thaw();
    lab.sync();
    let after: BTreeSet<Key> = udp_entries().into_iter().collect();

    let mut wrong: Vec<String> = judged
        .values()
        .filter_map(|item| names.wrong(item))
        .collect();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut stale, mut deleted) = (0, 0);
    for key in &before {
        let Some(item) = judged.get(key) else {
            wrong.push(format!("{key}: not listed by ctk"));
            continue;
        };
        let (by_ctk, by_proxy) = (item["verdict"] == "stale", !after.contains(key));
        stale += usize::from(by_ctk);
        deleted += usize::from(by_proxy);
        if by_ctk != by_proxy {
            match differences.reason(item, by_proxy) {
                Some(reason) => *reasons.entry(reason).or_default() += 1,
                None => wrong.push(format!(
                    "{key}: {}, kube-proxy deletes it: {by_proxy} ({})",
                    verdict(item),
                    item["evidence"]
                )),
            }
        }
    }
    eprintln!(
        "{} entries, stale by ctk: {stale}, deleted by kube-proxy: {deleted}, {reasons:?}",
        before.len()
    );
    assert!(!before.is_empty(), "no entry");
    wrong.extend(purge_deletes_what_is_stale(lab, minor));
    assert!(
        wrong.is_empty(),
        "seed {seed}, {:#?}: {wrong:#?}",
        world.notes
    );
}

/// After kube-proxy, ctk deletes the entries that are stale by now, except those held back, and nothing else.
fn purge_deletes_what_is_stale(lab: &Lab, minor: u32) -> Vec<String> {
    let differences = Differences::read(lab.api(), minor);
    let stale: BTreeSet<Key> = listed(&format!("--stale {}", lab.by_api()))
        .into_iter()
        .filter(|(_, item)| !differences.is_held_back(item))
        .map(|(key, _)| key)
        .collect();
    let before: BTreeSet<Key> = udp_entries().into_iter().collect();
    let quick = "--settle 200ms --verify 200ms";
    let outcome = ctk_on_node(&format!("purge --stale --yes {quick} {}", lab.by_api()));
    let after: BTreeSet<Key> = udp_entries().into_iter().collect();
    let gone: BTreeSet<Key> = before.difference(&after).cloned().collect();
    let mut wrong = Vec::new();
    if outcome.status != Some(0) {
        wrong.push(format!("the purge ended with {outcome:?}"));
    }
    for key in gone.symmetric_difference(&stale) {
        let word = if gone.contains(key) {
            "deleted, not stale"
        } else {
            "stale, not deleted"
        };
        wrong.push(format!("{key}: {word}"));
    }
    wrong
}
