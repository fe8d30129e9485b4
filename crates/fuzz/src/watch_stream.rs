//! Target `watch_stream`: bodies of the API's streams, one for each followed list.

use ctk_cluster::follow::Feed;
use ctk_cluster::follow::testing::{Followed, follow};

use crate::cluster;

/// Lists in the order of their bodies in an input. A NUL byte ends a body.
const FEEDS: [Feed; 5] = [
    Feed::Services,
    Feed::Slices,
    Feed::Nodes,
    Feed::ServiceCidrs,
    Feed::Pods,
];

pub fn target(data: &[u8]) -> usize {
    let whole = read(data, 1 << 14);
    let pieces = read(data, 7);
    assert_eq!(whole.ends, pieces.ends, "pieces are read otherwise");
    assert_eq!(whole.changes, pieces.changes);
    assert_eq!(whole.loaded.summary, pieces.loaded.summary);
    cluster::check(&whole.loaded);
    whole.loaded.index.services().count()
}

fn read(data: &[u8], piece: usize) -> Followed {
    let bodies = data.split(|byte| *byte == 0);
    let bodies: Vec<(Feed, &[u8])> = FEEDS.into_iter().zip(bodies).collect();
    follow(&bodies, piece)
}

/// See [`Target::grown`](crate::Target).
pub const GROWN: &[fn(usize) -> Vec<u8>] = &[services, changes, slices, ports_and_endpoints];

/// Ports of one Service with many endpoints: beyond the bound on the product.
fn ports_and_endpoints(pieces: usize) -> Vec<u8> {
    let joined = |number: usize, piece: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..number).map(piece).collect();
        all.join(",")
    };
    let port = |piece: usize| {
        let number = 1 + piece % 60_000;
        format!(r#"{{"name":"p{piece}","protocol":"UDP","port":{number}}}"#)
    };
    let ports = joined(pieces, &port);
    let endpoints = joined(8192, &|piece| {
        let address = std::net::Ipv4Addr::from(0x0af4_0000 | piece as u32);
        format!(r#"{{"addresses":["{address}"]}}"#)
    });
    format!(
        r#"{{"type":"ADDED","object":{{"kind":"Service","apiVersion":"v1","metadata":{{"namespace":"a","name":"s","resourceVersion":"7"}},"spec":{{"clusterIP":"10.96.0.10","ports":[{ports}]}}}}}}
\0{{"type":"ADDED","object":{{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","addressType":"IPv4","endpoints":[{endpoints}],"ports":[{ports}],"metadata":{{"namespace":"a","name":"s","resourceVersion":"8","labels":{{"kubernetes.io/service-name":"s"}}}}}}}}
"#
    )
    .into()
}

/// Slices of one Service.
fn slices(pieces: usize) -> Vec<u8> {
    let services = String::from_utf8(changes(1)).unwrap_or_default();
    let slice = |piece: usize| {
        let address = std::net::Ipv4Addr::from(0x0af4_0000 | piece as u32);
        format!(
            r#"{{"type":"ADDED","object":{{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","addressType":"IPv4","endpoints":[{{"addresses":["{address}"]}}],"ports":[{{"name":"dns","protocol":"UDP","port":53}}],"metadata":{{"namespace":"a","name":"s{piece}","resourceVersion":"8","labels":{{"kubernetes.io/service-name":"s"}}}}}}}}"#
        )
    };
    let slices: Vec<String> = (0..pieces).map(slice).collect();
    format!("{services}\0{}\n", slices.join("\n")).into()
}

/// One Service that changes.
fn changes(pieces: usize) -> Vec<u8> {
    let change = |piece: usize| {
        format!(
            r#"{{"type":"MODIFIED","object":{{"kind":"Service","apiVersion":"v1","metadata":{{"namespace":"a","name":"s","resourceVersion":"7"}},"spec":{{"clusterIP":"10.96.0.10","ports":[{{"name":"dns","protocol":"UDP","port":{}}}]}}}}}}"#,
            1 + piece % 60_000
        )
    };
    let lines: Vec<String> = (0..pieces).map(change).collect();
    (lines.join("\n") + "\n").into()
}

/// Services, then a slice of each.
fn services(pieces: usize) -> Vec<u8> {
    let (mut services, mut slices) = (String::new(), String::new());
    for piece in 0..pieces {
        let address = std::net::Ipv4Addr::from(0x0a60_0000 | piece as u32);
        services += &format!(
            r#"{{"type":"ADDED","object":{{"kind":"Service","apiVersion":"v1","metadata":{{"namespace":"a","name":"s{piece}","resourceVersion":"7"}},"spec":{{"clusterIP":"{address}","ports":[{{"name":"dns","protocol":"UDP","port":53}}]}}}}}}"#
        );
        services.push('\n');
        slices += &format!(
            r#"{{"type":"ADDED","object":{{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","addressType":"IPv4","endpoints":[{{"addresses":["10.244.0.1"]}}],"ports":[{{"name":"dns","protocol":"UDP","port":53}}],"metadata":{{"namespace":"a","name":"s{piece}-x","resourceVersion":"8","labels":{{"kubernetes.io/service-name":"s{piece}"}}}}}}}}"#
        );
        slices.push('\n');
    }
    format!("{services}\0{slices}").into()
}
