//! What entries are grouped by: the words of `--by`, and the value that an entry has for each.
//!
//! A value is kept without any text of its own. Names are those of the cluster index, each known by its place in a list.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::attribution::Party;

use crate::entry::Entry;
use crate::verdict::Verdict;
use ctnetlink::flow::{AddressPort, Flow, Status};

/// What to group by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Key {
    /// Pod or node at the original source; its address if neither is known
    Client,
    /// Original source address
    Src,
    /// Service of the original destination
    Svc,
    /// Pod and port at the reply source; address and port if no pod is known
    Endpoint,
    /// Original destination address
    Dst,
    /// Original destination port
    Dport,
    /// Protocol
    Proto,
    /// State of the connection; unreplied, replied or assured for protocols without states
    State,
    /// All status flags
    Status,
    /// Verdict: ok, stale, ...
    Verdict,
    /// Conntrack zone
    Zone,
    /// Mark
    Mark,
    /// Reply destination and reply source of entries with a translated source; each such pair has its own ports
    SnatDst,
}

impl Key {
    /// The word of the command line and of JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Key::Client => "client",
            Key::Src => "src",
            Key::Svc => "svc",
            Key::Endpoint => "endpoint",
            Key::Dst => "dst",
            Key::Dport => "dport",
            Key::Proto => "proto",
            Key::State => "state",
            Key::Status => "status",
            Key::Verdict => "verdict",
            Key::Zone => "zone",
            Key::Mark => "mark",
            Key::SnatDst => "snat-dst",
        }
    }

    /// It takes the names behind an entry, or its verdict.
    pub const fn wants_names(self) -> bool {
        matches!(self, Key::Client | Key::Svc | Key::Endpoint | Key::Verdict)
    }

    /// Without a cluster every entry has the same value: none.
    pub const fn is_of_the_cluster(self) -> bool {
        matches!(self, Key::Svc | Key::Verdict)
    }
}

/// A name of the cluster, with a port where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<'c> {
    pub namespace: Option<&'c str>,
    pub name: &'c str,
    /// Name of a Service port.
    pub port: Option<&'c str>,
}

/// A place in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameId(u32);

/// The names that were met, each once. There are no more of them than the cluster has.
#[derive(Debug, Default)]
pub struct Names<'c> {
    list: Vec<Name<'c>>,
    places: HashMap<Name<'c>, NameId>,
}

impl<'c> Names<'c> {
    fn id(&mut self, name: Name<'c>) -> NameId {
        let Names { list, places } = self;
        *places.entry(name).or_insert_with(|| {
            list.push(name);
            NameId((list.len() - 1) as u32)
        })
    }

    /// `None` for an id of other names.
    pub fn get(&self, id: NameId) -> Option<Name<'c>> {
        self.list.get(id.0 as usize).copied()
    }
}

/// The value of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The entry has no such value.
    Absent,
    Number(u32),
    Protocol(u8),
    Address(IpAddr),
    Place(AddressPort),
    /// A pod, node or Service; `port` is a number where it belongs to the key and has no name.
    Name {
        id: NameId,
        port: Option<u16>,
    },
    /// The tracker's state as a word (and as a number, where there is no word), and what else the state column shows.
    State {
        tracked: Option<(Option<&'static str>, u8)>,
        status: Status,
    },
    Status(Status),
    Verdict(Verdict),
    /// Translated source, and where the packets really go.
    Masquerade {
        source: IpAddr,
        destination: AddressPort,
        protocol: u8,
    },
}

impl Part {
    /// What `entry` has for `key`.
    #[inline]
    pub fn of<'c>(key: Key, entry: &Entry<'c>, names: &mut Names<'c>) -> Part {
        let flow = &entry.flow;
        match key {
            Key::Client => party(entry.names.client, flow.original.src, names),
            Key::Src => Part::Address(flow.original.src),
            Key::Svc => service(entry, names),
            Key::Endpoint => endpoint(entry, names),
            Key::Dst => Part::Address(flow.original.dst),
            Key::Dport => number(flow.original.dport()),
            Key::Proto => Part::Protocol(flow.protocol()),
            Key::State => state(flow),
            Key::Status => Part::Status(flow.status),
            Key::Verdict => entry
                .judgement
                .map_or(Part::Absent, |judgement| Part::Verdict(judgement.verdict())),
            Key::Zone => Part::Number(flow.zone.id.into()),
            Key::Mark => number(flow.mark),
            Key::SnatDst if flow.is_snat() => Part::Masquerade {
                source: flow.reply.dst,
                destination: flow.reply.source(),
                protocol: flow.protocol(),
            },
            Key::SnatDst => Part::Absent,
        }
    }
}

fn number(n: Option<impl Into<u32>>) -> Part {
    n.map_or(Part::Absent, |n| Part::Number(n.into()))
}

fn party<'c>(party: Option<Party<'c>>, address: IpAddr, names: &mut Names<'c>) -> Part {
    match named(party) {
        Some(name) => Part::Name {
            id: names.id(name),
            port: None,
        },
        None => Part::Address(address),
    }
}

fn named(party: Option<Party<'_>>) -> Option<Name<'_>> {
    let party = party?;
    Some(Name {
        namespace: party.namespace,
        name: party.name?,
        port: None,
    })
}

/// A DNAT rule that is no Service's has no name: then the destination stands for it.
fn service<'c>(entry: &Entry<'c>, names: &mut Names<'c>) -> Part {
    let Some(service) = entry.names.service else {
        return Part::Absent;
    };
    match service.name {
        Some(name) => Part::Name {
            id: names.id(Name {
                namespace: service.namespace,
                name,
                port: service.port,
            }),
            port: service.port.is_none().then_some(service.port_number),
        },
        None => Part::Place(entry.flow.original.destination()),
    }
}

fn endpoint<'c>(entry: &Entry<'c>, names: &mut Names<'c>) -> Part {
    let place = entry.flow.reply.source();
    match named(entry.names.endpoint.map(|endpoint| endpoint.party)) {
        Some(name) => Part::Name {
            id: names.id(name),
            port: place.port,
        },
        None => Part::Place(place),
    }
}

/// Only what the state column shows: entries that look the same there are one group.
fn state(flow: &Flow) -> Part {
    let shown = match (flow.state, flow.status.is_offloaded()) {
        (_, true) => Status::OFFLOAD.with(Status::HW_OFFLOAD),
        (Some(_), false) => Status::default(),
        (None, false) if flow.status.is_unreplied() => Status::default(),
        (None, false) => Status::SEEN_REPLY.with(Status::ASSURED),
    };
    Part::State {
        tracked: flow.state.map(|state| (state.name(), state.number())),
        status: Status(flow.status.0 & shown.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::PartyKind;
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
    fn one_name_met_in_two_places_is_one_value() {
        // Two objects may name the same pod.
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
        let mut names = Names::default();
        let first = Part::of(Key::Client, &entry(&a), &mut names);
        assert_eq!(first, Part::of(Key::Client, &entry(&b), &mut names));
        let Part::Name { id, port: None } = first else {
            panic!("{first:?}")
        };
        assert_eq!(names.get(id).map(|name| name.name), Some("web-1"));
    }

    #[test]
    fn a_source_that_was_not_translated_has_no_masquerade() {
        let mut names = Names::default();
        let entry = Entry::bare(flow());
        let Part::Masquerade {
            source,
            destination,
            protocol: 17,
        } = Part::of(Key::SnatDst, &entry, &mut names)
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
        assert_eq!(Part::of(Key::SnatDst, &entry, &mut names), Part::Absent);
    }

    #[test]
    fn states_that_look_the_same_are_one_group() {
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
    fn every_key_has_the_word_that_the_command_line_takes() {
        use clap::ValueEnum;
        for key in Key::value_variants() {
            let word = key.to_possible_value().unwrap();
            assert_eq!(word.get_name(), key.name());
        }
    }
}
