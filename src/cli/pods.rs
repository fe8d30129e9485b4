//! Which Pods a command needs: a first look at the table tells.
//!
//! On a node those that run on it give nearly all names, and slices name the endpoints. What is left are the addresses that
//! entries were translated to without being an endpoint: whether a living Pod has such an address decides their verdict.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::ControlFlow;

use crate::cluster::index::Index;
use crate::cluster::wanted::{ChoosePods, ChosenPods};
use crate::entry::FrontendKind;
use crate::filter::{Filter, Outcome};
use crate::flow::Flow;
use crate::label::{Matched, endpoint_at};
use crate::netlink::{Table, TableKind};
use crate::netns::Netns;
use crate::select::Selectors;
use crate::select::name::PartyName;
use crate::verdict::{Namespace, ThisNode};

use super::args::SourceArgs;
use super::context;

/// Chooses for a command that selects so; `None` where every Pod is needed: by flag, and where Pods are selected by name.
pub fn choice(
    args: &SourceArgs,
    netns: &Netns,
    filter: &Filter,
    selectors: &Selectors,
) -> Option<ChoosePods> {
    if args.all_pods || names_pods(selectors) {
        return None;
    }
    let (named, netns, filter) = (args.node.clone(), netns.clone(), filter.clone());
    Some(Box::new(move |index| {
        let node = context::find_node(named, &netns, Some(index));
        choose(index, &node, &netns, &filter, in_question)
    }))
}

/// Chooses for a look at everything, which asks, too, who has the addresses from which no answer came.
pub fn choice_with_unanswered(args: &SourceArgs, netns: &Netns) -> Option<ChoosePods> {
    if args.all_pods {
        return None;
    }
    let (named, netns) = (args.node.clone(), netns.clone());
    let ask = |flow: &Flow, index: &Index, node: &ThisNode| {
        let silent = flow.status.is_unreplied().then_some(flow.reply.src);
        in_question(flow, index, node).or(silent)
    };
    Some(Box::new(move |index| {
        let node = context::find_node(named, &netns, Some(index));
        choose(index, &node, &netns, &Filter::default(), ask)
    }))
}

/// Somebody else than a Service is selected by name, so that nothing may be missing in which the name could stand.
pub fn names_pods(selectors: &Selectors) -> bool {
    let pod = |party: &PartyName| matches!(party, PartyName::Pod(_));
    let parties = [&selectors.clients, &selectors.endpoints];
    let mut parties = parties
        .iter()
        .flat_map(|picks| picks.plain().iter().chain(picks.negated()));
    !selectors.pods.is_empty() || !selectors.namespaces.is_empty() || parties.any(pod)
}

/// `None` off the node, and where the table cannot be read: then nothing tells which Pods matter.
fn choose(
    index: &Index,
    node: &ThisNode,
    netns: &Netns,
    filter: &Filter,
    ask: impl Fn(&Flow, &Index, &ThisNode) -> Option<IpAddr>,
) -> Option<ChosenPods> {
    let name = node.object(index)?.name.to_string();
    if node.namespace != Namespace::Node {
        return None;
    }
    let mut addresses = HashSet::new();
    // What a selector leaves out now and might let in later is looked at: only lasting answers count.
    let lasting = filter.lasting();
    let mut table = Table::open(netns).ok()?;
    for dump in filter.dumps() {
        let report = table.dump(TableKind::Conntrack, &dump, &mut |flow| {
            if lasting.test(&flow, super::pick::now()) != Outcome::Fail {
                addresses.extend(ask(&flow, index, node));
            }
            ControlFlow::Continue(())
        });
        report.ok()?;
    }
    let count = addresses.len();
    tracing::info!(node = %name, addresses = count, "Pods of this node, and whoever has these addresses");
    Some(ChosenPods {
        node: name,
        addresses,
    })
}

/// The address whose owner decides the verdict of an entry: where it was translated to, when that is no endpoint; where it
/// comes from, when it was not translated by an external frontend of policy Local, which binds sources that are no Pods.
pub fn in_question(flow: &Flow, index: &Index, node: &ThisNode) -> Option<IpAddr> {
    let matched = Matched::of(flow, index, node);
    if matched.is_nothing() {
        return None;
    }
    // Where only some Services' slices were read, nothing is asked about the others.
    let known = |(id, _)| index.endpoints_known(index.port(id).service);
    if !matched.ports().all(known) {
        return None;
    }
    if !flow.is_dnat() {
        let mut ports = matched.ports();
        let local = ports.any(|(id, kind)| {
            let service = index.service(index.port(id).service);
            kind != FrontendKind::ClusterIp && service.external_local
        });
        return local.then_some(flow.original.src);
    }
    let mut ports = matched.ports();
    let listed = ports.any(|(id, _)| endpoint_at(index.port(id), &flow.reply).is_some());
    (!listed).then_some(flow.reply.src)
}
