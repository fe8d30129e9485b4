//! Keys of `--by`, and the values of an entry for them.
//!
//! A value owns no text. Names are borrowed from the cluster index and referred to by their index in a list.

use std::net::IpAddr;

use crate::attribution::{Names, Party, PartyKind};
use crate::entry::Entry;
use crate::verdict::{Reason, Verdict};
use ctnetlink::flow::{AddressPort, Direction, Flow, Status, Zone};

use super::group_names::{GroupName, GroupNames, NameId, WordId};

/// A key of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum GroupKey {
    /// Pod or node at the original source; its address if neither is known
    Client,
    /// Original source address
    Src,
    /// Original destination address
    Dst,
    /// Original source port
    Sport,
    /// Original destination port
    Dport,
    /// Reply source address: the endpoint that packets go to
    ReplySrc,
    /// Reply destination address: the source as the endpoint sees it
    ReplyDst,
    /// Reply source port
    ReplySport,
    /// Reply destination port
    ReplyDport,
    /// Service of the original destination
    Svc,
    /// Pod and port at the reply source; address and port if no pod is known
    Endpoint,
    /// Pod of the client, else that of the endpoint
    Pod,
    /// Kubernetes namespace of the client, else that of the Service, else that of the endpoint
    Namespace,
    /// Protocol
    Proto,
    /// State of the connection; unreplied, replied or assured for protocols without states
    State,
    /// All status flags
    Status,
    /// Verdict: ok, stale, ...
    Verdict,
    /// Reason of the verdict
    Reason,
    /// Helper
    Helper,
    /// Network namespace
    Netns,
    /// Conntrack zone
    Zone,
    /// Mark
    Mark,
    /// Reply destination and reply source of entries with a translated source; each such pair has its own ports
    SnatDst,
}

impl GroupKey {
    /// Word of the command line and of JSON.
    pub const fn name(self) -> &'static str {
        match self {
            GroupKey::Client => "client",
            GroupKey::Src => "src",
            GroupKey::Dst => "dst",
            GroupKey::Sport => "sport",
            GroupKey::Dport => "dport",
            GroupKey::ReplySrc => "reply-src",
            GroupKey::ReplyDst => "reply-dst",
            GroupKey::ReplySport => "reply-sport",
            GroupKey::ReplyDport => "reply-dport",
            GroupKey::Svc => "svc",
            GroupKey::Endpoint => "endpoint",
            GroupKey::Pod => "pod",
            GroupKey::Namespace => "namespace",
            GroupKey::Proto => "proto",
            GroupKey::State => "state",
            GroupKey::Status => "status",
            GroupKey::Verdict => "verdict",
            GroupKey::Reason => "reason",
            GroupKey::Helper => "helper",
            GroupKey::Netns => "netns",
            GroupKey::Zone => "zone",
            GroupKey::Mark => "mark",
            GroupKey::SnatDst => "snat-dst",
        }
    }

    /// Whether the value needs the names or the verdict of an entry.
    pub const fn needs_names(self) -> bool {
        self.needs_cluster() || matches!(self, GroupKey::Client | GroupKey::Endpoint)
    }

    /// Whether the value is absent for every entry without a cluster.
    pub const fn needs_cluster(self) -> bool {
        matches!(
            self,
            GroupKey::Svc
                | GroupKey::Pod
                | GroupKey::Namespace
                | GroupKey::Verdict
                | GroupKey::Reason
        )
    }

    /// Whether the value is or may be the name of the client.
    pub const fn shows_client(self) -> bool {
        matches!(self, GroupKey::Client | GroupKey::Pod | GroupKey::Namespace)
    }

    /// Whether the value is or may be the name of the endpoint.
    pub const fn shows_endpoint(self) -> bool {
        matches!(
            self,
            GroupKey::Endpoint | GroupKey::Pod | GroupKey::Namespace
        )
    }

    /// Whether the value is an address, which may have an owner with a name.
    pub const fn is_address(self) -> bool {
        matches!(
            self,
            GroupKey::Src | GroupKey::Dst | GroupKey::ReplySrc | GroupKey::ReplyDst
        )
    }

    /// Whether the value is a number.
    pub const fn is_number(self) -> bool {
        matches!(
            self,
            GroupKey::Sport
                | GroupKey::Dport
                | GroupKey::ReplySport
                | GroupKey::ReplyDport
                | GroupKey::Zone
                | GroupKey::Mark
        )
    }
}

/// Value of a key for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyValue {
    /// The key does not apply to the entry.
    Absent,
    Number(u32),
    Protocol(u8),
    Address(IpAddr),
    AddressPort(AddressPort),
    /// A pod, node or Service. `port` is set if the key includes a port that has no name.
    Name {
        id: NameId,
        port: Option<u16>,
    },
    /// Word (if any) and number of the tracker's state, and the status bits that the state column shows.
    State {
        tracked: Option<(Option<&'static str>, u8)>,
        status: Status,
    },
    Status(Status),
    /// Zone that holds in one direction. A zone of both directions is a number.
    ZoneOf(u16, Direction),
    Verdict(Verdict),
    Reason(Reason),
    Word(WordId),
    /// Translated source, and the destination of the packets.
    Masquerade {
        source: IpAddr,
        destination: AddressPort,
        protocol: u8,
    },
}

impl KeyValue {
    /// Value of `entry` for `key`.
    #[inline]
    pub fn of<'c>(key: GroupKey, entry: &Entry<'c>, names: &mut GroupNames<'c>) -> KeyValue {
        let flow = &entry.flow;
        match key {
            GroupKey::Client => party(entry.names.client, flow.original.src, names),
            GroupKey::Src => KeyValue::Address(flow.original.src),
            GroupKey::Dst => KeyValue::Address(flow.original.dst),
            GroupKey::Sport => number(flow.original.sport()),
            GroupKey::Dport => number(flow.original.dport()),
            GroupKey::ReplySrc => KeyValue::Address(flow.reply.src),
            GroupKey::ReplyDst => KeyValue::Address(flow.reply.dst),
            GroupKey::ReplySport => number(flow.reply.sport()),
            GroupKey::ReplyDport => number(flow.reply.dport()),
            GroupKey::Svc => service(entry, names),
            GroupKey::Endpoint => endpoint(entry, names),
            GroupKey::Pod => pod(entry, names),
            GroupKey::Namespace => namespace(entry, names),
            GroupKey::Proto => KeyValue::Protocol(flow.protocol()),
            GroupKey::State => state(flow),
            GroupKey::Status => KeyValue::Status(flow.status),
            GroupKey::Verdict => entry.judgement.map_or(KeyValue::Absent, |judgement| {
                KeyValue::Verdict(judgement.verdict())
            }),
            GroupKey::Reason => entry.judgement.map_or(KeyValue::Absent, |judgement| {
                KeyValue::Reason(judgement.reason)
            }),
            GroupKey::Helper => flow
                .helper()
                .map_or(KeyValue::Absent, |name| KeyValue::Word(names.word_id(name))),
            GroupKey::Netns => names.netns.map_or(KeyValue::Absent, KeyValue::Word),
            GroupKey::Zone => zone(flow.zone),
            GroupKey::Mark => number(flow.mark),
            GroupKey::SnatDst if flow.is_snat() => KeyValue::Masquerade {
                source: flow.reply.dst,
                destination: flow.reply.source(),
                protocol: flow.protocol(),
            },
            GroupKey::SnatDst => KeyValue::Absent,
        }
    }
}

fn zone(zone: Zone) -> KeyValue {
    match zone.direction {
        Some(direction) if zone.id != 0 => KeyValue::ZoneOf(zone.id, direction),
        _ => KeyValue::Number(zone.id.into()),
    }
}

fn number(n: Option<impl Into<u32>>) -> KeyValue {
    n.map_or(KeyValue::Absent, |n| KeyValue::Number(n.into()))
}

fn party<'c>(party: Option<Party<'c>>, address: IpAddr, names: &mut GroupNames<'c>) -> KeyValue {
    match named(party) {
        Some(name) => KeyValue::Name {
            id: names.id(name),
            port: None,
        },
        None => KeyValue::Address(address),
    }
}

fn named(party: Option<Party<'_>>) -> Option<GroupName<'_>> {
    let party = party?;
    Some(GroupName {
        namespace: party.namespace,
        name: party.name?,
        port: None,
    })
}

/// The Service, or the destination for a DNAT rule that belongs to no Service.
fn service<'c>(entry: &Entry<'c>, names: &mut GroupNames<'c>) -> KeyValue {
    let Some(service) = entry.names.service else {
        return KeyValue::Absent;
    };
    match service.name {
        Some(name) => KeyValue::Name {
            id: names.id(GroupName {
                namespace: service.namespace,
                name,
                port: service.port,
            }),
            port: service.port.is_none().then_some(service.port_number),
        },
        None => KeyValue::AddressPort(entry.flow.original.destination()),
    }
}

fn endpoint<'c>(entry: &Entry<'c>, names: &mut GroupNames<'c>) -> KeyValue {
    let source = entry.flow.reply.source();
    match named(entry.names.endpoint.map(|endpoint| endpoint.party)) {
        Some(name) => KeyValue::Name {
            id: names.id(name),
            port: source.port,
        },
        None => KeyValue::AddressPort(source),
    }
}

/// The pod of the client, else that of the endpoint.
fn pod<'c>(entry: &Entry<'c>, names: &mut GroupNames<'c>) -> KeyValue {
    let endpoint = entry.names.endpoint.map(|endpoint| endpoint.party);
    let parties = [entry.names.client, endpoint];
    let mut pods = parties.into_iter().flatten();
    let pod = pods.find(|party| party.kind == PartyKind::Pod && party.name.is_some());
    named(pod).map_or(KeyValue::Absent, |name| KeyValue::Name {
        id: names.id(name),
        port: None,
    })
}

/// The namespace of the client, else that of the Service, else that of the endpoint.
fn namespace<'c>(entry: &Entry<'c>, names: &mut GroupNames<'c>) -> KeyValue {
    let Names {
        client,
        service,
        endpoint,
        ..
    } = entry.names;
    let namespace = client
        .and_then(|client| client.namespace)
        .or_else(|| service?.namespace)
        .or_else(|| endpoint?.party.namespace);
    namespace.map_or(KeyValue::Absent, |name| KeyValue::Name {
        id: names.id(GroupName {
            namespace: None,
            name,
            port: None,
        }),
        port: None,
    })
}

/// State and status as far as the state column shows them, so that entries with equal cells form one group.
fn state(flow: &Flow) -> KeyValue {
    let shown = match (flow.state, flow.status.is_offloaded()) {
        (_, true) => Status::OFFLOAD.with(Status::HW_OFFLOAD),
        (Some(_), false) => Status::default(),
        (None, false) if flow.status.is_unreplied() => Status::default(),
        (None, false) => Status::SEEN_REPLY.with(Status::ASSURED),
    };
    KeyValue::State {
        tracked: flow.state.map(|state| (state.name(), state.number())),
        status: Status(flow.status.0 & shown.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctnetlink::flow::{L4, ProtocolState, TcpDirection, Tuple};

    fn flow() -> Flow {
        let tuple = |src: [u8; 4], sport, dst: [u8; 4], dport| Tuple {
            src: src.into(),
            dst: dst.into(),
            protocol: 17,
            l4: L4::Ports {
                src: sport,
                dst: dport,
            },
        };
        Flow::new(
            tuple([10, 244, 1, 9], 4000, [203, 0, 113, 10], 443),
            tuple([203, 0, 113, 10], 443, [192, 0, 2, 11], 61234),
        )
    }

    #[test]
    fn equal_names_of_two_objects_are_one_value() {
        // Two objects with the same text.
        let (a, b) = ("web-1".to_owned(), "web-1".to_owned());
        let entry = |name| {
            let mut entry = Entry::bare(flow());
            entry.names.client = Some(Party {
                kind: PartyKind::Pod,
                namespace: Some("shop"),
                name: Some(name),
                node: None,
            });
            entry
        };
        let mut names = GroupNames::default();
        let first = KeyValue::of(GroupKey::Client, &entry(&a), &mut names);
        assert_eq!(
            first,
            KeyValue::of(GroupKey::Client, &entry(&b), &mut names)
        );
        let KeyValue::Name { id, port: None } = first else {
            panic!("{first:?}")
        };
        assert_eq!(names.get(id).map(|name| name.name), Some("web-1"));
    }

    #[test]
    fn the_masquerade_is_absent_without_source_translation() {
        let mut names = GroupNames::default();
        let entry = Entry::bare(flow());
        let KeyValue::Masquerade {
            source,
            destination,
            protocol: 17,
        } = KeyValue::of(GroupKey::SnatDst, &entry, &mut names)
        else {
            panic!()
        };
        assert_eq!(source.to_string(), "192.0.2.11");
        assert_eq!(destination.to_string(), "203.0.113.10:443");
        let mut plain = flow();
        plain.reply.dst = plain.original.src;
        plain.reply.l4 = L4::Ports {
            src: 443,
            dst: 4000,
        };
        let entry = Entry::bare(plain);
        assert_eq!(
            KeyValue::of(GroupKey::SnatDst, &entry, &mut names),
            KeyValue::Absent
        );
    }

    #[test]
    fn states_with_equal_cells_are_one_group() {
        let tcp = |flags| {
            let side = TcpDirection {
                flags,
                window_scale: None,
            };
            let mut flow = flow();
            flow.state = Some(ProtocolState::Tcp {
                state: 5,
                original: side,
                reply: side,
            });
            flow
        };
        let mut assured = tcp(Some(4));
        assured.status = assured.status.with(Status::ASSURED);
        assert_eq!(state(&tcp(None)), state(&assured));
        let mut offloaded = tcp(None);
        offloaded.status = offloaded.status.with(Status::OFFLOAD);
        assert_ne!(state(&tcp(None)), state(&offloaded));
        let mut replied = flow();
        replied.status = replied.status.with(Status::SEEN_REPLY);
        assert_ne!(state(&flow()), state(&replied));
    }

    #[test]
    fn names_of_keys_equal_their_words_on_the_command_line() {
        use clap::ValueEnum;
        for key in GroupKey::value_variants() {
            let word = key.to_possible_value().unwrap();
            assert_eq!(word.get_name(), key.name());
        }
    }
}
