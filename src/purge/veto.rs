//! What forbids the delete of an entry that passed every selector. Pure.
//!
//! An entry without a start may be younger than the cluster file that it was judged by, and so may its endpoint. This node's
//! own rules tell: what they lead to now is no endpoint of the past.

use std::net::SocketAddr;

use ctk_cluster::rules::NodeRules;
use ctnetlink::flow::Flow;

/// Where this node's rules send new flows to a flow's destination, compared with the flow's own endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesLead {
    /// To that endpoint.
    There,
    /// To others; flows that exist keep it (an IPVS server of weight 0).
    Draining,
    Elsewhere,
    /// Rules that may lead there are missing or not understood.
    NotKnown,
}

impl RulesLead {
    /// `local`: the destination is an address of this node.
    pub fn of(flow: &Flow, rules: &NodeRules, local: bool) -> Self {
        let (Some(to), Some(from)) = (flow.original.dport(), flow.reply.sport()) else {
            return RulesLead::Elsewhere;
        };
        let endpoint = SocketAddr::new(flow.reply.src, from);
        match rules.frontend(flow.original.dst, flow.protocol(), to, local) {
            Some(frontend) if frontend.targets.contains(&endpoint) => RulesLead::There,
            Some(frontend) if frontend.draining.contains(&endpoint) => RulesLead::Draining,
            Some(frontend) if !frontend.understood => RulesLead::NotKnown,
            None if !rules.is_whole() => RulesLead::NotKnown,
            _ => RulesLead::Elsewhere,
        }
    }
}

/// Why an entry is left that was judged to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Veto {
    /// This node's rules lead to its endpoint, which the cluster file does not have.
    RulesLeadThere,
    /// Whether they do is not known.
    RulesNotKnown,
    /// At the second look it could not be judged any more: the rules that decide by then are not understood.
    NotJudged,
}

/// The veto on an entry that a cluster file calls stale. `rules`: those of this node; `None` where none can be read.
pub fn newer_than_file(flow: &Flow, rules: Option<&NodeRules>, local: bool) -> Option<Veto> {
    // A start is held against the file's time when the entry is judged.
    let rules = rules.filter(|_| flow.start.is_none())?;
    match RulesLead::of(flow, rules, local) {
        RulesLead::There | RulesLead::Draining => Some(Veto::RulesLeadThere),
        RulesLead::NotKnown => Some(Veto::RulesNotKnown),
        RulesLead::Elsewhere => None,
    }
}

/// Entries that were left, by veto.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vetoes {
    pub rules_lead_there: u64,
    pub rules_not_known: u64,
    pub not_judged: u64,
}

impl Vetoes {
    pub fn add(&mut self, veto: Option<Veto>) {
        match veto {
            Some(Veto::RulesLeadThere) => self.rules_lead_there += 1,
            Some(Veto::RulesNotKnown) => self.rules_not_known += 1,
            Some(Veto::NotJudged) => self.not_judged += 1,
            None => {}
        }
    }

    /// Those of which it is not known whether they should have been deleted.
    pub fn open(self) -> u64 {
        self.rules_not_known + self.not_judged
    }

    pub fn total(self) -> u64 {
        self.rules_lead_there + self.open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctk_cluster::rules::RuleFrontend;
    use ctnetlink::flow::{L4, Tuple};

    /// A flow of kube-dns that leads to 10.244.0.11:53.
    fn flow(start: Option<u64>) -> Flow {
        let tuple = |src: &str, dst: &str, ports: (u16, u16)| Tuple {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            protocol: 17,
            l4: L4::Ports {
                src: ports.0,
                dst: ports.1,
            },
        };
        let mut flow = Flow::new(
            tuple("10.244.0.2", "10.96.0.10", (4000, 53)),
            tuple("10.244.0.11", "10.244.0.2", (53, 4000)),
        );
        flow.start = start;
        flow
    }

    fn rules(targets: &[&str], draining: &[&str], understood: bool) -> NodeRules {
        let places = |all: &[&str]| all.iter().map(|place| place.parse().unwrap()).collect();
        let mut rules = NodeRules::default();
        let frontend = RuleFrontend {
            targets: places(targets),
            draining: places(draining),
            understood,
            ..RuleFrontend::default()
        };
        let key = ("10.96.0.10".parse().unwrap(), 17, 53);
        rules.frontends.insert(key, frontend);
        rules
    }

    #[test]
    fn an_entry_of_unknown_age_is_left_where_the_rules_may_lead_to_its_endpoint() {
        let (own, other) = ("10.244.0.11:53", "10.244.0.12:53");
        let none = NodeRules::default();
        let cut = NodeRules {
            cut: true,
            ..NodeRules::default()
        };
        let unknown = NodeRules {
            unknown_shapes: 1,
            ..NodeRules::default()
        };
        for (case, start, rules, expected) in [
            (
                "led to",
                None,
                rules(&[other, own], &[], true),
                Some(Veto::RulesLeadThere),
            ),
            (
                "led to, and odd",
                None,
                rules(&[own], &[], false),
                Some(Veto::RulesLeadThere),
            ),
            (
                "draining",
                None,
                rules(&[other], &[own], true),
                Some(Veto::RulesLeadThere),
            ),
            ("not led to", None, rules(&[other], &[], true), None),
            (
                "not led to, and odd",
                None,
                rules(&[other], &[], false),
                Some(Veto::RulesNotKnown),
            ),
            ("no frontend", None, none, None),
            ("rules missing", None, cut, Some(Veto::RulesNotKnown)),
            (
                "an unknown form",
                None,
                unknown.clone(),
                Some(Veto::RulesNotKnown),
            ),
            ("its age is known", Some(7), rules(&[own], &[], true), None),
            ("its age is known, unknown form", Some(7), unknown, None),
        ] {
            let veto = newer_than_file(&flow(start), Some(&rules), false);
            assert_eq!(veto, expected, "{case}");
        }
        assert_eq!(newer_than_file(&flow(None), None, false), None);
    }
}
