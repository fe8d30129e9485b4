//! Conditions that a packet meets on its path from the hook to a rule, for DNAT rules of other programs than kube-proxy.
//!
//! Rules that end a chain early (`RETURN`, `ACCEPT`) are conditions of all that follow: container engines exclude packets of
//! their own bridge from their DNAT rules that way.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::{Condition, Forward, ForwardTarget, SCTP, TCP, TargetPorts, UDP};

/// Maximum number of guards whose effect on later rules is computed.
pub const MAX_GUARDS: usize = 256;

/// Maximum number of conditions of one rule. Each rule that ends the chain for some packets adds one to all that follow.
const MAX_CONDITIONS: usize = 16;

/// A rule that ends its chain, or the whole walk, for the packets that it matches.
#[derive(Debug)]
pub struct EndingRule {
    pub matches: Matches,
    pub rule: String,
    /// `ACCEPT`, or another target that ends more than the chain.
    pub ends_all: bool,
}

/// Maximum number of rules that one rule expands to; beyond it the rule is shown once, without destinations.
const MAX_EXPANDED_RULES: usize = 1024;

pub type Ports = RangeInclusive<u16>;

/// A conjunction of conditions.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// `None` for every protocol.
    protocols: Option<Vec<u8>>,
    destinations: Option<Vec<IpNet>>,
    /// `None` for both families.
    ipv6: Option<bool>,
    local_only: bool,
    ports: Option<Vec<Ports>>,
    conditions: Vec<Condition>,
    /// More conditions exist than are held.
    further: bool,
    /// Packets that this node sends: they have no input interface.
    output: bool,
    /// No packet matches.
    never: bool,
}

impl Matches {
    /// Conditions at the hook.
    pub fn at_hook(output: bool) -> Self {
        Matches {
            conditions: vec![Condition::Origin { local: output }],
            output,
            ..Matches::default()
        }
    }

    /// Limits the packets to one family.
    pub fn family(&mut self, ipv6: bool) {
        self.never |= self.ipv6 == Some(!ipv6);
        self.ipv6 = Some(ipv6);
    }

    pub fn is_never(&self) -> bool {
        self.never
    }

    pub fn local_only(&mut self) {
        self.local_only = true;
    }

    pub fn protocols(&mut self, filter: &[u8]) {
        let both = match &self.protocols {
            None => filter.to_vec(),
            Some(known) => known
                .iter()
                .copied()
                .filter(|p| filter.contains(p))
                .collect(),
        };
        self.never |= both.is_empty();
        self.protocols = Some(both);
    }

    pub fn destinations(&mut self, filter: &[IpNet]) {
        let both = match &self.destinations {
            None => filter.to_vec(),
            Some(known) => {
                let pairs = known
                    .iter()
                    .flat_map(|a| filter.iter().filter_map(move |b| narrower(a, b)));
                pairs.take(MAX_EXPANDED_RULES).collect()
            }
        };
        self.never |= both.is_empty();
        self.destinations = Some(both);
    }

    pub fn ports(&mut self, filter: &[Ports]) {
        let both = match &self.ports {
            None => filter.to_vec(),
            Some(known) => {
                let pairs = known
                    .iter()
                    .flat_map(|a| filter.iter().filter_map(move |b| overlap(a, b)));
                pairs.take(MAX_EXPANDED_RULES).collect()
            }
        };
        self.never |= both.is_empty();
        self.ports = Some(both);
    }

    /// Excludes these ports.
    pub fn not_ports(&mut self, unwanted: &[Ports]) {
        self.ports(&complement(unwanted));
    }

    pub fn condition(&mut self, condition: Condition) {
        if let Condition::Interface { equal, .. } = &condition
            && self.output
        {
            self.never |= *equal;
            return;
        }
        if self.conditions.contains(&condition) {
            return;
        }
        match self.conditions.len() < MAX_CONDITIONS {
            true => self.conditions.push(condition),
            false => self.further = true,
        }
    }

    pub fn other(&mut self, text: impl Into<String>) {
        self.condition(Condition::Other(text.into()));
    }

    fn is_disjoint(&self, other: &Matches) -> bool {
        fn apart<T>(a: &Option<Vec<T>>, b: &Option<Vec<T>>, meet: impl Fn(&T, &T) -> bool) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => !a.iter().any(|x| b.iter().any(|y| meet(x, y))),
                _ => false,
            }
        }
        self.never
            || other.never
            || (self.ipv6.is_some() && other.ipv6.is_some() && self.ipv6 != other.ipv6)
            || apart(&self.protocols, &other.protocols, |a, b| a == b)
            || apart(&self.ports, &other.ports, |a, b| overlap(a, b).is_some())
            || apart(&self.destinations, &other.destinations, |a, b| {
                narrower(a, b).is_some()
            })
    }

    /// Reports whether all packets that `other` matches have a protocol, destination and port that this matches.
    fn covers(&self, other: &Matches) -> bool {
        fn within<T>(
            outer: &Option<Vec<T>>,
            inner: &Option<Vec<T>>,
            has: impl Fn(&T, &T) -> bool,
        ) -> bool {
            match (outer, inner) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(outer), Some(inner)) => inner.iter().all(|i| outer.iter().any(|o| has(o, i))),
            }
        }
        (!self.local_only || other.local_only)
            && (self.ipv6.is_none() || self.ipv6 == other.ipv6)
            && within(&self.protocols, &other.protocols, |a, b| a == b)
            && within(&self.ports, &other.ports, |a, b| {
                a.start() <= b.start() && b.end() <= a.end()
            })
            && within(&self.destinations, &other.destinations, |a, b| {
                a.contains(b)
            })
    }

    /// Excludes the packets that `guard` matched.
    fn but_not(&mut self, guard: &EndingRule) {
        if guard.matches.is_disjoint(self) {
            return;
        }
        let covers = !guard.matches.further && guard.matches.covers(self);
        let rest = guard.matches.conditions.iter();
        let mut rest = rest.filter(|condition| !self.conditions.contains(condition));
        let opposite = match (covers, rest.next(), rest.next()) {
            (true, None, _) => {
                self.never = true;
                return;
            }
            (true, Some(condition), None) => opposite(condition),
            _ => None,
        };
        match opposite {
            Some(condition) => self.condition(condition),
            None => self.other(format!("not before: {}", guard.rule)),
        }
    }

    /// Converts the rule to plain data: one for each protocol, destination and range of ports. `targets` returns the destination of
    /// packets to a range of ports.
    pub fn forwards(
        mut self,
        guards: &[EndingRule],
        rule: &str,
        targets: impl Fn(&Ports) -> Vec<ForwardTarget>,
    ) -> Vec<Forward> {
        for guard in guards {
            self.but_not(guard);
        }
        if guards.len() >= MAX_GUARDS {
            self.other("many rules before it");
        }
        if self.never {
            return Vec::new();
        }
        if self.further {
            // Nothing is known of them, as of a condition that is not understood.
            let further = "further conditions".to_owned();
            self.conditions.push(Condition::Other(further));
        }
        let with_ports = |p: &u8| matches!(*p, TCP | UDP | SCTP);
        let protocols = match self.protocols.take() {
            Some(some) => some,
            None => vec![TCP, UDP, SCTP],
        };
        let ports = self.ports.take().unwrap_or_else(|| vec![0..=u16::MAX]);
        let mut destinations: Vec<Option<IpNet>> = match self.destinations.take() {
            None => vec![None],
            Some(some) => some.into_iter().map(Some).collect(),
        };
        if protocols.len() * ports.len() * destinations.len() > MAX_EXPANDED_RULES {
            destinations = vec![None];
            self.other("one of many destinations");
        }
        let mut all = Vec::new();
        for protocol in protocols.into_iter().filter(with_ports) {
            for destination in &destinations {
                for ports in &ports {
                    all.push(Forward {
                        protocol,
                        destination: *destination,
                        ipv6: self.ipv6,
                        local_only: self.local_only,
                        ports: ports.clone(),
                        targets: targets(ports),
                        conditions: self.conditions.clone(),
                        rule: rule.to_owned(),
                    });
                }
            }
        }
        all
    }
}

fn opposite(condition: &Condition) -> Option<Condition> {
    Some(match condition {
        Condition::Interface { names, equal } => Condition::Interface {
            names: names.clone(),
            equal: !equal,
        },
        Condition::Source { net, equal } => Condition::Source {
            net: *net,
            equal: !equal,
        },
        _ => return None,
    })
}

fn narrower(a: &IpNet, b: &IpNet) -> Option<IpNet> {
    if a.contains(b) {
        Some(*b)
    } else {
        b.contains(a).then_some(*a)
    }
}

fn overlap(a: &Ports, b: &Ports) -> Option<Ports> {
    let both = *a.start().max(b.start())..=*a.end().min(b.end());
    (!both.is_empty()).then_some(both)
}

fn complement(ranges: &[Ports]) -> Vec<Ports> {
    let mut sorted: Vec<&Ports> = ranges.iter().filter(|range| !range.is_empty()).collect();
    sorted.sort_by_key(|range| *range.start());
    let (mut rest, mut next) = (Vec::new(), Some(0u16));
    for range in sorted {
        let Some(from) = next else { break };
        if *range.start() > from {
            rest.push(from..=range.start() - 1);
        }
        next = range.end().checked_add(1).map(|after| after.max(from));
    }
    rest.extend(next.map(|from| from..=u16::MAX));
    rest
}

/// Parses `port`, `first-last` or `first:last`, where first does not exceed last.
pub fn port_range(text: &str, separator: char) -> Option<Ports> {
    let (first, last) = match text.split_once(separator) {
        Some((first, last)) => (first, last),
        None => (text, text),
    };
    let range = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// Parses `address` or `first-last`.
pub fn address_range(text: &str) -> Option<RangeInclusive<IpAddr>> {
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (first, last),
        None => (text, text),
    };
    let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
    (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(first..=last)
}

/// Maps ports to `to`: port `base` becomes the first of them. `None` where a sum exceeds the port range.
pub fn shifted(to: &Ports, base: u16, ports: &Ports) -> Option<TargetPorts> {
    let first = ports.start().checked_sub(base)?.checked_add(*to.start())?;
    Some(TargetPorts::Shift(first))
}

#[cfg(test)]
mod tests {
    use super::super::guards::Walked;
    use super::*;

    #[test]
    fn the_complement_of_ports_leaves_every_other_port() {
        let rest = |ranges: &[Ports]| complement(ranges);
        assert_eq!(rest(&[]), [0..=65535]);
        assert_eq!(rest(&[5..=5, 3..=4]), [0..=2, 6..=65535]);
        assert_eq!(rest(&[0..=9, 2..=3, 65535..=65535]), [10..=65534]);
        assert_eq!(rest(&[0..=65535]), []);
    }

    #[test]
    fn a_rule_that_ends_the_chain_early_is_a_condition_of_later_rules() {
        let at = |port: Option<u16>, conditions: &[Condition]| {
            let mut matches = Matches::at_hook(false);
            matches.protocols(&[UDP]);
            matches.ports(&port.map_or(vec![0..=u16::MAX], |p| vec![p..=p]));
            conditions.iter().for_each(|c| matches.condition(c.clone()));
            matches
        };
        let bridge = |equal| Condition::Interface {
            names: vec!["docker0".into()],
            equal,
        };
        let odd = Condition::Other("-m odd".into());
        let came_in = Condition::Origin { local: false };
        for (guard, expected) in [
            (
                at(None, &[bridge(true)]),
                Some(vec![came_in.clone(), bridge(false)]),
            ),
            (at(Some(54), &[]), Some(vec![came_in.clone()])),
            (at(Some(53), &[]), None),
            (
                at(None, std::slice::from_ref(&odd)),
                Some(vec![
                    came_in.clone(),
                    Condition::Other("not before: g".into()),
                ]),
            ),
        ] {
            let mut walked = Walked::default();
            walked.guard(&guard, "g", false);
            walked.emit(at(Some(53), &[]), "r", |_| Vec::new());
            let made = walked.found.first();
            let conditions = made.map(|forward| forward.conditions.clone());
            assert_eq!(conditions, expected, "{guard:?}");
        }
    }
}
