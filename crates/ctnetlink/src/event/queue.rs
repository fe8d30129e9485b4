//! Bounded queue of events, filled by a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;

use super::{Event, Events, Received};
use crate::error::{NetlinkError, Operation};

/// Interval at which an idle reader checks whether it shall stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of events after which a waiting consumer is woken although the socket has more. Waking costs as much as receiving
/// one event.
const WAKE_AFTER: u64 = 256;

/// Loss of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// Number of consecutive losses, at least 1: overruns of the kernel's buffer, and times that the queue was full.
    pub overruns: u64,
    /// Number of events that were received and dropped because the queue was full. The number of events that the kernel
    /// dropped is not known.
    pub dropped: u64,
}

/// Item of an [`EventQueue`]. Exhaustive, because a consumer must handle each case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are events, and boxes would cost more"
)]
pub enum QueueItem {
    /// An event.
    Event(Event),
    /// Events are lost between the preceding and the following ones. For an overrun of the kernel's buffer,
    /// [`Received::Overrun`] describes the precision.
    Gap(Gap),
}

/// Content of an [`EventQueue`] at one time.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct EventBatch {
    /// Items in order of reception. No two gaps follow each other. Empty: nothing happened.
    pub items: Vec<QueueItem>,
    /// Number of messages that could not be decoded since the last batch. Each is a lost event.
    pub unreadable: u64,
}

/// Events in a bounded queue, drained from the socket by a thread of its own.
///
/// The buffer of the socket is small, and the kernel drops events when it is full. The thread moves them to the queue and
/// never waits for the consumer: when the queue is full, it drops events, and a [`Gap`] takes their place. An overrun of the
/// kernel's buffer becomes a gap, too. So the consumer gets all events in order, with a gap wherever some are missing.
///
/// An item takes 232 bytes, and more on the heap for entries with labels, a helper or a security context. The queue has at most
/// `capacity` items, and the batch of the consumer as many: 7.25 MiB for 16,384.
///
/// Dropping the queue ends the thread within 50 ms.
///
/// ```no_run
/// use std::time::Duration;
///
/// use ctnetlink::{EventOptions, EventQueue, Events, Netns, QueueItem};
///
/// let events = Events::open(&Netns::current(), EventOptions::default())?;
/// let queue = EventQueue::start(events, 16_384)?;
/// loop {
///     for item in queue.next_batch(Duration::from_secs(1))?.items {
///         match item {
///             QueueItem::Event(event) => println!("{:?} {:?}", event.kind, event.flow.original),
///             QueueItem::Gap(gap) => println!("lost: {gap:?}"),
///         }
///     }
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), ctnetlink::NetlinkError>(())
/// ```
#[derive(Debug)]
pub struct EventQueue {
    shared: Arc<QueueShared>,
    reader: Option<JoinHandle<()>>,
}

impl EventQueue {
    /// Starts the thread, with a queue of `capacity` items. The least capacity is 2: an event and a gap.
    ///
    /// # Errors
    /// [`NetlinkError::Failed`] when the thread cannot be started.
    pub fn start(events: Events, capacity: usize) -> Result<Self, NetlinkError> {
        Self::over(events, capacity)
    }

    fn over(source: impl Source, capacity: usize) -> Result<Self, NetlinkError> {
        let shared = Arc::new(QueueShared {
            queue: Mutex::new(Queue::new(capacity)),
            arrived: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let reader = thread::Builder::new()
            .name("events".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.fill(source)
            })
            .map_err(|e| {
                let errno = Errno::from_io_error(&e).unwrap_or(Errno::AGAIN);
                NetlinkError::answered(Operation::StartEventThread, errno)
            })?;
        Ok(EventQueue {
            shared,
            reader: Some(reader),
        })
    }

    /// Takes the whole content of the queue. Waits up to `timeout` while it is empty.
    ///
    /// # Errors
    /// [`NetlinkError`] that ended the thread, once, after all items received before it. Later batches are empty.
    pub fn next_batch(&self, timeout: Duration) -> Result<EventBatch, NetlinkError> {
        let queue = self.shared.queue();
        let waited = self
            .shared
            .arrived
            .wait_timeout_while(queue, timeout, |queue| queue.is_idle());
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.take()
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // A panic was printed by the thread.
            let _ = reader.join();
        }
    }
}

/// Source of events: the kernel, or a test.
trait Source: Send + 'static {
    /// See [`Events::receive`].
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

#[derive(Debug)]
struct QueueShared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    stop: AtomicBool,
}

impl QueueShared {
    /// The lock is held only to push an item or to take the whole content.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Body of the reader thread.
    fn fill(&self, mut source: impl Source) {
        // Number of messages since the consumer was woken last.
        let mut unannounced = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let timeout = if unannounced == 0 {
                STOP_POLL_INTERVAL
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
                Ok(Received::TimedOut) if unannounced == 0 => continue,
                Ok(Received::TimedOut) => {}
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
#[derive(Debug)]
pub(crate) struct Queue {
    items: Vec<QueueItem>,
    capacity: usize,
    unreadable: u64,
    /// Error that ended the reader. Reported after all items.
    ended: Option<NetlinkError>,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
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

    pub(crate) fn push(&mut self, event: Event) {
        // The last slot is reserved for a gap.
        if self.items.len() + 1 < self.capacity {
            self.items.push(QueueItem::Event(event));
        } else {
            match self.items.last_mut() {
                Some(QueueItem::Gap(gap)) if gap.dropped > 0 => gap.dropped += 1,
                _ => self.lose(1),
            }
        }
    }

    /// Records that the kernel dropped events.
    pub(crate) fn overrun(&mut self) {
        self.lose(0);
    }

    /// Adds a loss at the end of the queue. The last slot is reserved for a gap, so the capacity is not exceeded.
    fn lose(&mut self, dropped: u64) {
        if let Some(QueueItem::Gap(gap)) = self.items.last_mut() {
            gap.overruns += 1;
            gap.dropped += dropped;
        } else {
            let overruns = 1;
            self.items.push(QueueItem::Gap(Gap { overruns, dropped }));
        }
    }

    pub(crate) fn take(&mut self) -> Result<EventBatch, NetlinkError> {
        if self.items.is_empty()
            && self.unreadable == 0
            && let Some(error) = self.ended.take()
        {
            return Err(error);
        }
        Ok(EventBatch {
            items: std::mem::take(&mut self.items),
            unreadable: std::mem::take(&mut self.unreadable),
        })
    }
}

#[cfg(test)]
mod tests;
