//! Events of the real kernel: kinds, attributes, order, overruns, and the queue.

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use ctnetlink::Netns;
use ctnetlink::flow::{Direction, Flow, ProtocolState, Status};
use ctnetlink::{
    DeleteTarget, Event, EventKind, EventOptions, EventQueue, Events, NetlinkError, QueueItem,
    Received,
};

use crate::flows::{ASSURED, REPLIED, plain, ports, tcp_state, tuple};
use crate::{dump, nft, open, run};
use testkit::private_netns::{drop_capabilities, enter_new_netns, private_netns};

/// Longer than an event takes to arrive.
const QUIET: Duration = Duration::from_millis(300);

fn listen(buffer_bytes: usize) -> Events {
    Events::open(
        &Netns::current(),
        EventOptions::default().with_buffer_bytes(buffer_bytes),
    )
    .unwrap()
}

fn default_buffer() -> Events {
    Events::open(&Netns::current(), EventOptions::default()).unwrap()
}

/// Events until none arrives for a while. `None`: an overrun.
fn hear(events: &mut Events) -> Vec<Option<Event>> {
    let mut heard = Vec::new();
    loop {
        let mut one = Vec::new();
        match events.receive(QUIET, &mut |e| one.push(Some(e))).unwrap() {
            Received::Events { events, unreadable } => {
                assert_eq!((events as usize, unreadable), (one.len(), 0));
                heard.append(&mut one);
            }
            Received::Overrun => heard.push(None),
            Received::TimedOut => return heard,
        }
    }
}

fn hear_all(events: &mut Events) -> Vec<Event> {
    let heard: Option<Vec<_>> = hear(events).into_iter().collect();
    heard.expect("an overrun of the large buffer")
}

fn kinds(heard: &[Event]) -> Vec<EventKind> {
    heard.iter().map(|event| event.kind).collect()
}

/// Loopback whose packets are tracked and get the connection mark `mark`.
fn tracked_loopback(mark: u32) {
    run(Command::new("ip").args(["link", "set", "lo", "up"]));
    nft(&format!(
        "table ip t {{ chain c {{ type filter hook output priority 0; ct mark set {mark}; }}; }}"
    ));
}

fn switch(name: &str, value: u8) {
    let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
    std::fs::write(path, value.to_string()).unwrap();
}

fn udp_pair() -> (UdpSocket, UdpSocket) {
    let [a, b] = [(); 2].map(|()| UdpSocket::bind(("127.0.0.1", 0)).unwrap());
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

/// Flow number `n`.
fn numbered(n: u32) -> Flow {
    let [_, a, b, c] = n.to_be_bytes();
    let mut flow = plain(tuple(17, "10.0.0.1", "10.0.0.2", ports(4000, 53)), REPLIED);
    flow.original.src = IpAddr::V4(Ipv4Addr::new(10, a, b, c));
    flow.reply.dst = flow.original.src;
    flow
}

fn number(flow: &Flow) -> u32 {
    let IpAddr::V4(src) = flow.original.src else {
        panic!("{flow:?}")
    };
    u32::from_be_bytes(src.octets()) & 0x00ff_ffff
}

#[test]
fn inserts_and_deletes_make_events_with_marks_and_zones() {
    private_netns(|| {
        let mut events = default_buffer();
        let mut table = open();
        let mut marked = numbered(1);
        marked.mark = Some(7);
        marked.zone.id = 12;
        let mut tcp = plain(tuple(6, "fd00::1", "fd00::2", ports(1, 443)), ASSURED);
        tcp.state = Some(tcp_state(3));
        let flows = [numbered(0), marked, tcp];
        assert_eq!(table.insert_all(&flows), [Ok(()); 3]);
        let made = hear_all(&mut events);
        assert_eq!(kinds(&made), [EventKind::New; 3]);
        let in_table = dump(&mut table);
        let targets: Vec<_> = made
            .iter()
            .map(|event| DeleteTarget::of(&event.flow).expect("an event says the id"))
            .collect();
        assert_eq!(table.delete(&targets), [Ok(()); 3]);
        let ended = hear_all(&mut events);
        assert_eq!(kinds(&ended), [EventKind::Destroy; 3]);
        for ((flow, made), ended) in flows.iter().zip(&made).zip(&ended) {
            let listed = in_table.iter().find(|f| f.id == made.flow.id).unwrap();
            for event in [made, ended] {
                assert_eq!(event.flow.original, flow.original);
                assert_eq!(event.flow.reply, flow.reply);
                assert_eq!((event.flow.zone, event.flow.id), (flow.zone, listed.id));
                assert_eq!(event.flow.use_count, None);
                assert_eq!(event.flow.status.without(Status::DYING), listed.status);
            }
            // A mark of 0 is absent unless it was just set.
            assert_eq!(made.flow.mark, flow.mark);
            assert_eq!(ended.flow.mark, flow.mark.filter(|mark| *mark != 0));
            assert!(made.flow.timeout.is_some() && ended.time >= made.time);
            assert!(ended.flow.status.contains(Status::DYING));
            let state = |flow: &Flow| match flow.state {
                Some(ProtocolState::Tcp { state, .. }) => Some(state),
                _ => None,
            };
            assert_eq!(state(&made.flow), state(flow));
            assert_eq!(state(&ended.flow), state(flow));
        }
    });
}

#[test]
fn packet_makes_an_event_when_it_changes_the_entry_and_not_when_it_refills_the_timer() {
    private_netns(|| {
        switch("acct", 1);
        switch("timestamp", 1);
        let mut events = default_buffer();
        tracked_loopback(0);
        let (a, b) = udp_pair();
        a.send(&[0; 72]).unwrap();
        a.send(&[0; 72]).unwrap();
        let [new] = &hear_all(&mut events)[..] else {
            panic!("a refill was heard")
        };
        assert_eq!(new.kind, EventKind::New);
        assert!(!new.flow.status.contains(Status::SEEN_REPLY));
        b.send(&[0; 22]).unwrap();
        b.send(&[0; 22]).unwrap();
        let [update] = &hear_all(&mut events)[..] else {
            panic!("a refill was heard")
        };
        assert_eq!(update.kind, EventKind::Update);
        assert!(update.flow.status.contains(REPLIED));
        for event in [new, update] {
            assert_eq!(event.flow.packets(), None);
            assert_eq!((event.flow.mark, event.flow.start), (None, None));
            assert!(event.flow.timeout.is_some());
        }
        let target = DeleteTarget::of(&update.flow).unwrap();
        assert_eq!(open().delete(&[target]), [Ok(())]);
        let [destroy] = &hear_all(&mut events)[..] else {
            panic!("no end")
        };
        let counted =
            [Direction::Original, Direction::Reply].map(|d| destroy.flow.counters(d).unwrap());
        assert_eq!(counted.map(|c| (c.packets, c.bytes)), [(2, 200), (2, 100)]);
        let start = destroy.flow.start.unwrap();
        let stop = destroy.flow.rare.as_ref().unwrap().stop.unwrap();
        // All times are of one clock, whether the kernel sends the time of events or not.
        assert!(start <= new.time && new.time < update.time && update.time < stop);
        assert!(stop <= destroy.time);
    });
}

#[test]
fn mark_set_to_zero_is_in_the_event() {
    private_netns(|| {
        let mut events = default_buffer();
        tracked_loopback(5);
        let (a, _b) = udp_pair();
        a.send(&[1]).unwrap();
        nft("flush chain ip t c; add rule ip t c ct mark set 0");
        a.send(&[1]).unwrap();
        let heard = hear_all(&mut events);
        let marks: Vec<_> = heard.iter().map(|e| (e.kind, e.flow.mark)).collect();
        let expected = [(EventKind::New, Some(5)), (EventKind::Update, Some(0))];
        assert_eq!(marks, expected);
    });
}

#[test]
fn entry_that_timed_out_has_no_timeout_in_its_event() {
    private_netns(|| {
        let mut events = default_buffer();
        let mut flow = numbered(0);
        flow.timeout = Some(0);
        open().insert(&flow).unwrap();
        let mut heard = hear_all(&mut events);
        while heard.len() < 2 {
            // A dump removes entries that timed out.
            dump(&mut open());
            heard.extend(hear_all(&mut events));
        }
        assert_eq!(kinds(&heard), [EventKind::New, EventKind::Destroy]);
        assert_eq!(heard[1].flow.timeout, None);
    });
}

#[test]
fn tcp_connection_makes_an_event_for_each_state() {
    private_netns(|| {
        let mut events = default_buffer();
        tracked_loopback(0);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap();
        drop(client);
        drop(server);
        let heard = hear_all(&mut events);
        let steps: Vec<_> = heard
            .iter()
            .map(|event| match event.flow.state {
                Some(ProtocolState::Tcp { state, .. }) => (event.kind, state),
                _ => panic!("no state: {event:?}"),
            })
            .collect();
        let (new, update) = (EventKind::New, EventKind::Update);
        // SYN_SENT, SYN_RECV, ESTABLISHED first.
        assert_eq!(steps[..3], [(new, 1), (update, 2), (update, 3)]);
        // TIME_WAIT last, or CLOSE after a reset.
        assert!(matches!(steps.last(), Some((EventKind::Update, 7 | 8))));
        let status = |at: usize| heard[at].flow.status;
        assert!(!status(1).contains(Status::ASSURED) && status(2).contains(Status::ASSURED));
    });
}

#[test]
fn overrun_is_reported_after_earlier_events_and_is_not_the_end() {
    private_netns(|| {
        // The kernel raises it to 2304 bytes: two events.
        let mut events = listen(1);
        assert!(events.granted_buffer() < 10_000);
        let mut table = open();
        for round in 0..3 {
            let first = round * 30_000;
            let flows = (first..first + 20_000).map(numbered);
            assert!(table.insert_all(flows).iter().all(Result::is_ok));
            let heard = hear(&mut events);
            let (last, before) = heard.split_last().unwrap();
            assert_eq!(*last, None, "no overrun, or events behind it");
            let numbers: Vec<_> = before.iter().flatten().map(|e| number(&e.flow)).collect();
            let count = u32::try_from(before.len()).unwrap();
            assert!((1..20).contains(&count), "{count}");
            assert_eq!(numbers, (first..first + count).collect::<Vec<_>>());
            table.insert(&numbered(first + 29_999)).unwrap();
            let heard = hear_all(&mut events);
            assert_eq!(
                heard.iter().map(|e| number(&e.flow)).max(),
                Some(first + 29_999)
            );
        }
    });
}

#[test]
fn dump_after_an_overrun_has_everything_that_was_lost() {
    private_netns(|| {
        const FLOWS: u32 = 20_000;
        let mut events = listen(30_000);
        let mut table = open();
        // More than the buffer holds, before the first receive.
        assert!(
            table
                .insert_all((0..100).map(numbered))
                .iter()
                .all(Result::is_ok)
        );
        let maker = std::thread::spawn(|| {
            let mut table = open();
            // Small batches, so that several of them overrun the buffer.
            for first in (100..FLOWS).step_by(50) {
                let made = table.insert_all((first..first + 50).map(numbered));
                assert!(made.iter().all(Result::is_ok));
            }
        });
        let mut seen = vec![false; FLOWS as usize];
        let mut overruns = 0;
        // Entries from before the last overrun are in the dump after it, later ones made events.
        loop {
            let received = events.receive(QUIET, &mut |e| seen[number(&e.flow) as usize] = true);
            match received.unwrap() {
                Received::Events { .. } => {
                    // Slower than the thread that inserts.
                    std::hint::black_box((0..20_000).sum::<u64>());
                }
                Received::Overrun => {
                    overruns += 1;
                    for flow in dump(&mut table) {
                        seen[number(&flow) as usize] = true;
                    }
                }
                Received::TimedOut if maker.is_finished() => break,
                Received::TimedOut => {}
            }
        }
        maker.join().unwrap();
        assert!(overruns > 0);
        let lost = seen.iter().filter(|seen| !**seen).count();
        assert_eq!(lost, 0, "after {overruns} overruns");
    });
}

#[test]
fn full_queue_keeps_the_first_events_and_counts_the_others() {
    private_netns(|| {
        // Fits into the smallest buffer that `net.core.rmem_max` usually allows.
        const FLOWS: u32 = 300;
        const CAPACITY: usize = 20;
        let queue = EventQueue::start(default_buffer(), CAPACITY).unwrap();
        let mut table = open();
        let made = table.insert_all((0..FLOWS).map(numbered));
        assert!(made.iter().all(Result::is_ok));
        let (mut next, mut dropped, mut overruns) = (0, 0, 0);
        while next + dropped < FLOWS {
            let batch = queue.next_batch(Duration::from_secs(10)).unwrap();
            assert!(!batch.items.is_empty() && batch.items.len() <= CAPACITY);
            for item in &batch.items {
                match item {
                    QueueItem::Event(event) => {
                        assert_eq!(
                            number(&event.flow),
                            next + dropped,
                            "after {dropped} dropped"
                        );
                        next += 1;
                    }
                    QueueItem::Gap(gap) => {
                        overruns += gap.overruns;
                        dropped += u32::try_from(gap.dropped).unwrap();
                    }
                }
            }
        }
        assert!(overruns > 0 && dropped > 0, "{next} came through");
        table.insert(&numbered(FLOWS)).unwrap();
        let batch = queue.next_batch(Duration::from_secs(10)).unwrap();
        let [QueueItem::Event(event)] = &batch.items[..] else {
            panic!("{batch:?}")
        };
        assert_eq!(number(&event.flow), FLOWS);
    });
}

#[test]
fn events_are_those_of_the_opened_namespace() {
    private_netns(|| {
        let there = Netns::current();
        let mut table = open();
        enter_new_netns();
        let mut events = Events::open(&there, EventOptions::default()).unwrap();
        open().insert(&numbered(1)).unwrap();
        table.insert(&numbered(2)).unwrap();
        let heard: Vec<_> = hear_all(&mut events)
            .iter()
            .map(|e| number(&e.flow))
            .collect();
        assert_eq!(heard, [2]);
    });
}

#[test]
fn missing_capability_is_reported_when_events_are_opened() {
    private_netns(|| {
        drop_capabilities();
        let error =
            Events::open(&Netns::current(), EventOptions::default()).expect_err("no refusal");
        assert!(matches!(error, NetlinkError::NotPermitted(_)), "{error}");
    });
}
