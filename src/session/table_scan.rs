//! Scan of the whole table for commands that gather before they print. It is repeated when the kernel interrupted it.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::error::CommandError;
use crate::verdict::Activity;
use ctnetlink::flow::Flow;
use ctnetlink::{DumpReport, Table, TableKind};

use crate::session::pipeline::EntryPipeline;
use crate::session::sample::Sample;
use crate::session::table_access;

/// Scans at most, when each is interrupted or the hash is resized meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// The list that is scanned, and the looks that came before.
#[derive(Clone, Copy)]
pub struct Looks<'s> {
    pub kind: TableKind,
    pub sample: Option<&'s Sample>,
}

/// Result of the dumps of one scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Entries that could not be decoded and are missing.
    pub unreadable: u64,
    /// A dump was interrupted, or the hash was resized meanwhile: entries may be missing or doubled.
    pub inconsistent: bool,
}

impl ScanReport {
    pub fn add(&mut self, dump: &DumpReport) {
        tracing::info!(?dump, "dump");
        self.unreadable += dump.unreadable;
        self.inconsistent |= !dump.is_consistent();
    }
}

/// Hands every flow of the table to `each`, with the result of earlier looks at it, and returns what was gathered. `start`
/// makes the empty collection of an attempt; `each` asks the pipeline which flows count.
///
/// # Errors
/// The table cannot be read.
pub fn gather<'c, G>(
    table: &mut Table,
    pipeline: &mut EntryPipeline<'c>,
    looks: Looks<'_>,
    start: impl Fn() -> G,
    each: impl Fn(&mut EntryPipeline<'c>, &mut G, Flow, Option<Activity>),
) -> Result<(G, ScanReport), CommandError> {
    let mut attempt = 1;
    loop {
        pipeline.start_over();
        let mut report = ScanReport::default();
        let mut gathered = start();
        for filter in pipeline.filter().dumps() {
            let began = Instant::now();
            let dump = table.dump_timed(looks.kind, &filter, &mut |flow, at| {
                let seen = looks.sample.map(|sample| sample.seen(&flow, at));
                each(pipeline, &mut gathered, flow, seen);
                ControlFlow::Continue(())
            });
            report.add(&dump.map_err(table_access::netlink_error)?);
            tracing::info!(took = ?began.elapsed(), attempt, "scan");
        }
        if !report.inconsistent || attempt == MAX_ATTEMPTS {
            report.inconsistent |= looks.sample.is_some_and(|sample| sample.inconsistent);
            return Ok((gathered, report));
        }
        attempt += 1;
    }
}
