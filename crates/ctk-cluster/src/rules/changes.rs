//! Endpoints that the rules of this node lead to, and the changes between two readings. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::{NodeRules, RuleFrontend, RuleService};
use crate::index::Name;

/// An endpoint that kube-proxy's rules lead to, for one port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleEndpoint {
    pub service: ServicePortName,
    pub protocol: u8,
    pub place: SocketAddr,
}

/// Namespace, name and port name of a Service port.
type ServicePortName = (Name, Name, Option<Name>);

/// Targets of the rules at one reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Targets, with the number of the Service port where a frontend shows it (a node port does not).
    known: BTreeMap<RuleEndpoint, Option<u16>>,
    /// Service ports with a rule that is not understood: a target missing in `known` may exist.
    unknown: BTreeSet<ServicePortName>,
}

/// Collects the targets. `None` where rules are missing, or a frontend is unknown: any target may be missing then.
pub fn targets(rules: &NodeRules) -> Option<Targets> {
    if !rules.is_whole() {
        return None;
    }
    let direct = rules.frontends.iter();
    let direct = direct.map(|((_, protocol, port), frontend)| (*protocol, Some(*port), frontend));
    let node_ports = rules.node_ports.iter();
    let node_ports = node_ports.map(|((_, protocol, _), frontend)| (*protocol, None, frontend));
    let mut found = Targets::default();
    for (protocol, number, frontend) in direct.chain(node_ports) {
        let Some(service) = &frontend.service else {
            continue; // the owner of the endpoint is unknown
        };
        if !frontend.understood {
            found.unknown.insert(named(service));
        }
        for place in places(frontend) {
            let target = RuleEndpoint {
                service: named(service),
                protocol,
                place,
            };
            let known = found.known.entry(target).or_default();
            *known = known.or(number);
        }
    }
    Some(found)
}

fn places(frontend: &RuleFrontend) -> impl Iterator<Item = SocketAddr> {
    frontend.targets.iter().chain(&frontend.draining).copied()
}

fn named(service: &RuleService) -> ServicePortName {
    (
        service.namespace.clone(),
        service.name.clone(),
        service.port.clone(),
    )
}

/// Targets that were added (`true`) and removed, in order. Omits Service ports that were not fully understood in both
/// readings.
pub fn changes(before: &Targets, now: &Targets) -> Vec<(bool, RuleEndpoint, Option<u16>)> {
    let understood = |target: &RuleEndpoint| {
        !before.unknown.contains(&target.service) && !now.unknown.contains(&target.service)
    };
    let only = |these: &Targets, those: &Targets| {
        let only = these
            .known
            .iter()
            .filter(|(target, _)| !those.known.contains_key(*target) && understood(target));
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
    fn an_endpoint_is_added_with_its_first_frontend_and_removed_with_its_last() {
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
    fn rules_that_are_not_understood_yield_no_change() {
        let one = rules(&[(VIP.0, VIP.1, &["10.244.1.7:53"])], &[]);
        let mut cut = one.clone();
        cut.cut = true;
        let mut shapes = one.clone();
        shapes.unknown_shapes = 1;
        assert_eq!((targets(&cut), targets(&shapes)), (None, None));
        let mut odd = rules(&[(VIP.0, VIP.1, &[])], &[]);
        odd.frontends
            .values_mut()
            .for_each(|f| f.understood = false);
        assert_eq!(
            told(&one, &odd),
            [""; 0],
            "an unread rule is not a removed one"
        );
        assert_eq!(told(&odd, &one), [""; 0]);
    }
}
