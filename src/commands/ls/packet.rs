//! `ctk ls --packet`: the entry of one packet. The kernel looks it up by its tuple, and no table is dumped.

use crate::error::CommandError;
use crate::filter::packet::Packet;
use crate::session::table_access;
use ctnetlink::Table;
use ctnetlink::flow::{Direction, Flow, Zone};

/// An entry of a packet.
pub struct Hit {
    pub flow: Flow,
    /// Direction of the packet, in words.
    pub direction: &'static str,
}

/// Entries of `packet` in these zones. The kernel assigns a packet by its tuple before translation. Where no entry has that, the
/// packet may have been captured after translation, so that its inverse is the other tuple of its entry.
///
/// # Errors
/// The table cannot be read.
pub fn find(table: &mut Table, packet: Packet, zones: &[u16]) -> Result<Vec<Hit>, CommandError> {
    let Packet(tuple) = packet;
    let mut hits = Vec::new();
    for id in zones {
        let zone = Zone {
            id: *id,
            direction: None,
        };
        let mut found = Vec::new();
        for (direction, words) in [
            (Direction::Original, "original direction"),
            (Direction::Reply, "reply direction"),
        ] {
            let flow = table.get(&tuple, direction, zone);
            found.extend(hit(flow.map_err(table_access::netlink_error)?, words));
        }
        let inverse = tuple.inverted().filter(|_| found.is_empty());
        for (direction, words) in [
            (
                Direction::Reply,
                "original direction, captured after translation",
            ),
            (
                Direction::Original,
                "reply direction, captured after translation",
            ),
        ] {
            let Some(inverse) = &inverse else { continue };
            let flow = table.get(inverse, direction, zone);
            found.extend(hit(flow.map_err(table_access::netlink_error)?, words));
        }
        hits.append(&mut found);
    }
    Ok(hits)
}

fn hit(flow: Option<Flow>, direction: &'static str) -> Option<Hit> {
    flow.map(|flow| Hit { flow, direction })
}

/// `no entry of zone 0 has the tuple of this packet, in either direction`
pub fn nothing_found(zones: &[u16]) -> String {
    let list: Vec<_> = zones.iter().map(u16::to_string).collect();
    let zones = match list.len() {
        1 => "zone",
        _ => "zones",
    };
    format!(
        "no entry of {zones} {} has the tuple of this packet, in either direction",
        list.join(", ")
    )
}
