//! Rows 1 to 4 of the decision table, and the changes to its result. [`by_cluster`](super::by_cluster) has the rows that
//! need a cluster, [`by_rules`](super::by_rules) those of node rules alone.
//!

use std::time::SystemTime;

use crate::attribution::FrontendMatch;
use ctk_cluster::datapath::Datapath;
use ctk_cluster::index::Index;
use ctk_cluster::rules::NodeRules;
use ctnetlink::flow::{Flow, Status};

use super::by_cluster::ClusterJudge;
use super::decision::Decision;
use super::evidence::{Detail, Evidence};
use super::port_change::PortChange;
use super::{Activity, Reason, Verdict, by_rules, dnat_rule};
use crate::this_node::{NetnsOwner, ThisNode};

/// Verdict and evidence of one entry.
#[derive(Clone, Copy, Debug)]
pub struct Judgement<'c> {
    pub reason: Reason,
    pub evidence: Evidence<'c>,
}

impl Judgement<'_> {
    pub fn verdict(&self) -> Verdict {
        self.reason.verdict()
    }

    /// Turns `stale` into `unknown` for an entry that may be younger than the source: its endpoint may be younger, too.
    #[must_use]
    pub fn unsettled(mut self, flow: &Flow) -> Self {
        if self.verdict() == Verdict::Stale {
            self.reason = Reason::SourceIncomplete;
            let activity = self.evidence.activity;
            self.evidence = Evidence::new(self.reason, flow);
            self.evidence.detail = Detail::YoungerThanSource;
            self.evidence.activity = activity;
        }
        self
    }

    /// Whether the endpoint does not serve for a moment (it is not terminating) and no other endpoint of the Service
    /// serves. After a delete no endpoint could take the packets.
    pub fn is_of_last_endpoint(&self) -> bool {
        matches!(self.evidence.detail, Detail::LastEndpoint)
    }

    /// Whether the verdict is open only because the entry may be younger than the source.
    pub fn is_unsettled(&self) -> bool {
        matches!(self.evidence.detail, Detail::YoungerThanSource)
    }

    /// Adds the result of several observations to the evidence.
    #[must_use]
    pub fn with_activity(mut self, activity: Activity) -> Self {
        self.evidence.activity = Some(activity);
        self
    }

    /// Adds the source port that translation changed to the evidence.
    #[must_use]
    pub fn with_port_change(mut self, change: PortChange) -> Self {
        self.evidence.port_change = Some(change);
        self
    }
}

/// Everything beside the entry that a verdict depends on.
#[derive(Clone, Copy)]
pub struct Judge<'c> {
    /// Objects from the API or a file; `None` when only the node's rules are known.
    pub index: Option<&'c Index>,
    /// Rules of the node's namespace, when they are among the sources.
    pub rules: Option<&'c NodeRules>,
    pub node: &'c ThisNode,
    /// BPF datapath that translates Services in kube-proxy's place. Rules derived from kube-proxy do not hold then.
    pub kube_proxy_replacement: Option<Datapath>,
    /// Zones named on the command line. Entries of these and of the default zone are judged, no others.
    pub zones: &'c [u16],
    /// Time of the source. A younger entry is not called stale by it.
    pub source_time: Option<SystemTime>,
}

impl<'c> Judge<'c> {
    /// Judges one entry whose destination matched `matched`. `None` for an entry that is dying or not confirmed: the kernel
    /// does not use it for packets.
    pub fn judge(&self, flow: &Flow, matched: FrontendMatch<'c>) -> Option<Judgement<'c>> {
        if !flow.status.contains(Status::CONFIRMED) || flow.status.contains(Status::DYING) {
            return None;
        }
        let mut decision = self.decide(flow, matched);
        if decision.reason.verdict() == Verdict::Stale && self.is_younger_than_source(flow) {
            decision.reason = Reason::SourceIncomplete;
            decision.detail = Detail::YoungerThanSource;
        }
        if let Some(datapath) = self.kube_proxy_replacement
            && decision.is_by_kube_proxy()
        {
            decision.reason = Reason::NotKubeProxy;
            decision.detail = Detail::Because(datapath.because());
        }
        if decision.reason == Reason::NoFrontend
            && let Some(rule) = self
                .rules
                .and_then(|r| dnat_rule::displacing_rule(r, self.node, flow))
        {
            decision.detail =
                Detail::Displaced(flow.original.source(), flow.reply.destination(), &rule.rule);
        }
        let mut evidence = Evidence::new(decision.reason, flow);
        evidence.service = self.index.zip(decision.port);
        evidence.owner = decision.owner;
        evidence.named = decision.named;
        evidence.detail = decision.detail;
        Some(Judgement {
            reason: decision.reason,
            evidence,
        })
    }

    fn is_younger_than_source(&self, flow: &Flow) -> bool {
        let (Some(start), Some(time)) = (flow.start, self.source_time) else {
            return false;
        };
        time.duration_since(SystemTime::UNIX_EPOCH)
            .is_ok_and(|time| u128::from(start) > time.as_nanos())
    }

    /// Rows 2 to 4b, then the rows of the available source.
    fn decide(&self, flow: &Flow, matched: FrontendMatch<'c>) -> Decision<'c> {
        if flow.status.is_offloaded() {
            return Decision::new(Reason::Offloaded);
        }
        if flow.zone.id != 0 && !self.zones.contains(&flow.zone.id) {
            return Decision::new(Reason::ForeignZone);
        }
        let Some(index) = self.index else {
            return match self.rules {
                Some(rules) => by_rules::decide(rules, self.node, flow, matched),
                None => Decision::incomplete("there is no cluster source"),
            };
        };
        if let Some(because) = incomplete(index, flow, matched) {
            return Decision::incomplete(because);
        }
        if !matched.is_service_port()
            && let Some(decision) = self
                .rules
                .and_then(|rules| dnat_rule::decide(rules, self.node, flow))
        {
            return decision;
        }
        if self.node.namespace == NetnsOwner::Foreign {
            return Decision::new(Reason::ForeignNetns);
        }
        let case = ClusterJudge {
            node: self.node,
            rules: self.rules,
            index,
            flow,
            matched,
            translated: flow.is_dnat(),
        };
        if matched.is_service_port() {
            case.frontend()
        } else {
            case.no_frontend()
        }
    }
}

/// Row 4: names the objects that this entry needs and that were not read completely.
fn incomplete(index: &Index, flow: &Flow, matched: FrontendMatch<'_>) -> Option<&'static str> {
    let complete = index.completeness();
    if !complete.services {
        return Some("not all Services are known");
    }
    if !complete.slices {
        return Some("not all EndpointSlices are known");
    }
    // A narrow read scope left these out, so absence proves nothing.
    if !index.owners_known(flow.original.dst) {
        return Some("the Services of this destination were not read");
    }
    // Other Services at the same address do not affect an entry to a port of this one.
    let known = match matched.is_service_port() {
        true => {
            let mut services = matched.ports().map(|(id, _)| index.port(id).service);
            services.all(|id| index.endpoints_known(id))
        }
        false => {
            let mut owners = index.owners(flow.original.dst).iter();
            owners.all(|(id, _)| index.endpoints_known(*id))
        }
    };
    if !known {
        return Some("the EndpointSlices of this Service were not read");
    }
    match complete.nodes {
        true => None,
        false => needs_nodes(index, flow, matched),
    }
}

/// Row 4 where the Nodes are not known: a reason why this entry needs them.
fn needs_nodes(index: &Index, flow: &Flow, matched: FrontendMatch<'_>) -> Option<&'static str> {
    let node_port = match matched {
        FrontendMatch::NodePorts(_) => true,
        FrontendMatch::Addresses(_) => false,
        FrontendMatch::Nothing | FrontendMatch::Rule(_) | FrontendMatch::Forward(_) => {
            let port = flow.original.dport();
            index.owners(flow.original.dst).is_empty()
                && port.is_some_and(|port| !index.node_ports(flow.protocol(), port).is_empty())
        }
    };
    if node_port {
        return Some("the Nodes are not known, and the port is a node port");
    }
    // A translation to another node's node port looks like a translation to an endpoint that is gone.
    let source = flow.reply.sport();
    let hop = matched.ports().any(|(id, _)| {
        let service = index.port(id).service;
        let mut ports = index.ports_of(service);
        source.is_some() && ports.any(|(_, port)| port.node_port == source)
    });
    let endpoint = matched
        .ports()
        .any(|(id, _)| !index.port(id).endpoints.at(flow.reply.src).is_empty());
    let pod = index.pods_at(flow.reply.src).next().is_some();
    (hop && !endpoint && !pod && flow.is_dnat())
        .then_some("the Nodes are not known, and the reply port is a node port of the Service")
}
