//! Verdicts where only the node's rules are known. The rules list the endpoints of new packets, not every endpoint: kube-proxy
//! leaves out terminating endpoints while others are ready, and endpoints that policy or topology keep from this node
//! (`CategorizeEndpoints` in `pkg/proxy/topology.go`). A missing endpoint is therefore at most `suspect`.

use std::net::SocketAddr;

use crate::attribution::FrontendMatch;
use crate::this_node::{NetnsOwner, ThisNode};
use ctk_cluster::rules::{NodeRules, RuleFrontend};
use ctnetlink::flow::Flow;

use super::decision::Decision;
use super::evidence::Detail;
use super::{Reason, dnat_rule};

/// Decides from `rules` alone, whose frontend the entry's destination `matched`.
pub(super) fn decide<'c>(
    rules: &'c NodeRules,
    node: &ThisNode,
    flow: &Flow,
    matched: FrontendMatch<'c>,
) -> Decision<'c> {
    if rules.cut {
        return Decision::incomplete("not all rules of this node could be read");
    }
    if rules.unknown_shapes > 0 {
        return Decision::incomplete("some rules of kube-proxy on this node are not understood");
    }
    if let FrontendMatch::Forward(_) = matched
        && let Some(decision) = dnat_rule::decide(rules, node, flow)
    {
        return decision;
    }
    // A namespace with DNAT rules of its own is a host's, even if it is not a node's. A destination that they do not name is no
    // frontend.
    let is_host = matched.is_nothing() && !rules.forwards.is_empty();
    if node.namespace == NetnsOwner::Foreign && !is_host {
        return Decision::new(Reason::ForeignNetns);
    }
    match matched {
        FrontendMatch::Rule(frontend) => {
            let mut decision = by_frontend(flow, frontend);
            decision.named = frontend.service.as_ref();
            decision
        }
        _ => Decision::new(if rules.has_address(flow.original.dst) {
            Reason::OtherPort
        } else {
            Reason::NoFrontend
        }),
    }
}

fn by_frontend<'c>(flow: &Flow, frontend: &'c RuleFrontend) -> Decision<'c> {
    if !frontend.understood {
        return Decision::incomplete("a rule for this destination is not understood");
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
        Decision::new(Reason::Endpoint)
    } else if is_among(&frontend.draining) {
        Decision::new(Reason::EndpointTerminating)
    } else if flow.is_dnat() {
        Decision::new(Reason::NotInNodeRules)
    } else if usable == 0 {
        Decision::new(Reason::NoDnatNoEndpoint)
    } else {
        Decision::new(Reason::NoDnat).with(Detail::Endpoints(usable))
    }
}
