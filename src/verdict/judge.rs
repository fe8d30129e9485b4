//! The decision table: first match wins.
//!
//! Derived from kube-proxy's reconciler (`pkg/proxy/conntrack/cleanup.go`) with the gaps closed that it has. RS is the
//! reply source, OD the original destination; an entry is *translated* when the two differ.

use std::time::SystemTime;

use crate::attribution::FrontendMatch;
use ctk_cluster::datapath::Datapath;
use ctk_cluster::index::Index;
use ctk_cluster::rules::NodeRules;
use ctnetlink::flow::{Flow, Status};

use super::by_cluster::ClusterJudge;
use super::decision::Decision;
use super::evidence::{Detail, Evidence};
use super::{Activity, Reason, Verdict, by_rules, dnat_rule};
use crate::this_node::{NetnsOwner, ThisNode};

/// The answer for one entry.
#[derive(Clone, Copy, Debug)]
pub struct Judgement<'c> {
    pub reason: Reason,
    pub evidence: Evidence<'c>,
}

impl Judgement<'_> {
    pub fn verdict(&self) -> Verdict {
        self.reason.verdict()
    }

    /// The same of an entry that may be younger than the source: its endpoint may be, too, so it cannot be called stale.
    #[must_use]
    pub fn unsettled(mut self, flow: &Flow) -> Self {
        if self.verdict() == Verdict::Stale {
            self.reason = Reason::SourceIncomplete;
            let seen = self.evidence.seen;
            self.evidence = Evidence::new(self.reason, flow);
            self.evidence.detail = Detail::YoungerThanSource;
            self.evidence.seen = seen;
        }
        self
    }

    /// The endpoint does not serve for a moment (it is not terminating), and no other endpoint of the Service does: nothing
    /// could take the packets instead.
    pub fn is_of_last_endpoint(&self) -> bool {
        matches!(self.evidence.detail, Detail::LastEndpoint)
    }

    /// The entry may be younger than the source, and the verdict is open for no other reason.
    pub fn is_unsettled(&self) -> bool {
        matches!(self.evidence.detail, Detail::YoungerThanSource)
    }

    /// The evidence goes on with what several looks at the entry showed.
    #[must_use]
    pub fn with_activity(mut self, seen: Activity) -> Self {
        self.evidence.seen = Some(seen);
        self
    }
}

/// Everything a verdict depends on, beside the entry.
#[derive(Clone, Copy)]
pub struct Judge<'c> {
    /// What the API or a file told; `None` when only the node's rules are known.
    pub index: Option<&'c Index>,
    /// The rules of the node's namespace, when they are among the sources.
    pub rules: Option<&'c NodeRules>,
    pub node: &'c ThisNode,
    /// Who translates Services here in kube-proxy's place: then kube-proxy's ways say nothing of an entry.
    pub kube_proxy_replacement: Option<Datapath>,
    /// Zones named on the command line: only entries of these are judged, beside those of the default zone.
    pub zones: &'c [u16],
    /// When the source was true. An entry that is younger cannot be called stale by it.
    pub source_time: Option<SystemTime>,
}

impl<'c> Judge<'c> {
    /// The verdict of one entry whose destination matched `matched`; `None` for entries that are not confirmed or are
    /// dying, which get none.
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
            && let Some(rule) = self.rules.and_then(|r| dnat_rule::displacing_rule(r, flow))
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

    /// Rows 2 to 4b, then those of the source at hand.
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

/// Row 4: what must have been read whole for this entry, and was not.
fn incomplete(index: &Index, flow: &Flow, matched: FrontendMatch<'_>) -> Option<&'static str> {
    let complete = index.completeness();
    if !complete.services {
        return Some("not all Services are known");
    }
    if !complete.slices {
        return Some("not all EndpointSlices are known");
    }
    // What a narrow reading left out is nobody's to judge.
    if !index.owners_known(flow.original.dst) {
        return Some("the Services of this destination were not read");
    }
    // Others at the same address have no say in an entry to one of its ports.
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
    if complete.nodes {
        return None;
    }
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
    // A translation to another node's node port looks like one to an endpoint that is gone.
    let source = flow.reply.sport();
    let hop = matched.ports().any(|(id, _)| {
        let service = index.port(id).service;
        let mut ports = index.ports_of(service);
        source.is_some() && ports.any(|(_, port)| port.node_port == source)
    });
    let endpoint = matched.ports().any(|(id, _)| {
        let mut endpoints = index.port(id).endpoints.iter();
        endpoints.any(|endpoint| endpoint.address == flow.reply.src)
    });
    let pod = index.pods_at(flow.reply.src).next().is_some();
    (hop && !endpoint && !pod && flow.is_dnat())
        .then_some("the Nodes are not known, and the reply port is a node port of the Service")
}
