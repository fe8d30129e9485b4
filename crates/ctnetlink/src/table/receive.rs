//! Reception of a dump, on the calling thread or ahead on a second one.
//!
//! The kernel fills a datagram while the one before is fetched. A program that receives and processes datagrams in turn leaves
//! one of two CPUs idle, so a long dump can be received on a second thread, a few datagrams ahead.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Instant;

use netlink_packet_core::NLM_F_DUMP_INTR;
use rustix::io::Errno;

use super::Table;
use crate::error::{NetlinkError, Operation};
use crate::socket::{Message, Messages, Socket};

/// Number of datagrams, of about a hundred entries each, after which a second thread pays off.
const MIN_DATAGRAMS: usize = 8;
/// Datagrams of 32 KiB that may be received ahead.
const MAX_AHEAD: usize = 4;

/// Thread that receives a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveMode {
    /// The calling thread, between two datagrams.
    SameThread,
    /// A second thread for long dumps. Saves time and takes more CPU time.
    SecondThread,
}

/// Datagram of a dump.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    /// Number within the dump, from 1.
    pub number: usize,
    /// Time at which the kernel wrote its entries.
    pub written: Instant,
}

/// End of a dump.
pub(super) enum DumpEnd {
    Done { interrupted: bool },
    Stopped,
    Refused(Errno),
}

impl Table {
    /// Sends a dump request and passes flags and payload of each message to `on_message`, with the datagram that it was in.
    pub(super) fn receive_dump(
        &mut self,
        operation: Operation,
        receive_mode: ReceiveMode,
        request: impl FnOnce(&mut Vec<u8>, u32),
        mut on_message: impl FnMut(u16, &[u8], Datagram) -> ControlFlow<()>,
    ) -> Result<DumpEnd, NetlinkError> {
        self.replace_unfinished_socket()?;
        let expected = self.socket.next_sequence();
        self.requests.clear();
        request(&mut self.requests, expected);
        self.socket.send(operation, &self.requests)?;
        // Holds after an error or a panic of the callback, too.
        self.unfinished = true;
        let mut number = 0;
        let mut each = |messages: Messages<'_>, written| {
            number += 1;
            let in_datagram = Datagram { number, written };
            datagram(messages, expected, |flags, payload| {
                on_message(flags, payload, in_datagram)
            })
        };
        // The kernel fills the first datagram while it handles the request, and each further one when the one before is fetched
        // (`netlink_recvmsg` calls `netlink_dump`). That is the time of the entries, however long the callback takes.
        let mut written = Instant::now();
        let mut count = 0;
        let end = loop {
            if receive_mode == ReceiveMode::SecondThread && count == MIN_DATAGRAMS {
                let receiver = DumpReceiver {
                    socket: &self.socket,
                    operation,
                    expected,
                };
                if let Some(end) = receiver.receive_ahead(written, &mut each) {
                    break end?;
                }
            }
            let messages = self.socket.receive(operation)?;
            let fetched = Instant::now();
            if let Some(end) = each(messages, written)? {
                break end;
            }
            written = fetched;
            count += 1;
        };
        self.unfinished = matches!(end, DumpEnd::Stopped);
        Ok(end)
    }
}

/// Passes the messages of one datagram to `on_message`. Returns the end of the dump if the datagram has it.
fn datagram(
    messages: Messages<'_>,
    expected: u32,
    mut on_message: impl FnMut(u16, &[u8]) -> ControlFlow<()>,
) -> Result<Option<DumpEnd>, NetlinkError> {
    for message in messages {
        match message? {
            message if message.sequence() != expected => {}
            Message::Data { flags, payload, .. } => {
                if on_message(flags, payload).is_break() {
                    return Ok(Some(DumpEnd::Stopped));
                }
            }
            Message::Done {
                error: None, flags, ..
            } => {
                let interrupted = flags & NLM_F_DUMP_INTR != 0;
                return Ok(Some(DumpEnd::Done { interrupted }));
            }
            Message::Done { error: Some(e), .. } | Message::Answer { error: Some(e), .. } => {
                return Ok(Some(DumpEnd::Refused(e)));
            }
            Message::Answer { error: None, .. } => {}
        }
    }
    Ok(None)
}

/// Datagram, and the time at which the kernel wrote it.
type Fetched = Result<(Vec<u8>, Instant), NetlinkError>;

/// Dump in progress.
struct DumpReceiver<'s> {
    socket: &'s Socket,
    operation: Operation,
    expected: u32,
}

impl DumpReceiver<'_> {
    /// Processes the rest of the dump, received on a second thread. `None` when the thread cannot be started; nothing is
    /// received then.
    fn receive_ahead(
        &self,
        written: Instant,
        each: &mut impl FnMut(Messages<'_>, Instant) -> Result<Option<DumpEnd>, NetlinkError>,
    ) -> Option<Result<DumpEnd, NetlinkError>> {
        let (full, fetched) = sync_channel(MAX_AHEAD);
        let (used, empty) = channel();
        thread::scope(|scope| {
            let receiver = thread::Builder::new().name("dump".to_owned());
            receiver
                .spawn_scoped(scope, move || self.fetch(written, &full, &empty))
                .ok()?;
            for datagram in fetched {
                let (bytes, written) = match datagram {
                    Ok(datagram) => datagram,
                    Err(error) => return Some(Err(error)),
                };
                match each(self.socket.messages(&bytes), written) {
                    Ok(None) => {}
                    Ok(Some(end)) => return Some(Ok(end)),
                    Err(error) => return Some(Err(error)),
                }
                // Fails after the last datagram, when the thread has ended.
                let _ = used.send(bytes);
            }
            Some(Err(NetlinkError::NoAnswer(self.operation)))
        })
    }

    /// Receives until the end of the dump, or until the other end of `full` is dropped.
    fn fetch(&self, mut written: Instant, full: &SyncSender<Fetched>, empty: &Receiver<Vec<u8>>) {
        loop {
            let mut bytes = empty.try_recv().unwrap_or_default();
            let received = self.socket.receive_into(self.operation, &mut bytes);
            let now = Instant::now();
            let last = received.is_err() || self.is_last(&bytes);
            let sent = full.send(received.map(|()| (bytes, written)));
            if last || sent.is_err() {
                return;
            }
            written = now;
        }
    }

    /// Reports whether this is the last datagram. Another one would never arrive.
    fn is_last(&self, datagram: &[u8]) -> bool {
        let messages = self.socket.messages(datagram);
        let end = self::datagram(messages, self.expected, |_, _| ControlFlow::Continue(()));
        !matches!(end, Ok(None))
    }
}
