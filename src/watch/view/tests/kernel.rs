//! A kernel of our own, as `nf_conntrack_netlink` behaves: a table, a queue of events that is read late or overruns, entries
//! that make no events, and dumps at any time. Whatever happens, the view that a script rebuilds from the records ends as
//! the table.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Slot, endpoint.
    Create(u8, u8),
    /// Slot, what changes.
    Update(u8, u8),
    Delete(u8),
    /// Delete and create at once: what a purge and the next packet do.
    Recreate(u8, u8),
    /// This many events are read.
    Read(u8),
    /// The buffer is full: the newest events are lost.
    Overrun(u8),
    /// The table is looked at; spoiled this many times before.
    Dump(u8),
}

const SLOTS: u8 = 6;

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    prop_oneof![
        4 => (slot.clone(), 0..3u8).prop_map(|(slot, endpoint)| Step::Create(slot, endpoint)),
        6 => (slot.clone(), 0..4u8).prop_map(|(slot, what)| Step::Update(slot, what)),
        3 => slot.clone().prop_map(Step::Delete),
        3 => (slot, 0..3u8).prop_map(|(slot, endpoint)| Step::Recreate(slot, endpoint)),
        6 => (1..6u8).prop_map(Step::Read),
        1 => (1..6u8).prop_map(Step::Overrun),
        2 => (0..2u8).prop_map(Step::Dump),
    ]
}

#[derive(Clone, Debug)]
enum Event {
    New(Flow),
    Update(Flow),
    Destroy(Flow),
    Gap,
}

/// Which entries make events: `net.netfilter.nf_conntrack_events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    None,
    All,
    /// Those made since the watch began.
    Younger,
}

struct Kernel {
    events: Events,
    /// With whether it makes events.
    table: BTreeMap<u8, (Flow, bool)>,
    queue: VecDeque<Event>,
    listened_to: bool,
}

impl Kernel {
    fn do_step(&mut self, step: Step) {
        match step {
            Step::Create(slot, endpoint) if !self.table.contains_key(&slot) => {
                let mut flow = flow(endpoint, Status::CONFIRMED);
                flow.original.l4 = L4::Ports {
                    src: u16::from(slot),
                    dst: 53,
                };
                // Now and then the slab gives another place.
                flow.id = Some(u32::from(endpoint == 2));
                let heard = match self.events {
                    Events::None => false,
                    Events::All => true,
                    Events::Younger => self.listened_to,
                };
                self.table.insert(slot, (flow.clone(), heard));
                self.send(heard, Event::New(flow));
            }
            Step::Update(slot, what) => {
                let Some((flow, heard)) = self.table.get_mut(&slot) else {
                    return;
                };
                match what {
                    0 | 1 if flow.status.contains(Status::SEEN_REPLY) => flow.status = ASSURED,
                    0 | 1 => flow.status = SEEN,
                    mark => flow.mark = Some(u32::from(mark)),
                }
                let (flow, heard) = (flow.clone(), *heard);
                self.send(heard, Event::Update(flow));
            }
            Step::Delete(slot) => {
                if let Some((flow, heard)) = self.table.remove(&slot) {
                    self.send(heard, Event::Destroy(flow));
                }
            }
            Step::Recreate(slot, endpoint) => {
                self.do_step(Step::Delete(slot));
                self.do_step(Step::Create(slot, endpoint));
            }
            Step::Overrun(lost) if self.listened_to => {
                let kept = self.queue.len().saturating_sub(lost.into());
                self.queue.truncate(kept);
                self.queue.push_back(Event::Gap);
            }
            _ => {}
        }
    }

    fn send(&mut self, heard: bool, event: Event) {
        if heard && self.listened_to {
            self.queue.push_back(event);
        }
    }
}

/// What a script makes of the records.
type Rebuilt = BTreeMap<Key, Flow>;

fn take_down(rebuilt: &mut Rebuilt, record: &Record<'_>, passes: fn(&Flow) -> bool) {
    let Some(entry) = record.entry() else { return };
    let key = key_of(&entry.flow);
    match record {
        // One that does not match any more is told for the last time.
        Record::Snapshot(_) | Record::New(_) | Record::Update(_) if passes(&entry.flow) => {
            let is_first = !matches!(record, Record::Update(_));
            let before = rebuilt.insert(key, entry.flow.clone());
            assert_eq!(is_first, before.is_none(), "{record:?}");
        }
        Record::Update(_) | Record::Destroy(_) => {
            let before = rebuilt.remove(&key);
            assert!(before.is_some(), "went without having come: {record:?}");
        }
        Record::Snapshot(_) | Record::New(_) => panic!("does not match: {record:?}"),
        Record::Refresh { .. } | Record::Verdict { .. } => {
            assert!(rebuilt.contains_key(&key), "not there: {record:?}");
        }
        _ => {}
    }
}

struct Run {
    kernel: Kernel,
    view: View,
    rebuilt: Rebuilt,
    passes: fn(&Flow) -> bool,
    second: u64,
    /// Gaps after which the table was not looked at yet.
    unsynced: bool,
}

impl Run {
    fn act(
        &mut self,
        act: impl FnOnce(&mut View, &mut dyn ResolveEntry<'static>, Tell<'_, 'static>),
    ) {
        let Run {
            view,
            rebuilt,
            passes,
            ..
        } = self;
        let mut resolver = See {
            passes: *passes,
            ..See::all()
        };
        act(view, &mut resolver, &mut |record| {
            take_down(rebuilt, &record, *passes);
        });
        // The view is what was told, at any time.
        let told: Vec<_> = self.rebuilt.keys().collect();
        let mut kept: Vec<_> = self.view.tracked.keys().collect();
        kept.sort();
        assert_eq!(told, kept);
    }

    /// As the loop of a watch does it: the kernel leaves out what does not match, and what is missing is asked for.
    fn dump(&mut self, spoiled: u8) {
        self.second += 4;
        let at = Duration::from_secs(self.second);
        let flows: Vec<Flow> = self
            .kernel
            .table
            .values()
            .map(|(flow, _)| flow.clone())
            .collect();
        for attempt in 0..=spoiled {
            self.view.begin_dump(attempt > 0);
            let whole = attempt == spoiled;
            let (passes, flows) = (self.passes, &flows);
            let given: Vec<Flow> = flows.iter().filter(|flow| passes(flow)).cloned().collect();
            let given = given.into_iter().skip(usize::from(!whole));
            self.act(|view, resolver, tell| {
                for flow in given {
                    view.seen(flow, at, resolver, tell);
                }
                if whole {
                    for (original, zone) in view.missing() {
                        let found = flows
                            .iter()
                            .find(|f| (f.original, f.zone) == (original, zone));
                        if let Some(flow) = found {
                            view.seen(flow.clone(), at, resolver, tell);
                        }
                    }
                }
                view.end_dump(whole, resolver, tell);
            });
        }
        self.unsynced = false;
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            match self.kernel.queue.pop_front() {
                None => return,
                Some(Event::New(flow)) => {
                    self.act(|view, resolver, tell| view.made(flow, resolver, tell))
                }
                Some(Event::Update(flow)) => {
                    self.act(|view, resolver, tell| view.changed(flow, resolver, tell));
                }
                Some(Event::Destroy(flow)) => {
                    self.act(|view, resolver, tell| view.destroyed(&flow, resolver, tell));
                }
                Some(Event::Gap) => self.unsynced = true,
            }
        }
    }
}

fn run(events: Events, passes: fn(&Flow) -> bool, before: &[Step], steps: &[Step]) {
    let mut run = Run {
        kernel: Kernel {
            events,
            table: BTreeMap::new(),
            queue: VecDeque::new(),
            listened_to: false,
        },
        view: View::default(),
        rebuilt: Rebuilt::new(),
        passes,
        second: 0,
        unsynced: false,
    };
    for step in before {
        run.kernel.do_step(*step);
    }
    run.kernel.listened_to = true;
    run.dump(0);
    for step in steps {
        match *step {
            Step::Read(count) => run.read(count.into()),
            Step::Dump(spoiled) => run.dump(spoiled),
            step => run.kernel.do_step(step),
        }
        if run.unsynced {
            run.dump(0);
        }
    }
    // It becomes quiet: all events are read, and where some are missing, the table.
    while !run.kernel.queue.is_empty() {
        run.read(usize::MAX);
    }
    let silent = events != Events::All;
    if run.unsynced || silent {
        run.dump(0);
    }
    let table = run.kernel.table.values().map(|(flow, _)| flow);
    let table = table.filter(|flow| passes(flow));
    let essence = |flow: &Flow| (flow.reply, flow.id, flow.status, flow.mark.unwrap_or(0));
    let expected: BTreeMap<Key, _> = table.map(|flow| (key_of(flow), essence(flow))).collect();
    let told = run.rebuilt.iter();
    let told: BTreeMap<Key, _> = told.map(|(key, flow)| (*key, essence(flow))).collect();
    assert_eq!(told, expected);
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_view_rebuilt_from_the_records_ends_as_the_table(
        events in prop::sample::select(vec![Events::All, Events::All, Events::Younger, Events::None]),
        selective in any::<bool>(),
        before in steps(),
        steps in steps(),
    ) {
        let passes: fn(&Flow) -> bool = match selective {
            // Both what comes into the selection and what leaves it.
            true => |flow| flow.status.contains(Status::SEEN_REPLY) && flow.mark != Some(3),
            false => |_| true,
        };
        run(events, passes, &before, &steps);
    }
}
