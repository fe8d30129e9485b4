use std::time::Duration;

use super::*;
use crate::query::BuiltinCluster;
use crate::this_node::NetnsOwner;
use ctk_cluster::testing::loaded;
use ctnetlink::netns::Netns;

#[test]
fn a_namespace_that_was_the_nodes_for_want_of_nodes_is_foreign_when_they_come() {
    let source = SourceQuery {
        netns: Netns::current(),
        cluster: ClusterSource::None,
        builtin: BuiltinCluster::default(),
        kubeconfig: None,
        context: None,
        request_timeout: None,
        connect_timeout: Duration::from_secs(1),
        all_pods: false,
        node: None,
        service_cidr: Vec::new(),
    };
    let node = |namespace| ThisNode {
        name: None,
        local: None,
        routes: None,
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
            probe: NodeProbe::default(),
            kube_proxy,
        };
        // Somebody else's: an address for documentation.
        let nodes = loaded(&["node somebody-elses-node 192.0.2.77"]);
        let renewed = cluster.renewed(&source, nodes);
        assert_eq!(renewed.node.namespace, after, "{before:?} {kube_proxy:?}");
        assert_eq!(renewed.kube_proxy, kube_proxy);
    }
}
