//! Source port that translation changed, and the entry that has the wanted one.

use std::fmt;

use ctnetlink::flow::{Flow, L4, Tuple, protocol_name};

/// Entry that has the reply tuple which a flow would have with its own source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortHolder {
    /// Original tuple of that entry.
    Entry(Tuple),
    /// No entry has it now.
    Nobody,
    /// Not looked up.
    NotKnown,
}

/// Clause of the evidence of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortChange {
    pub wanted: u16,
    pub given: u16,
    pub holder: PortHolder,
}

/// The reply tuple that `flow` would have with its own source port; `None` unless that was changed.
pub fn wanted_reply(flow: &Flow) -> Option<Tuple> {
    let L4::Ports { src, .. } = flow.reply.l4 else {
        return None;
    };
    let wanted = flow.original.sport()?;
    let l4 = L4::Ports { src, dst: wanted };
    flow.has_new_source_port()
        .then_some(Tuple { l4, ..flow.reply })
}

impl PortChange {
    /// `None` unless the source port of `flow` was changed.
    pub fn of(flow: &Flow, holder: PortHolder) -> Option<Self> {
        let (wanted, given) = (flow.original.sport()?, flow.reply.dport()?);
        (wanted != given).then_some(PortChange {
            wanted,
            given,
            holder,
        })
    }
}

impl fmt::Display for PortChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortChange {
            wanted,
            given,
            holder,
        } = self;
        write!(f, "source port {wanted} became {given}")?;
        match holder {
            PortHolder::Entry(tuple) => {
                let protocol = protocol_name(tuple.protocol).unwrap_or("flow");
                let (from, to) = (tuple.source(), tuple.destination());
                write!(f, "; {wanted} is held by {protocol} {from} > {to}")
            }
            PortHolder::Nobody => write!(f, "; no entry holds {wanted} now"),
            PortHolder::NotKnown => Ok(()),
        }
    }
}
