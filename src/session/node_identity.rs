//! The node that a network namespace belongs to.

use crate::error::chain;
use crate::this_node::{NetnsOwner, ThisNode};
use ctk_cluster::index::Index;
use ctk_cluster::rules::read::Read;
use ctk_cluster::source::Loaded;
use ctnetlink::netns::Netns;
use ctnetlink::rtnetlink;

use crate::query::SourceQuery;
use crate::session::node_rules;

/// The node that the namespace belongs to, and whether kube-proxy's rules are in it (`None`: not looked for). Reports missing
/// local addresses and an unknown node name to `tell`.
pub fn this_node(
    source: &SourceQuery,
    loaded: Option<&Loaded>,
    rules: Option<&Read>,
    tell: &dyn Fn(&str),
) -> (ThisNode, Option<bool>) {
    let (netns, index) = (&source.netns, loaded.map(|loaded| &loaded.index));
    let mut node = find_node(source.node.clone(), netns, index);
    if node.local.is_none() {
        tell("local addresses are not known");
    }
    let named = named_node(source.node.clone());
    let is_known = |index| node.object(index).is_some();
    if let Some(name) = named.filter(|_| index.is_some_and(|index| !is_known(index))) {
        tell(&format!("the cluster source knows no Node named {name:?}"));
    }
    let mut kube_proxy = None;
    prove_by_rules(&mut node, &mut kube_proxy, rules, netns);
    tracing::info!(node = ?node.name, namespace = ?node.namespace, "this node");
    (node, kube_proxy)
}

/// Takes the namespace for the node's where only kube-proxy's rules show that. `seen`: result of an earlier look at the rules.
pub fn prove_by_rules(
    node: &mut ThisNode,
    seen: &mut Option<bool>,
    rules: Option<&Read>,
    netns: &Netns,
) {
    let look = || node_rules::hold_kube_proxy(rules, netns);
    if node.namespace == NetnsOwner::Foreign && *seen.get_or_insert_with(look) {
        node.sees_kube_proxy();
    }
}

/// Value of `--node`, else of NODE_NAME, which the downward API usually sets in a pod.
fn named_node(flag: Option<String>) -> Option<String> {
    let variable = || std::env::var("NODE_NAME").ok();
    flag.or_else(|| variable().filter(|name| !name.is_empty()))
}

/// The node that `netns` belongs to. `flag` is the value of `--node`.
pub fn find_node(flag: Option<String>, netns: &Netns, index: Option<&Index>) -> ThisNode {
    let local = rtnetlink::local_addresses(netns);
    if let Err(error) = &local {
        tracing::info!(error = chain(error), "local addresses");
    }
    let routes = rtnetlink::routes(netns);
    if let Err(error) = &routes {
        tracing::info!(error = chain(error), "routes");
    }
    let hostname = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    ThisNode::find(
        index,
        named_node(flag).as_deref(),
        Some(&hostname),
        local.ok(),
        netns.is_initial(),
    )
    .with_routes(routes.ok())
}
