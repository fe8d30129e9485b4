//! DNAT rules of the nat table that other programs than kube-proxy wrote.

use super::super::guards::{MAX_DEPTH, Walked};
use super::super::matches::{Matches, Ports, address_range, port_range, shifted};
use super::super::{Condition, ForwardTarget, NodeRules, TargetAddresses, TargetPorts};
use super::{IptablesTable, Rule, kube};

pub(super) fn nat(table: &IptablesTable<'_>, rules: &mut NodeRules) {
    let mut walk = ForwardWalk {
        table,
        walked: Walked::default(),
    };
    for (hook, output) in [("PREROUTING", false), ("OUTPUT", true)] {
        let mut above = walk.walked.at_hook(output);
        above.family(table.ipv6);
        walk.chain(hook, &above, MAX_DEPTH);
    }
    walk.walked.give(rules);
}

struct ForwardWalk<'a, 't> {
    table: &'a IptablesTable<'t>,
    walked: Walked,
}

impl ForwardWalk<'_, '_> {
    fn chain(&mut self, chain: &str, above: &Matches, depth: usize) {
        let mark = self.walked.mark();
        for line in self.table.rules(chain) {
            if !self.walked.step(depth) {
                break;
            }
            let rule = Rule::parse(line);
            let Some(target) = rule.target.as_deref() else {
                continue;
            };
            let mut here = above.clone();
            apply(&rule, &mut here);
            if here.is_never() || target == kube::SERVICES {
                continue;
            }
            match target {
                "RETURN" => self.walked.guard(&here, line, false),
                "ACCEPT" | "DROP" => self.walked.guard(&here, line, true),
                "DNAT" => self.dnat(&rule, here, line),
                "REDIRECT" => self.redirect(&rule, here, line),
                _ if self.table.has(target) => {
                    self.chain(target, &here, depth - 1);
                    if rule.goto {
                        self.walked.guard(&here, line, false);
                    }
                }
                "MARK" | "CONNMARK" | "LOG" | "NFLOG" | "ULOG" | "TRACE" | "AUDIT" | "SET"
                | "CT" | "NOTRACK" | "TOS" | "DSCP" | "SNAT" | "MASQUERADE" => {}
                // An unknown target may translate.
                _ => {
                    here.other(format!("-j {target}"));
                    self.walked.emit(here, line, |_| Vec::new());
                }
            }
        }
        self.walked.leave(mark);
    }

    /// `--to-destination [ADDRESS[-ADDRESS]][:PORT[-PORT[/BASE]]]`, IPv6 in brackets.
    fn dnat(&mut self, rule: &Rule<'_>, mut here: Matches, line: &str) {
        let words = rule.arguments.iter();
        let mut given = words.skip_while(|word| *word != "--to-destination");
        match given.nth(1).and_then(|text| destination(text)) {
            Some((addresses, ports)) => self.walked.emit(here, line, |matched| {
                vec![ForwardTarget {
                    addresses: addresses.clone(),
                    ports: ports.of(matched),
                }]
            }),
            None => {
                here.other("a DNAT target that is not understood");
                self.walked.emit(here, line, |_| Vec::new());
            }
        }
    }

    fn redirect(&mut self, rule: &Rule<'_>, here: Matches, line: &str) {
        let words = rule.arguments.iter();
        let mut given = words.skip_while(|word| *word != "--to-ports");
        let ports = given.nth(1).and_then(|text| port_range(text, '-'));
        let ports = ports.map_or(TargetPorts::Unchanged, TargetPorts::Range);
        self.walked.emit(here, line, |_| {
            vec![ForwardTarget {
                addresses: TargetAddresses::OwnHost,
                ports: ports.clone(),
            }]
        });
    }
}

/// Port that a DNAT target sends packets to.
#[derive(Clone, Debug)]
enum To {
    Unchanged,
    Range(Ports),
    /// Port `base` becomes the first of them.
    Shift(Ports, u16),
}

impl To {
    fn of(&self, matched: &Ports) -> TargetPorts {
        match self {
            To::Unchanged => TargetPorts::Unchanged,
            To::Range(ports) => TargetPorts::Range(ports.clone()),
            To::Shift(ports, base) => {
                shifted(ports, *base, matched).unwrap_or(TargetPorts::Range(ports.clone()))
            }
        }
    }
}

fn destination(text: &str) -> Option<(TargetAddresses, To)> {
    let (addresses, ports) = match text.strip_prefix('[') {
        Some(rest) => {
            let (addresses, ports) = rest.split_once(']')?;
            (addresses, ports.strip_prefix(':'))
        }
        // An IPv6 address without a port has no brackets.
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((addresses, ports)) => (addresses, Some(ports)),
            None => (text, None),
        },
    };
    let addresses = match addresses {
        "" => TargetAddresses::Unchanged,
        text => TargetAddresses::Range(address_range(&text.replace(['[', ']'], ""))?),
    };
    let to = match ports {
        None => To::Unchanged,
        Some(text) => match text.split_once('/') {
            None => To::Range(port_range(text, '-')?),
            Some((range, base)) => To::Shift(port_range(range, '-')?, base.parse().ok()?),
        },
    };
    Some((addresses, to))
}

fn apply(rule: &Rule<'_>, here: &mut Matches) {
    if let Some(protocol) = rule.protocol {
        here.protocols(&[protocol]);
    }
    match rule.destination {
        Some((net, true)) => here.destinations(&[net]),
        Some((net, false)) => here.condition(Condition::NotDestination(net)),
        None => {}
    }
    match &rule.ports {
        Some((ports, true)) => here.ports(ports),
        Some((ports, false)) => here.not_ports(ports),
        None => {}
    }
    if rule.to_local {
        here.local_only();
    }
    if let Some((net, equal)) = rule.source {
        here.condition(Condition::Source { net, equal });
    }
    if let Some((name, equal)) = &rule.interface {
        here.condition(Condition::Interface {
            names: vec![name.to_string()],
            equal: *equal,
        });
    }
    for other in &rule.others {
        here.other(other.text.clone());
    }
}
