//! Names of client, Service and endpoint of an entry.

use super::*;
use crate::attribution;
use crate::attribution::{Names, PartyKind};

fn names<'c>(entry: &str, index: &'c Index) -> Names<'c> {
    let flow = flow(entry);
    attribution::names(&flow, FrontendMatch::of(&flow, index, &this_node()), index)
}

#[test]
fn host_network_pods_are_named_only_when_exactly_one_declares_the_port() {
    let lines = [
        "pod kube-system/kube-proxy-a 192.168.7.1 @n hostNetwork",
        "pod obs/agent-a 192.168.7.1 @n hostNetwork port=8125/UDP",
        "pod kube-system/cni-a 192.168.7.1 @n hostNetwork",
        "svc x/api 10.96.0.2 https:443/TCP",
        "slice x/api https:6443/TCP 192.168.7.2(ready)",
    ];
    let index = cluster(&lines);
    let endpoint = |entry: &str| names(entry, &index).endpoint.unwrap();
    let agent = endpoint("198.51.100.9:7000 192.168.7.1:8125 192.168.7.1:8125");
    assert_eq!(
        (agent.party.kind, agent.party.name),
        (PartyKind::HostNetwork, Some("agent-a"))
    );
    let node = endpoint("198.51.100.9:7000 192.168.7.1:9999 192.168.7.1:9999");
    assert_eq!(
        (node.party.kind, node.party.name),
        (PartyKind::Node, Some("n"))
    );
    // A slice without a pod: the node is named, the conditions are the slice's.
    let api = endpoint("tcp 10.244.0.3:40000 10.96.0.2:443 192.168.7.2:6443");
    assert_eq!(
        (api.party.kind, api.party.name, api.ready),
        (PartyKind::Node, Some("m"), Some(true))
    );
    let two = [
        &lines[..],
        &["pod obs/agent-b 192.168.7.1 @n hostNetwork port=8125/UDP"],
    ]
    .concat();
    let index = cluster(&two);
    let shared = names(
        "198.51.100.9:7000 192.168.7.1:8125 192.168.7.1:8125",
        &index,
    );
    assert_eq!(
        shared.endpoint.unwrap().party.kind,
        PartyKind::Node,
        "two pods declare it"
    );
}

#[test]
fn the_pod_of_the_slice_comes_before_the_pod_of_the_address() {
    let index = cluster(&[
        VIP,
        "slice a/dns dns:53/UDP 10.244.0.11(ready)@n->coredns-b",
        "pod other/late 10.244.0.11 @n",
        "pod a/done 10.244.0.12 @n phase=Succeeded",
        "pod a/new 10.244.0.12 @n",
    ]);
    let listed = names(C_VIP_E1, &index).endpoint.unwrap();
    assert_eq!(
        (listed.party.namespace, listed.party.name),
        (Some("a"), Some("coredns-b"))
    );
    assert_eq!((listed.ready, listed.manual), (Some(true), false));
    let gone = names("10.244.0.2:1 10.96.0.10:53 10.244.0.12:53", &index)
        .endpoint
        .unwrap();
    assert_eq!(
        (gone.party.name, gone.ready),
        (Some("new"), None),
        "conditions belong to listed endpoints"
    );
    let unlisted = names("10.244.0.2:1 10.96.0.10:53 10.244.0.99:53", &index);
    assert_eq!(unlisted.endpoint, None);
    assert_eq!(unlisted.client.unwrap().name, Some("client"));
    let service = unlisted.service.unwrap();
    assert_eq!(
        (service.name, service.port, service.port_number),
        (Some("dns"), Some("dns"), 53)
    );
}
