// Lists the IPv4 UDP entries to a port, deletes them, and follows the events until none arrives for a second.
//
// In a namespace of its own: `unshare -Urn cargo run --example conntrack -- 53`
//
// With `net.netfilter.nf_conntrack_events` at 2, the default, entries created before a subscription make no events.

use std::error::Error;
use std::io::{Write, stdout};
use std::ops::ControlFlow::Continue;
use std::time::Duration;

use ctnetlink::flow::Family;
use ctnetlink::{
    DeleteTarget, DumpFilter, EventOptions, Events, Netns, Received, Table, TableKind,
};

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).ok_or("usage: conntrack PORT")?;
    run(port.parse()?, &mut stdout())
}

/// Writes one line for each entry and each event.
pub fn run(port: u16, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut events = Events::open(&Netns::current(), EventOptions::default())?;
    let mut table = Table::open(&Netns::current())?;
    let family = Some(Family::Ipv4);
    let mut filter = DumpFilter {
        family,
        ..DumpFilter::default()
    };
    filter.original.protocol = Some(17);
    filter.original.dport = Some(port);
    let mut targets = Vec::new();
    table.dump(TableKind::Conntrack, &filter, &mut |flow| {
        // Older kernels do not filter: test again.
        if flow.protocol() == 17 && flow.original.dport() == Some(port) {
            targets.extend(DeleteTarget::of(&flow));
        }
        Continue(())
    })?;
    for (target, result) in targets.iter().zip(table.delete(&targets)) {
        let (client, server) = (target.reply().destination(), target.reply().source());
        writeln!(out, "{client} -> {server}: deleted: {result:?}")?;
    }
    loop {
        let mut seen = Vec::new();
        let received = events.receive(Duration::from_secs(1), &mut |event| seen.push(event))?;
        for event in seen {
            writeln!(out, "{:?} {}", event.kind, event.flow.original.source())?;
        }
        match received {
            Received::TimedOut => return Ok(()),
            Received::Overrun => writeln!(out, "events are lost")?,
            Received::Events { .. } => {}
        }
    }
}
