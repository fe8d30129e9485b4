//! Events in memory, so that the socket is drained however slowly they are printed.
//!
//! The kernel waits for nobody, and its buffer is small. A thread of its own moves events from the socket into a bounded
//! queue and never waits for the consumer: when the queue is full, events are dropped, and a [`Gap`] stands where they are
//! missing. The same for what the kernel had to drop. So what the consumer sees is what happened, in order, with a gap
//! wherever something is not known.
//!
//! Memory: one item takes 232 bytes, and a little more on the heap for entries with labels, a helper or a security context.
//! The queue has at most `capacity` items, and the consumer as many again in the batch that it works on: 7.25 MiB for 16,384.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;

use crate::error::NetlinkError;
use crate::event::{Event, Events, Received};

/// How often the reader looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(50);
/// Events after which a waiting consumer is woken although more are there. Waking costs as much as receiving one event.
const WAKE_AFTER: u64 = 256;

/// Something is not known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Losses in a row: overruns of the kernel's buffer, and times that the queue was full. At least 1.
    pub overruns: u64,
    /// Events that were received and dropped because the queue was full. How many the kernel dropped nobody knows.
    pub dropped: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are events, and boxes would cost more"
)]
pub enum FeedItem {
    Event(Event),
    /// Events are lost between the ones before and the ones after this; behind an overrun of the kernel's buffer, see
    /// [`Received::Overrun`] for how exact that is.
    Gap(Gap),
}

/// All that was in the queue at one time: what to print before the next flush.
#[derive(Debug, Default)]
pub struct Batch {
    /// In order. No two gaps follow each other. Empty: nothing happened.
    pub items: Vec<FeedItem>,
    /// Messages meanwhile that were no event that can be understood. Something is lost with each.
    pub unreadable: u64,
}

/// A reader thread and its queue. Dropping it ends the thread, within 50 ms or as soon as the source returns.
pub struct Feed {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

impl Feed {
    /// Starts to drain `events` into a queue of `capacity` items (at least 2: an event and the gap behind it).
    ///
    /// # Errors
    /// [`NetlinkError::Failed`] when there can be no other thread.
    pub fn start(events: Events, capacity: usize) -> Result<Self, NetlinkError> {
        Self::over(events, capacity)
    }

    fn over(source: impl Source, capacity: usize) -> Result<Self, NetlinkError> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(capacity)),
            arrived: Condvar::new(),
            unwanted: AtomicBool::new(false),
        });
        let reader = thread::Builder::new()
            .name("events".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.fill(source)
            })
            .map_err(|e| {
                let errno = Errno::from_io_error(&e).unwrap_or(Errno::AGAIN);
                NetlinkError::answered("starting a thread for events", errno)
            })?;
        Ok(Feed {
            shared,
            reader: Some(reader),
        })
    }

    /// Everything that is in the queue, after waiting up to `timeout` for the first of it.
    ///
    /// # Errors
    /// What ended the reader, once, behind all that it had received before. From then on batches are empty.
    pub fn next_batch(&self, timeout: Duration) -> Result<Batch, NetlinkError> {
        let queue = self.shared.queue();
        let waited = self
            .shared
            .arrived
            .wait_timeout_while(queue, timeout, |queue| queue.is_idle());
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.take()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.unwanted.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // A panic of the reader was printed by it.
            let _ = reader.join();
        }
    }
}

/// Where events come from: the kernel, or a test.
trait Source: Send + 'static {
    /// As [`Events::receive`].
    fn receive(
        &mut self,
        timeout: Duration,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Received, NetlinkError>;
}

impl Source for Events {
    fn receive(
        &mut self,
        timeout: Duration,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Received, NetlinkError> {
        Events::receive(self, timeout, on_event)
    }
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    unwanted: AtomicBool,
}

impl Shared {
    /// Held only for as long as it takes to push an item or to take the whole queue away.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader thread.
    fn fill(&self, mut source: impl Source) {
        // What was put into the queue since the consumer was woken last.
        let mut unannounced = 0;
        while !self.unwanted.load(Ordering::Relaxed) {
            let timeout = if unannounced == 0 {
                TICK
            } else {
                Duration::ZERO
            };
            let received = source.receive(timeout, &mut |event| self.queue().push(event));
            match received {
                Ok(Received::Events { events, unreadable }) => {
                    if unreadable > 0 {
                        self.queue().unreadable += unreadable;
                    }
                    unannounced += events + unreadable;
                    if unannounced < WAKE_AFTER {
                        continue;
                    }
                }
                Ok(Received::Overrun) => self.queue().overrun(),
                Ok(Received::Silence) if unannounced == 0 => continue,
                Ok(Received::Silence) => {}
                Err(error) => {
                    self.queue().ended = Some(error);
                    self.arrived.notify_one();
                    return;
                }
            }
            self.arrived.notify_one();
            unannounced = 0;
        }
    }
}

/// Items in order, never more than `capacity`.
struct Queue {
    items: Vec<FeedItem>,
    capacity: usize,
    unreadable: u64,
    /// Why the reader ended; it is told when all else was.
    ended: Option<NetlinkError>,
}

impl Queue {
    fn new(capacity: usize) -> Self {
        Queue {
            items: Vec::new(),
            capacity: capacity.max(2),
            unreadable: 0,
            ended: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.items.is_empty() && self.unreadable == 0 && self.ended.is_none()
    }

    fn push(&mut self, event: Event) {
        // The last place is for a gap.
        if self.items.len() + 1 < self.capacity {
            self.items.push(FeedItem::Event(event));
        } else {
            match self.items.last_mut() {
                Some(FeedItem::Gap(gap)) if gap.dropped > 0 => gap.dropped += 1,
                _ => self.lose(1),
            }
        }
    }

    /// The kernel dropped events that would stand here.
    fn overrun(&mut self) {
        self.lose(0);
    }

    /// One more loss, at the end of the queue. Only a gap can have the last place, so there is room for one.
    fn lose(&mut self, dropped: u64) {
        if let Some(FeedItem::Gap(gap)) = self.items.last_mut() {
            gap.overruns += 1;
            gap.dropped += dropped;
        } else {
            let overruns = 1;
            self.items.push(FeedItem::Gap(Gap { overruns, dropped }));
        }
    }

    fn take(&mut self) -> Result<Batch, NetlinkError> {
        if self.items.is_empty()
            && self.unreadable == 0
            && let Some(error) = self.ended.take()
        {
            return Err(error);
        }
        Ok(Batch {
            items: std::mem::take(&mut self.items),
            unreadable: std::mem::take(&mut self.unreadable),
        })
    }
}

#[cfg(test)]
mod tests;
