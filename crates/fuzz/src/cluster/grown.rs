//! Clusters that grow: in the number of objects, and in the parts of one object, of which two may be multiplied.

use std::net::Ipv4Addr;

/// See [`Target::grown`](crate::Target).
pub const GROWN: &[fn(usize) -> Vec<u8>] = &[
    services,
    endpoints,
    host_pods,
    junk,
    external_addresses,
    ports_and_addresses,
    ports_and_endpoints,
    addresses_of_a_pod,
    addresses_of_a_node,
    ports_and_addresses_of_a_pod,
];

/// Part of a product that lies beyond the bound on it.
const LARGE: usize = 2048;

/// A Service before these items, so that something is read.
fn list(items: &str) -> Vec<u8> {
    let first = service("first", "", "");
    format!(r#"{{"apiVersion":"v1","kind":"List","items":[{first},{items}]}}"#).into()
}

fn joined(pieces: usize, piece: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (0..pieces).map(piece).collect();
    all.join(",")
}

/// A different address for each number.
fn address(network: u8, number: usize) -> Ipv4Addr {
    let [_, b, c, d] = u32::try_from(number).unwrap_or_default().to_be_bytes();
    Ipv4Addr::new(network, b, c, d)
}

fn service(name: &str, ports: &str, external: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"namespace":"a","name":"{name}"}},"spec":{{"clusterIP":"10.96.0.10","externalIPs":[{external}],"ports":[{ports}]}}}}"#
    )
}

fn slice(service: &str, ports: &str, endpoints: &str) -> String {
    format!(
        r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","endpoints":[{endpoints}],"ports":[{ports}],"metadata":{{"namespace":"a","name":"{service}-x","labels":{{"kubernetes.io/service-name":"{service}"}}}}}}"#
    )
}

fn port(number: usize) -> String {
    format!(
        r#"{{"name":"p{number}","protocol":"UDP","port":{}}}"#,
        1 + number % 60_000
    )
}

/// Services with an EndpointSlice each.
fn services(pieces: usize) -> Vec<u8> {
    list(&joined(pieces, |piece| {
        let (name, port) = (format!("s{piece}"), port(0));
        let endpoint = r#"{"addresses":["10.244.0.1"]}"#;
        service(&name, &port, "") + "," + &slice(&name, &port, endpoint)
    }))
}

/// Endpoints of one Service, each a Pod.
fn endpoints(pieces: usize) -> Vec<u8> {
    let endpoints = joined(pieces, |piece| {
        let address = address(10, piece);
        format!(r#"{{"addresses":["{address}"],"targetRef":{{"kind":"Pod","name":"p{piece}"}}}}"#)
    });
    list(&(service("s", &port(0), "") + "," + &slice("s", &port(0), &endpoints)))
}

/// Items that cannot be read.
fn junk(pieces: usize) -> Vec<u8> {
    list(&joined(pieces, |_| {
        r#"{"apiVersion":"v1","kind":"Service","metadata":7}"#.to_owned()
    }))
}

/// Addresses of one Service.
fn external_addresses(pieces: usize) -> Vec<u8> {
    let external = joined(pieces, |piece| format!("\"{}\"", address(203, piece)));
    list(&service("s", &port(0), &external))
}

/// Ports of one Service with many addresses.
fn ports_and_addresses(pieces: usize) -> Vec<u8> {
    let external = joined(LARGE, |piece| format!("\"{}\"", address(203, piece)));
    list(&service("s", &joined(pieces, port), &external))
}

/// Ports of one Service with many endpoints.
fn ports_and_endpoints(pieces: usize) -> Vec<u8> {
    let endpoints = joined(LARGE, |piece| {
        format!(r#"{{"addresses":["{}"]}}"#, address(10, piece))
    });
    let ports = joined(pieces, port);
    list(&(service("s", &ports, "") + "," + &slice("s", &ports, &endpoints)))
}

const NODE: &str = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"192.168.7.1"}]}}"#;

fn pod(name: &str, ports: &str, host_network: bool, addresses: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"namespace":"a","name":"{name}"}},"spec":{{"nodeName":"n","hostNetwork":{host_network},"containers":[{{"ports":[{ports}]}}]}},"status":{{"podIPs":[{addresses}],"phase":"Running"}}}}"#
    )
}

fn container_port(number: usize) -> String {
    format!(
        r#"{{"containerPort":{},"protocol":"UDP"}}"#,
        1 + number % 60_000
    )
}

fn pod_address(number: usize) -> String {
    format!(r#"{{"ip":"{}"}}"#, address(10, number))
}

/// Pods in the network of one Node, each with a port.
fn host_pods(pieces: usize) -> Vec<u8> {
    let pods = joined(pieces, |piece| {
        let address = r#"{"ip":"192.168.7.1"}"#;
        pod(&format!("p{piece}"), &container_port(piece), true, address)
    });
    list(&format!("{NODE},{pods}"))
}

fn addresses_of_a_pod(pieces: usize) -> Vec<u8> {
    list(&pod("p", "", false, &joined(pieces, pod_address)))
}

/// Ports of one Pod with many addresses.
fn ports_and_addresses_of_a_pod(pieces: usize) -> Vec<u8> {
    let addresses = joined(LARGE, pod_address);
    list(&pod("p", &joined(pieces, container_port), true, &addresses))
}

fn addresses_of_a_node(pieces: usize) -> Vec<u8> {
    let addresses = joined(pieces, |piece| {
        format!(
            r#"{{"type":"InternalIP","address":"{}"}}"#,
            address(192, piece)
        )
    });
    list(&format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n"}},"status":{{"addresses":[{addresses}]}}}}"#
    ))
}
