//! Every form of rules that kube-proxy 1.29 to 1.37 writes, loaded by the real tools and read back: targets, refusals and
//! probabilities must be those of the Services that the rules were made from.

mod iptables;
mod nftables;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use ctk_cluster::rules::lb_chain::ServiceFilter;
use ctk_cluster::rules::{NodeRules, text};

use testkit::private_netns::private_netns;
use testkit::tools::{nft, run, run_with};
use world::{Frontend, Reached, World, world};

const MINORS: std::ops::RangeInclusive<u32> = 29..=37;
/// Random worlds for each form and family.
const WORLDS: u64 = 8;
/// An ordinary user's transaction must fit into a send buffer that cannot be raised (208 KiB).
const SERVICES: u64 = 5;

/// Letters and digits that stand for a name, as kube-proxy's hashes do.
fn hash(name: &str, length: usize) -> String {
    let mut value: u64 = 0xcbf2_9ce4_8422_2325;
    let mut letters = String::new();
    while letters.len() < length {
        for byte in name.bytes().chain([letters.len() as u8]) {
            value = (value ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        letters.push(char::from(
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(value >> 40) as usize % 32],
        ));
    }
    letters
}

fn found(rules: &NodeRules) -> BTreeMap<Frontend, Reached> {
    let direct = rules.frontends.iter();
    let direct = direct.map(|((address, protocol, port), frontend)| {
        ((Some(*address), *protocol, *port), frontend)
    });
    let node_ports = rules.node_ports.iter();
    let node_ports =
        node_ports.map(|((_, protocol, port), frontend)| ((None, *protocol, *port), frontend));
    let all = direct.chain(node_ports);
    all.map(|(key, frontend)| {
        (
            key,
            (frontend.targets.iter().copied().collect(), frontend.refused),
        )
    })
    .collect()
}

fn check(world: &World, text: &str, form: &str) {
    let (rules, _) = text::read(text, None).unwrap();
    let frontends = rules
        .frontends
        .iter()
        .filter(|(_, frontend)| !frontend.understood);
    let odd: Vec<_> = frontends.collect();
    assert!(odd.is_empty(), "{form}: {odd:?}: {text}");
    assert_eq!(rules.not_understood(), 0, "{form}: {text}");
    assert_eq!(found(&rules), world.expected(), "{form}: {text}");
    for port in &world.ports {
        let wanted = ServiceFilter {
            namespace: Some(port.namespace.into()),
            name: port.name.as_str().into(),
        };
        let (_, lb_chains) = text::read(text, Some(&wanted)).unwrap();
        let places = |local| -> BTreeSet<SocketAddr> {
            port.chosen(local).iter().map(|e| e.place).collect()
        };
        let lb_chains = lb_chains
            .iter()
            .filter(|chain| chain.service.port.as_deref().unwrap_or_default() == port.port_name);
        let mut chosen = BTreeSet::new();
        for chain in lb_chains {
            let shares = chain
                .shares
                .as_ref()
                .unwrap_or_else(|| panic!("{form}: {}: {text}", chain.chain));
            let to: BTreeSet<SocketAddr> = shares.iter().map(|hand| hand.endpoint).collect();
            assert!(
                to == places(false) || to == places(true),
                "{form}: {} {to:?}",
                chain.chain
            );
            let even = shares
                .iter()
                .all(|hand| (hand.share * shares.len() as f64 - 1.0).abs() < 1e-6);
            assert!(even, "{form}: {shares:?}");
            assert_eq!(chain.affinity, port.affinity, "{form}: {}", chain.chain);
            chosen.extend(to);
        }
        let reachable = match port.uses_cluster_chain() {
            true => places(false),
            false if port.uses_local_chain() => places(true),
            false => BTreeSet::new(),
        };
        assert_eq!(chosen, reachable, "{form}: {}", port.full_name());
    }
}

#[test]
fn iptables_rules_of_every_form_are_read_with_kube_proxys_targets() {
    private_netns(|| {
        for (ipv6, tool) in [(false, "iptables"), (true, "ip6tables")] {
            for seed in 1..=WORLDS {
                let world = world(seed, ipv6, SERVICES);
                for comments in [true, false] {
                    run_with(
                        &format!("{tool}-restore"),
                        &[],
                        &iptables::rules(&world, comments),
                    );
                    let saved = run(&format!("{tool}-save"), &["-c"]);
                    check(
                        &world,
                        &saved.stdout,
                        &format!("{tool} {seed} comments {comments}"),
                    );
                }
            }
        }
    });
}

#[test]
fn nftables_rules_of_every_version_are_read_with_kube_proxys_targets() {
    private_netns(|| {
        for (ipv6, family) in [(false, "ip"), (true, "ip6")] {
            for minor in MINORS {
                for seed in 1..=WORLDS {
                    let world = world(seed + u64::from(minor) * 100, ipv6, SERVICES);
                    nft(&nftables::script(&world, minor));
                    let saved = run("nft", &["-j", "list", "table", family, "kube-proxy"]);
                    check(
                        &world,
                        &saved.stdout,
                        &format!("nftables 1.{minor} {family} {seed}"),
                    );
                    run("nft", &["delete", "table", family, "kube-proxy"]);
                }
            }
        }
    });
}
