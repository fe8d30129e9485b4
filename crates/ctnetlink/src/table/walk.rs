//! Walks over a dump, in step with the kernel or with the kernel ahead.
//!
//! The kernel fills a datagram while the one before is fetched, so a program that receives and looks at entries in turn leaves
//! one of two processors idle. A long dump is received on a second thread, a few datagrams ahead.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Instant;

use netlink_packet_core::NLM_F_DUMP_INTR;
use rustix::io::Errno;

use super::Table;
use crate::error::NetlinkError;
use crate::socket::{Message, Messages, Socket};

/// Datagrams, of about a hundred entries each, after which a dump is worth a thread.
const SHORT: usize = 8;
/// Datagrams of 32 KiB that the kernel may be ahead.
const AHEAD: usize = 4;

/// Who waits for whom.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    InStep,
    /// Where time counts more than CPU time.
    Ahead,
}

/// How a walk ended.
pub(super) enum End {
    Done { interrupted: bool },
    Stopped,
    Refused(Errno),
}

impl Table {
    /// Gives the flags and the payload of each message to `on_message`, with the time at which the kernel wrote it.
    pub(super) fn walk(
        &mut self,
        doing: &'static str,
        pace: Pace,
        request: impl FnOnce(&mut Vec<u8>, u32),
        mut on_message: impl FnMut(u16, &[u8], Instant) -> ControlFlow<()>,
    ) -> Result<End, NetlinkError> {
        self.fresh()?;
        let wanted = self.socket.next_sequence();
        self.requests.clear();
        request(&mut self.requests, wanted);
        self.socket.send(doing, &self.requests)?;
        // Also when an error or a panic of the callback ends this.
        self.unfinished = true;
        let mut each = |messages: Messages<'_>, written| {
            datagram(messages, wanted, |flags, payload| {
                on_message(flags, payload, written)
            })
        };
        // The kernel fills the first datagram while it takes the request, and each further one when the one before is
        // fetched (`netlink_dump` in `netlink_recvmsg`): however long the callback takes, that is when an entry was so.
        let mut written = Instant::now();
        let mut count = 0;
        let end = loop {
            if pace == Pace::Ahead && count == SHORT {
                let walk = Walk {
                    socket: &self.socket,
                    doing,
                    wanted,
                };
                if let Some(end) = walk.ahead(written, &mut each) {
                    break end?;
                }
            }
            let messages = self.socket.receive(doing)?;
            let fetched = Instant::now();
            if let Some(end) = each(messages, written)? {
                break end;
            }
            written = fetched;
            count += 1;
        };
        self.unfinished = matches!(end, End::Stopped);
        Ok(end)
    }
}

/// Looks at the messages of one datagram; an end, where one of them is it.
fn datagram(
    messages: Messages<'_>,
    wanted: u32,
    mut on_message: impl FnMut(u16, &[u8]) -> ControlFlow<()>,
) -> Result<Option<End>, NetlinkError> {
    for message in messages {
        match message? {
            message if message.sequence() != wanted => {}
            Message::Data { flags, payload, .. } => {
                if on_message(flags, payload).is_break() {
                    return Ok(Some(End::Stopped));
                }
            }
            Message::Done {
                error: None, flags, ..
            } => {
                let interrupted = flags & NLM_F_DUMP_INTR != 0;
                return Ok(Some(End::Done { interrupted }));
            }
            Message::Done { error: Some(e), .. } | Message::Answer { error: Some(e), .. } => {
                return Ok(Some(End::Refused(e)));
            }
            Message::Answer { error: None, .. } => {}
        }
    }
    Ok(None)
}

/// A datagram with the time at which the kernel wrote it.
type Fetched = Result<(Vec<u8>, Instant), NetlinkError>;

/// A dump that is under way.
struct Walk<'s> {
    socket: &'s Socket,
    doing: &'static str,
    wanted: u32,
}

impl Walk<'_> {
    /// The rest of the dump, received on a second thread; `None` where none can be had, and nothing was received then.
    fn ahead(
        &self,
        written: Instant,
        each: &mut impl FnMut(Messages<'_>, Instant) -> Result<Option<End>, NetlinkError>,
    ) -> Option<Result<End, NetlinkError>> {
        let (full, fetched) = sync_channel(AHEAD);
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
                // After its last datagram the thread takes none back.
                let _ = used.send(bytes);
            }
            Some(Err(NetlinkError::NoAnswer(self.doing)))
        })
    }

    /// Receives until the end of the dump, or until nobody wants more.
    fn fetch(&self, mut written: Instant, full: &SyncSender<Fetched>, empty: &Receiver<Vec<u8>>) {
        loop {
            let mut bytes = empty.try_recv().unwrap_or_default();
            let received = self.socket.receive_into(self.doing, &mut bytes);
            let now = Instant::now();
            let last = received.is_err() || self.is_last(&bytes);
            let sent = full.send(received.map(|()| (bytes, written)));
            if last || sent.is_err() {
                return;
            }
            written = now;
        }
    }

    /// Nothing comes after this datagram: asking for more would wait in vain.
    fn is_last(&self, datagram: &[u8]) -> bool {
        let messages = self.socket.messages(datagram);
        let end = self::datagram(messages, self.wanted, |_, _| ControlFlow::Continue(()));
        !matches!(end, Ok(None))
    }
}
