//! The dealing chains of kube-proxy: `KUBE-SVC-*`, `KUBE-SVL-*`, before 1.24 `KUBE-XLB-*`. Each rule sends some of the
//! packets that come to it to an endpoint's chain, by `statistic`, and those of clients that were there before by `recent`.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::super::deal::{Deal, Dealing, Wanted};
use super::super::{RuleKind, RuleService};
use super::kube::{NODE_PORTS, SERVICES, endpoint, named};
use super::{Other, Rule, Table, packets};

pub(super) fn deals(table: &Table<'_>, wanted: &Wanted) -> Vec<Deal> {
    if !table.is_used(SERVICES) {
        return Vec::new();
    }
    let mut deals = Vec::new();
    for entrance in [SERVICES, NODE_PORTS] {
        for line in table.rules(entrance) {
            let rule = Rule::parse(line);
            let (Some(service), kind) = named(&rule) else {
                continue;
            };
            let (Some(target), Some(protocol)) = (rule.target.as_deref(), rule.protocol) else {
                continue;
            };
            if !wanted.is(&service) || marks(target) || !table.has(target) {
                continue;
            }
            let way = Way {
                service,
                protocol,
                kind: match entrance {
                    NODE_PORTS => RuleKind::NodePort,
                    _ => kind,
                },
            };
            way.walk(table, target, &mut deals);
        }
    }
    deals
}

/// How packets come to a dealing chain.
struct Way {
    service: RuleService,
    protocol: u8,
    kind: RuleKind,
}

impl Way {
    /// Every dealing chain that a frontend's chain can lead to.
    fn walk(&self, table: &Table<'_>, chain: &str, deals: &mut Vec<Deal>) {
        let mut visited = HashSet::from([chain.to_owned()]);
        let mut ahead = vec![chain.to_owned()];
        while let Some(chain) = ahead.pop() {
            let mut dealing = Dealing::new();
            for line in table.rules(&chain) {
                let onward = rule(table, line, &mut dealing);
                ahead.extend(onward.filter(|next| visited.insert(next.clone())));
            }
            if !dealing.is_empty() {
                deals.push(Deal {
                    chain,
                    ipv6: table.ipv6,
                    protocol: self.protocol,
                    service: self.service.clone(),
                    frontends: vec![self.kind],
                    affinity: dealing.affinity,
                    hands: dealing.hands(),
                });
            }
        }
    }
}

/// Takes in one rule of a chain; the chain that it leads to, when that is no endpoint's.
fn rule(table: &Table<'_>, line: &str, dealing: &mut Dealing) -> Option<String> {
    let rule = Rule::parse(line);
    let target = rule.target.as_deref()?;
    if marks(target) {
        return None;
    }
    let endpoint = match target {
        "DNAT" => endpoint(&rule),
        _ => endpoint_of(table, target),
    };
    let anybody = rule.source.is_none()
        && rule.destination.is_none()
        && rule.interface.is_none()
        && rule.ports.is_none()
        && !rule.to_local;
    let Some(endpoint) = endpoint else {
        // Packets of some sources that go another way are not dealt out here. Whatever else takes packets away is odd.
        let some = !anybody || !rule.others.is_empty();
        if !table.has(target) || !some {
            dealing.not_understood();
        }
        return table.has(target).then(|| target.to_owned());
    };
    let counted = packets(line);
    match (anybody, rule.others.as_slice()) {
        (true, []) => dealing.deal(endpoint, 1.0, counted),
        (true, others) if is_affinity(others) => dealing.pin(endpoint, counted),
        (true, others) => match chance(others) {
            Some(probability) => dealing.deal(endpoint, probability, counted),
            None => dealing.not_understood(),
        },
        (false, _) => dealing.not_understood(),
    }
    None
}

/// Targets after which the packet comes to the next rule.
fn marks(target: &str) -> bool {
    matches!(
        target,
        "KUBE-MARK-MASQ" | "KUBE-MARK-DROP" | "MARK" | "CONNMARK" | "LOG" | "NFLOG" | "TRACE"
    )
}

/// The endpoint of a chain that translates every packet to one.
fn endpoint_of(table: &Table<'_>, chain: &str) -> Option<SocketAddr> {
    let mut found = None;
    for line in table.rules(chain) {
        let rule = Rule::parse(line);
        match rule.target.as_deref() {
            None => {}
            Some(target) if marks(target) => {}
            Some("DNAT") if found.is_none() => {
                let plain = rule.others.iter().all(|other| other.module == "recent");
                found = Some(endpoint(&rule).filter(|_| plain)?);
            }
            Some(_) => return None,
        }
    }
    found
}

fn is_affinity(others: &[Other<'_>]) -> bool {
    let checks = |other: &Other<'_>| matches!(other.text.as_str(), "--rcheck" | "--update");
    others.iter().all(|other| other.module == "recent") && others.iter().any(checks)
}

/// `-m statistic --mode random --probability P`.
fn chance(others: &[Other<'_>]) -> Option<f64> {
    let [mode, probability] = others else {
        return None;
    };
    let known = mode.module == "statistic" && mode.text == "--mode random";
    let value = probability.text.strip_prefix("--probability ")?;
    let value: f64 = value.parse().ok()?;
    (known && (0.0..=1.0).contains(&value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::super::super::deal::together;
    use super::*;

    const RULES: &str = r#"# Generated by iptables-save v1.8.9 on Sun Nov 29 2026
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-EXT-A - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SVL-A - [0:0]
:KUBE-SEP-1 - [0:0]
:KUBE-SEP-2 - [0:0]
:KUBE-SEP-3 - [0:0]
[9:540] -A PREROUTING -j KUBE-SERVICES
[7:420] -A KUBE-SERVICES -d 10.96.0.5/32 -p tcp -m comment --comment "a/s:p cluster IP" -m tcp --dport 80 -j KUBE-SVC-A
[1:60] -A KUBE-SERVICES -d 203.0.113.5/32 -p tcp -m comment --comment "a/s:p loadbalancer IP" -m tcp --dport 80 -j KUBE-EXT-A
[1:60] -A KUBE-SERVICES -d 10.96.0.6/32 -p tcp -m comment --comment "b/s:p cluster IP" -m tcp --dport 80 -j KUBE-SEP-1
[0:0] -A KUBE-NODEPORTS -p tcp -m comment --comment "a/s:p" -m tcp --dport 30080 -j KUBE-EXT-A
[0:0] -A KUBE-EXT-A -s 10.244.0.0/16 -j KUBE-SVC-A
[0:0] -A KUBE-EXT-A -m addrtype --src-type LOCAL -j KUBE-SVC-A
[1:60] -A KUBE-EXT-A -j KUBE-SVL-A
[0:0] -A KUBE-SVC-A ! -s 10.244.0.0/16 -d 10.96.0.5/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
[2:120] -A KUBE-SVC-A -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-1 --mask 255.255.255.255 --rsource -j KUBE-SEP-1
[3:180] -A KUBE-SVC-A -m comment --comment "a/s:p -> 10.244.1.1:8080" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-1
[1:60] -A KUBE-SVC-A -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-2
[3:180] -A KUBE-SVC-A -j KUBE-SEP-3
[1:60] -A KUBE-SVL-A -j KUBE-SEP-3
[0:0] -A KUBE-SEP-1 -s 10.244.1.1/32 -j KUBE-MARK-MASQ
[5:300] -A KUBE-SEP-1 -p tcp -m recent --set --name KUBE-SEP-1 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.244.1.1:8080
[1:60] -A KUBE-SEP-2 -p tcp -m tcp -j DNAT --to-destination 10.244.1.2:8080
[4:240] -A KUBE-SEP-3 -p tcp -m tcp -j DNAT --to-destination 10.244.1.3:8080
COMMIT
"#;

    fn wanted() -> Wanted {
        Wanted {
            namespace: Some("a".into()),
            name: "s".into(),
        }
    }

    fn of(text: &str) -> Vec<Deal> {
        let mut deals = together(super::super::deals(text, &wanted()));
        deals.sort_by(|a, b| a.chain.cmp(&b.chain));
        deals
    }

    #[test]
    fn chances_are_multiplied_down_the_chain_and_packets_are_those_of_each_rule() {
        let deals = of(RULES);
        let [all, local] = &deals[..] else {
            panic!("{deals:#?}")
        };
        assert_eq!((&*all.chain, &*local.chain), ("KUBE-SVC-A", "KUBE-SVL-A"));
        assert_eq!(
            all.frontends,
            [
                RuleKind::ClusterIp,
                RuleKind::LoadBalancerIp,
                RuleKind::NodePort
            ]
        );
        assert!(all.affinity && !local.affinity);
        let shown = |deal: &Deal| -> Vec<(String, f64, Option<u64>, Option<u64>)> {
            let hands = deal.hands.as_ref().unwrap().iter();
            hands
                .map(|hand| {
                    let share = (hand.share * 1e6).round() / 1e6;
                    (hand.endpoint.to_string(), share, hand.packets, hand.pinned)
                })
                .collect()
        };
        let third = 0.333_333;
        assert_eq!(
            shown(all),
            [
                ("10.244.1.1:8080".into(), third, Some(3), Some(2)),
                ("10.244.1.2:8080".into(), third, Some(1), None),
                ("10.244.1.3:8080".into(), third, Some(3), None),
            ]
        );
        assert_eq!(
            shown(local),
            [("10.244.1.3:8080".into(), 1.0, Some(1), None)]
        );
    }

    #[test]
    fn without_counters_packets_are_not_known() {
        let plain = regex::Regex::new(r"(?m)^\[\d+:\d+\] ").unwrap();
        let deals = of(&plain.replace_all(RULES, ""));
        let mut hands = deals.iter().flat_map(|deal| deal.hands.iter().flatten());
        assert_eq!(deals.len(), 2);
        assert!(hands.all(|hand| hand.packets.is_none()));
    }

    #[test]
    fn a_shape_that_is_not_understood_gives_no_shares() {
        for (rule, odd) in [
            (
                "-m statistic --mode random --probability 0.5",
                "-m statistic --mode nth --every 2 --packet 0",
            ),
            (
                "-m statistic --mode random --probability 0.5",
                "-m statistic --mode random ! --probability 0.5",
            ),
            (
                "-m statistic --mode random --probability 0.5",
                "-m statistic --mode random --probability 7",
            ),
            (
                "-m statistic --mode random --probability 0.5",
                "-s 10.0.0.0/8",
            ),
            (
                "-m statistic --mode random --probability 0.5",
                "-m time --timestart 10:00",
            ),
            ("-A KUBE-SVC-A -j KUBE-SEP-3", "-A KUBE-SVC-A -j RETURN"),
            (
                "-A KUBE-SEP-2 -p tcp -m tcp -j DNAT",
                "-A KUBE-SEP-2 -s 10.0.0.0/8 -j RETURN\n-A KUBE-SEP-2 -p tcp -j DNAT",
            ),
        ] {
            let text = RULES.replace("0.50000000000", "0.5").replace(rule, odd);
            assert_ne!(text, RULES);
            let deals = of(&text);
            assert_eq!(deals[0].hands, None, "{odd}");
        }
    }
}
