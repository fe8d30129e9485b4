//! Load-balancing chains of kube-proxy: `KUBE-SVC-*`, `KUBE-SVL-*`, before 1.24 `KUBE-XLB-*`. Each rule sends some packets to the
//! chain of an endpoint, chosen by `statistic`, or by `recent` for clients that have an endpoint.

use std::net::SocketAddr;

use super::super::RuleKind;
use super::super::affinity::ClientList;
use super::super::lb_chain::{ChainShares, FrontendPath, LbChain, ServiceFilter};
use super::kube::{NODE_PORTS, SERVICES, endpoint, named};
use super::{IptablesTable, Other, Rule, packets};

pub(super) fn lb_chains(table: &IptablesTable<'_>, filter: &ServiceFilter) -> Vec<LbChain> {
    if !table.is_used(SERVICES) {
        return Vec::new();
    }
    let mut lb_chains = Vec::new();
    for entrance in [SERVICES, NODE_PORTS] {
        for line in table.rules(entrance) {
            let rule = Rule::parse(line);
            let (Some(service), kind) = named(&rule) else {
                continue;
            };
            let (Some(target), Some(protocol)) = (rule.target.as_deref(), rule.protocol) else {
                continue;
            };
            if !filter.is(&service) || marks(target) || !table.has(target) {
                continue;
            }
            let way = FrontendPath {
                service,
                protocol,
                kind: match entrance {
                    NODE_PORTS => RuleKind::NodePort,
                    _ => kind,
                },
                ipv6: table.ipv6,
            };
            lb_chains.extend(way.walk(target, |chain, chain_shares| {
                let lines = table.rules(chain);
                let onward = lines.filter_map(|line| self::rule(table, line, chain_shares));
                onward.collect()
            }));
        }
    }
    lb_chains
}

/// Reads one rule of a chain. Returns the chain that it leads to, unless that is the chain of an endpoint.
fn rule(table: &IptablesTable<'_>, line: &str, chain_shares: &mut ChainShares) -> Option<String> {
    let rule = Rule::parse(line);
    let target = rule.target.as_deref()?;
    if marks(target) {
        return None;
    }
    let endpoint = match target {
        "DNAT" => endpoint(&rule),
        _ => endpoint_of(table, target),
    };
    let is_unrestricted = rule.source.is_none()
        && rule.destination.is_none()
        && rule.interface.is_none()
        && rule.ports.is_none()
        && !rule.to_local;
    let Some(endpoint) = endpoint else {
        // Packets of some sources take another path and are not distributed here.
        let some = !is_unrestricted || !rule.others.is_empty();
        match (table.has(target), some) {
            (false, _) => chain_shares.not_understood(),
            (true, false) => chain_shares.pass_on(),
            (true, true) => {}
        }
        return table.has(target).then(|| target.to_owned());
    };
    let counted = packets(line);
    match (is_unrestricted, rule.others.as_slice()) {
        (true, []) => chain_shares.add(endpoint, 1.0, counted),
        (true, others) if is_affinity(others) => {
            chain_shares.pin(endpoint, counted, client_list(others));
        }
        (true, others) => match chance(others) {
            Some(probability) => chain_shares.add(endpoint, probability, counted),
            None => chain_shares.not_understood(),
        },
        (false, _) => chain_shares.not_understood(),
    }
    None
}

/// Targets after which the packet continues with the next rule.
fn marks(target: &str) -> bool {
    matches!(
        target,
        "KUBE-MARK-MASQ" | "KUBE-MARK-DROP" | "MARK" | "CONNMARK" | "LOG" | "NFLOG" | "TRACE"
    )
}

/// Endpoint of a chain that translates every packet to one.
fn endpoint_of(table: &IptablesTable<'_>, chain: &str) -> Option<SocketAddr> {
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

/// The list of a rule that looks for the source address in it.
fn client_list(others: &[Other<'_>]) -> ClientList {
    let mut name = None;
    let mut seconds = None;
    for other in others {
        match other.text.split_once(' ').unwrap_or((&other.text, "")) {
            ("--name", value) => name = Some(value.to_owned()),
            ("--seconds", value) => match value.parse() {
                Ok(value) => seconds = Some(value),
                Err(_) => return ClientList::NotUnderstood,
            },
            ("--mask", "255.255.255.255" | "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
            | ("-m" | "--rcheck" | "--update" | "--reap" | "--rsource", _) => {}
            _ => return ClientList::NotUnderstood,
        }
    }
    match name {
        Some(name) if !name.contains('/') => ClientList::Recent { name, seconds },
        _ => ClientList::NotUnderstood,
    }
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
    use super::super::super::lb_chain::together;
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

    fn filter() -> ServiceFilter {
        ServiceFilter {
            namespace: Some("a".into()),
            name: "s".into(),
        }
    }

    fn of(text: &str) -> Vec<LbChain> {
        let mut lb_chains = together(super::super::lb_chains(text, &filter()));
        lb_chains.sort_by(|a, b| a.chain.cmp(&b.chain));
        lb_chains
    }

    #[test]
    fn chances_multiply_along_the_chain_and_packets_are_those_of_each_rule() {
        let lb_chains = of(RULES);
        let [all, local] = &lb_chains[..] else {
            panic!("{lb_chains:#?}")
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
        let shown = |chain: &LbChain| -> Vec<(String, f64, Option<u64>, Option<u64>)> {
            let shares = chain.shares.as_ref().unwrap().iter();
            shares
                .map(|one| {
                    let share = (one.share * 1e6).round() / 1e6;
                    (one.endpoint.to_string(), share, one.packets, one.pinned)
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
    fn without_counters_packets_are_unknown() {
        let plain = regex::Regex::new(r"(?m)^\[\d+:\d+\] ").unwrap();
        let lb_chains = of(&plain.replace_all(RULES, ""));
        let mut shares = lb_chains
            .iter()
            .flat_map(|chain| chain.shares.iter().flatten());
        assert_eq!(lb_chains.len(), 2);
        assert!(shares.all(|share| share.packets.is_none()));
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
            let lb_chains = of(&text);
            assert_eq!(lb_chains[0].shares, None, "{odd}");
        }
    }
}
