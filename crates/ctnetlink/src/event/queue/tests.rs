//! The queue against a source of numbered events: missing events have a gap in their place, and nothing else has one.

use std::sync::mpsc;

use proptest::prelude::*;

use super::*;
use crate::event::EventKind;
use crate::flow::{Flow, L4, Tuple};

/// The number of an event is its time.
fn event(number: u64) -> Event {
    let tuple = Tuple {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        protocol: 17,
        l4: L4::Ports { src: 1, dst: 2 },
    };
    Event {
        kind: EventKind::New,
        time: number,
        flow: Flow::new(tuple, tuple),
    }
}

/// Consumer of a source that counts from 0.
#[derive(Default)]
struct Consumer {
    next: u64,
    /// The gap since the last event, batches joined.
    gap: Option<Gap>,
    total: Gap,
}

impl Consumer {
    fn take(&mut self, items: &[QueueItem]) {
        for pair in items.windows(2) {
            let gaps = pair.iter().filter(|i| matches!(i, QueueItem::Gap(_)));
            assert!(gaps.count() < 2, "two gaps in a row: {pair:?}");
        }
        for item in items {
            match item {
                QueueItem::Gap(more) => {
                    assert!(more.overruns > 0, "a gap without a loss");
                    for gap in [self.gap.get_or_insert_default(), &mut self.total] {
                        gap.overruns += more.overruns;
                        gap.dropped += more.dropped;
                    }
                }
                QueueItem::Event(event) => self.see(event.time),
            }
        }
    }

    fn see(&mut self, number: u64) {
        let missing = number.checked_sub(self.next).expect("out of order");
        let reported = self.gap.take().map_or(0, |gap| gap.dropped);
        assert_eq!(reported, missing, "before {number}");
        self.next = number + 1;
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Events(u64),
    Overrun,
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..12u64).prop_map(Step::Events),
        2 => Just(Step::Overrun),
        2 => Just(Step::Take),
    ]
}

proptest! {
    #[test]
    fn lost_events_have_a_gap_in_their_place(
        capacity in 0..9usize,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut queue = Queue::new(capacity);
        let mut consumer = Consumer::default();
        let (mut sent, mut overruns) = (0, 0);
        for step in steps.into_iter().chain([Step::Take]) {
            match step {
                Step::Events(count) => {
                    for _ in 0..count {
                        queue.push(event(sent));
                        sent += 1;
                    }
                }
                Step::Overrun => {
                    queue.overrun();
                    overruns += 1;
                }
                Step::Take => consumer.take(&queue.take().unwrap().items),
            }
            prop_assert!(queue.items.len() <= capacity.max(2));
        }
        prop_assert!(consumer.total.overruns >= overruns);
        // The next number marks the end of the source.
        consumer.see(sent);
    }
}

#[test]
fn each_stall_of_the_consumer_makes_one_gap() {
    let mut queue = Queue::new(4);
    let mut sent = 0;
    for events in [10, 3, 100, 4] {
        for _ in 0..events {
            queue.push(event(sent));
            sent += 1;
        }
        let items = queue.take().unwrap().items;
        let kept = events.min(3);
        let expected = (sent - events..sent - events + kept).map(|n| QueueItem::Event(event(n)));
        let gap = QueueItem::Gap(Gap {
            overruns: 1,
            dropped: events - kept,
        });
        let expected: Vec<_> = expected.chain((events > kept).then_some(gap)).collect();
        assert_eq!(items, expected);
    }
}

#[test]
fn consecutive_losses_are_one_gap() {
    let mut queue = Queue::new(3);
    queue.push(event(0));
    queue.push(event(1));
    queue.overrun();
    queue.push(event(2));
    queue.push(event(3));
    queue.overrun();
    queue.push(event(4));
    let gap = Gap {
        overruns: 3,
        dropped: 3,
    };
    let items = queue.take().unwrap().items;
    assert_eq!(items.last(), Some(&QueueItem::Gap(gap)));
    assert_eq!(items.len(), 3);
    queue.overrun();
    queue.push(event(5));
    let gap = Gap {
        overruns: 1,
        dropped: 0,
    };
    let expected = [QueueItem::Gap(gap), QueueItem::Event(event(5))];
    assert_eq!(queue.take().unwrap().items, expected);
}

/// Source that yields the items of a script, and signals its end.
struct ScriptedSource {
    script: mpsc::Receiver<Result<Option<Event>, NetlinkError>>,
    _ended: mpsc::Sender<()>,
}

impl Source for ScriptedSource {
    fn receive(
        &mut self,
        timeout: Duration,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Received, NetlinkError> {
        match self.script.recv_timeout(timeout) {
            Ok(Ok(Some(event))) => {
                on_event(event);
                let (events, unreadable) = (1, 0);
                Ok(Received::Events { events, unreadable })
            }
            Ok(Ok(None)) => Ok(Received::Events {
                events: 0,
                unreadable: 1,
            }),
            Ok(Err(NetlinkError::Overrun)) => Ok(Received::Overrun),
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(Received::TimedOut),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                thread::sleep(timeout);
                Ok(Received::TimedOut)
            }
        }
    }
}

/// Queue with a scripted source, the sender of the script, and the receiver that is disconnected with the source.
#[expect(clippy::type_complexity, reason = "three ends of two channels")]
fn scripted(
    capacity: usize,
) -> (
    EventQueue,
    mpsc::Sender<Result<Option<Event>, NetlinkError>>,
    mpsc::Receiver<()>,
) {
    let (send, script) = mpsc::channel();
    let (_ended, end) = mpsc::channel();
    let queue = EventQueue::over(ScriptedSource { script, _ended }, capacity).unwrap();
    (queue, send, end)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn gaps_are_exact_across_threads() {
    const EVENTS: u64 = 200_000;
    // A queue that is nearly always full, up to one that hardly ever is.
    for capacity in [2, 64, 4096] {
        let (queue, send, _end) = scripted(capacity);
        let sender = thread::spawn(move || {
            for number in 0..EVENTS {
                send.send(Ok(Some(event(number)))).unwrap();
                if number % 10_000 == 0 {
                    send.send(Err(NetlinkError::Overrun)).unwrap();
                    send.send(Ok(None)).unwrap();
                }
            }
            send.send(Err(NetlinkError::Malformed)).unwrap();
        });
        let mut consumer = Consumer::default();
        let mut unreadable = 0;
        let error = loop {
            match queue.next_batch(LONG) {
                Ok(batch) => {
                    assert!(batch.items.len() <= capacity);
                    consumer.take(&batch.items);
                    unreadable += batch.unreadable;
                    if batch.items.len() % 7 == 1 {
                        thread::sleep(Duration::from_micros(200));
                    }
                }
                Err(error) => break error,
            }
        };
        sender.join().unwrap();
        consumer.see(EVENTS);
        assert!(matches!(error, NetlinkError::Malformed));
        assert_eq!(unreadable, EVENTS / 10_000);
        assert!(consumer.total.overruns >= EVENTS / 10_000);
    }
}

#[test]
fn error_is_reported_after_all_items_received_before_it() {
    let (queue, send, end) = scripted(8);
    for number in 0..3 {
        send.send(Ok(Some(event(number)))).unwrap();
    }
    send.send(Err(NetlinkError::Malformed)).unwrap();
    // The reader has ended before the first call.
    assert!(end.recv().is_err());
    let batch = queue.next_batch(LONG).unwrap();
    assert_eq!(batch.items.len(), 3);
    assert!(matches!(
        queue.next_batch(LONG),
        Err(NetlinkError::Malformed)
    ));
    assert_eq!(queue.next_batch(Duration::ZERO).unwrap().items, []);
}

#[test]
fn waiting_consumer_is_woken_by_events_losses_and_errors() {
    let (queue, send, _end) = scripted(8);
    let gap = Gap {
        overruns: 1,
        dropped: 0,
    };
    for (sent, items, unreadable) in [
        (
            Ok(Some(event(0))),
            Some(vec![QueueItem::Event(event(0))]),
            0,
        ),
        (Ok(None), Some(Vec::new()), 1),
        (
            Err(NetlinkError::Overrun),
            Some(vec![QueueItem::Gap(gap)]),
            0,
        ),
        (Err(NetlinkError::Malformed), None, 0),
    ] {
        let sender = send.clone();
        // Sent while the consumer waits, or nearly so.
        let delayed = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            sender.send(sent).unwrap();
        });
        let batch = queue.next_batch(LONG);
        delayed.join().unwrap();
        match items {
            Some(items) => {
                let batch = batch.unwrap();
                assert_eq!((batch.items, batch.unreadable), (items, unreadable));
            }
            None => assert!(batch.is_err()),
        }
    }
}

#[test]
fn dropped_queue_leaves_no_thread_behind() {
    let (queue, send, end) = scripted(8);
    send.send(Ok(Some(event(0)))).unwrap();
    drop(queue);
    // The source is dropped already.
    assert_eq!(end.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[test]
fn item_takes_232_bytes() {
    assert_eq!(size_of::<QueueItem>(), 232);
}
