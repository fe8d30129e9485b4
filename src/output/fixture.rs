//! Entries for the tests of the formats.

use std::fmt::Display;
use std::net::IpAddr;

use proptest::prelude::*;

use crate::attribution::{EndpointName, FrontendKind, Names, Party, PartyKind, ServiceName};
use crate::verdict::{Reason, Refreshing, Replies};
use ctnetlink::flow::{
    Counters, Direction, Flow, L4, ProtocolState, Status, TcpDirection, Tuple, Zone,
};

use super::row::{ItemResult, Row};

/// Owned fields of a [`Row`].
#[derive(Clone, Debug)]
pub struct SampleEntry {
    pub flow: Flow,
    pub netns: Option<&'static str>,
    pub names: Names<'static>,
    pub reason: Option<Reason>,
    pub evidence: String,
    pub refreshing: Refreshing,
    pub result: Option<ItemResult>,
    pub now: u64,
}

impl SampleEntry {
    pub(super) fn row(&self) -> Row<'_> {
        Row {
            flow: &self.flow,
            netns: self.netns,
            names: &self.names,
            verdict: self.reason.map(|reason| (reason.verdict(), reason)),
            evidence: self.reason.map(|_| &self.evidence as &dyn Display),
            refreshing: self.refreshing,
            replies: Replies::of_one_observation(self.flow.status.is_unreplied()),
            result: self.result.as_ref(),
            now: self.now,
        }
    }

    pub fn bare(flow: Flow) -> Self {
        SampleEntry {
            flow,
            netns: None,
            names: Names::default(),
            reason: None,
            evidence: String::new(),
            refreshing: Refreshing::Unknown,
            result: None,
            now: 0,
        }
    }
}

pub fn ports(protocol: u8, source: (&str, u16), destination: (&str, u16)) -> Tuple {
    Tuple {
        src: source.0.parse().unwrap(),
        dst: destination.0.parse().unwrap(),
        protocol,
        l4: L4::Ports {
            src: source.1,
            dst: destination.1,
        },
    }
}

pub const ANSWERED: Status = Status::CONFIRMED
    .with(Status::SEEN_REPLY)
    .with(Status::ASSURED);

pub fn pod(namespace: &'static str, name: &'static str) -> Party<'static> {
    Party {
        kind: PartyKind::Pod,
        namespace: Some(namespace),
        name: Some(name),
        node: Some("node1"),
    }
}

pub fn cluster_ip(
    namespace: &'static str,
    name: &'static str,
    port: Option<&'static str>,
) -> ServiceName<'static> {
    ServiceName {
        namespace: Some(namespace),
        name: Some(name),
        port,
        frontend: FrontendKind::ClusterIp,
        port_number: 53,
    }
}

pub fn serving(party: Party<'static>) -> EndpointName<'static> {
    EndpointName {
        party,
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        manual: false,
    }
}

/// The entry of the item that the manual shows.
pub fn dns() -> SampleEntry {
    let mut flow = Flow::new(
        ports(17, ("10.244.2.9", 40123), ("10.96.0.10", 53)),
        ports(17, ("10.244.1.7", 53), ("10.244.2.9", 40123)),
    );
    flow.status = ANSWERED;
    flow.timeout = Some(118);
    flow.mark = Some(0);
    flow.id = Some(3_912_345_678);
    flow.use_count = Some(1);
    flow.counters_original = Some(Counters {
        packets: 15,
        bytes: 900,
    });
    flow.counters_reply = Some(Counters {
        packets: 5,
        bytes: 700,
    });
    let mut sample = SampleEntry::bare(flow);
    sample.names = Names {
        matched: Default::default(),
        client: Some(pod("shop", "web-7d")),
        service: Some(cluster_ip("kube-system", "kube-dns", Some("dns"))),
        endpoint: Some(serving(pod("kube-system", "coredns-b"))),
    };
    sample.reason = Some(Reason::Endpoint);
    sample.evidence = "10.244.1.7:53 is an endpoint".to_owned();
    sample
}

/// The four rows of the table that the manual shows.
pub fn documented_table() -> [SampleEntry; 4] {
    let mut gone = dns();
    gone.names.client = Some(pod("shop", "web-1"));
    gone.names.endpoint = None;
    gone.reason = Some(Reason::EndpointGone);
    gone.refreshing = Refreshing::Yes;

    let mut healthy = dns();
    healthy.flow.original = ports(17, ("10.244.2.10", 40124), ("10.96.0.10", 53));
    healthy.flow.reply = ports(17, ("10.244.1.8", 53), ("10.244.2.10", 40124));
    healthy.flow.timeout = Some(72);
    healthy.names.client = Some(pod("shop", "web-2"));

    let mut untranslated = dns();
    untranslated.flow.original = ports(17, ("198.51.100.7", 50001), ("203.0.113.5", 6343));
    untranslated.flow.reply = ports(17, ("203.0.113.5", 6343), ("198.51.100.7", 50001));
    untranslated.flow.status = Status::CONFIRMED;
    untranslated.flow.timeout = Some(28);
    untranslated.names = Names {
        service: Some(cluster_ip("net", "sflow", Some("p"))),
        ..Names::default()
    };
    untranslated.reason = Some(Reason::NoDnat);

    let mut outside = dns();
    outside.flow.original = ports(6, ("10.244.2.9", 51544), ("203.0.113.9", 443));
    outside.flow.reply = ports(6, ("203.0.113.9", 443), ("10.244.2.9", 51544));
    outside.flow.state = Some(tcp(3));
    outside.flow.timeout = Some(431_999);
    outside.names = Names {
        client: Some(pod("shop", "web-1")),
        ..Names::default()
    };
    outside.reason = Some(Reason::NoFrontend);
    [gone, healthy, untranslated, outside]
}

pub fn tcp(state: u8) -> ProtocolState {
    let direction = |flags| TcpDirection {
        flags: Some(flags),
        window_scale: Some(7),
    };
    ProtocolState::Tcp {
        state,
        original: direction(8),
        reply: direction(0x23),
    }
}

fn tuple(v6: bool, protocol: u8) -> impl Strategy<Value = Tuple> {
    let address = any::<[u8; 16]>().prop_map(move |bytes| {
        let [a, b, c, d, ..] = bytes;
        if v6 {
            IpAddr::from(bytes)
        } else {
            IpAddr::from([a, b, c, d])
        }
    });
    let l4 = (any::<u16>(), any::<u16>(), any::<u8>()).prop_map(move |(a, b, c)| match protocol {
        1 | 58 => L4::Icmp {
            kind: c,
            code: b as u8,
            id: a,
        },
        47 => L4::Gre { src: a, dst: b },
        6 | 17 | 33 | 132 | 136 => L4::Ports { src: a, dst: b },
        _ => L4::None,
    });
    (address.clone(), address, l4).prop_map(move |(src, dst, l4)| Tuple {
        src,
        dst,
        protocol,
        l4,
    })
}

fn state(protocol: u8) -> impl Strategy<Value = Option<ProtocolState>> {
    (any::<u8>(), any::<Option<u32>>()).prop_map(move |(n, tag)| match protocol {
        6 => Some(ProtocolState::Tcp {
            state: n % 16,
            original: TcpDirection {
                flags: Some(n),
                window_scale: None,
            },
            reply: TcpDirection::default(),
        }),
        132 => Some(ProtocolState::Sctp {
            state: n % 16,
            vtag_original: tag,
            vtag_reply: Some(7),
        }),
        33 => Some(ProtocolState::Dccp {
            state: n % 16,
            role: Some(0),
        }),
        _ => None,
    })
}

fn flow() -> impl Strategy<Value = Flow> {
    let protocol = prop_oneof![
        Just(1u8),
        Just(6),
        Just(17),
        Just(33),
        Just(47),
        Just(58),
        Just(132),
        any::<u8>()
    ];
    let counters = || any::<Option<(u64, u64)>>();
    (any::<bool>(), protocol).prop_flat_map(move |(v6, protocol)| {
        let identity = (tuple(v6, protocol), tuple(v6, protocol), state(protocol));
        let numbers = (
            any::<u32>(),
            any::<Option<u32>>(),
            any::<Option<u32>>(),
            any::<Option<u64>>(),
        );
        let zone = (
            any::<u16>(),
            prop_oneof![
                Just(None),
                Just(Some(Direction::Original)),
                Just(Some(Direction::Reply))
            ],
        );
        let rare = (
            any::<Option<[u8; 16]>>(),
            any::<Option<String>>(),
            any::<Option<String>>(),
        );
        (identity, numbers, zone, rare, counters(), counters()).prop_map(
            |(
                (original, reply, state),
                (status, timeout, mark, start),
                (id, direction),
                rare,
                out,
                back,
            )| {
                let counted =
                    |c: Option<(u64, u64)>| c.map(|(packets, bytes)| Counters { packets, bytes });
                let mut flow = Flow::new(original, reply);
                flow.status = Status(status);
                flow.state = state;
                flow.timeout = timeout;
                flow.mark = mark;
                flow.id = mark;
                flow.use_count = timeout;
                flow.start = start;
                flow.zone = Zone { id, direction };
                flow.counters_original = counted(out);
                flow.counters_reply = counted(back);
                let (labels, helper, secctx) = rare;
                if labels.is_some() || helper.is_some() || secctx.is_some() {
                    let rare = flow.rare_mut();
                    rare.labels = labels;
                    rare.helper = helper.map(Into::into);
                    rare.secctx = secctx.map(Into::into);
                }
                flow
            },
        )
    })
}

/// Any entry, with hostile text in every text field.
pub fn any_sample() -> impl Strategy<Value = SampleEntry> {
    // Names are borrowed for the whole run, so each is leaked: a few thousand short texts.
    let text = || any::<String>().prop_map(|text| &*text.leak());
    let reason = prop::option::of(prop::sample::select(Reason::ALL));
    let result = any::<Option<Option<String>>>();
    (
        flow(),
        text(),
        text(),
        reason,
        any::<String>(),
        result,
        any::<[bool; 3]>(),
    )
        .prop_map(
            |(flow, namespace, name, reason, evidence, result, [client, service, endpoint])| {
                SampleEntry {
                    flow,
                    netns: None,
                    names: Names {
                        matched: Default::default(),
                        client: client.then(|| pod(namespace, name)),
                        service: service.then(|| cluster_ip(namespace, name, Some(name))),
                        endpoint: endpoint.then(|| serving(pod(name, namespace))),
                    },
                    reason,
                    evidence,
                    refreshing: if client {
                        Refreshing::Yes
                    } else {
                        Refreshing::No
                    },
                    result: result.map(|error| ItemResult {
                        result: "failed",
                        error,
                    }),
                    now: 1_700_000_000_000_000_000,
                }
            },
        )
}
