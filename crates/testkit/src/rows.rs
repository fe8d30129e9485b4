//! Entries in the form of `conntrack -L`, inserted into the table of the calling thread's network namespace, and a check of
//! the entries left later.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::ControlFlow;

use ctnetlink::Netns;
use ctnetlink::flow::{
    Direction, Flow, L4, ProtocolState, Status, TcpDirection, Tuple, Zone, protocol_number,
    tcp_state_name,
};
use ctnetlink::{DumpFilter, Table, TableKind};

/// Timeout of all entries in seconds, longer than a test.
const TIMEOUT: u32 = 900;

/// Table of this namespace.
pub fn table() -> Table {
    Table::open(&Netns::current()).expect("a socket")
}

/// All entries of this namespace.
pub fn dump() -> Vec<Flow> {
    let mut flows = Vec::new();
    let report = table()
        .dump(TableKind::Conntrack, &DumpFilter::default(), &mut |flow| {
            flows.push(flow);
            ControlFlow::Continue(())
        })
        .expect("a dump");
    assert_eq!((report.unreadable, report.is_consistent()), (0, true));
    flows
}

/// Identity of an entry: everything but timer and counters. With timestamps, a successor has another start.
pub fn identity(flow: &Flow) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        flow.zone, flow.original, flow.reply, flow.id, flow.start, flow.status, flow.mark
    )
}

/// Rows that were inserted.
pub struct Rows {
    /// Original tuple and zone of each, in order.
    places: Vec<(Tuple, Zone)>,
    identities: BTreeMap<String, usize>,
}

impl Rows {
    /// Inserts rows into an empty table, with timestamps. A cluster file must be younger than them to judge them.
    #[track_caller]
    pub fn insert<L: AsRef<str> + Debug>(lines: &[L]) -> Self {
        crate::tools::sysctl("timestamp", "1");
        Self::insert_without_start(lines)
    }

    /// Inserts rows without timestamps, as on most nodes.
    #[track_caller]
    pub fn insert_without_start<L: AsRef<str> + Debug>(lines: &[L]) -> Self {
        let flows: Vec<Flow> = lines.iter().map(|line| flow(line.as_ref())).collect();
        Self::of(&flows)
    }

    #[track_caller]
    pub fn of(flows: &[Flow]) -> Self {
        let results = table().insert_all(flows);
        for (flow, result) in flows.iter().zip(results) {
            assert_eq!(result, Ok(()), "{flow:?}");
        }
        let places: Vec<_> = flows.iter().map(|f| (f.original, f.zone)).collect();
        let number = |flow: &Flow| {
            let place = places.iter().position(|p| *p == (flow.original, flow.zone));
            place.unwrap_or_else(|| panic!("not of the rows: {flow:?}"))
        };
        let numbered = dump().iter().map(|f| (identity(f), number(f))).collect();
        let rows = Rows {
            places: places.clone(),
            identities: numbered,
        };
        assert_eq!(rows.identities.len(), flows.len());
        rows
    }

    /// Numbers, from 1, of the rows that are unchanged. Fails when the table has any other entry.
    #[track_caller]
    pub fn left(&self) -> Vec<usize> {
        let mut left: Vec<usize> = dump()
            .iter()
            .map(|flow| match self.identities.get(&identity(flow)) {
                Some(number) => number + 1,
                None => panic!("none of the rows, or changed: {flow:?}"),
            })
            .collect();
        left.sort_unstable();
        left
    }

    #[track_caller]
    pub fn assert_untouched(&self, context: impl Debug) {
        let all: Vec<usize> = (1..=self.places.len()).collect();
        assert_eq!(self.left(), all, "{context:?}");
    }
}

/// Parses one line. The protocol is the first word, a state precedes the first `src=`. The timer is always 900 s.
pub fn flow(line: &str) -> Flow {
    let protocol = line.split_whitespace().next().expect("a protocol");
    let protocol = protocol_number(protocol).expect("a known protocol");
    let words: Vec<&str> = line.split_whitespace().collect();
    let values = |key: &str| -> Vec<&str> {
        words
            .iter()
            .filter_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            .collect()
    };
    let tuple = |direction: usize| {
        let address = |key| values(key)[direction].parse().expect("an address");
        let number = |key| {
            values(key)
                .get(direction)
                .map(|port| port.parse().expect("a number"))
        };
        let l4 = match (number("sport"), number("dport")) {
            (Some(src), Some(dst)) => L4::Ports { src, dst },
            _ if values("type").len() > direction => L4::Icmp {
                kind: number("type").expect("a type") as u8,
                code: number("code").expect("a code") as u8,
                id: number("id").expect("an id"),
            },
            _ => L4::None,
        };
        Tuple {
            src: address("src"),
            dst: address("dst"),
            protocol,
            l4,
        }
    };
    let mut flow = Flow::new(tuple(0), tuple(1));
    flow.timeout = Some(TIMEOUT);
    flow.mark = Some(
        values("mark")
            .first()
            .map_or(0, |m| m.parse().expect("a mark")),
    );
    if !words.contains(&"[UNREPLIED]") {
        flow.status = flow.status.with(Status::SEEN_REPLY);
    }
    if words.contains(&"[ASSURED]") {
        flow.status = flow.status.with(Status::ASSURED);
    }
    for (key, direction) in [
        ("zone", None),
        ("zone-orig", Some(Direction::Original)),
        ("zone-reply", Some(Direction::Reply)),
    ] {
        if let Some(id) = values(key).first() {
            let id = id.parse().expect("a zone");
            flow.zone = Zone { id, direction };
        }
    }
    if let Some(labels) = values("labels").first() {
        let digits = labels.strip_prefix("0x").expect("hexadecimal");
        let bits = u128::from_str_radix(digits, 16).expect("128 bits");
        flow.rare_mut().labels = Some(bits.to_le_bytes());
    }
    flow.state = state(protocol, &words);
    flow
}

fn state(protocol: u8, words: &[&str]) -> Option<ProtocolState> {
    let before = words.iter().take_while(|word| !word.starts_with("src="));
    let name = before
        .copied()
        .find(|word| *word == word.to_uppercase() && word.contains(|c: char| c.is_alphabetic()));
    match protocol {
        6 => {
            let name = name.expect("a TCP state");
            let state = (0..12).find(|state| tcp_state_name(*state) == Some(name));
            let side = TcpDirection {
                flags: Some(0),
                window_scale: Some(0),
            };
            Some(ProtocolState::Tcp {
                state: state.unwrap_or_else(|| panic!("{name} is a TCP state")),
                original: side,
                reply: side,
            })
        }
        // COOKIE_WAIT, the only one in use.
        132 => Some(ProtocolState::Sctp {
            state: 2,
            vtag_original: Some(0x1111),
            vtag_reply: Some(0x2222),
        }),
        _ => None,
    }
}
