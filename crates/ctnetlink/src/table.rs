//! The table of one namespace: dump, get, insert, delete.

mod look;
mod stats;
mod walk;

use std::borrow::Borrow;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use netlink_packet_core::{NLM_F_DUMP_FILTERED, NLM_F_DUMP_INTR};
use rustix::io::Errno;

use crate::batch::Batch;
use crate::codec::encode::{self, DeleteTarget};
use crate::codec::expect::{self, Expectation};
use crate::codec::{abi, attr::Attributes, decode, insert};
use crate::error::{InsertError, NetlinkError};
use crate::filter::{DumpFilter, TableKind};
use crate::flow::{Direction, Family, Flow, Tuple, Zone};
use crate::netns::Netns;
use crate::socket::{Message, Socket};
use walk::{End, Pace};

/// Requests in one send. The answers to so many fit into the receive buffer that every socket has (208 KiB); twice as many
/// would not.
pub const BATCH: usize = 128;

/// How a dump went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpReport {
    /// Messages that the kernel sent, unreadable ones among them.
    pub received: u64,
    /// Messages that are no entry (see [`decode::DecodeError`]).
    pub unreadable: u64,
    /// The kernel said that the dump is inconsistent (`NLM_F_DUMP_INTR`).
    pub interrupted: bool,
    /// The hash was resized meanwhile: entries are missing or come twice, and the kernel does not say so.
    pub resized: bool,
    /// An entry was marked as coming from a filtered dump. Not to be told when none came; a filter of the family alone
    /// marks them, too.
    pub kernel_filtered: bool,
    /// The kernel refused the filter, and all entries of the family were asked for instead.
    pub filter_refused: bool,
    /// The callback had enough.
    pub stopped: bool,
}

impl DumpReport {
    /// Whether every entry that lived during the whole dump was seen exactly once.
    pub fn is_consistent(&self) -> bool {
        !self.interrupted && !self.resized
    }
}

/// What a receive-only dump carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    pub messages: u64,
    /// With their netlink headers.
    pub bytes: u64,
}

/// A namespace's table. Requests run one after the other on one socket.
pub struct Table {
    netns: Netns,
    socket: Socket,
    /// A dump was left before its end: the rest of it is still coming.
    unfinished: bool,
    /// Of dumps of entries.
    pace: Pace,
    buckets: Option<File>,
    requests: Vec<u8>,
}

impl Table {
    /// # Errors
    /// [`NetlinkError::Namespace`] and [`NetlinkError::NotAvailable`]. A missing CAP_NET_ADMIN shows at the first request.
    pub fn open(netns: &Netns) -> Result<Self, NetlinkError> {
        Ok(Table {
            netns: netns.clone(),
            socket: Socket::open(netns)?,
            unfinished: false,
            pace: Pace::InStep,
            // Kept open: it is read before and after every dump, and belongs to the namespace it was opened in.
            buckets: netns
                .run(|| File::open("/proc/sys/net/netfilter/nf_conntrack_buckets").ok())?,
            requests: Vec::new(),
        })
    }

    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// From now on a long dump of entries is received on a second thread, ahead of who looks at them: it ends sooner, and
    /// takes about a third more CPU time. For who is in a hurry.
    pub fn read_ahead(&mut self) {
        self.pace = Pace::Ahead;
    }

    /// Gives every entry of `kind` that passes the kernel's part of `filter` to `on_flow`, in hash order, until that breaks.
    /// The kernel may let others pass as well: test again. Constant memory.
    ///
    /// # Errors
    /// [`NetlinkError`]; entries may have been given before.
    pub fn dump(
        &mut self,
        kind: TableKind,
        filter: &DumpFilter,
        on_flow: &mut dyn FnMut(Flow) -> ControlFlow<()>,
    ) -> Result<DumpReport, NetlinkError> {
        self.dump_timed(kind, filter, &mut |flow, _| on_flow(flow))
    }

    /// As [`Table::dump`], with the time at which the kernel wrote each entry down.
    ///
    /// # Errors
    /// [`NetlinkError`]; entries may have been given before.
    pub fn dump_timed(
        &mut self,
        kind: TableKind,
        filter: &DumpFilter,
        on_flow: &mut dyn FnMut(Flow, Instant) -> ControlFlow<()>,
    ) -> Result<DumpReport, NetlinkError> {
        const DOING: &str = "reading the conntrack table";
        let mut report = DumpReport::default();
        let before = self.bucket_count();
        let mut asked = *filter;
        loop {
            let narrow = kind == TableKind::Conntrack && asked.kernel_part() != asked.family_only();
            let ended = self.walk(
                DOING,
                self.pace,
                |out, sequence| encode::dump(out, sequence, kind, &asked),
                |flags, payload, at| {
                    report.received += 1;
                    report.interrupted |= flags & NLM_F_DUMP_INTR != 0;
                    report.kernel_filtered |= flags & NLM_F_DUMP_FILTERED != 0;
                    let mut flow = decode::blank();
                    match decode::read(payload, &mut flow) {
                        Ok(()) => on_flow(flow, at),
                        Err(_) => {
                            report.unreadable += 1;
                            ControlFlow::Continue(())
                        }
                    }
                },
            )?;
            match ended {
                End::Done { interrupted } => report.interrupted |= interrupted,
                End::Stopped => report.stopped = true,
                End::Refused(Errno::INVAL | Errno::OPNOTSUPP) if narrow && report.received == 0 => {
                    report.filter_refused = true;
                    asked = asked.family_only();
                    continue;
                }
                End::Refused(e) if narrow => return Err(NetlinkError::answered(DOING, e)),
                End::Refused(e) => return Err(NetlinkError::answered_plain(DOING, e)),
            }
            report.resized = self.bucket_count() != before;
            return Ok(report);
        }
    }

    /// The floor that a dump is measured against: the same request, with every message received and its header looked at,
    /// and nothing decoded.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn drain(&mut self, filter: &DumpFilter) -> Result<Drained, NetlinkError> {
        const DOING: &str = "draining the conntrack table";
        let mut drained = Drained::default();
        let ended = self.walk(
            DOING,
            Pace::InStep,
            |out, sequence| encode::dump(out, sequence, TableKind::Conntrack, filter),
            |_, payload, _| {
                drained.messages += 1;
                drained.bytes += payload.len() as u64 + 16;
                ControlFlow::Continue(())
            },
        )?;
        match ended {
            End::Refused(e) => Err(NetlinkError::answered(DOING, e)),
            _ => Ok(drained),
        }
    }

    /// Gives every expectation to `on_expectation`, until that breaks. Of the report, what concerns filters and resizing
    /// stays empty.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn dump_expectations(
        &mut self,
        family: Option<Family>,
        on_expectation: &mut dyn FnMut(Expectation) -> ControlFlow<()>,
    ) -> Result<DumpReport, NetlinkError> {
        const DOING: &str = "reading the expectations";
        let mut report = DumpReport::default();
        let ended = self.walk(
            DOING,
            Pace::InStep,
            |out, sequence| encode::dump_expectations(out, sequence, family),
            |flags, payload, _| {
                report.received += 1;
                report.interrupted |= flags & NLM_F_DUMP_INTR != 0;
                match expect::expectation(payload) {
                    Ok(expectation) => on_expectation(expectation),
                    Err(_) => {
                        report.unreadable += 1;
                        ControlFlow::Continue(())
                    }
                }
            },
        )?;
        match ended {
            End::Done { interrupted } => report.interrupted |= interrupted,
            End::Stopped => report.stopped = true,
            End::Refused(e) => return Err(NetlinkError::answered_plain(DOING, e)),
        }
        Ok(report)
    }

    /// The entry that has `tuple` in `direction` and `zone`; `None` when there is none.
    ///
    /// The kernel looks in both directions, so the answer is checked for the tuple.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn get(
        &mut self,
        tuple: &Tuple,
        direction: Direction,
        zone: Zone,
    ) -> Result<Option<Flow>, NetlinkError> {
        const DOING: &str = "looking up an entry";
        let answer = self.ask(DOING, |out, sequence| {
            encode::get(out, sequence, tuple, direction, zone);
        })?;
        let payload = match answer {
            Ok(payload) => payload,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(NetlinkError::answered(DOING, e)),
        };
        let flow = decode::flow(&payload).map_err(|_| NetlinkError::Malformed)?;
        Ok((flow.tuple(direction) == tuple).then_some(flow))
    }

    /// Entries in this namespace, as the kernel counts them (`CTA_STATS_GLOBAL_ENTRIES`).
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn count(&mut self) -> Result<u32, NetlinkError> {
        const DOING: &str = "counting the entries";
        let payload = self
            .ask(DOING, encode::stats)?
            .map_err(|e| NetlinkError::answered_plain(DOING, e))?;
        Attributes::new(payload.get(decode::NFGENMSG..).unwrap_or_default())
            .find(|a| a.kind == abi::STATS_GLOBAL_ENTRIES)
            .and_then(|a| a.be32())
            .ok_or(NetlinkError::Malformed)
    }

    /// Puts one entry into the table, see [`insert()`](super::insert()).
    ///
    /// # Errors
    /// [`InsertError`].
    pub fn insert(&mut self, flow: &Flow) -> Result<(), InsertError> {
        self.insert_all([flow]).pop().unwrap_or(Ok(()))
    }

    /// Puts entries into the table, [`BATCH`] in one send; one result each, in order.
    pub fn insert_all<I>(&mut self, flows: I) -> Vec<Result<(), InsertError>>
    where
        I: IntoIterator,
        I::Item: Borrow<Flow>,
    {
        let mut results = Vec::new();
        let mut flows = flows.into_iter().peekable();
        let mut batch = Batch::default();
        while flows.peek().is_some() {
            batch.clear();
            // Where the result of each request of the batch goes: incomplete flows make none.
            let mut places = Vec::with_capacity(BATCH);
            for flow in flows.by_ref().take(BATCH) {
                let sequence = self.socket.next_sequence();
                let added = batch.add(sequence, |out| insert::insert(out, sequence, flow.borrow()));
                if added.is_ok() {
                    places.push(results.len());
                }
                results.push(added.map_err(InsertError::Incomplete));
            }
            let answers = self.transact("inserting entries", &mut batch);
            for (place, answer) in places.into_iter().zip(answers) {
                if let (Some(result), Err(e)) = (results.get_mut(place), answer) {
                    *result = Err(InsertError::Kernel(e));
                }
            }
        }
        results
    }

    /// Deletes entries, [`BATCH`] in one send; one result each, in order. [`Errno::NOENT`]: it was gone already, or another
    /// one has its place. [`Errno::PERM`]: CAP_NET_ADMIN is missing. [`Errno::NOBUFS`]: the answer was lost.
    ///
    /// Who must stop between batches gives slices of [`BATCH`].
    pub fn delete(&mut self, targets: &[DeleteTarget]) -> Vec<Result<(), Errno>> {
        let mut results = Vec::with_capacity(targets.len());
        let mut batch = Batch::default();
        for targets in targets.chunks(BATCH) {
            batch.clear();
            for target in targets {
                let sequence = self.socket.next_sequence();
                let Ok(()) = batch.add(sequence, |out| {
                    encode::delete(out, sequence, target);
                    Ok::<(), std::convert::Infallible>(())
                });
            }
            results.extend(self.transact("deleting entries", &mut batch));
        }
        results
    }

    /// Sends a batch; one result for each of its requests.
    fn transact(&mut self, doing: &'static str, batch: &mut Batch) -> Vec<Result<(), Errno>> {
        let mut results = vec![Ok(()); batch.sequences.len()];
        if results.is_empty() {
            return results;
        }
        batch.acknowledge_last();
        let answered = self
            .fresh()
            .and_then(|()| self.socket.send(doing, &batch.bytes))
            .and_then(|()| batch.answers(doing, &mut self.socket, &mut results));
        if let Err(error) = answered {
            // What was answered stays; of the others nothing is known.
            self.unfinished = true;
            let errno = errno(error);
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(errno);
            }
        }
        results
    }

    fn bucket_count(&self) -> Option<u64> {
        let mut text = [0; 24];
        let length = self.buckets.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(text.get(..length)?)
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// A socket without anything left over from an earlier request.
    fn fresh(&mut self) -> Result<(), NetlinkError> {
        if self.unfinished {
            // Cheaper than reading a dump of any size to its end.
            self.socket = Socket::open(&self.netns)?;
            self.unfinished = false;
        }
        Ok(())
    }

    /// One request with one answer.
    fn ask(
        &mut self,
        doing: &'static str,
        request: impl FnOnce(&mut Vec<u8>, u32),
    ) -> Result<Result<Vec<u8>, Errno>, NetlinkError> {
        self.fresh()?;
        let wanted = self.socket.next_sequence();
        self.requests.clear();
        request(&mut self.requests, wanted);
        self.socket.send(doing, &self.requests)?;
        loop {
            for message in self.socket.receive(doing)? {
                match message? {
                    message if message.sequence() != wanted => {}
                    Message::Data { payload, .. } => return Ok(Ok(payload.to_vec())),
                    Message::Answer { error: Some(e), .. } => return Ok(Err(e)),
                    _ => return Err(NetlinkError::Malformed),
                }
            }
        }
    }
}

/// What an error of the whole means for one request of many.
fn errno(error: NetlinkError) -> Errno {
    match error {
        NetlinkError::NotPermitted(_) => Errno::PERM,
        NetlinkError::Failed(_, errno) | NetlinkError::NotAvailable(_, errno) => errno,
        NetlinkError::NoAnswer(_) => Errno::TIMEDOUT,
        NetlinkError::Namespace(e) if e.is_permission() => Errno::PERM,
        NetlinkError::Overrun => Errno::NOBUFS,
        _ => Errno::IO,
    }
}
