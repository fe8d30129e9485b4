//! Dumps of entries and expectations.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_DUMP_FILTERED, NLM_F_DUMP_INTR};
use rustix::io::Errno;

use super::Table;
use super::receive::{DumpEnd, ReceiveMode};
use super::repeats::Repeats;
use crate::codec::expect::{self, Expectation};
use crate::codec::{decode, encode};
use crate::error::{NetlinkError, Operation};
use crate::filter::{DumpFilter, TableKind};
use crate::flow::{Family, Flow};

/// Report of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpReport {
    /// Number of messages received, unreadable ones included.
    pub received: u64,
    /// Number of messages that could not be decoded, see [`DecodeError`](crate::DecodeError).
    pub unreadable: u64,
    /// The kernel reported that the dump is inconsistent (`NLM_F_DUMP_INTR`).
    pub interrupted: bool,
    /// The hash table was resized during the dump: entries are missing or come twice. The kernel does not report that, so the
    /// number of buckets is read before and after.
    pub resized: bool,
    /// The kernel marked an entry as part of a filtered dump (`NLM_F_DUMP_FILTERED`). A filter of the family alone is marked,
    /// too. False when no entry passed.
    pub kernel_filtered: bool,
    /// The kernel refused the filter, and all entries of the family were requested instead.
    pub filter_refused: bool,
    /// Number of entries that the kernel dumped again, because a hash bucket was begun again. They were passed once.
    pub repeated: u64,
    /// The kernel counts entries of the namespace, but dumped none, several times in a row. Only unconfirmed entries, whose first
    /// packet is still on its way, explain that.
    pub contradicted: bool,
    /// The callback stopped the dump.
    pub stopped: bool,
}

/// Number of dumps without an entry, while the kernel counts some, after which the answer is not believed.
const MAX_EMPTY_DUMPS: u32 = 4;

/// Pause before the next of these dumps.
const EMPTY_DUMP_PAUSE: Duration = Duration::from_millis(5);

impl DumpReport {
    /// Reports whether the dump has every entry that existed during the whole dump exactly once.
    pub fn is_consistent(&self) -> bool {
        !self.interrupted && !self.resized && !self.contradicted
    }
}

impl Table {
    /// Dumps the entries of `kind`. Passes every entry that passes the kernel's part of `filter` to `on_flow`, in the order of
    /// the hash table, until that breaks. Memory use does not depend on the number of entries. An entry that the kernel dumps
    /// twice, because entries around it come and go, is passed once.
    ///
    /// The kernel may let other entries pass, see [`DumpFilter`]: the caller must test again.
    ///
    /// # Errors
    /// [`NetlinkError`]. Entries may have been passed before.
    pub fn dump(
        &mut self,
        kind: TableKind,
        filter: &DumpFilter,
        on_flow: &mut dyn FnMut(Flow) -> ControlFlow<()>,
    ) -> Result<DumpReport, NetlinkError> {
        self.dump_timed(kind, filter, &mut |flow, _| on_flow(flow))
    }

    /// Dumps entries as [`Table::dump`] does, with the time at which the kernel wrote each one.
    ///
    /// # Errors
    /// [`NetlinkError`]. Entries may have been passed before.
    pub fn dump_timed(
        &mut self,
        kind: TableKind,
        filter: &DumpFilter,
        on_flow: &mut dyn FnMut(Flow, Instant) -> ControlFlow<()>,
    ) -> Result<DumpReport, NetlinkError> {
        const OPERATION: Operation = Operation::DumpEntries;
        let mut report = DumpReport::default();
        let before = self.bucket_count();
        let mut asked = *filter;
        let mut repeats = Repeats::new();
        let mut empty_dumps = 0;
        loop {
            let narrow = kind == TableKind::Conntrack && asked.kernel_part() != asked.family_only();
            let ended = self.receive_dump(
                OPERATION,
                self.receive_mode,
                |out, sequence| encode::dump(out, sequence, kind, &asked),
                |flags, payload, datagram| {
                    report.received += 1;
                    report.interrupted |= flags & NLM_F_DUMP_INTR != 0;
                    report.kernel_filtered |= flags & NLM_F_DUMP_FILTERED != 0;
                    let mut flow = decode::blank();
                    match decode::read(payload, &mut flow) {
                        Ok(()) if repeats.is_repeated(datagram.number, &flow) => {
                            report.repeated += 1;
                            ControlFlow::Continue(())
                        }
                        Ok(()) => on_flow(flow, datagram.written),
                        Err(_) => {
                            report.unreadable += 1;
                            ControlFlow::Continue(())
                        }
                    }
                },
            )?;
            match ended {
                DumpEnd::Done { interrupted } => report.interrupted |= interrupted,
                DumpEnd::Stopped => report.stopped = true,
                DumpEnd::Refused(Errno::INVAL | Errno::OPNOTSUPP)
                    if narrow && report.received == 0 =>
                {
                    report.filter_refused = true;
                    asked = asked.family_only();
                    continue;
                }
                DumpEnd::Refused(e) if narrow => return Err(NetlinkError::answered(OPERATION, e)),
                DumpEnd::Refused(e) => return Err(NetlinkError::answered_plain(OPERATION, e)),
            }
            // Expired entries are counted until a dump or the kernel's collector removes them (`ctnetlink_dump_table`).
            let is_whole =
                kind == TableKind::Conntrack && asked.kernel_part() == DumpFilter::default();
            if is_whole && report.received == 0 && self.count()? > 0 {
                empty_dumps += 1;
                report.contradicted = empty_dumps == MAX_EMPTY_DUMPS;
                if !report.contradicted {
                    std::thread::sleep(EMPTY_DUMP_PAUSE);
                    continue;
                }
            }
            report.resized = self.bucket_count() != before;
            return Ok(report);
        }
    }

    /// Dumps entries without decoding them. Passes the payload of each message, `struct nfgenmsg` and attributes, to
    /// `on_message`, until that breaks. [`decode`](crate::decode()) reads it. A refused filter is an error.
    ///
    /// Of the report, [`received`](DumpReport::received), [`interrupted`](DumpReport::interrupted) and
    /// [`stopped`](DumpReport::stopped) are set.
    ///
    /// # Errors
    /// [`NetlinkError`]. Messages may have been passed before.
    pub fn dump_raw(
        &mut self,
        filter: &DumpFilter,
        on_message: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<DumpReport, NetlinkError> {
        const OPERATION: Operation = Operation::DumpEntries;
        let (ended, report) = self.walk_reported(
            OPERATION,
            |out, sequence| encode::dump(out, sequence, TableKind::Conntrack, filter),
            |payload, _| on_message(payload),
        )?;
        match ended {
            DumpEnd::Refused(e) => Err(NetlinkError::answered(OPERATION, e)),
            _ => Ok(report),
        }
    }

    /// Dumps the expectations of one family or both. Passes each to `on_expectation`, until that breaks.
    ///
    /// Of the report, [`received`](DumpReport::received), [`unreadable`](DumpReport::unreadable),
    /// [`interrupted`](DumpReport::interrupted) and [`stopped`](DumpReport::stopped) are set.
    ///
    /// # Errors
    /// [`NetlinkError`]. Expectations may have been passed before.
    pub fn dump_expectations(
        &mut self,
        family: Option<Family>,
        on_expectation: &mut dyn FnMut(Expectation) -> ControlFlow<()>,
    ) -> Result<DumpReport, NetlinkError> {
        const OPERATION: Operation = Operation::DumpExpectations;
        let (ended, report) = self.walk_reported(
            OPERATION,
            |out, sequence| encode::dump_expectations(out, sequence, family),
            |payload, unreadable| match expect::expectation(payload) {
                Ok(expectation) => on_expectation(expectation),
                Err(_) => {
                    *unreadable += 1;
                    ControlFlow::Continue(())
                }
            },
        )?;
        match ended {
            DumpEnd::Refused(e) => Err(NetlinkError::answered_plain(OPERATION, e)),
            _ => Ok(report),
        }
    }

    /// Walks over a dump on the calling thread, with its report. `on_message` gets the payload and the number of unreadable
    /// messages.
    fn walk_reported(
        &mut self,
        operation: Operation,
        request: impl FnOnce(&mut Vec<u8>, u32),
        mut on_message: impl FnMut(&[u8], &mut u64) -> ControlFlow<()>,
    ) -> Result<(DumpEnd, DumpReport), NetlinkError> {
        let mut report = DumpReport::default();
        let ended = self.receive_dump(
            operation,
            ReceiveMode::SameThread,
            request,
            |flags, payload, _| {
                report.received += 1;
                report.interrupted |= flags & NLM_F_DUMP_INTR != 0;
                on_message(payload, &mut report.unreadable)
            },
        )?;
        match ended {
            DumpEnd::Done { interrupted } => report.interrupted |= interrupted,
            DumpEnd::Stopped => report.stopped = true,
            DumpEnd::Refused(_) => {}
        }
        Ok((ended, report))
    }
}
