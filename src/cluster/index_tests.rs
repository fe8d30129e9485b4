//! Each rule by which objects become an index.

use std::net::IpAddr;

use super::index::{AddressKind, Endpoint, Index, ServicePort};
use super::testing::{bare_world, loaded, world};

const TCP: u8 = 6;
const UDP: u8 = 17;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The one port that a frontend leads to.
fn port<'i>(index: &'i Index, address: &str, protocol: u8, port: u16) -> &'i ServicePort {
    match index.frontends(ip(address), protocol, port) {
        [one] => index.port(one.port),
        other => panic!("{address}:{port} has {} frontends", other.len()),
    }
}

fn addresses(port: &ServicePort) -> Vec<String> {
    let text = |e: &Endpoint| std::net::SocketAddr::new(e.address, e.port).to_string();
    port.endpoints.iter().map(text).collect()
}

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
