//! Target `cluster`: lists of objects as kubectl prints them.

mod grown;

use std::io::Read;
use std::time::SystemTime;

use ctk::attribution::{self, FrontendMatch};
use ctk::entry::Entry;
use ctk::select::{Directory, Selection, Selectors};
use ctk::verdict::Judge;
use ctk_cluster::index::Index;
use ctk_cluster::source::{ClusterError, Loaded, Source, SourceKind, load};

use crate::{print, samples};

pub use grown::GROWN;

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
