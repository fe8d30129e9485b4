//! Entries and a cluster that bear on each other: what is read is held against them.

use std::sync::OnceLock;

use ctk::this_node::{NetnsOwner, ThisNode};
use ctk_cluster::index::Index;
use ctk_cluster::testing::world;
use ctnetlink::Flow;
use ctnetlink::flow::{Counters, L4, ProtocolState, Status, TcpDirection, Tuple, Zone};

/// The node's own namespace.
pub static NODE: ThisNode = ThisNode {
    name: None,
    local: None,
    routes: None,
    namespace: NetnsOwner::Node,
};

fn tuple(protocol: u8, source: (&str, u16), destination: (&str, u16)) -> Tuple {
    let address = |text: &str| {
        text.parse()
            .unwrap_or_else(|error| unreachable!("{text}: {error}"))
    };
    Tuple {
        src: address(source.0),
        dst: address(destination.0),
        protocol,
        l4: L4::Ports {
            src: source.1,
            dst: destination.1,
        },
    }
}

/// UDP through a Service, TCP in a zone, ICMP, and IPv6 through a node port.
pub fn flows() -> &'static [Flow] {
    static FLOWS: OnceLock<Vec<Flow>> = OnceLock::new();
    FLOWS.get_or_init(|| vec![dns(), web(), ping(), node_port()])
}

fn dns() -> Flow {
    let client = ("10.244.2.9", 40123);
    let mut flow = Flow::new(
        tuple(17, client, ("10.96.0.10", 53)),
        tuple(17, ("10.244.1.7", 53), client),
    );
    let seen = Status::CONFIRMED.with(Status::SEEN_REPLY);
    flow.status = seen
        .with(Status::ASSURED)
        .with(Status::DST_NAT)
        .with(Status::DST_NAT_DONE);
    (flow.timeout, flow.id, flow.mark) = (Some(118), Some(7), Some(0x10));
    let (packets, bytes) = (15, 900);
    flow.counters_original = Some(Counters { packets, bytes });
    flow.counters_reply = Some(Counters { packets, bytes });
    flow.start = Some(1_790_000_000_000_000_000);
    flow
}

fn web() -> Flow {
    let client = ("10.244.2.9", 40124);
    let mut flow = Flow::new(
        tuple(6, client, ("10.96.0.20", 443)),
        tuple(6, ("10.96.0.20", 443), client),
    );
    let side = TcpDirection {
        flags: Some(0x23),
        window_scale: Some(7),
    };
    flow.state = Some(ProtocolState::Tcp {
        state: 3,
        original: side,
        reply: side,
    });
    (flow.timeout, flow.id) = (Some(431_000), Some(8));
    flow.zone = Zone {
        id: 5,
        direction: None,
    };
    let rare = flow.rare_mut();
    (rare.labels, rare.helper) = (Some([3; 16]), Some("ftp".into()));
    flow
}

fn ping() -> Flow {
    let mut flow = dns();
    for (tuple, kind) in [(&mut flow.original, 8), (&mut flow.reply, 0)] {
        tuple.protocol = 1;
        let (code, id) = (0, 77);
        tuple.l4 = L4::Icmp { kind, code, id };
    }
    (flow.counters_original, flow.counters_reply) = (None, None);
    flow
}

fn node_port() -> Flow {
    let client = ("2001:db8::9", 5000);
    let mut flow = Flow::new(
        tuple(17, client, ("2001:db8::1", 32053)),
        tuple(17, ("2001:db8:1::7", 53), ("2001:db8::1", 5000)),
    );
    (flow.timeout, flow.id) = (Some(29), Some(9));
    flow.status = Status::CONFIRMED;
    flow
}

/// A cluster in which the first flow is that of a Pod to kube-dns.
pub fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| {
        world(&[
            "node n 192.168.7.1",
            "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP@32053",
            "slice kube-system/kube-dns dns:53/UDP 10.244.1.7(ready)@n->coredns-a 10.244.1.8(!ready,serving,terminating)",
            "pod shop/web-1 10.244.2.9 @n",
            "pod kube-system/coredns-a 10.244.1.7 @n",
            "cidr 10.96.0.0/16",
        ])
    })
}
