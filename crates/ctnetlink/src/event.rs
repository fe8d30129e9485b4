//! What changes in a table, as the kernel tells it.
//!
//! One socket in three multicast groups. The kernel sends one message for each entry that is made, changed or ended, and
//! waits for nobody: when the receive buffer is full, messages are lost. It says so, and [`Received::Overrun`] passes that on.
//!
//! What the messages carry (`ctnetlink_conntrack_event`; looked at on Linux 6.18):
//!
//! | attribute | NEW, UPDATE | DESTROY |
//! |---|---|---|
//! | both tuples, zone, id, status | always | always, with DYING |
//! | timeout | always, unless offloaded | what was left when deleted; none when it ran out |
//! | mark | **when it is not 0**, or was just set; else it is 0 | when it is not 0; else it is 0 |
//! | protocol state | when it changed, as it does in NEW | state alone, without flags and window scales |
//! | counters | never | with `nf_conntrack_acct` |
//! | start | never | with `nf_conntrack_timestamp`, and stop |
//! | helper, secctx | when there is one | never |
//! | labels, sequence adjustment | when they changed | never |
//! | master | NEW of an expected entry | never |
//! | use count | never | never |
//!
//! A packet that only refills the timer makes no event. Which entries make events at all is for
//! `net.netfilter.nf_conntrack_events` to say: with 2, the default, those made while somebody listens.

use std::time::{Duration, Instant, SystemTime};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::codec::abi::{cta, entry};
use crate::codec::attr::Attributes;
use crate::codec::decode;
use crate::codec::encode::ENTRIES;
use crate::error::NetlinkError;
use crate::flow::Flow;
use crate::netns::Netns;
use crate::socket::{Message, Messages, Socket};

const DOING: &str = "listening to conntrack events";
/// `NFNLGRP_CONNTRACK_NEW`, `_UPDATE`, `_DESTROY`.
const GROUPS: [u32; 3] = [1, 2, 3];
/// Less than any message costs in the receive buffer (`sk_buff` and `skb_shared_info` alone are more).
const LEAST_COST: usize = 512;

/// How to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Receive buffer to ask for. The kernel grants twice that, beyond `net.core.rmem_max` only with CAP_NET_ADMIN in the
    /// initial user namespace, and counts 1280 bytes for an event: the default of 8 MiB holds 13,107.
    pub buffer_bytes: usize,
}

impl Default for EventOptions {
    fn default() -> Self {
        EventOptions {
            buffer_bytes: 8 << 20,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    New,
    Update,
    Destroy,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    /// Nanoseconds since the Unix epoch. When it happened, as the kernel says it (`CTA_TIMESTAMP_EVENT`: Linux 6.14+ with
    /// `nf_conntrack_timestamp` on), else when it was received.
    pub time: u64,
    /// The entry as far as the message tells, see the head of this file: what is `None` may be unchanged.
    pub flow: Flow,
}

/// What one [`Events::receive`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// One datagram. `unreadable`: messages in it that are no event that can be understood; each is a lost event.
    Events { events: u64, unreadable: u64 },
    /// The receive buffer was full, and events that the kernel had after those received so far are lost. A few that came
    /// right after the loss may have been given already, never the other way round: whatever is lost before this is told
    /// by this, so a dump that starts now makes good for it.
    Overrun,
    /// Nothing within the time given.
    Silence,
}

/// A subscription to the events of one namespace.
pub struct Events {
    socket: Socket,
    granted: usize,
    /// An overrun that is not passed on yet, and how many messages may still come that the kernel had before it.
    overrun: Option<usize>,
}

impl Events {
    /// Events are kept from here on, as far as the buffer holds them.
    ///
    /// # Errors
    /// [`NetlinkError::NotPermitted`] without CAP_NET_ADMIN, and what [`Socket::open`] has. A kernel without
    /// nf_conntrack_netlink lets everybody subscribe and stays silent; that shows at the first dump.
    pub fn open(netns: &Netns, options: EventOptions) -> Result<Self, NetlinkError> {
        let socket = Socket::open(netns)?;
        // Before the first event can come.
        socket.set_receive_buffer(options.buffer_bytes)?;
        for group in GROUPS {
            socket.subscribe(DOING, group)?;
        }
        Ok(Events {
            granted: socket.receive_buffer()?,
            socket,
            overrun: None,
        })
    }

    /// Bytes of receive buffer that the kernel gave, see [`Socket::receive_buffer`].
    pub fn granted_buffer(&self) -> usize {
        self.granted
    }

    /// Waits up to `timeout` for the next datagram and gives its events to `on_event`. More may be waiting behind it. A
    /// `timeout` of zero takes only what is here.
    ///
    /// # Errors
    /// [`NetlinkError`], when the socket can no longer be read.
    pub fn receive(
        &mut self,
        timeout: Duration,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Received, NetlinkError> {
        // Too far away to be reached: for ever.
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if self.overrun == Some(0) {
                self.overrun = None;
                return Ok(Received::Overrun);
            }
            match self.socket.receive_now(DOING) {
                Ok(Some(messages)) => {
                    self.overrun = self.overrun.map(|left| left.saturating_sub(1));
                    return Ok(decode_all(messages, on_event));
                }
                // Nothing is here: below.
                Ok(None) => {}
                // The kernel tells this first and then gives out what it had before. From the overrun on it takes nothing
                // until all of that is read (`netlink_rcv_wake`), so whoever dumped the table now would still lose what
                // happens meanwhile. Hence it is held back until the buffer was empty, or must have been.
                Err(NetlinkError::Overrun) => {
                    let most = self.granted / LEAST_COST + 1;
                    // A second overrun: the buffer was empty in between.
                    if self.overrun.replace(most).is_some() {
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
                return Ok(Received::Silence);
            }
        }
    }

    /// Whether there was something to read, or an error to fetch, before `deadline`.
    fn wait(&self, deadline: Option<Instant>) -> Result<bool, NetlinkError> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut waiting, left.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(NetlinkError::answered(DOING, e)),
            }
        }
    }
}

fn decode_all(messages: Messages<'_>, on_event: &mut dyn FnMut(Event)) -> Received {
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
                // Not of these groups.
                (None, _) => {}
            },
            // Nobody was asked anything.
            Ok(Message::Done { .. } | Message::Answer { .. }) => {}
            Err(_) => unreadable += 1,
        }
    }
    Received::Events { events, unreadable }
}

/// NEW and UPDATE are one message type and differ by flags.
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
