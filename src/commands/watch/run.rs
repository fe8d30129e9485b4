//! The loop of a watch.

mod events;
mod look;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use crate::error::{CommandError, Status};
use crate::verdict::{MIN_OBSERVATION_GAP, Verdict};
use crate::watch::view::View;
use ctk_cluster::follow::DEFAULT_SETTLE;
use ctk_cluster::source::Loaded;
use ctnetlink::{EventBatch, EventQueue, Table};

use super::ended::{Ended, Lacks};
use super::freshness::{Due, FreshnessGuard};
use super::record_sink::RecordSink;
use super::resolver::EntryResolver;
use super::source::Source;
use super::{Until, WatchArgs};
use crate::query::{EntryQuery, SourceQuery};
use crate::session::caveats::{foreign_netns, range_unknown, undecided};
use crate::session::cluster::{self, Cluster};
use crate::session::pipeline::{Counts, EntryPipeline};
use crate::terminal::messages::note;
use crate::terminal::signals;

use look::asking;

pub(super) struct Watch<'a> {
    args: &'a WatchArgs,
    source: Source<'a>,
    query: &'a SourceQuery,
    table: Table,
    queue: EventQueue,
    view: View,
    young: FreshnessGuard,
    /// Events that were received and not applied yet.
    queued: Option<EventBatch>,
    teller: RecordSink,
    entries: &'a EntryQuery,
    began: Instant,
    next_poll: Option<Instant>,
    /// When the last look that was whole began, and when the first one ended after which nothing happened any more.
    looked: Option<(Instant, Instant)>,
    /// The view is not known to equal the table: at first, and after a gap, until a look was whole.
    unsynced: bool,
    gaps: u64,
    /// Nothing is judged, for want of parts of the cluster.
    incomplete: bool,
    /// A selected name is in the cluster no more.
    nameless: bool,
    stop: Arc<AtomicBool>,
}

/// What a watch goes on with.
enum Next {
    /// A newer state of the cluster that is followed.
    Newer(Box<Loaded>),
    /// The file or the rules, read again.
    Read,
}

impl<'a> Watch<'a> {
    pub fn new(
        args: &'a WatchArgs,
        entries: &'a EntryQuery,
        query: &'a SourceQuery,
        table: Table,
        queue: EventQueue,
    ) -> Result<Self, CommandError> {
        let began = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        Ok(Watch {
            args,
            source: Source::new(query),
            query,
            table,
            queue,
            view: View::default(),
            young: FreshnessGuard::default(),
            queued: None,
            teller: RecordSink::new(args, began, &stop)?,
            entries,
            began,
            next_poll: None,
            looked: None,
            unsynced: true,
            gaps: 0,
            incomplete: false,
            nameless: false,
            stop,
        })
    }

    pub fn run(mut self) -> Result<Status, CommandError> {
        signals::set_on_signals(&self.stop)?;
        let ended = match self.open() {
            Ok(cluster) => self.follow(cluster),
            Err(error) => Ended::Failed(error),
        };
        let lacks = Lacks {
            gaps: self.gaps,
            unsynced: self.unsynced,
            incomplete: self.incomplete,
        };
        // A live view gives the terminal back before anything else is said.
        drop(self);
        ended.status(&lacks)
    }

    fn open(&mut self) -> Result<Option<Cluster>, CommandError> {
        let interval = self.args.interval;
        let cluster = self.source.open(self.entries, interval)?;
        self.young.is_followed = self.source.is_followed();
        self.source.led(cluster.as_ref());
        self.require(cluster.as_ref())?;
        Ok(cluster)
    }

    /// What is asked for needs a source, and one that is whole where it waits for verdicts.
    fn require(&mut self, cluster: Option<&Cluster>) -> Result<(), CommandError> {
        let waits = matches!(self.args.until, Some(Until::Stale | Until::Gone));
        let asked = self.entries.needs_cluster() || waits;
        self.incomplete = self.source.require(cluster, asked)?;
        if waits && self.incomplete {
            let error = "--until stale and --until gone need verdicts, and nothing can be judged";
            return Err(CommandError::new(Status::Partial, error).hint(cluster::FETCH));
        }
        Ok(())
    }

    /// Follows with one reading of the cluster after the other.
    fn follow(&mut self, mut cluster: Option<Cluster>) -> Ended {
        let mut first = true;
        loop {
            let next = match self.follow_with(cluster.as_ref(), first) {
                Ok(next) => next,
                Err(ended) => return ended,
            };
            first = false;
            match next {
                Next::Newer(loaded) => cluster = self.renew(cluster, *loaded),
                Next::Read => {
                    if let Some(time) = self.source.unchanged() {
                        cluster = cluster.map(|c| c.with_rules_of(self.query, time));
                        continue;
                    }
                    // A file that is only half there is read again when it changes again.
                    let time = self.source.modified();
                    match self.read_again() {
                        Ok(read) => cluster = read,
                        Err(error) => {
                            let what = self.source.put_off(time);
                            note(format!("{what}: {}", error.message));
                        }
                    }
                    for heard in self.source.led(cluster.as_ref()) {
                        self.tell_endpoint(&heard, cluster.as_ref().and_then(Cluster::index));
                    }
                }
            }
        }
    }

    fn read_again(&mut self) -> Result<Option<Cluster>, CommandError> {
        let read = self.source.read()?;
        self.require(read.as_ref())?;
        self.names_are_there(read.as_ref())?;
        Ok(read)
    }

    /// A newer state of the cluster. One in which a selected name is missing has none of the flows that are watched for:
    /// they stay, and are not judged.
    fn renew(&mut self, before: Option<Cluster>, loaded: Loaded) -> Option<Cluster> {
        let mut before = before?;
        let cluster = before.renewed(self.query, loaded);
        match self.names_are_there(Some(&cluster)) {
            Ok(()) => {
                self.nameless = false;
                self.incomplete = !cluster.is_complete();
                Some(cluster)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.nameless, true) {
                    let text = format!("nothing is judged for now: {}", error.message);
                    note(text);
                }
                self.incomplete = true;
                before.doubt();
                Some(before)
            }
        }
    }

    /// A new file in which a selected name is missing is not used: its flows are just what is watched for.
    fn names_are_there(&self, cluster: Option<&Cluster>) -> Result<(), CommandError> {
        EntryPipeline::new(self.entries, cluster).map(|_| ())
    }

    /// Until there is a newer reading of the cluster.
    fn follow_with(&mut self, cluster: Option<&Cluster>, first: bool) -> Result<Next, Ended> {
        let entries = self.entries;
        let mut pipeline = EntryPipeline::new(entries, cluster)?.hide_own();
        self.mark_time(&mut pipeline, cluster);
        if first {
            self.look(&mut pipeline, cluster)?;
            say_undecided(&pipeline.counts, cluster);
        } else {
            self.judge_again(&mut pipeline, cluster);
            if entries.needs_cluster() {
                // Others than before may match.
                self.look_soon(&mut pipeline, cluster)?;
            }
        }
        loop {
            self.teller.flush()?;
            if let Some(live) = self.teller.live() {
                let mut resolver = EntryResolver::new(&mut pipeline, &mut self.young);
                let entries = self.view.entries(&mut resolver);
                if live.paint(entries, self.gaps)? {
                    return Err(Ended::Done);
                }
            }
            self.ask_whether_done()?;
            if let Some(loaded) = self.source.take_newer() {
                return Ok(Next::Newer(Box::new(loaded)));
            }
            if self.source.is_due() {
                return Ok(Next::Read);
            }
            self.mark_time(&mut pipeline, cluster);
            self.take_events(&mut pipeline, cluster)?;
            if self.next_poll.is_some_and(|poll| poll <= Instant::now()) {
                self.look(&mut pipeline, cluster)?;
            }
            self.judge_grown(&mut pipeline, cluster)?;
            self.source.ask();
        }
    }

    /// What is followed is true as of a moment ago, and not as of when the index was made; unless something newer is known
    /// already that no index has. Any other source has a time of its own.
    fn mark_time(&mut self, pipeline: &mut EntryPipeline<'_>, cluster: Option<&Cluster>) {
        let followed = self.source.behind().map(|behind| behind + DEFAULT_SETTLE);
        let time = match followed {
            Some(behind) => SystemTime::now().checked_sub(behind),
            None => cluster.and_then(Cluster::time),
        };
        if let (Some(_), Some(time)) = (followed, time) {
            pipeline.source_is_of(time);
        }
        self.young.mark_time(time);
    }

    /// Judges entries that are not young any more. Those that are selected by verdict may not be in the view yet.
    fn judge_grown(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<(), Ended> {
        let due = self.young.due();
        if due == Due::Nothing {
            return Ok(());
        }
        let look = self.entries.needs_cluster();
        if let Due::These(keys) = due {
            if look {
                self.young.let_in(&keys);
            }
            self.teller.is_now();
            let mut resolver = EntryResolver::new(pipeline, &mut self.young);
            self.view
                .judge_these(&keys, &mut resolver, &mut |record| self.teller.tell(record));
        } else {
            self.judge_again(pipeline, cluster);
        }
        match look {
            true => self.look_soon(pipeline, cluster),
            false => Ok(()),
        }
    }

    fn judge_again(&mut self, pipeline: &mut EntryPipeline<'_>, cluster: Option<&Cluster>) {
        self.teller.is_now();
        let mut resolver = EntryResolver::new(pipeline, &mut self.young);
        self.view
            .judge_again(&mut resolver, &mut |record| self.teller.tell(record));
        if let Some((index, cluster)) = asking(&self.source, cluster) {
            for flow in self.view.flows() {
                self.source.consider(flow, index, &cluster.node);
            }
        }
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

    /// Two looks an interval apart have seen all there is, and nothing happened since the first. They must be [`MIN_OBSERVATION_GAP`] at
    /// least, or they would not show a refill.
    fn is_quiet(&self) -> bool {
        self.looked.is_some_and(|(began, calm)| {
            let still = began.saturating_duration_since(calm);
            self.teller.busy <= calm && still >= self.args.interval.max(MIN_OBSERVATION_GAP)
        })
    }
}

/// What the selectors cannot tell of the entries of the beginning.
fn say_undecided(counts: &Counts, cluster: Option<&Cluster>) {
    if counts.undecided > 0 {
        note(undecided(counts.undecided));
    }
    if counts.foreign_netns > 0 {
        note(foreign_netns(counts.foreign_netns));
    }
    if let Some(cluster) = cluster.filter(|_| counts.range_unknown > 0) {
        note(range_unknown(counts.range_unknown, cluster));
    }
}
