//! kube-proxy's chains (`pkg/proxy/iptables/proxier.go`, `syncProxyRules`).
//!
//! Since 1.24 external traffic passes `KUBE-EXT-*` to `KUBE-SVC-*` (all endpoints) or `KUBE-SVL-*` (those of this node), before
//! 1.24 `KUBE-FW-*` and `KUBE-XLB-*`. Above 1000 endpoints the rules of these chains have no comments.

use std::net::{IpAddr, SocketAddr};

use super::super::reach::{ChainReach, Reached};
use super::super::{
    NodePortScope, NodeRules, Proxy, RuleFrontend, RuleKind, RuleService, service_name,
};
use super::{IptablesTable, Other, Rule};

pub(super) const SERVICES: &str = "KUBE-SERVICES";
pub(super) const NODE_PORTS: &str = "KUBE-NODEPORTS";
const EXTERNAL: &str = "KUBE-EXTERNAL-SERVICES";

/// Chains and targets that only mark the packet.
fn only_marks(target: &str) -> bool {
    matches!(
        target,
        "KUBE-MARK-MASQ" | "MARK" | "CONNMARK" | "LOG" | "NFLOG" | "RETURN" | "ACCEPT" | "TRACE"
    )
}

/// Matches that choose among endpoints or sources, or only count, so that a packet may reach the target. An interface stands for
/// the pods of the node (`--detect-local-mode` `BridgeInterface` and `InterfaceNamePrefix`).
fn is_choice(other: &Other<'_>) -> bool {
    let interface = other.text.trim_start_matches("! ").starts_with("-i ");
    interface
        || matches!(
            &*other.module,
            "statistic" | "recent" | "addrtype" | "physdev" | "mark" | "conntrack" | "nfacct"
        )
}

/// Reports whether every match of the rule is one of those.
fn only_chooses(rule: &Rule<'_>) -> bool {
    rule.others.iter().all(is_choice)
}

struct ServiceWalk<'a, 't> {
    table: &'a IptablesTable<'t>,
    reached: Reached,
}

impl ServiceWalk<'_, '_> {
    fn reach(&mut self, chain: &str) -> ChainReach {
        let table = self.table;
        self.reached.from(chain, |chain, reach| {
            reach.unknown_target |= !table.has(chain);
            let rules = table.rules(chain);
            rules.filter_map(|line| take(line, reach)).collect()
        })
    }
}

/// Reads one rule. Returns the chain that it leads to.
fn take(line: &str, reach: &mut ChainReach) -> Option<String> {
    let rule = Rule::parse(line);
    let target = rule
        .target
        .as_deref()
        .filter(|target| !only_marks(target))?;
    reach.not_understood |= !only_chooses(&rule);
    match target {
        // Target, before 1.26, of packets that no endpoint takes, and, at the end of KUBE-FW, of packets from sources that are not
        // allowed.
        "KUBE-MARK-DROP" => {
            let comment = rule.comment.as_deref().unwrap_or_default();
            reach.refused |= comment.contains("endpoints");
        }
        "DNAT" => match endpoint(&rule) {
            Some(endpoint) => reach.targets.push(endpoint),
            None => reach.unknown_target = true,
        },
        _ => return Some(target.to_owned()),
    }
    None
}

/// Parses `--to-destination IP:PORT`, with one address and one port.
pub(super) fn endpoint(rule: &Rule<'_>) -> Option<SocketAddr> {
    let mut words = rule.arguments.iter();
    words.find(|word| *word == "--to-destination")?;
    words.next()?.parse().ok()
}

pub(super) fn nat(table: &IptablesTable<'_>, rules: &mut NodeRules) {
    if !table.is_used(SERVICES) {
        return;
    }
    rules.proxies.insert(Proxy::Iptables);
    let mut walk = ServiceWalk {
        table,
        reached: Reached::default(),
    };
    let mut has_node_ports = false;
    for line in table.rules(SERVICES) {
        let rule = Rule::parse(line);
        match rule.target.as_deref() {
            Some(NODE_PORTS) => {
                has_node_ports |= scope(&rule, table.ipv6, rules);
            }
            Some(target) if table.has(target) && !target.starts_with("KUBE-MARK-") => {
                let mut reach = walk.reach(target);
                match key(&rule) {
                    Some((address, protocol, port)) => {
                        reach.not_understood |= !only_chooses(&rule);
                        let (service, kind) = named(&rule);
                        let frontend = reach.frontend(service, kind);
                        rules.add_frontend((address, protocol, port), frontend);
                    }
                    // Chains that translate nothing belong to no frontend.
                    None => {
                        rules.unknown_shapes += usize::from(reach.may_translate());
                    }
                }
            }
            // A target that ends the walk, or a missing chain.
            Some(target) if !only_marks(target) && !target.starts_with("KUBE-MARK-") => {
                rules.unknown_shapes += 1;
            }
            _ => {}
        }
    }
    if has_node_ports {
        node_ports(&mut walk, rules);
    }
}

/// Reads the jump to the node ports. Returns false where its shape is not understood.
fn scope(rule: &Rule<'_>, ipv6: bool, rules: &mut NodeRules) -> bool {
    let (destination, except) = match rule.destination {
        None => (None, None),
        Some((net, true)) => (Some(net), None),
        Some((net, false)) => (None, Some(net)),
    };
    if !rule.others.is_empty() || (destination.is_none() && !rule.to_local) {
        rules.unknown_shapes += 1;
        return false;
    }
    rules.node_port_scopes.push(NodePortScope {
        ipv6,
        destination,
        except,
    });
    true
}

fn node_ports(walk: &mut ServiceWalk<'_, '_>, rules: &mut NodeRules) {
    let table = walk.table;
    for line in table.rules(NODE_PORTS) {
        let rule = Rule::parse(line);
        let Some(target) = rule.target.as_deref() else {
            continue;
        };
        if only_marks(target) || target.starts_with("KUBE-MARK-") {
            continue;
        }
        let mut reach = walk.reach(target);
        match port_key(&rule) {
            Some((protocol, port)) => {
                reach.not_understood |= !only_chooses(&rule);
                let frontend = reach.frontend(named(&rule).0, RuleKind::NodePort);
                rules.add_node_port((table.ipv6, protocol, port), frontend);
            }
            None => rules.unknown_shapes += 1,
        }
    }
}

/// Frontends that are rejected or dropped because no endpoint exists.
pub(super) fn filter(table: &IptablesTable<'_>, rules: &mut NodeRules) {
    for chain in [SERVICES, EXTERNAL, NODE_PORTS] {
        for line in table.rules(chain) {
            let rule = Rule::parse(line);
            if !matches!(rule.target.as_deref(), Some("REJECT" | "DROP")) {
                continue;
            }
            let (service, _) = named(&rule);
            let refused = |kind| RuleFrontend {
                kind,
                service,
                refused: true,
                understood: true,
                ..RuleFrontend::default()
            };
            if let Some(key) = key(&rule) {
                let kind = match chain {
                    SERVICES => RuleKind::ClusterIp,
                    _ => RuleKind::Unknown,
                };
                rules.add_frontend(key, refused(kind));
            } else if let Some((protocol, port)) = port_key(&rule).filter(|_| rule.to_local) {
                let key = (table.ipv6, protocol, port);
                rules.add_node_port(key, refused(RuleKind::NodePort));
            } else {
                rules.unknown_shapes += 1;
            }
        }
    }
}

/// One address, protocol and port.
fn key(rule: &Rule<'_>) -> Option<(IpAddr, u8, u16)> {
    let (net, true) = rule.destination? else {
        return None;
    };
    let (protocol, port) = port_key(rule)?;
    (net.prefix_len() == net.max_prefix_len()).then_some((net.addr(), protocol, port))
}

fn port_key(rule: &Rule<'_>) -> Option<(u8, u16)> {
    let Some((ports, true)) = &rule.ports else {
        return None;
    };
    let [range] = ports.as_slice() else {
        return None;
    };
    (range.start() == range.end()).then_some((rule.protocol?, *range.start()))
}

/// Parses the comment: `ns/name:port cluster IP`.
pub(super) fn named(rule: &Rule<'_>) -> (Option<RuleService>, RuleKind) {
    let comment = rule.comment.as_deref().unwrap_or_default();
    let (name, rest) = comment.split_once(' ').unwrap_or((comment, ""));
    let kind = match rest {
        "cluster IP" => RuleKind::ClusterIp,
        "external IP" => RuleKind::ExternalIp,
        "loadbalancer IP" => RuleKind::LoadBalancerIp,
        _ => RuleKind::Unknown,
    };
    (service_name(name), kind)
}
