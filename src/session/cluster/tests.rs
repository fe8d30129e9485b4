use clap::Parser;

use super::*;
use crate::this_node::NetnsOwner;
use ctk_cluster::testing::loaded;

#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    source: SourceArgs,
}

#[test]
fn a_namespace_that_was_the_nodes_for_want_of_nodes_is_foreign_when_they_come() {
    let args = Typed::parse_from(["ctk"]).source;
    let netns = Netns::current();
    let node = |namespace| ThisNode {
        name: None,
        local: None,
        namespace,
    };
    for (before, kube_proxy, after) in [
        (NetnsOwner::Node, Some(false), NetnsOwner::Foreign),
        (NetnsOwner::Foreign, Some(false), NetnsOwner::Foreign),
        // Rules that were seen stay seen.
        (NetnsOwner::Node, Some(true), NetnsOwner::Node),
    ] {
        let cluster = Cluster {
            loaded: Some(loaded(&[])),
            rules: None,
            node: node(before),
            beside: NodeProbe::default(),
            kube_proxy,
        };
        // Somebody else's: an address for documentation.
        let nodes = loaded(&["node somebody-elses-node 192.0.2.77"]);
        let renewed = cluster.renewed(&args, &netns, nodes);
        assert_eq!(renewed.node.namespace, after, "{before:?} {kube_proxy:?}");
        assert_eq!(renewed.kube_proxy, kube_proxy);
    }
}
