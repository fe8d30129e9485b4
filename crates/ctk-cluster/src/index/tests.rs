//! Rules by which objects become an index.

mod bounds;
mod endpoints;

use crate::index::{AddressKind, PodCandidate};
use crate::testing::{addresses, bare_world, ip, port, world};

const TCP: u8 = 6;
const UDP: u8 = 17;

#[test]
fn a_frontend_needs_address_protocol_and_port() {
    let index = world(&[
        "svc kube-system/kube-dns 10.96.0.10 fd00:96::a dns:53/UDP dns-tcp:53/TCP",
        "slice kube-system/kube-dns dns:53/UDP dns-tcp:53/TCP 10.244.0.11@node2->coredns-a",
        "slice kube-system/kube-dns dns:53/UDP fd00:10::11",
    ]);
    let udp = port(&index, "10.96.0.10", UDP, 53);
    assert_eq!(addresses(udp), ["10.244.0.11:53", "[fd00:10::11]:53"]);
    assert_eq!(
        addresses(port(&index, "10.96.0.10", TCP, 53)),
        ["10.244.0.11:53"]
    );
    assert_eq!(
        port(&index, "fd00:96::a", UDP, 53).name.as_deref(),
        Some("dns")
    );
    assert!(index.frontends(ip("10.96.0.10"), UDP, 54).is_empty());
    assert!(index.frontends(ip("10.96.0.10"), 132, 53).is_empty());
    assert!(index.frontends(ip("10.244.0.11"), UDP, 53).is_empty());
    let service = index.service(udp.service);
    assert_eq!(
        (&*service.namespace, &*service.name),
        ("kube-system", "kube-dns")
    );
    assert!(service.kube_proxy && !service.internal_local && !service.external_local);
    let pod = udp.endpoints[0].pod.as_ref().unwrap();
    assert_eq!((&*pod.0, &*pod.1), ("kube-system", "coredns-a"));
    assert_eq!(udp.endpoints[0].node.as_deref(), Some("node2"));
}

#[test]
fn every_address_kind_is_a_frontend_of_that_kind() {
    let index = world(&[
        "svc net/ipfix 10.96.1.9 f:6343/UDP@32043 external=203.0.113.5 ingress=203.0.113.20 \
         ingress=203.0.113.21(VIP) ingress=203.0.113.22(Proxy) ingress=203.0.113.5(Proxy) \
         externalTrafficPolicy=Local internalTrafficPolicy=Local",
    ]);
    for (address, kind) in [
        ("10.96.1.9", AddressKind::ClusterIp),
        ("203.0.113.5", AddressKind::ExternalIp), // not the Proxy of the same address
        ("203.0.113.20", AddressKind::Ingress),
        ("203.0.113.21", AddressKind::Ingress),
        ("203.0.113.22", AddressKind::ProxyIngress),
    ] {
        let found = index.frontends(ip(address), UDP, 6343);
        assert_eq!(found.len(), 1, "{address}");
        assert_eq!(found[0].kind, kind, "{address}");
        assert_eq!(
            index.owners(ip(address)),
            [(index.port(found[0].port).service, kind)]
        );
        assert!(
            index.frontends(ip(address), UDP, 32043).is_empty(),
            "a node port"
        );
    }
    let [node_port] = index.node_ports(UDP, 32043) else {
        panic!("one node port");
    };
    let service = index.service(index.port(*node_port).service);
    assert!(service.internal_local && service.external_local);
    assert!(index.node_ports(TCP, 32043).is_empty());
}

#[test]
fn two_services_on_one_external_address_are_both_found() {
    let index = world(&[
        "svc a/one 10.96.3.1 514/UDP external=203.0.113.5",
        "svc b/two 10.96.3.2 514/UDP external=203.0.113.5",
    ]);
    assert_eq!(index.frontends(ip("203.0.113.5"), UDP, 514).len(), 2);
    assert_eq!(index.owners(ip("203.0.113.5")).len(), 2);
}

#[test]
fn cluster_ip_alone_counts_when_cluster_ips_is_absent() {
    let index = world(&[
        r#"{"kind":"Service","metadata":{"name":"a","namespace":"x"},
            "spec":{"clusterIP":"10.96.4.1","ports":[{"port":80}]}}"#,
        r#"{"kind":"Service","metadata":{"name":"b","namespace":"x"},
            "spec":{"clusterIP":"10.96.4.2","clusterIPs":null,"ports":[{"port":80}]}}"#,
    ]);
    for address in ["10.96.4.1", "10.96.4.2"] {
        let found = port(&index, address, TCP, 80); // protocol absent = TCP
        assert_eq!(found.name, None);
        assert!(index.service(found.service).kube_proxy);
    }
}

#[test]
fn live_pods_are_found_by_their_own_addresses() {
    let index = world(&[
        "pod shop/web-1 10.244.1.45 fd00:1::45 @node1",
        "pod shop/web-2 10.244.1.46 @node1",
        "pod shop/new 10.244.1.46 @node1",
        "pod shop/done 10.244.1.45 phase=Succeeded",
        "pod shop/crashed 10.244.1.45 phase=Failed",
        "pod kube-system/proxy 192.168.7.1 @node1 hostNetwork",
        r#"{"kind":"Pod","metadata":{"name":"old","namespace":"x"},"spec":{},"status":{"podIP":"10.244.1.47"}}"#,
        r#"{"kind":"Pod","metadata":{"name":"unscheduled","namespace":"x"}}"#,
    ]);
    let at = |address| {
        let pods = index.pods_at(ip(address));
        pods.map(|p| p.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(at("10.244.1.45"), ["web-1"]);
    assert_eq!(at("fd00:1::45"), ["web-1"]);
    assert_eq!(at("10.244.1.46"), ["new", "web-2"]);
    assert_eq!(at("10.244.1.47"), ["old"]);
    assert!(at("192.168.7.1").is_empty() && at("10.244.1.48").is_empty());
    let pod = index.pod_named("shop", "web-1").unwrap();
    assert_eq!(pod.node.as_deref(), Some("node1"));
    assert!(index.pod_named("x", "web-1").is_none());
    assert!(!index.pod_named("shop", "done").unwrap().live);
}

#[test]
fn a_host_network_pod_is_named_only_when_it_alone_declares_the_port() {
    let index = world(&[
        "pod kube-system/proxy 192.168.7.1 @node1 hostNetwork",
        "pod obs/agent-a 192.168.7.1 @node1 hostNetwork port=8125/UDP hostPort=8125/UDP port=9000/TCP",
        "pod obs/agent-b 192.168.7.2 @node2 hostNetwork port=8125/UDP",
        "pod obs/other 192.168.7.1 @node1 hostNetwork port=9000/TCP hostPort=9001/TCP",
        "pod obs/done 192.168.7.1 hostNetwork port=8125/UDP phase=Failed",
        "pod obs/own 10.244.0.9 port=8126/UDP",
        r#"{"kind":"Pod","metadata":{"name":"init","namespace":"obs"},"spec":{"hostNetwork":true,
            "initContainers":[{"ports":[{"containerPort":7000}]},
                              {"restartPolicy":"Always","ports":[{"containerPort":7001}]}]},
            "status":{"hostIPs":[{"ip":"192.168.7.1"},{"ip":"fd00:7::1"}]}}"#,
    ]);
    for (address, protocol, port, name) in [
        ("192.168.7.1", UDP, 8125, Some("agent-a")),
        ("192.168.7.2", UDP, 8125, Some("agent-b")),
        ("192.168.7.1", TCP, 8125, None),
        ("192.168.7.1", TCP, 9000, None), // two of them
        ("192.168.7.1", TCP, 9001, Some("other")),
        ("10.244.0.9", UDP, 8126, None),
        ("192.168.7.1", TCP, 7000, None), // ran and went
        ("192.168.7.1", TCP, 7001, Some("init")),
        ("fd00:7::1", TCP, 7001, Some("init")),
        ("192.168.7.3", UDP, 8125, None),
    ] {
        let found = index.host_network_pod(ip(address), protocol, port);
        assert_eq!(found.map(|p| &*p.name), name, "{address} {protocol} {port}");
    }
}

#[test]
fn pod_selectors_get_addresses_by_namespace() {
    let index = world(&[
        "pod a/web 10.244.1.1 fd00::1",
        "pod b/web 10.244.1.2",
        "pod c/web 10.244.1.3 phase=Succeeded",
        "pod d/web 192.168.7.1 hostNetwork port=80/TCP hostPort=80/TCP",
    ]);
    let candidates = index.pod_candidates(None, "web");
    let short = |c: &PodCandidate| (c.pod.namespace.to_string(), c.addresses.clone());
    assert_eq!(
        candidates.iter().map(short).collect::<Vec<_>>(),
        [
            ("a".into(), vec![ip("10.244.1.1"), ip("fd00::1")]),
            ("b".into(), vec![ip("10.244.1.2")]),
            ("c".into(), vec![]),
            ("d".into(), vec![ip("192.168.7.1")]),
        ]
    );
    assert!(candidates[0].ports.is_empty());
    assert_eq!(candidates[3].ports, [(TCP, 80)]);
    assert_eq!(index.pod_candidates(Some("b"), "web").len(), 1);
    assert!(index.pod_candidates(Some("b"), "no").is_empty());
    assert!(index.pod_candidates(None, "we").is_empty());
}

#[test]
fn names_find_services_in_every_namespace() {
    let index = world(&[
        "svc a/web 10.96.1.1 80/TCP 81/TCP",
        "svc b/web 10.96.1.2 80/TCP",
        "pod c/p",
    ]);
    let found: Vec<_> = index.services_named("web").collect();
    let namespaces = found.iter().map(|id| &*index.service(*id).namespace);
    assert_eq!(namespaces.collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(index.service_named("b", "web"), Some(found[1]));
    assert_eq!(index.service_named("b", "we"), None);
    assert_eq!(index.services().count(), 3);
    let ports: Vec<u16> = index.ports_of(found[0]).map(|(_, p)| p.port).collect();
    assert_eq!(ports, [80, 81]);
    assert!(
        index
            .ports_of(found[0])
            .all(|(id, p)| p.service == found[0] && index.port(id).port == p.port)
    );
    assert_eq!(
        index.namespaces().collect::<Vec<_>>(),
        ["a", "b", "c", "default"]
    );
}

#[test]
fn nodes_are_found_by_name_and_address() {
    let index = world(&[
        "node n1 192.168.7.1 fd00:7::1 external=203.0.113.9 external=192.168.7.1 hostname=host1",
        "node n2 192.168.7.2 external=192.168.7.1 hostname=x label=kubernetes.io/hostname=host2",
        "node n3",
    ]);
    let n1 = index.node_named("n1").unwrap();
    assert_eq!(*n1.internal, [ip("192.168.7.1"), ip("fd00:7::1")]);
    assert_eq!(*n1.external, [ip("203.0.113.9")]);
    assert_eq!(n1.hostname.as_deref(), Some("host1"));
    assert_eq!(
        index.node_named("n2").unwrap().hostname.as_deref(),
        Some("host2")
    );
    for (address, name) in [
        ("192.168.7.1", Some("n1")), // an internal address before n2's external one
        ("203.0.113.9", Some("n1")),
        ("192.168.7.2", Some("n2")),
        ("192.168.7.3", None),
    ] {
        assert_eq!(
            index.node_at(ip(address)).map(|n| &*n.name),
            name,
            "{address}"
        );
    }
    assert!(index.node_named("n4").is_none());
    assert_eq!(index.nodes().count(), 3);
}

#[test]
fn a_range_answers_only_for_its_family() {
    let index = world(&[
        "cidr 10.96.0.0/16 10.112.0.0/16",
        "node n podCIDR=10.244.0.0/24 podCIDR=fd00:1::/64",
    ]);
    for (address, service, pod) in [
        ("10.96.255.255", Some(true), Some(false)),
        ("10.112.0.1", Some(true), Some(false)),
        ("10.97.0.0", Some(false), Some(false)),
        ("10.244.0.7", Some(false), Some(true)),
        ("fd00:1::7", None, Some(true)),
        ("fd00:2::7", None, Some(false)),
    ] {
        assert_eq!(index.in_service_range(ip(address)), service, "{address}");
        assert_eq!(index.in_pod_range(ip(address)), pod, "{address}");
    }
    let none = bare_world(&["node n 192.168.7.1"]);
    assert_eq!(none.in_pod_range(ip("10.244.0.7")), None);
    assert_eq!(none.in_service_range(ip("10.96.0.7")), None);
}

#[test]
fn slices_name_the_pod_of_an_address_that_no_node_shares() {
    let index = world(&[
        "node n1 192.168.7.1",
        "svc a/one 10.96.1.1 p:53/UDP q:54/UDP",
        "slice a/one p:53/UDP q:54/UDP 10.244.0.1@n1->web 10.244.0.2@n1 10.244.0.3@n2->web 192.168.7.1@n1->host 10.244.0.4@n1->web",
        "svc a/two 10.96.1.2 p:53/UDP",
        "slice a/two p:53/UDP 10.244.0.1@n1->web 10.244.0.4@n1->other",
    ]);
    let name = |address: &str| {
        let pod = index.listed_pod(ip(address))?.pod.clone();
        pod.map(|(namespace, name)| format!("{namespace}/{name}"))
    };
    assert_eq!(name("10.244.0.1").as_deref(), Some("a/web"));
    for (address, why) in [
        ("10.244.0.2", "it is no pod's"),
        ("10.244.0.3", "the Node is not known"),
        ("192.168.7.1", "the node has it, too"),
        ("10.244.0.4", "two pods are said to have it"),
        ("10.244.0.9", "nobody lists it"),
    ] {
        assert_eq!(name(address), None, "{why}");
    }
}
