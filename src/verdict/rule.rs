//! The decision table: first match wins.
//!
//! Derived from kube-proxy's reconciler (`pkg/proxy/conntrack/cleanup.go`) with the gaps closed that it has. RS is the
//! reply source, OD the original destination; an entry is *translated* when the two differ.

use std::net::SocketAddr;
use std::time::SystemTime;

use crate::attribution::FrontendMatch;
use ctk_cluster::datapath::Datapath;
use ctk_cluster::index::Index;
use ctk_cluster::rules::{NodeRules, RuleFrontend};
use ctnetlink::flow::{Flow, Status};

use super::case::Case;
use super::evidence::{Detail, Evidence};
use super::finding::Finding;
use super::{Reason, Seen, Verdict, forward};
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
            self.evidence.detail = Detail::Because(YOUNG);
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
        matches!(self.evidence.detail, Detail::Because(YOUNG))
    }

    /// The evidence goes on with what several looks at the entry showed.
    #[must_use]
    pub fn with_seen(mut self, seen: Seen) -> Self {
        self.evidence.seen = Some(seen);
        self
    }
}

const YOUNG: &str = "the entry is younger than the cluster source, its endpoint may be, too";

/// Everything a verdict depends on, beside the entry.
#[derive(Clone, Copy)]
pub struct Judge<'c> {
    /// What the API or a file told; `None` when only the node's rules are known.
    pub index: Option<&'c Index>,
    /// The rules of the node's namespace, when they are among the sources.
    pub rules: Option<&'c NodeRules>,
    pub node: &'c ThisNode,
    /// Who translates Services here in kube-proxy's place: then kube-proxy's ways say nothing of an entry.
    pub instead: Option<Datapath>,
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
        let mut finding = self.find(flow, matched);
        if finding.reason.verdict() == Verdict::Stale && self.is_younger_than_source(flow) {
            finding.reason = Reason::SourceIncomplete;
            finding.detail = Detail::Because(YOUNG);
        }
        if let Some(datapath) = self.instead
            && finding.is_by_kube_proxy()
        {
            finding.reason = Reason::NotKubeProxy;
            finding.detail = Detail::Because(datapath.because());
        }
        if finding.reason == Reason::NoFrontend
            && let Some(rule) = self.rules.and_then(|r| forward::displaced_from(r, flow))
        {
            finding.detail =
                Detail::Displaced(flow.original.source(), flow.reply.destination(), &rule.rule);
        }
        let mut evidence = Evidence::new(finding.reason, flow);
        evidence.service = self.index.zip(finding.port);
        evidence.owner = finding.owner;
        evidence.named = finding.named;
        evidence.detail = finding.detail;
        Some(Judgement {
            reason: finding.reason,
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
    fn find(&self, flow: &Flow, matched: FrontendMatch<'c>) -> Finding<'c> {
        if flow.status.is_offloaded() {
            return Finding::new(Reason::Offloaded);
        }
        if flow.zone.id != 0 && !self.zones.contains(&flow.zone.id) {
            return Finding::new(Reason::ForeignZone);
        }
        let Some(index) = self.index else {
            return match self.rules {
                Some(rules) => self.find_by_rules(flow, rules, matched),
                None => Finding::incomplete("there is no cluster source"),
            };
        };
        if let Some(because) = incomplete(index, flow, matched) {
            return Finding::incomplete(because);
        }
        if !matched.is_service_port()
            && let Some(finding) = self.find_by_forward(flow)
        {
            return finding;
        }
        if self.node.namespace == NetnsOwner::Foreign {
            return Finding::new(Reason::ForeignNetns);
        }
        let case = Case {
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

    /// The destination is that of DNAT rules which are not kube-proxy's. They were read in this very namespace, so it does
    /// not matter whose it is.
    fn find_by_forward(&self, flow: &Flow) -> Option<Finding<'c>> {
        let found = forward::find(self.rules?, self.node, flow)?;
        Some(Finding::new(found.reason).with(Detail::Rule(found.rule)))
    }

    /// Only the node's rules are known: they list what new packets get, not every endpoint there is.
    fn find_by_rules(
        &self,
        flow: &Flow,
        rules: &'c NodeRules,
        matched: FrontendMatch<'c>,
    ) -> Finding<'c> {
        if rules.cut {
            return Finding::incomplete("not all rules of this node could be read");
        }
        if rules.unknown_shapes > 0 {
            return Finding::incomplete("some rules of kube-proxy on this node are not understood");
        }
        if let FrontendMatch::Forward(_) = matched
            && let Some(finding) = self.find_by_forward(flow)
        {
            return finding;
        }
        // A namespace that has DNAT rules of its own is a host's, if not a node's: what they do not name is nobody's frontend.
        let is_host = matched.is_nothing() && !rules.forwards.is_empty();
        if self.node.namespace == NetnsOwner::Foreign && !is_host {
            return Finding::new(Reason::ForeignNetns);
        }
        match matched {
            FrontendMatch::Rule(frontend) => {
                let mut finding = by_frontend(flow, frontend);
                finding.named = frontend.service.as_ref();
                finding
            }
            _ => Finding::new(if rules.has_address(flow.original.dst) {
                Reason::OtherPort
            } else {
                Reason::NoFrontend
            }),
        }
    }
}

fn by_frontend<'c>(flow: &Flow, frontend: &'c RuleFrontend) -> Finding<'c> {
    if !frontend.understood {
        return Finding::incomplete("a rule for this destination is not understood");
    }
    let source = flow.reply.sport();
    let is_among = |all: &[SocketAddr]| {
        all.iter()
            .any(|target| target.ip() == flow.reply.src && Some(target.port()) == source)
    };
    let usable = match frontend.refused {
        true => 0,
        false => frontend.targets.len(),
    };
    if is_among(&frontend.targets) {
        Finding::new(Reason::Endpoint)
    } else if is_among(&frontend.draining) {
        Finding::new(Reason::EndpointTerminating)
    } else if flow.is_dnat() {
        Finding::new(Reason::NotInNodeRules)
    } else if usable == 0 {
        Finding::new(Reason::NoDnatNoEndpoint)
    } else {
        Finding::new(Reason::NoDnat).with(Detail::Endpoints(usable))
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
