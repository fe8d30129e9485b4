//! Entries for the tests of the checks.

use std::net::SocketAddr;

use super::{Changes, Facts};
use crate::attribution::{FrontendKind, ServiceName};
use crate::entry::Entry;
use crate::stat::{CountersFrom, CpuCounters};
use crate::verdict::{Evidence, Judgement, Reason};
use ctnetlink::flow::{Flow, L4, Status, Tuple};

/// A UDP entry with a reply: client, original destination, reply source.
pub fn udp(client: &str, destination: &str, leads_to: &str) -> Flow {
    flow(17, client, destination, leads_to)
}

/// Facts of a node with these counters on one CPU, and their changes in 2 s.
pub fn counted(total: &[(&str, u64)], changes: &[(&str, u64)]) -> Facts<'static> {
    let counters = |all: &[(&str, u64)]| {
        let counters = all.iter().map(|(name, count)| (*name, *count)).collect();
        Some(CpuCounters {
            from: CountersFrom::Netlink,
            cpus: vec![(0, counters)],
        })
    };
    let mut facts = Facts::default();
    facts.stat.counters = counters(total);
    let mut since = Changes {
        seconds: 2.0,
        ..Changes::default()
    };
    since.delta.counters = counters(changes);
    facts.changes = Some(since);
    facts
}

/// Removes the reply from an entry.
pub fn unreplied(flow: &mut Flow) {
    flow.status = Status::CONFIRMED;
}

/// An entry with this verdict.
pub fn judged(flow: Flow, reason: Reason) -> Entry<'static> {
    let mut entry = Entry::bare(flow);
    let evidence = Evidence::new(reason, &entry.flow);
    entry.judgement = Some(Judgement { reason, evidence });
    entry
}

/// A port of shop/web.
pub fn service(port: &'static str) -> ServiceName<'static> {
    ServiceName {
        namespace: Some("shop"),
        name: Some("web"),
        port: Some(port),
        frontend: FrontendKind::ClusterIp,
        port_number: 53,
    }
}

pub fn flow(protocol: u8, client: &str, destination: &str, leads_to: &str) -> Flow {
    let mut flow = Flow::new(
        tuple(protocol, client, destination),
        tuple(protocol, leads_to, client),
    );
    flow.status = flow.status.with(Status::SEEN_REPLY).with(Status::ASSURED);
    flow
}

pub fn tuple(protocol: u8, src: &str, dst: &str) -> Tuple {
    let place = |text: &str| -> SocketAddr { text.parse().unwrap() };
    let (src, dst) = (place(src), place(dst));
    Tuple {
        src: src.ip(),
        dst: dst.ip(),
        protocol,
        l4: L4::Ports {
            src: src.port(),
            dst: dst.port(),
        },
    }
}
