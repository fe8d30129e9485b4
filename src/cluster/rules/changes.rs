//! Which endpoints this node's rules lead to, and what changed in that. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{NodeRules, RuleFrontend, RuleService};
use crate::cluster::index::Name;

/// An endpoint that kube-proxy's rules lead to, for one port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Namespace, name and port name.
    pub service: (Name, Name, Option<Name>),
    pub protocol: u8,
    pub place: SocketAddr,
}

/// Where the rules lead, with the number of the Service port where a frontend tells it (a node port does not). `None` where
/// they are not known well enough to say what they do not hold.
pub fn targets(rules: &NodeRules) -> Option<BTreeMap<Target, Option<u16>>> {
    if rules.cut || rules.not_understood() > 0 {
        return None;
    }
    let direct = rules.frontends.iter();
    let direct = direct.map(|((_, protocol, port), frontend)| (*protocol, Some(*port), frontend));
    let node_ports = rules.node_ports.iter();
    let node_ports = node_ports.map(|((_, protocol, _), frontend)| (*protocol, None, frontend));
    let mut found: BTreeMap<Target, Option<u16>> = BTreeMap::new();
    for (protocol, number, frontend) in direct.chain(node_ports) {
        let Some(service) = &frontend.service else {
            continue; // nobody could say whose endpoint it is
        };
        for place in places(frontend) {
            let target = Target {
                service: named(service),
                protocol,
                place,
            };
            let known = found.entry(target).or_default();
            *known = known.or(number);
        }
    }
    Some(found)
}

fn places(frontend: &RuleFrontend) -> impl Iterator<Item = SocketAddr> {
    frontend.targets.iter().chain(&frontend.draining).copied()
}

fn named(service: &RuleService) -> (Name, Name, Option<Name>) {
    (
        service.namespace.clone(),
        service.name.clone(),
        service.port.clone(),
    )
}

/// What the rules gained (`true`) and lost, in the order of the targets.
pub fn changes(
    before: &BTreeMap<Target, Option<u16>>,
    now: &BTreeMap<Target, Option<u16>>,
) -> Vec<(bool, Target, Option<u16>)> {
    let only = |these: &BTreeMap<Target, Option<u16>>, those: &BTreeMap<Target, Option<u16>>| {
        let only = these
            .iter()
            .filter(|(target, _)| !those.contains_key(*target));
        only.map(|(target, number)| (target.clone(), *number))
            .collect::<Vec<_>>()
    };
    let lost = only(before, now).into_iter().map(|(t, n)| (false, t, n));
    let gained = only(now, before).into_iter().map(|(t, n)| (true, t, n));
    lost.chain(gained).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIP: (&str, u16) = ("10.96.0.10", 53);

    fn rules(frontends: &[(&str, u16, &[&str])], node_port: &[&str]) -> NodeRules {
        let frontend = |targets: &[&str]| RuleFrontend {
            service: Some(RuleService {
                namespace: "kube-system".into(),
                name: "kube-dns".into(),
                port: Some("dns".into()),
            }),
            targets: targets.iter().map(|t| t.parse().unwrap()).collect(),
            understood: true,
            ..RuleFrontend::default()
        };
        let mut rules = NodeRules::default();
        for (address, port, targets) in frontends {
            let key = (address.parse().unwrap(), 17, *port);
            rules.frontends.insert(key, frontend(targets));
        }
        if !node_port.is_empty() {
            rules
                .node_ports
                .insert((false, 17, 30_053), frontend(node_port));
        }
        rules
    }

    fn told(before: &NodeRules, now: &NodeRules) -> Vec<String> {
        let found = changes(&targets(before).unwrap(), &targets(now).unwrap());
        let told = found.iter().map(|(gained, target, number)| {
            format!(
                "{}{} {number:?}",
                if *gained { '+' } else { '-' },
                target.place
            )
        });
        told.collect()
    }

    #[test]
    fn an_endpoint_is_gained_with_its_first_frontend_and_lost_with_its_last() {
        let (a, b) = ("10.244.1.7:53", "10.244.2.33:53");
        let both = rules(&[(VIP.0, VIP.1, &[a, b])], &[]);
        let one = rules(&[(VIP.0, VIP.1, &[a])], &[]);
        assert_eq!(told(&both, &both), [""; 0]);
        assert_eq!(told(&both, &one), ["-10.244.2.33:53 Some(53)"]);
        assert_eq!(told(&one, &both), ["+10.244.2.33:53 Some(53)"]);
        let node_port_too = rules(&[(VIP.0, VIP.1, &[a])], &[b]);
        assert_eq!(
            told(&both, &node_port_too),
            [""; 0],
            "another frontend has it"
        );
        assert_eq!(told(&node_port_too, &one), ["-10.244.2.33:53 None"]);
    }

    #[test]
    fn nothing_is_told_of_rules_that_are_not_wholly_known() {
        let mut cut = rules(&[(VIP.0, VIP.1, &[])], &[]);
        cut.cut = true;
        assert_eq!(targets(&cut), None);
        let mut odd = rules(&[(VIP.0, VIP.1, &[])], &[]);
        odd.frontends
            .values_mut()
            .for_each(|f| f.understood = false);
        assert_eq!(targets(&odd), None);
    }
}
