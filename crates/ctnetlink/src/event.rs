//! Subscription to the events of a table: one socket in three multicast groups.

pub(crate) mod queue;

use std::time::{Duration, Instant, SystemTime};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::codec::abi::{cta, entry};
use crate::codec::attr::Attributes;
use crate::codec::decode;
use crate::codec::encode::ENTRIES;
use crate::error::{NetlinkError, Operation};
use crate::flow::Flow;
use crate::netns::Netns;
use crate::socket::{Message, Messages, Socket};

/// `NFNLGRP_CONNTRACK_NEW`, `_UPDATE`, `_DESTROY`.
const GROUPS: [u32; 3] = [1, 2, 3];
/// Lower bound for the bytes that a message takes in the receive buffer: `sk_buff` and `skb_shared_info` take more.
const MIN_MESSAGE_COST: usize = 512;

/// Options of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventOptions {
    /// Size of the receive buffer to request, in bytes. Default: 8 MiB.
    ///
    /// The kernel doubles the number and accounts 1280 bytes for an event, so that the default holds 13,107 events. Beyond
    /// `net.core.rmem_max` it needs CAP_NET_ADMIN in the initial user namespace; without, the size is that of the sysctl.
    pub buffer_bytes: usize,
}

impl EventOptions {
    /// Options with this size of the receive buffer, in bytes.
    #[must_use]
    pub fn with_buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }
}

impl Default for EventOptions {
    fn default() -> Self {
        EventOptions {
            buffer_bytes: 8 << 20,
        }
    }
}

/// Kind of an event. The kernel has no others, so the enum is exhaustive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// An entry was created.
    New,
    /// An entry changed.
    Update,
    /// An entry was deleted or timed out.
    Destroy,
}

/// One event.
///
/// Attributes of the entry that the message has (`ctnetlink_conntrack_event` in `net/netfilter/nf_conntrack_netlink.c`, as of
/// Linux 6.18):
///
/// | attribute | NEW, UPDATE | DESTROY |
/// |---|---|---|
/// | both tuples, zone, id, status | always | always, with [`Status::DYING`](crate::flow::Status::DYING) |
/// | timeout | always, unless offloaded | seconds left when deleted; absent after a timeout |
/// | mark | **when it is not 0**, or was set to 0 | when it is not 0 |
/// | protocol state | when it changed, and in NEW | state alone, without flags and window scales |
/// | counters | never | with `nf_conntrack_acct` |
/// | start | never | with `nf_conntrack_timestamp`, and stop |
/// | helper, secctx | when present | never |
/// | labels, sequence adjustment | when changed | never |
/// | master | NEW of an expected entry | never |
/// | use count | never | never |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// Time of the event in nanoseconds since the Unix epoch, from the kernel (`CTA_TIMESTAMP_EVENT`: Linux 6.14 and later
    /// with `net.netfilter.nf_conntrack_timestamp`), else the time of reception.
    pub time: u64,
    /// Entry, with the attributes of the message. One that is `None` may exist and be unchanged.
    pub flow: Flow,
}

/// Result of [`Events::receive`]. Exhaustive, because a consumer must handle each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// One datagram was received.
    Events {
        /// Number of events passed to the callback.
        events: u64,
        /// Number of messages that could not be decoded. Each is a lost event.
        unreadable: u64,
    },
    /// The receive buffer was full, and events are lost. All events from before the loss were passed to the callback; a few
    /// from right after it may have been, too. A dump that starts now has the state after the loss.
    Overrun,
    /// Nothing was received within the timeout.
    TimedOut,
}

/// Subscription to the events of one network namespace.
///
/// The kernel sends one message for each entry that is created, changed or ended. It does not wait for the receiver: when the
/// receive buffer is full, messages are lost, and [`Received::Overrun`] reports that. [`EventQueue`](crate::EventQueue) drains
/// the socket on a thread of its own.
///
/// A packet that only refills the timer makes no event. `net.netfilter.nf_conntrack_events` decides which entries make events:
/// with 2, the default since Linux 5.19, those created while a subscription exists.
///
/// ```no_run
/// use std::time::Duration;
///
/// use ctnetlink::{EventOptions, Events, Netns, Received};
///
/// let mut events = Events::open(&Netns::current(), EventOptions::default())?;
/// loop {
///     let received = events.receive(Duration::from_secs(1), &mut |event| {
///         println!("{:?} {:?}", event.kind, event.flow.original);
///     })?;
///     if received == Received::Overrun {
///         println!("events are lost: dump the table");
///     }
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), ctnetlink::NetlinkError>(())
/// ```
#[derive(Debug)]
pub struct Events {
    socket: Socket,
    granted: usize,
    /// Overrun that is not reported yet: number of messages from before it that may still be received.
    overrun: Option<usize>,
}

impl Events {
    /// Subscribes. The socket keeps events from now on, as far as the buffer holds them.
    ///
    /// # Errors
    /// [`NetlinkError::NotPermitted`] without CAP_NET_ADMIN, [`NetlinkError::NotAvailable`] without netfilter netlink,
    /// [`NetlinkError::Namespace`] when `netns` cannot be entered. A kernel without nf_conntrack_netlink accepts the
    /// subscription and sends nothing; a dump reports that.
    pub fn open(netns: &Netns, options: EventOptions) -> Result<Self, NetlinkError> {
        let socket = Socket::open(netns)?;
        socket.set_receive_buffer(options.buffer_bytes)?;
        for group in GROUPS {
            socket.subscribe(group)?;
        }
        Ok(Events {
            granted: socket.receive_buffer()?,
            socket,
            overrun: None,
        })
    }

    /// Size of the receive buffer in bytes, as the kernel accounts it: up to twice the requested size.
    pub fn granted_buffer(&self) -> usize {
        self.granted
    }

    /// Waits up to `timeout` for the next datagram and passes its events to `on_event`. More datagrams may be waiting. With a
    /// `timeout` of zero the call does not wait.
    ///
    /// # Errors
    /// [`NetlinkError`], when the socket cannot be read any more.
    pub fn receive(
        &mut self,
        timeout: Duration,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Received, NetlinkError> {
        // `None`: beyond the range of the clock, so wait without a limit.
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if self.overrun == Some(0) {
                self.overrun = None;
                return Ok(Received::Overrun);
            }
            match self.socket.receive_now(Operation::ListenToEvents) {
                Ok(Some(messages)) => {
                    self.overrun = self.overrun.map(|left| left.saturating_sub(1));
                    return Ok(decode_all(messages, on_event));
                }
                Ok(None) => {}
                // The kernel reports the overrun before it delivers the messages from before it. It accepts new messages only
                // when all of those are read (`netlink_rcv_wake` in `net/netlink/af_netlink.c`), so a dump made now would
                // miss later changes. The report is held back until the buffer was empty, or must have been.
                Err(NetlinkError::Overrun) => {
                    let max_messages = self.granted / MIN_MESSAGE_COST + 1;
                    // A second overrun proves that the buffer was empty in between.
                    if self.overrun.replace(max_messages).is_some() {
                        return Ok(Received::Overrun);
                    }
                    continue;
                }
                Err(NetlinkError::Truncated(_) | NetlinkError::Malformed) => {
                    return Ok(Received::Events {
                        events: 0,
                        unreadable: 1,
                    });
                }
                Err(e) => return Err(e),
            }
            if self.overrun.take().is_some() {
                return Ok(Received::Overrun);
            }
            if timeout.is_zero() || !self.wait(deadline)? {
                return Ok(Received::TimedOut);
            }
        }
    }

    /// Waits until a datagram or an error can be received. False after `deadline`.
    fn wait(&self, deadline: Option<Instant>) -> Result<bool, NetlinkError> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut waiting, left.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(NetlinkError::answered(Operation::ListenToEvents, e)),
            }
        }
    }
}

pub(crate) fn decode_all(messages: Messages<'_>, on_event: &mut dyn FnMut(Event)) -> Received {
    let (mut events, mut unreadable) = (0, 0);
    for message in messages {
        match message {
            Ok(Message::Data {
                flags,
                kind,
                payload,
                ..
            }) => match (event_kind(kind, flags), decode::flow(payload)) {
                (Some(kind), Ok(flow)) => {
                    let time = kernel_time(payload).unwrap_or_else(now);
                    on_event(Event { kind, time, flow });
                    events += 1;
                }
                (Some(_), Err(_)) => unreadable += 1,
                // Message of another type.
                (None, _) => {}
            },
            // No request was sent on this socket.
            Ok(Message::Done { .. } | Message::Answer { .. }) => {}
            Err(_) => unreadable += 1,
        }
    }
    Received::Events { events, unreadable }
}

/// Kind of a message. NEW and UPDATE have the same type and differ in flags.
fn event_kind(kind: u16, flags: u16) -> Option<EventKind> {
    let [subsystem, message] = kind.to_be_bytes();
    match message {
        _ if subsystem != u8::from(ENTRIES) => None,
        entry::NEW if flags & (NLM_F_CREATE | NLM_F_EXCL) != 0 => Some(EventKind::New),
        entry::NEW => Some(EventKind::Update),
        entry::DELETE => Some(EventKind::Destroy),
        _ => None,
    }
}

fn kernel_time(payload: &[u8]) -> Option<u64> {
    Attributes::new(payload.get(decode::NFGENMSG..)?)
        .find(|attribute| attribute.kind == cta::TIMESTAMP_EVENT)?
        .be64()
}

fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
