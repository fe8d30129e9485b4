//! A simulated kernel with the behaviour of `nf_conntrack_netlink`: a table, a queue of events that is read late or overruns,
//! entries that send no events, and dumps at any time. A view that a script rebuilds from the records ends equal to the table
//! in every case.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Slot, endpoint.
    Create(u8, u8),
    /// Slot, kind of change.
    Update(u8, u8),
    Delete(u8),
    /// Delete and create at once, as a purge and the next packet do.
    Recreate(u8, u8),
    /// This many events are read.
    Read(u8),
    /// The buffer is full: the newest events are lost.
    Overrun(u8),
    /// Complete dump, after this many inconsistent ones.
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

/// Entries that send events, by `net.netfilter.nf_conntrack_events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    None,
    All,
    /// Entries that were created since the watch began.
    Younger,
}

struct Kernel {
    events: Events,
    /// Each flow, and whether it sends events.
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
                // The slab sometimes gives another address, and so another id.
                flow.id = Some(u32::from(endpoint == 2));
                let sends_events = match self.events {
                    Events::None => false,
                    Events::All => true,
                    Events::Younger => self.listened_to,
                };
                self.table.insert(slot, (flow.clone(), sends_events));
                self.send(sends_events, Event::New(flow));
            }
            Step::Update(slot, what) => {
                let Some((flow, sends_events)) = self.table.get_mut(&slot) else {
                    return;
                };
                match what {
                    0 | 1 if flow.status.contains(Status::SEEN_REPLY) => flow.status = ASSURED,
                    0 | 1 => flow.status = SEEN,
                    mark => flow.mark = Some(u32::from(mark)),
                }
                let (flow, sends_events) = (flow.clone(), *sends_events);
                self.send(sends_events, Event::Update(flow));
            }
            Step::Delete(slot) => {
                if let Some((flow, sends_events)) = self.table.remove(&slot) {
                    self.send(sends_events, Event::Destroy(flow));
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

    fn send(&mut self, sends_events: bool, event: Event) {
        if sends_events && self.listened_to {
            self.queue.push_back(event);
        }
    }
}

/// View that a script rebuilds from the records.
type Rebuilt = BTreeMap<FlowKey, Flow>;

fn replay(rebuilt: &mut Rebuilt, record: &Record<'_>, passes: fn(&Flow) -> bool) {
    let Some(entry) = record.entry() else { return };
    let key = key_of(&entry.flow);
    match record {
        // An entry that matches no longer gets one last update.
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
    /// A gap after which no complete dump was made yet.
    unsynced: bool,
}

impl Run {
    fn act(
        &mut self,
        act: impl FnOnce(&mut View, &mut dyn ResolveEntry<'static>, RecordHandler<'_, 'static>),
    ) {
        let Run {
            view,
            rebuilt,
            passes,
            ..
        } = self;
        let mut resolver = FixtureResolver {
            passes: *passes,
            ..FixtureResolver::all()
        };
        act(view, &mut resolver, &mut |record| {
            replay(rebuilt, &record, *passes);
        });
        // The view equals the records at any time.
        let records: Vec<_> = self.rebuilt.keys().collect();
        let mut kept: Vec<_> = self.view.tracked.keys().collect();
        kept.sort();
        assert_eq!(records, kept);
    }

    /// Dumps as the loop of a watch does: the kernel filters, and missing entries are requested one by one.
    fn dump(&mut self, inconsistent: u8) {
        self.second += 4;
        let at = Duration::from_secs(self.second);
        let flows: Vec<Flow> = self
            .kernel
            .table
            .values()
            .map(|(flow, _)| flow.clone())
            .collect();
        for attempt in 0..=inconsistent {
            self.view.begin_dump(attempt > 0);
            let is_complete = attempt == inconsistent;
            let (passes, flows) = (self.passes, &flows);
            let given: Vec<Flow> = flows.iter().filter(|flow| passes(flow)).cloned().collect();
            let given = given.into_iter().skip(usize::from(!is_complete));
            self.act(|view, resolver, emit| {
                for flow in given {
                    view.apply_dumped(flow, at, resolver, emit);
                }
                if is_complete {
                    for (original, zone) in view.missing() {
                        let found = flows
                            .iter()
                            .find(|f| (f.original, f.zone) == (original, zone));
                        if let Some(flow) = found {
                            view.apply_dumped(flow.clone(), at, resolver, emit);
                        }
                    }
                }
                view.end_dump(is_complete, resolver, emit);
            });
        }
        self.unsynced = false;
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            match self.kernel.queue.pop_front() {
                None => return,
                Some(Event::New(flow)) => {
                    self.act(|view, resolver, emit| view.apply_new(flow, resolver, emit))
                }
                Some(Event::Update(flow)) => {
                    self.act(|view, resolver, emit| view.apply_update(flow, resolver, emit));
                }
                Some(Event::Destroy(flow)) => {
                    self.act(|view, resolver, emit| view.apply_destroy(&flow, resolver, emit));
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
            Step::Dump(inconsistent) => run.dump(inconsistent),
            step => run.kernel.do_step(step),
        }
        if run.unsynced {
            run.dump(0);
        }
    }
    // At the end all events are read, and the table where events are missing.
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
    let expected: BTreeMap<FlowKey, _> = table.map(|flow| (key_of(flow), essence(flow))).collect();
    let records = run.rebuilt.iter();
    let records: BTreeMap<FlowKey, _> = records.map(|(key, flow)| (*key, essence(flow))).collect();
    assert_eq!(records, expected);
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
            // Entries enter and leave the selection.
            true => |flow| flow.status.contains(Status::SEEN_REPLY) && flow.mark != Some(3),
            false => |_| true,
        };
        run(events, passes, &before, &steps);
    }
}
