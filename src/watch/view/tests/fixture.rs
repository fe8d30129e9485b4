//! Fixtures of the view's tests: one client's flow, clusters, and a view with short forms of its records.

use super::*;
use crate::attribution::{self, FrontendMatch};
use crate::verdict::{Judge, Judgement};
use ctk_cluster::testing::world;
use ctnetlink::flow::L4;

pub(super) const SEEN: Status = Status::CONFIRMED.with(Status::SEEN_REPLY);
pub(super) const ASSURED: Status = SEEN.with(Status::ASSURED);

/// Flow of one client to the Service; `endpoint` is the last byte of the endpoint's address.
pub(super) fn flow(endpoint: u8, status: Status) -> Flow {
    let tuple = |src: [u8; 4], sport, dst: [u8; 4], dport| Tuple {
        src: src.into(),
        dst: dst.into(),
        protocol: 17,
        l4: L4::Ports {
            src: sport,
            dst: dport,
        },
    };
    let client = [10, 244, 2, 9];
    let mut flow = Flow::new(
        tuple(client, 40123, [10, 96, 0, 10], 53),
        tuple([10, 244, 1, endpoint], 53, client, 40123),
    );
    // The id is the same for every life.
    (flow.status, flow.timeout, flow.id) = (status, Some(30), Some(7));
    flow
}

pub(super) fn with(mut flow: Flow, change: impl FnOnce(&mut Flow)) -> Flow {
    change(&mut flow);
    flow
}

pub(super) fn counted(flow: Flow, original: u64, reply: u64, timeout: u32) -> Flow {
    let count = |packets| Some(Counters { packets, bytes: 0 });
    with(flow, |flow| {
        (flow.counters_original, flow.counters_reply) = (count(original), count(reply));
        flow.timeout = Some(timeout);
    })
}

pub(super) fn in_state(state: u8, status: Status) -> Flow {
    with(flow(7, status), |flow| {
        (flow.original.protocol, flow.reply.protocol) = (6, 6);
        let side = TcpDirection::default();
        flow.state = Some(ProtocolState::Tcp {
            state,
            original: side,
            reply: side,
        });
    })
}

/// Index with kube-dns and these endpoints; coredns-N is the pod at 10.244.1.N.
pub(super) fn kube_dns(endpoints: &[u8]) -> Index {
    let mut lines = vec![
        "node n 192.168.7.1".to_owned(),
        "svc kube-system/kube-dns 10.96.0.10 dns:53/UDP".to_owned(),
        "pod shop/web-1 10.244.2.9 @n".to_owned(),
    ];
    let mut slice = "slice kube-system/kube-dns dns:53/UDP".to_owned();
    for n in endpoints {
        slice += &format!(" 10.244.1.{n}(ready)@n->coredns-{n}");
        lines.push(format!("pod kube-system/coredns-{n} 10.244.1.{n} @n"));
    }
    lines.push(slice);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    world(&lines)
}

pub(super) struct FixtureResolver<'c> {
    pub(super) index: Option<&'c Index>,
    pub(super) node: &'c ThisNode,
    pub(super) passes: fn(&Flow) -> bool,
    /// Entries whose NEW was seen, and that are too young for a verdict.
    pub(super) created: Vec<FlowKey>,
}

pub(super) static NODE: ThisNode = ThisNode {
    name: None,
    local: None,
    routes: None,
    namespace: NetnsOwner::Node,
};

impl FixtureResolver<'_> {
    pub(super) fn all() -> Self {
        FixtureResolver {
            index: None,
            node: &NODE,
            passes: |_| true,
            created: Vec::new(),
        }
    }
}

impl<'c> ResolveEntry<'c> for FixtureResolver<'c> {
    fn select(&mut self, flow: Flow, seen: Option<Activity>) -> Option<Entry<'c>> {
        (self.passes)(&flow).then(|| self.entry(flow, seen))
    }

    fn entry(&mut self, flow: Flow, seen: Option<Activity>) -> Entry<'c> {
        let mut entry = Entry::bare(flow);
        if let Some(index) = self.index {
            let matched = FrontendMatch::of(&entry.flow, index, self.node);
            entry.names = attribution::names(&entry.flow, matched, index);
            let judge = Judge {
                index: Some(index),
                rules: None,
                node: self.node,
                kube_proxy_replacement: None,
                zones: &[],
                source_time: None,
            };
            entry.judgement = judge.judge(&entry.flow, matched);
            if self.created.contains(&key_of(&entry.flow)) {
                let young = |judgement: Judgement<'c>| judgement.unsettled(&entry.flow);
                entry.judgement = entry.judgement.map(young);
            }
        }
        if let Some(seen) = seen {
            entry.add_activity(seen);
        }
        entry
    }

    fn note_created(&mut self, key: FlowKey) {
        self.created.push(key);
    }
}

/// A view with its resolver and its records.
pub(super) struct ViewFixture<'c> {
    pub(super) view: View,
    pub(super) resolver: FixtureResolver<'c>,
    /// Short forms of the records since the last assertion.
    pub(super) records: Vec<String>,
    pub(super) last: Option<Entry<'c>>,
    /// The entry of the last destroy record.
    pub(super) ended: Option<WatchedEntry<'c>>,
}

impl<'c> ViewFixture<'c> {
    pub(super) fn of(resolver: FixtureResolver<'c>) -> Self {
        ViewFixture {
            view: View::default(),
            resolver,
            records: Vec::new(),
            last: None,
            ended: None,
        }
    }

    pub(super) fn act(
        &mut self,
        act: impl FnOnce(&mut View, &mut dyn ResolveEntry<'c>, RecordHandler<'_, 'c>),
    ) {
        let ViewFixture {
            view,
            resolver,
            records,
            last,
            ended,
        } = self;
        act(view, resolver, &mut |record| {
            records.push(summary(&record));
            if let Some(entry) = record.entry() {
                *last = Some(entry.clone());
            }
            if let Record::Destroy(watched) = record {
                *ended = Some(watched);
            }
        });
    }

    pub(super) fn apply_new(&mut self, flow: Flow) {
        self.act(|view, resolver, emit| view.apply_new(flow, resolver, emit));
    }

    pub(super) fn apply_update(&mut self, flow: Flow) {
        self.act(|view, resolver, emit| view.apply_update(flow, resolver, emit));
    }

    pub(super) fn apply_destroy(&mut self, flow: &Flow) {
        self.act(|view, resolver, emit| view.apply_destroy(flow, resolver, emit));
    }

    pub(super) fn dump(&mut self, second: u64, whole: bool, flows: &[Flow]) {
        self.view.begin_dump(false);
        self.act(|view, resolver, emit| {
            for flow in flows {
                view.apply_dumped(flow.clone(), Duration::from_secs(second), resolver, emit);
            }
            view.end_dump(whole, resolver, emit);
        });
    }

    /// Compares the records since the last call.
    #[track_caller]
    pub(super) fn assert_records(&mut self, expected: &[&str]) {
        assert_eq!(self.records, expected);
        self.records.clear();
    }
}

/// Short form of a record: its name, the endpoint's last byte, and the values before and after.
pub(super) fn summary(record: &Record<'_>) -> String {
    let name = record.name().unwrap_or("move");
    let Some(entry) = record.entry() else {
        return name.to_owned();
    };
    let endpoint = entry.flow.reply.src.to_string();
    let endpoint = endpoint.rsplit('.').next().unwrap_or_default();
    let verdict = |v: &Option<Verdict>| v.map_or("-", Verdict::name);
    match record {
        Record::Refresh { before, after, .. } => format!("{name} {endpoint} {before}>{after}"),
        Record::Verdict { before, after, .. } => {
            format!("{name} {endpoint} {}>{}", verdict(before), verdict(after))
        }
        Record::Move { before, .. } => format!("{name} {endpoint} from {before}"),
        _ => format!("{name} {endpoint}"),
    }
}
