//! A look at the whole table for commands that gather before they print: it is repeated where the kernel spoiled it.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::error::CommandError;
use crate::verdict::Seen;
use ctnetlink::flow::Flow;
use ctnetlink::{DumpReport, Table, TableKind};

use crate::session::namespace;
use crate::session::pipeline::EntryPipeline;
use crate::session::sample::Sample;

/// How often a look is repeated that was interrupted, or during which the hash was resized.
const ATTEMPTS: usize = 3;

/// What a look looks at, and what was seen of it before.
#[derive(Clone, Copy)]
pub struct Looks<'s> {
    pub kind: TableKind,
    pub sample: Option<&'s Sample>,
}

/// How the dumps of one look went, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries of the kernel that could not be decoded, and are missing.
    pub unreadable: u64,
    /// Interrupted, or the hash was resized meanwhile: entries may be missing or doubled.
    pub inconsistent: bool,
}

impl Report {
    pub fn add(&mut self, dump: &DumpReport) {
        tracing::info!(?dump, "dump");
        self.unreadable += dump.unreadable;
        self.inconsistent |= !dump.is_consistent();
    }
}

/// Hands every flow of the table to `each`, with what was seen of it before, and gives what it gathered. `start` makes
/// what an attempt gathers into; `each` asks the picker which flows count.
///
/// # Errors
/// The table cannot be read.
pub fn gather<'c, G>(
    table: &mut Table,
    pipeline: &mut EntryPipeline<'c>,
    looks: Looks<'_>,
    start: impl Fn() -> G,
    each: impl Fn(&mut EntryPipeline<'c>, &mut G, Flow, Option<Seen>),
) -> Result<(G, Report), CommandError> {
    let mut attempt = 1;
    loop {
        pipeline.start_over();
        let mut report = Report::default();
        let mut gathered = start();
        for filter in pipeline.filter().dumps() {
            let began = Instant::now();
            let dump = table.dump_timed(looks.kind, &filter, &mut |flow, at| {
                let seen = looks.sample.map(|sample| sample.seen(&flow, at));
                each(pipeline, &mut gathered, flow, seen);
                ControlFlow::Continue(())
            });
            report.add(&dump.map_err(namespace::netlink_error)?);
            tracing::info!(took = ?began.elapsed(), attempt, "scan");
        }
        if !report.inconsistent || attempt == ATTEMPTS {
            report.inconsistent |= looks.sample.is_some_and(|sample| sample.inconsistent);
            return Ok((gathered, report));
        }
        attempt += 1;
    }
}
