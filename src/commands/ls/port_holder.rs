//! Lookup of the entries that hold the source ports which other entries lost.

use std::io;

use crate::entry::Entry;
use crate::error::CommandError;
use crate::output::Printer;
use crate::session::table_access;
use crate::verdict::{PortChange, PortHolder, wanted_reply};
use ctnetlink::Table;
use ctnetlink::flow::{Direction, Flow, Tuple, Zone};
use ctnetlink::netns::Netns;

/// Entries of one listing whose holders are looked up. A listing of a large table is not slowed down by lookups.
const MAX_LOOKUPS: usize = 100;

/// Rows of a listing.
pub struct Rows<'w> {
    pub printer: Printer<'w>,
    /// `None` where no evidence is printed.
    pub holders: Option<PortHolders>,
}

impl Rows<'_> {
    /// Prints an entry.
    ///
    /// # Errors
    /// The error of the write.
    pub fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let explained = self.holders.as_mut().and_then(|h| h.explain(entry));
        self.printer
            .entry(explained.as_ref().unwrap_or(entry), None)
    }
}

/// Looks up holders on a socket of its own, because the table may be dumped meanwhile.
pub struct PortHolders {
    table: Table,
    left: usize,
}

impl PortHolders {
    /// # Errors
    /// The table cannot be opened.
    pub fn open(netns: &Netns) -> Result<Self, CommandError> {
        let table = Table::open(netns).map_err(table_access::netlink_error)?;
        Ok(PortHolders {
            table,
            left: MAX_LOOKUPS,
        })
    }

    /// The entry with the holder of its source port in its evidence; `None` for an entry that kept its port, or has no evidence.
    fn explain<'c>(&mut self, entry: &Entry<'c>) -> Option<Entry<'c>> {
        let judgement = entry.judgement?;
        let wanted = wanted_reply(&entry.flow)?;
        let change = PortChange::of(&entry.flow, self.holder(&entry.flow, &wanted))?;
        let mut explained = entry.clone();
        explained.judgement = Some(judgement.with_port_change(change));
        Some(explained)
    }

    /// The kernel refuses a reply tuple that any entry has as one of its two.
    fn holder(&mut self, flow: &Flow, wanted: &Tuple) -> PortHolder {
        let Some(left) = self.left.checked_sub(1) else {
            return PortHolder::NotKnown;
        };
        self.left = left;
        let zone = Zone {
            id: flow.zone.of(Direction::Reply),
            direction: None,
        };
        for direction in [Direction::Reply, Direction::Original] {
            match self.table.get(wanted, direction, zone) {
                Ok(Some(holder)) => return PortHolder::Entry(holder.original),
                Ok(None) => {}
                Err(_) => return PortHolder::NotKnown,
            }
        }
        PortHolder::Nobody
    }
}
