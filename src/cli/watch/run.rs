//! The loop of a watch.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::cluster::source::ClusterSource;
use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::flow::Flow;
use crate::netlink::{Event, EventKind, Feed, FeedItem, NetlinkError, Table, TableKind};
use crate::netns::Netns;
use crate::output;
use crate::verdict::{Seen, Verdict};
use crate::watch::record::Record;
use crate::watch::view::{Eyes, View};

use super::super::World;
use super::super::context::{self, Cluster, note};
use super::super::pick::Picker;
use super::super::remote::Purpose;
use super::super::select::SelectArgs;
use super::tell::Teller;
use super::{Until, WatchArgs};

/// The longest wait: signals, keys and a rewritten cluster file are looked for in between.
const TICK: Duration = Duration::from_millis(200);
/// Dumps in a row that the kernel may spoil before the view is left as it is until the next one.
const ATTEMPTS: usize = 3;

pub(super) struct Watch<'a> {
    world: World,
    args: &'a WatchArgs,
    netns: Netns,
    table: Table,
    feed: Feed,
    view: View,
    teller: Teller,
    /// `--refreshing` chooses what is told, not what is followed: it takes two looks to know.
    select: SelectArgs,
    zones: Vec<u16>,
    began: Instant,
    next_poll: Option<Instant>,
    gaps: u64,
    stop: Arc<AtomicBool>,
    /// Modification time of the cluster file that was read.
    file_time: Option<SystemTime>,
}

/// Why the loop was left.
enum Ended {
    /// As it was asked to, or by a signal or a key.
    Done,
    /// `--for` was over before what `--until` waits for.
    TimedOut,
    /// Nobody reads on.
    Closed,
    Failed(CommandError),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        if output::is_closed(&error) {
            Ended::Closed
        } else {
            Ended::Failed(CommandError::failed(format!("writing the output: {error}")))
        }
    }
}

impl From<NetlinkError> for Ended {
    fn from(error: NetlinkError) -> Self {
        Ended::Failed(context::netlink_error(error))
    }
}

impl From<CommandError> for Ended {
    fn from(error: CommandError) -> Self {
        Ended::Failed(error)
    }
}

/// Sees with the selectors and one reading of the cluster.
struct Sight<'p, 'c>(&'p mut Picker<'c>);

impl<'c> Eyes<'c> for Sight<'_, 'c> {
    fn pick(&mut self, flow: Flow, seen: Option<Seen>) -> Option<Entry<'c>> {
        self.0.pick(flow, seen)
    }

    fn entry(&mut self, flow: Flow, seen: Option<Seen>) -> Entry<'c> {
        self.0.entry(flow, seen)
    }
}

impl<'a> Watch<'a> {
    pub fn new(
        world: World,
        args: &'a WatchArgs,
        netns: Netns,
        table: Table,
        feed: Feed,
    ) -> Result<Self, CommandError> {
        let mut select = args.select.clone();
        select.refreshing = false;
        Ok(Watch {
            world,
            args,
            netns,
            table,
            feed,
            view: View::default(),
            teller: Teller::new(args)?,
            zones: select.named_zones(),
            select,
            began: Instant::now(),
            next_poll: None,
            gaps: 0,
            stop: Arc::new(AtomicBool::new(false)),
            file_time: None,
        })
    }

    pub fn run(mut self) -> Result<Status, CommandError> {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&self.stop))
                .map_err(|error| CommandError::failed(format!("watching signals: {error}")))?;
        }
        let ended = match self.read_cluster() {
            Ok(cluster) => self.follow(cluster),
            Err(error) => Ended::Failed(error),
        };
        let gaps = self.gaps;
        // A live view gives the terminal back before anything else is said.
        drop(self);
        if gaps > 0 {
            note(format!(
                "{gaps} overruns; after each one the table was read again"
            ));
        }
        match ended {
            Ended::Failed(error) => Err(error),
            Ended::Closed => Ok(Status::Done),
            Ended::Done | Ended::TimedOut if gaps > 0 => Ok(Status::Partial),
            Ended::Done => Ok(Status::Done),
            Ended::TimedOut => {
                note("--for was over before what --until waits for");
                Ok(Status::Failed)
            }
        }
    }

    fn read_cluster(&mut self) -> Result<Option<Cluster>, CommandError> {
        let source = &self.args.source;
        let cluster = Cluster::read(self.world, source, &self.netns, Purpose::Follow, None)?;
        let waits = matches!(self.args.until, Some(Until::Stale | Until::Gone));
        let asked = self.select.wants_cluster() || waits;
        context::require_cluster(source, cluster.as_ref(), asked)?;
        self.file_time = cluster.as_ref().map(|cluster| cluster.loaded.source.time);
        Ok(cluster)
    }

    /// Follows with one reading of the cluster after the other.
    fn follow(&mut self, mut cluster: Option<Cluster>) -> Ended {
        let mut first = true;
        loop {
            if let Err(ended) = self.follow_with(cluster.as_ref(), first) {
                return ended;
            }
            first = false;
            // The file was rewritten. One that is only half there is read again when it changes again.
            match self.read_cluster() {
                Ok(read) => cluster = read,
                Err(error) => {
                    note(format!(
                        "the new cluster file is not used: {}",
                        error.message
                    ));
                    self.file_time = self.modified();
                }
            }
        }
    }

    /// Until the cluster file changes.
    fn follow_with(&mut self, cluster: Option<&Cluster>, first: bool) -> Result<(), Ended> {
        let filter = self.select.to_filter().map_err(CommandError::from)?;
        let (select, zones) = (self.select.clone(), self.zones.clone());
        let mut picker = Picker::new(filter, &select, &zones, cluster)?;
        if first {
            self.look(&mut picker)?;
            self.teller.tell(Record::Synced);
        } else {
            self.teller.is_now();
            let mut eyes = Sight(&mut picker);
            self.view
                .judge_again(&mut eyes, &mut |record| self.teller.tell(record));
        }
        loop {
            self.teller.flush()?;
            if let Some(live) = self.teller.live() {
                let mut eyes = Sight(&mut picker);
                let entries = self.view.entries(&mut eyes);
                if live.paint(entries, self.gaps)? {
                    return Err(Ended::Done);
                }
            }
            self.ask_whether_done()?;
            if self.modified() != self.file_time {
                return Ok(());
            }
            self.take_events(&mut picker)?;
            if self.next_poll.is_some_and(|poll| poll <= Instant::now()) {
                picker.start_over();
                self.look(&mut picker)?;
            }
        }
    }

    /// What the kernel told since, and a fresh dump where it lost something.
    fn take_events(&mut self, picker: &mut Picker<'_>) -> Result<(), Ended> {
        let batch = self.feed.next_batch(self.wait())?;
        let mut lost = batch.unreadable;
        for item in batch.items {
            match item {
                FeedItem::Event(event) => self.event(event, picker),
                FeedItem::Gap(gap) => lost += gap.overruns.max(1),
            }
            self.teller.check()?;
        }
        if lost > 0 {
            self.gaps += lost;
            self.teller.is_now();
            self.teller.tell(Record::Gap { overruns: lost });
            self.look(picker)?;
            self.teller.tell(Record::Synced);
        }
        Ok(())
    }

    fn event(&mut self, event: Event, picker: &mut Picker<'_>) {
        self.teller.time = event.time;
        let (mut eyes, teller) = (Sight(picker), &mut self.teller);
        let tell: &mut dyn FnMut(Record<'_>) = &mut |record| teller.tell(record);
        match event.kind {
            EventKind::New | EventKind::Update => self.view.changed(event.flow, &mut eyes, tell),
            EventKind::Destroy => self.view.destroyed(&event.flow, &mut eyes, tell),
        }
    }

    /// A dump into the view; again when the table changed its shape meanwhile.
    fn look(&mut self, picker: &mut Picker<'_>) -> Result<(), Ended> {
        for _ in 0..ATTEMPTS {
            self.teller.is_now();
            self.view.begin_dump();
            let mut whole = true;
            for filter in picker.filter().dumps() {
                let dump =
                    self.table
                        .dump_timed(TableKind::Conntrack, &filter, &mut |flow, at| {
                            let at = at.saturating_duration_since(self.began);
                            let tell: &mut dyn FnMut(Record<'_>) =
                                &mut |record| self.teller.tell(record);
                            self.view.seen(flow, at, &mut Sight(picker), tell);
                            match self.teller.has_failed() {
                                true => ControlFlow::Break(()),
                                false => ControlFlow::Continue(()),
                            }
                        })?;
                tracing::debug!(?dump, "look");
                whole &= dump.is_consistent() && dump.unreadable == 0;
            }
            self.teller.check()?;
            let tell: &mut dyn FnMut(Record<'_>) = &mut |record| self.teller.tell(record);
            self.view.end_dump(whole, &mut Sight(picker), tell);
            if whole {
                break;
            }
        }
        let interval = self.args.interval;
        self.next_poll = (!interval.is_zero()).then(|| Instant::now() + interval);
        Ok(())
    }

    /// How long nothing has to be done but wait for events.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        let poll = self
            .next_poll
            .map(|poll| poll.saturating_duration_since(now));
        let end = self
            .args
            .time
            .map(|time| time.saturating_sub(self.began.elapsed()));
        [poll, end].into_iter().flatten().fold(TICK, Duration::min)
    }

    fn ask_whether_done(&self) -> Result<(), Ended> {
        let stale = || self.view.count(Verdict::Stale);
        let reached = match self.args.until {
            Some(Until::Stale) => stale() > 0,
            Some(Until::Gone) => stale() == 0,
            Some(Until::Quiet) => self.teller.busy.elapsed() > self.args.interval,
            None => false,
        };
        let told = self
            .args
            .count
            .is_some_and(|count| self.teller.told >= count);
        if reached || told || self.stop.load(Ordering::Relaxed) {
            return Err(Ended::Done);
        }
        match self
            .args
            .time
            .is_some_and(|time| self.began.elapsed() >= time)
        {
            true if self.args.until.is_some() => Err(Ended::TimedOut),
            true => Err(Ended::Done),
            false => Ok(()),
        }
    }

    /// When the cluster file was written; as it was read for everything that is no file.
    fn modified(&self) -> Option<SystemTime> {
        match &self.args.source.cluster {
            ClusterSource::File(path) => {
                let metadata = std::fs::metadata(path)
                    .ok()
                    .filter(|metadata| metadata.is_file());
                metadata
                    .and_then(|metadata| metadata.modified().ok())
                    .or(self.file_time)
            }
            _ => self.file_time,
        }
    }
}
