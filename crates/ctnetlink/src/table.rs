//! Table of one namespace, and requests for single entries.

mod change;
mod dump;
mod lookup;
mod receive;
mod repeats;
mod stats;

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

pub use change::MAX_BATCH;
pub use dump::DumpReport;

use crate::codec::{decode, encode};
use crate::error::{NetlinkError, Operation};
use crate::flow::{Direction, Flow, Tuple, Zone};
use crate::netns::Netns;
use crate::socket::{Message, Socket};
use receive::ReceiveMode;

/// Conntrack table of one network namespace. Requests run one after the other on one socket.
///
/// Every request needs CAP_NET_ADMIN in the user namespace that owns the network namespace.
///
/// ```no_run
/// use std::ops::ControlFlow;
///
/// use ctnetlink::{DeleteTarget, DumpFilter, Netns, Table, TableKind};
///
/// let mut table = Table::open(&Netns::current())?;
/// let mut targets = Vec::new();
/// let report = table.dump(TableKind::Conntrack, &DumpFilter::default(), &mut |flow| {
///     if flow.original.dport() == Some(53) {
///         targets.extend(DeleteTarget::of(&flow));
///     }
///     ControlFlow::Continue(())
/// })?;
/// assert!(report.is_consistent());
/// for (target, result) in targets.iter().zip(table.delete(&targets)) {
///     println!("{:?}: {result:?}", target.reply());
/// }
/// # Ok::<(), ctnetlink::NetlinkError>(())
/// ```
#[derive(Debug)]
pub struct Table {
    netns: Netns,
    socket: Socket,
    /// A dump was left before its end, and its rest is still arriving.
    unfinished: bool,
    /// Thread that receives dumps of entries.
    receive_mode: ReceiveMode,
    buckets: Option<File>,
    requests: Vec<u8>,
}

impl Table {
    /// Opens the table of `netns`.
    ///
    /// # Errors
    /// [`NetlinkError::Namespace`] when the namespace cannot be entered, [`NetlinkError::NotAvailable`] when the kernel has no
    /// netfilter netlink. The first request reports a missing CAP_NET_ADMIN.
    pub fn open(netns: &Netns) -> Result<Self, NetlinkError> {
        Ok(Table {
            netns: netns.clone(),
            socket: Socket::open(netns)?,
            unfinished: false,
            receive_mode: ReceiveMode::SameThread,
            // Kept open: it is read before and after every dump, and shows the namespace that it was opened in.
            buckets: netns
                .run(|| File::open("/proc/sys/net/netfilter/nf_conntrack_buckets").ok())?,
            requests: Vec::new(),
        })
    }

    /// Namespace of the table.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Receives later dumps of many entries on a second thread, ahead of the callback. Such a dump ends sooner, and takes about
    /// a third more CPU time.
    pub fn read_ahead(&mut self) {
        self.receive_mode = ReceiveMode::SecondThread;
    }

    /// Looks up the entry that has `tuple` in `direction` and `zone`. `None` when the table has no such entry.
    ///
    /// The kernel finds an entry by either of its tuples, so the answer is compared with `tuple`.
    ///
    /// # Errors
    /// [`NetlinkError`]. [`NetlinkError::Failed`] with `INVAL` when the kernel cannot track such a tuple.
    pub fn get(
        &mut self,
        tuple: &Tuple,
        direction: Direction,
        zone: Zone,
    ) -> Result<Option<Flow>, NetlinkError> {
        const OPERATION: Operation = Operation::GetEntry;
        let answer = self.request_one(OPERATION, |out, sequence| {
            encode::get(out, sequence, tuple, direction, zone);
        })?;
        let payload = match answer {
            Ok(payload) => payload,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(NetlinkError::answered(OPERATION, e)),
        };
        let flow = decode::flow(&payload)?;
        Ok((flow.tuple(direction) == tuple).then_some(flow))
    }

    /// Number of hash buckets.
    fn bucket_count(&self) -> Option<u64> {
        let mut text = [0; 24];
        let length = self.buckets.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(text.get(..length)?)
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Replaces a socket that still receives the rest of an earlier dump.
    fn replace_unfinished_socket(&mut self) -> Result<(), NetlinkError> {
        if self.unfinished {
            // Cheaper than reading a dump of any size to its end.
            self.socket = Socket::open(&self.netns)?;
            self.unfinished = false;
        }
        Ok(())
    }

    /// Sends one request that has one answer.
    fn request_one(
        &mut self,
        operation: Operation,
        request: impl FnOnce(&mut Vec<u8>, u32),
    ) -> Result<Result<Vec<u8>, Errno>, NetlinkError> {
        self.replace_unfinished_socket()?;
        let expected = self.socket.next_sequence();
        self.requests.clear();
        request(&mut self.requests, expected);
        self.socket.send(operation, &self.requests)?;
        loop {
            for message in self.socket.receive(operation)? {
                match message? {
                    message if message.sequence() != expected => {}
                    Message::Data { payload, .. } => return Ok(Ok(payload.to_vec())),
                    Message::Answer { error: Some(e), .. } => return Ok(Err(e)),
                    _ => return Err(NetlinkError::Malformed),
                }
            }
        }
    }
}
