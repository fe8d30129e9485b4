//! The loop of a watch.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::cluster::source::ClusterSource;
use crate::cluster::wanted::Wanted;
use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::flow::{Direction, Flow};
use crate::netlink::{Event, EventKind, Feed, FeedItem, NetlinkError, Table, TableKind};
use crate::netns::Netns;
use crate::output;
use crate::verdict::{APART, Seen, Verdict};
use crate::watch::record::Record;
use crate::watch::view::{Eyes, View};

use super::super::World;
use super::super::context::{self, Cluster, note};
use super::super::pick::{Counts, Picker};
use super::super::remote::Purpose;
use super::super::select::SelectArgs;
use super::tell::Teller;
use super::{Until, WatchArgs};

/// The longest wait: signals, keys and a rewritten cluster file are looked for in between.
const TICK: Duration = Duration::from_millis(200);
/// Between two readings of the node's rules: nothing tells when they change.
const RULES: Duration = Duration::from_secs(10);
/// Dumps in a row that the kernel may spoil before the view is left as it is until the next one.
const ATTEMPTS: usize = 3;
/// Until the next look after a spoiled one, where there would be none.
const RETRY: Duration = Duration::from_secs(1);

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
    /// When the last look that was whole began, and when the first one ended after which nothing happened any more.
    looked: Option<(Instant, Instant)>,
    /// The view is not known to equal the table: at first, and after a gap, until a look was whole.
    unsynced: bool,
    gaps: u64,
    /// Nothing is judged, for want of parts of the cluster.
    incomplete: bool,
    stop: Arc<AtomicBool>,
    /// When this node's rules are read again, where they are the source.
    next_rules: Option<Instant>,
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
    /// The reader had not taken everything when it was time to end.
    Unread,
    Failed(CommandError),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        if output::is_closed(&error) {
            Ended::Closed
        } else if error.kind() == io::ErrorKind::TimedOut {
            Ended::Unread
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
        let began = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        Ok(Watch {
            world,
            args,
            netns,
            table,
            feed,
            view: View::default(),
            teller: Teller::new(args, began, &stop)?,
            zones: select.named_zones(),
            select,
            began,
            next_poll: None,
            looked: None,
            unsynced: true,
            gaps: 0,
            incomplete: false,
            stop,
            next_rules: None,
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
        let (gaps, unsynced, incomplete) = (self.gaps, self.unsynced, self.incomplete);
        // A live view gives the terminal back before anything else is said.
        drop(self);
        if gaps > 0 {
            note(format!(
                "{gaps} overruns; after each one the table was read again"
            ));
        }
        if unsynced && matches!(ended, Ended::Done | Ended::TimedOut) {
            note("the table was not read whole since: entries may be missing or over");
        }
        match ended {
            Ended::Failed(error) => Err(error),
            Ended::Closed => Ok(Status::Done),
            Ended::Unread => {
                note("the output was not read to its end");
                Ok(Status::Partial)
            }
            _ if gaps > 0 || unsynced || incomplete => Ok(Status::Partial),
            Ended::Done => Ok(Status::Done),
            Ended::TimedOut => {
                note("--for was over before what --until waits for");
                Ok(Status::Failed)
            }
        }
    }

    fn read_cluster(&mut self) -> Result<Option<Cluster>, CommandError> {
        let read = match self.next_rules {
            None => Cluster::read,
            Some(_) => Cluster::read_again,
        };
        let source = &self.args.source;
        let all = Wanted::default();
        let cluster = read(self.world, source, &self.netns, Purpose::Follow, all)?;
        let waits = matches!(self.args.until, Some(Until::Stale | Until::Gone));
        let asked = self.select.wants_cluster() || waits;
        context::require_cluster(source, cluster.as_ref(), asked)?;
        self.incomplete = cluster.as_ref().is_some_and(|cluster| {
            // With `asked` it would be taken for missing, which it is not.
            context::incomplete(Some(cluster), false, 0)
        });
        if waits && self.incomplete {
            let error = "--until stale and --until gone need verdicts, and nothing can be judged";
            return Err(CommandError::new(Status::Partial, error).hint(context::FETCH));
        }
        self.file_time = match source.cluster {
            ClusterSource::Rules(None) | ClusterSource::Auto => None,
            _ => cluster.as_ref().and_then(Cluster::time),
        };
        let live = cluster.as_ref().is_some_and(Cluster::is_live_rules);
        self.next_rules = live.then(|| Instant::now() + RULES);
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
            // The file was rewritten, or it is time to look at the rules. A file that is only half there is read again
            // when it changes again.
            let time = self.modified();
            let read = self.read_cluster();
            match read.and_then(|read| self.names_are_there(read.as_ref()).map(|()| read)) {
                Ok(read) => cluster = read,
                Err(error) => {
                    let what = match self.next_rules {
                        None => "the new cluster file is not used",
                        Some(_) => "this node's rules are not used as they are now",
                    };
                    note(format!("{what}: {}", error.message));
                    self.file_time = time;
                    self.next_rules = self.next_rules.map(|_| Instant::now() + RULES);
                }
            }
        }
    }

    /// A new file in which a selected name is missing is not used: its flows are just what is watched for.
    fn names_are_there(&self, cluster: Option<&Cluster>) -> Result<(), CommandError> {
        let filter = self.select.to_filter()?;
        Picker::new(filter, &self.select, &self.zones, cluster).map(|_| ())
    }

    /// Until the cluster file changes.
    fn follow_with(&mut self, cluster: Option<&Cluster>, first: bool) -> Result<(), Ended> {
        let filter = self.select.to_filter().map_err(CommandError::from)?;
        let (select, zones) = (self.select.clone(), self.zones.clone());
        let mut picker = Picker::new(filter, &select, &zones, cluster)?;
        if first {
            self.look(&mut picker)?;
            say_undecided(&picker.counts);
        } else {
            self.teller.is_now();
            let mut eyes = Sight(&mut picker);
            self.view
                .judge_again(&mut eyes, &mut |record| self.teller.tell(record));
            if select.wants_cluster() {
                // Others than before may match.
                self.look(&mut picker)?;
            }
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
            if self.modified() != self.file_time
                || self.next_rules.is_some_and(|at| at <= Instant::now())
            {
                return Ok(());
            }
            self.take_events(&mut picker)?;
            if self.next_poll.is_some_and(|poll| poll <= Instant::now()) {
                self.look(&mut picker)?;
            }
        }
    }

    /// What the kernel told since, and a fresh dump where it lost something.
    fn take_events(&mut self, picker: &mut Picker<'_>) -> Result<(), Ended> {
        let batch = self.feed.next_batch(self.wait())?;
        let gaps = batch.items.iter().map(|item| match item {
            FeedItem::Event(_) => 0,
            FeedItem::Gap(gap) => gap.overruns,
        });
        let lost = batch.unreadable + gaps.sum::<u64>();
        // One record where the first of them is: all are made good for by the same look.
        let mut untold = lost;
        for item in batch.items {
            match item {
                FeedItem::Event(event) => self.event(event, picker),
                FeedItem::Gap(_) => self.gap(std::mem::take(&mut untold)),
            }
            self.teller.check()?;
        }
        self.gap(untold);
        if lost > 0 {
            self.look(picker)?;
        }
        Ok(())
    }

    fn gap(&mut self, overruns: u64) {
        if overruns > 0 {
            self.gaps += overruns;
            self.unsynced = true;
            self.teller.is_now();
            self.teller.tell(Record::Gap { overruns });
        }
    }

    fn event(&mut self, event: Event, picker: &mut Picker<'_>) {
        self.teller.time = event.time;
        let (mut eyes, teller) = (Sight(picker), &mut self.teller);
        let tell: &mut dyn FnMut(Record<'_>) = &mut |record| teller.tell(record);
        match event.kind {
            EventKind::New => self.view.made(event.flow, &mut eyes, tell),
            EventKind::Update => self.view.changed(event.flow, &mut eyes, tell),
            EventKind::Destroy => self.view.destroyed(&event.flow, &mut eyes, tell),
        }
    }

    /// A dump into the view; again when the table changed its shape meanwhile.
    fn look(&mut self, picker: &mut Picker<'_>) -> Result<(), Ended> {
        picker.start_over();
        let began = Instant::now();
        let mut whole = false;
        for attempt in 0..ATTEMPTS {
            self.teller.is_now();
            self.view.begin_dump(attempt > 0);
            whole = self.dump(picker)?;
            if whole {
                self.look_for_missing(picker)?;
            }
            let tell: &mut dyn FnMut(Record<'_>) = &mut |record| self.teller.tell(record);
            self.view.end_dump(whole, &mut Sight(picker), tell);
            if whole {
                break;
            }
        }
        if whole {
            let calm = self.looked.map(|(_, calm)| calm);
            let calm = calm.filter(|calm| self.teller.busy <= *calm);
            self.looked = Some((began, calm.unwrap_or_else(Instant::now)));
            if std::mem::take(&mut self.unsynced) {
                self.teller.tell(Record::Synced);
            }
        }
        let interval = match self.args.interval {
            Duration::ZERO if self.unsynced => Some(RETRY),
            Duration::ZERO => None,
            interval => Some(interval),
        };
        self.next_poll = interval.map(|interval| Instant::now() + interval);
        Ok(())
    }

    /// Shows the view every entry that the kernel gives for the selectors; whether these are all.
    fn dump(&mut self, picker: &mut Picker<'_>) -> Result<bool, Ended> {
        let mut whole = true;
        for filter in picker.filter().dumps() {
            let kind = TableKind::Conntrack;
            let dump = self.table.dump_timed(kind, &filter, &mut |flow, at| {
                let at = at.saturating_duration_since(self.began);
                let tell: &mut dyn FnMut(Record<'_>) = &mut |record| self.teller.tell(record);
                self.view.seen(flow, at, &mut Sight(picker), tell);
                match self.teller.has_failed() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
            tracing::debug!(?dump, "look");
            self.teller.check()?;
            whole &= dump.is_consistent() && dump.unreadable == 0;
        }
        Ok(whole)
    }

    /// Where the kernel leaves out entries by what can change in one, such as its status, those that were left out may live
    /// on: they are asked for one by one.
    fn look_for_missing(&mut self, picker: &mut Picker<'_>) -> Result<(), Ended> {
        if picker.filter().dumps() == picker.filter().lasting().dumps() {
            return Ok(());
        }
        for (original, zone) in self.view.missing() {
            let found = self.table.get(&original, Direction::Original, zone)?;
            if let Some(flow) = found {
                let at = self.began.elapsed();
                let tell: &mut dyn FnMut(Record<'_>) = &mut |record| self.teller.tell(record);
                self.view.seen(flow, at, &mut Sight(picker), tell);
            }
        }
        self.teller.check()?;
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
            // What cannot be judged may be stale.
            Some(Until::Gone) => !self.unsynced && stale() == 0 && self.view.count_open() == 0,
            Some(Until::Quiet) => self.is_quiet(),
            None => false,
        };
        let told = self.teller.is_full();
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

    /// Two looks an interval apart have seen all there is, and nothing happened since the first. They must be [`APART`] at
    /// least, or they would not show a refill.
    fn is_quiet(&self) -> bool {
        self.looked.is_some_and(|(began, calm)| {
            let still = began.saturating_duration_since(calm);
            self.teller.busy <= calm && still >= self.args.interval.max(APART)
        })
    }

    /// When the cluster file was written; as it was read for everything that is no file.
    fn modified(&self) -> Option<SystemTime> {
        match &self.args.source.cluster {
            ClusterSource::File(path) | ClusterSource::Rules(Some(path)) => {
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

/// What the selectors cannot tell of the entries of the beginning.
fn say_undecided(counts: &Counts) {
    if counts.undecided > 0 {
        note(format!(
            "{} entries lack a value that a selector needs (ports, counters, timestamps, labels, names) and are left out",
            counts.undecided
        ));
    }
    if counts.foreign_netns > 0 {
        note(format!(
            "{} entries are not judged: this network namespace is not known to be the node's (see --node, --netns)",
            counts.foreign_netns
        ));
    }
}
