//! Target `cluster`: lists of objects as kubectl prints them.

use std::io::Read;
use std::time::SystemTime;

use ctk::attribution::{self, FrontendMatch};
use ctk::entry::Entry;
use ctk::select::{Directory, Selection, Selectors};
use ctk::verdict::Judge;
use ctk_cluster::index::Index;
use ctk_cluster::source::{ClusterError, Loaded, Source, SourceKind, load};

use crate::{print, samples};

pub fn target(data: &[u8]) -> usize {
    let whole = read(data);
    let pieces = read(Pieces(data, 3));
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert_eq!(whole.summary, pieces.summary, "pieces are read otherwise");
            assert_eq!(whole.warnings, pieces.warnings);
            assert_eq!(shape(&whole.index), shape(&pieces.index));
            check(&whole);
            shape(&whole.index).len() + whole.index.pod_addresses().count()
        }
        (Err(whole), Err(pieces)) => {
            assert_eq!(whole.to_string(), pieces.to_string());
            0
        }
        (whole, pieces) => unreachable!("{whole:?} in one piece, {pieces:?} in several"),
    }
}

/// A reader that gives few bytes at a time.
struct Pieces<'d>(&'d [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = buffer.len().min(self.1);
        self.0.read(&mut buffer[..length])
    }
}

fn read(data: impl Read) -> Result<Loaded, ClusterError> {
    let source = Source {
        kind: SourceKind::Stdin,
        time: SystemTime::UNIX_EPOCH,
        path: None,
    };
    load(data, source, &[])
}

/// Services and ports of an index, in order.
fn shape(index: &Index) -> Vec<String> {
    let services = index.services();
    services
        .map(|(id, service)| {
            let ports: Vec<_> = index.ports_of(id).map(|(_, port)| port).collect();
            format!("{service:?} {ports:?}")
        })
        .collect()
}

/// Names and judges entries to the frontends of an index, and the samples.
pub fn check(loaded: &Loaded) {
    let index = &loaded.index;
    let mut flows = samples::flows().to_vec();
    for (id, service) in index.services().take(8) {
        assert_eq!(
            index.service_named(&service.namespace, &service.name),
            Some(id),
            "a Service is found by its name"
        );
        for (_, port) in index.ports_of(id).take(2) {
            for (address, _) in service.addresses.iter().take(2) {
                let mut flow = samples::flows()[0].clone();
                (flow.original.dst, flow.original.protocol) = (*address, port.protocol);
                if let Some(endpoint) = port.endpoints.first() {
                    flow.reply.src = endpoint.address;
                }
                flow.original.l4 = ctnetlink::flow::L4::Ports {
                    src: 1,
                    dst: port.port,
                };
                flows.push(flow);
            }
        }
    }
    for flow in flows {
        let mut entry = Entry::bare(flow);
        let matched = FrontendMatch::of(&entry.flow, index, &samples::NODE);
        entry.names = attribution::names(&entry.flow, matched, index);
        let judge = Judge {
            index: Some(index),
            rules: None,
            node: &samples::NODE,
            kube_proxy_replacement: None,
            zones: &[5],
            source_time: None,
        };
        entry.judgement = judge.judge(&entry.flow, matched);
        print::entry_everywhere(&entry);
        let all = Selection::resolve(&Selectors::default(), Directory::Index(index));
        assert!(
            all.is_ok_and(|all| all.test(&entry)),
            "no selector excludes"
        );
    }
}

/// See [`Target::grown`](crate::Target).
pub const GROWN: &[fn(usize) -> Vec<u8>] = &[services, endpoints, pods, junk];

/// Endpoints of one Service.
fn endpoints(pieces: usize) -> Vec<u8> {
    let endpoints: Vec<String> = (0..pieces)
        .map(|piece| {
            let address = std::net::Ipv4Addr::from(0x0af4_0000 | piece as u32);
            format!(
                r#"{{"addresses":["{address}"],"targetRef":{{"kind":"Pod","name":"p{piece}"}}}}"#
            )
        })
        .collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"List","items":[{{"apiVersion":"v1","kind":"Service","metadata":{{"namespace":"a","name":"s"}},"spec":{{"clusterIP":"10.96.0.10","ports":[{{"protocol":"UDP","port":53}}]}}}},{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","endpoints":[{}],"ports":[{{"name":"","protocol":"UDP","port":53}}],"metadata":{{"namespace":"a","name":"s-x","labels":{{"kubernetes.io/service-name":"s"}}}}}}]}}"#,
        endpoints.join(",")
    )
    .into()
}

/// Pods in the network of one Node, each with a port.
fn pods(pieces: usize) -> Vec<u8> {
    let pods: Vec<String> = (0..pieces)
        .map(|piece| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"namespace":"a","name":"p{piece}"}},"spec":{{"nodeName":"n","hostNetwork":true,"containers":[{{"ports":[{{"containerPort":{},"protocol":"UDP"}}]}}]}},"status":{{"podIP":"192.168.7.1","phase":"Running"}}}}"#,
                piece % 60_000
            )
        })
        .collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"List","items":[{{"apiVersion":"v1","kind":"Service","metadata":{{"namespace":"a","name":"s"}},"spec":{{"clusterIP":"10.96.0.10"}}}},{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n"}},"status":{{"addresses":[{{"type":"InternalIP","address":"192.168.7.1"}}]}}}},{}]}}"#,
        pods.join(",")
    )
    .into()
}

/// A Service, and items that cannot be read.
fn junk(pieces: usize) -> Vec<u8> {
    format!(
        r#"{{"apiVersion":"v1","kind":"List","items":[{{"apiVersion":"v1","kind":"Service","metadata":{{"namespace":"a","name":"s"}},"spec":{{"clusterIP":"10.96.0.10"}}}}{}]}}"#,
        r#",{"apiVersion":"v1","kind":"Service","metadata":7}"#.repeat(pieces)
    )
    .into()
}

/// Services with an EndpointSlice each.
fn services(pieces: usize) -> Vec<u8> {
    let items: Vec<String> = (0..pieces)
        .map(|piece| {
            let address = std::net::Ipv4Addr::from(0x0a60_0000 | piece as u32);
            format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"namespace":"a","name":"s{piece}"}},"spec":{{"clusterIP":"{address}","ports":[{{"name":"dns","protocol":"UDP","port":53}}]}}}},{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","endpoints":[{{"addresses":["10.244.0.1"]}}],"ports":[{{"name":"dns","protocol":"UDP","port":53}}],"metadata":{{"namespace":"a","name":"s{piece}-x","labels":{{"kubernetes.io/service-name":"s{piece}"}}}}}}"#
            )
        })
        .collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"List","items":[{}]}}"#,
        items.join(",")
    )
    .into()
}
