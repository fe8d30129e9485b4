//! Choice of the Pods that a command reads, by a first look at the table.
//!
//! Pods of this node give nearly all names, and slices name the endpoints. Further addresses are needed where entries were
//! translated to an address that is no endpoint: whether a living Pod has it decides the verdict. Where the destination is no
//! frontend any more, a few addresses are read for their names alone.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::ControlFlow;

use crate::attribution::FrontendKind;
use crate::attribution::{FrontendMatch, endpoint_at};
use crate::doctor::groups::BoundedGroups;
use crate::filter::{Filter, Outcome};
use crate::select::Selectors;
use crate::select::name::PartyName;
use crate::this_node::{NetnsOwner, ThisNode};
use ctk_cluster::index::Index;
use ctk_cluster::read_scope::ChoosePods;
use ctk_cluster::service_scope::{ChosenAddresses, ChosenPods, MAX_SELECTED_ADDRESSES};
use ctnetlink::flow::Flow;
use ctnetlink::netns::Netns;
use ctnetlink::{Table, TableKind};

use crate::query::{EntryQuery, SourceQuery};
use crate::session::node_identity;
use crate::session::pipeline::now;

/// Addresses that are kept. Those of this node's own Pods are removed later. With more than [`MAX_SELECTED_ADDRESSES`] left, all Pods
/// are read instead.
const MAX_KEPT: usize = 4096;

/// Choice for the entries of a command. `None` where every Pod is read: with `--all-pods`, and where Pods are selected by name.
pub fn choice(source: &SourceQuery, entries: &EntryQuery) -> Option<ChoosePods> {
    let EntryQuery {
        filter, selectors, ..
    } = entries;
    if source.all_pods || names_pods(selectors) {
        return None;
    }
    let (named, netns, filter) = (source.node.clone(), source.netns.clone(), filter.clone());
    // Every shown entry has a selected Service as its destination, so that slices name its endpoint.
    let also = match selectors.services.plain().is_empty() {
        true => Also::Names,
        false => Also::Nothing,
    };
    Some(Box::new(move |index| {
        let node = node_identity::find_node(named, &netns, Some(index));
        choose(index, &node, &netns, &filter, also)
    }))
}

/// Choice for all entries, including addresses in a pod range with at least `least` unanswered entries.
pub fn choice_with_unanswered(source: &SourceQuery, least: u64) -> Option<ChoosePods> {
    if source.all_pods {
        return None;
    }
    let (named, netns) = (source.node.clone(), source.netns.clone());
    Some(Box::new(move |index| {
        let node = node_identity::find_node(named, &netns, Some(index));
        choose(
            index,
            &node,
            &netns,
            &Filter::default(),
            Also::Silent { least },
        )
    }))
}

/// Pods or namespaces are selected by name, so that every object that may hold the name is needed.
pub fn names_pods(selectors: &Selectors) -> bool {
    let pod = |party: &PartyName| matches!(party, PartyName::Pod(_));
    let parties = [&selectors.clients, &selectors.endpoints];
    let mut parties = parties
        .iter()
        .flat_map(|picks| picks.plain().iter().chain(picks.negated()));
    !selectors.pods.is_empty() || !selectors.namespaces.is_empty() || parties.any(pod)
}

/// Addresses that decide no verdict and are worth asking for.
#[derive(Clone, Copy)]
enum Also {
    Nothing,
    /// Those of entries whose endpoint no slice names.
    Names,
    /// Those with at least so many unanswered entries.
    Silent {
        least: u64,
    },
}

/// `None` outside the node's namespace, and where the table cannot be read.
fn choose(
    index: &Index,
    node: &ThisNode,
    netns: &Netns,
    filter: &Filter,
    also: Also,
) -> Option<ChosenPods> {
    let name = node.object(index)?.name.to_string();
    if node.namespace != NetnsOwner::Node {
        return None;
    }
    let mut deciding = HashSet::new();
    let (mut silent, mut named) = (BoundedGroups::default(), BoundedGroups::default());
    // A selector on a changing value may let an entry in later, so that only the lasting ones leave entries out.
    let lasting = filter.lasting();
    let mut table = Table::open(netns).ok()?;
    for dump in filter.dumps() {
        let report = table.dump(TableKind::Conntrack, &dump, &mut |flow| {
            if lasting.test(&flow, now()) == Outcome::Fail {
                return ControlFlow::Continue(());
            }
            match (question(&flow, index, node), also) {
                (Some(Question::Decides(address)), _) if deciding.len() < MAX_KEPT => {
                    deciding.insert(address);
                }
                (Some(Question::Names(address)), Also::Names) => *named.at(address) += 1,
                _ => {}
            }
            if matches!(also, Also::Silent { .. }) && may_be_a_lost_pod(&flow, index) {
                *silent.at(flow.reply.src) += 1;
            }
            ControlFlow::Continue(())
        });
        report.ok()?;
    }
    if let Also::Silent { least } = also {
        add_silent(&mut deciding, &silent, least);
    }
    let named = most(&named, 0);
    tracing::info!(node = %name, deciding = deciding.len(), named = named.len(), "Pods of this node, and whoever has these addresses");
    Some(ChosenPods {
        node: name,
        addresses: ChosenAddresses { deciding, named },
    })
}

/// The flow is unanswered, and its reply source is not known to be outside the pod ranges.
fn may_be_a_lost_pod(flow: &Flow, index: &Index) -> bool {
    flow.status.is_unreplied() && index.in_pod_range(flow.reply.src) != Some(false)
}

/// Addresses with at least `least` entries, those with most entries first.
fn most(groups: &BoundedGroups<IpAddr, u64>, least: u64) -> Vec<IpAddr> {
    let enough = |count: u64| count.saturating_add(groups.missed()) >= least;
    let mut most: Vec<(IpAddr, u64)> = groups
        .iter()
        .map(|(address, count)| (*address, *count))
        .filter(|(_, count)| enough(*count))
        .collect();
    most.sort_unstable_by_key(|(address, count)| (Reverse(*count), *address));
    most.into_iter().map(|(address, _)| address).collect()
}

/// Adds the addresses with most unanswered entries, up to the number that is read one by one.
fn add_silent(addresses: &mut HashSet<IpAddr>, silent: &BoundedGroups<IpAddr, u64>, least: u64) {
    for address in most(silent, least) {
        if addresses.len() >= MAX_SELECTED_ADDRESSES {
            break;
        }
        addresses.insert(address);
    }
}

/// Reason to look up the owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The owner decides the verdict. It is the address that the entry was translated to, when that is no endpoint; or its
    /// source, when it was not translated by an external frontend of policy Local, which concerns sources outside Pods only.
    Decides(IpAddr),
    /// The owner is only named. The entry was translated, its destination is no frontend any more, and no slice names the
    /// address that it leads to.
    Names(IpAddr),
}

/// The address of an entry whose owner must be looked up.
pub fn question(flow: &Flow, index: &Index, node: &ThisNode) -> Option<Question> {
    let matched = FrontendMatch::of(flow, index, node);
    let source = flow.reply.src;
    if matched.is_nothing() {
        let is_named = || index.node_at(source).is_some() || index.listed_pod(source).is_some();
        let own = || node.owns(Some(index), source) == Some(true);
        let unnamed = flow.is_dnat() && !own() && !is_named();
        return unnamed.then_some(Question::Names(source));
    }
    // Services whose slices were not read are not asked about.
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
        return local.then_some(Question::Decides(flow.original.src));
    }
    let mut ports = matched.ports();
    let listed = ports.any(|(id, _)| endpoint_at(index.port(id), &flow.reply).is_some());
    (!listed).then_some(Question::Decides(source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{udp, unreplied};
    use ctk_cluster::testing::world;

    #[test]
    fn an_address_outside_the_pod_ranges_is_not_looked_up() {
        let index = world(&["node n1 192.0.2.11 podCIDR=10.244.1.0/24"]);
        let (pod, outside) = ("10.244.1.9:514", "203.0.113.9:514");
        for (to, silent, asked) in [
            (pod, true, true),
            (pod, false, false),
            (outside, true, false),
        ] {
            let mut flow = udp("10.244.1.5:4000", to, to);
            if silent {
                unreplied(&mut flow);
            }
            assert_eq!(may_be_a_lost_pod(&flow, &index), asked, "{to} {silent}");
        }
    }

    #[test]
    fn a_scan_of_the_pod_range_does_not_make_every_pod_be_read() {
        let address = |n: u32| IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0af4_0000 + n));
        let mut silent = BoundedGroups::default();
        for n in 0..500 {
            for _ in 0..1 + n % 200 {
                *silent.at(address(n)) += 1;
            }
        }
        let mut asked = HashSet::from([address(9999)]);
        add_silent(&mut asked, &silent, 20);
        assert_eq!(asked.len(), MAX_SELECTED_ADDRESSES);
        assert!(asked.contains(&address(199)) && asked.contains(&address(9999)));
        assert!(!asked.contains(&address(5)), "it has 6 entries");
        // Those whose owners decide verdicts are not left out for them.
        let mut many: HashSet<_> = (1000..1051).map(address).collect();
        add_silent(&mut many, &silent, 20);
        assert_eq!(many.len(), MAX_SELECTED_ADDRESSES + 1);
    }
}
