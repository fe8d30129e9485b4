//! Loop of a watch.

mod events;
mod look;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::{CommandError, ExitStatus};
use crate::verdict::Verdict;
use crate::watch::freshness::{FreshnessGuard, Settled, SourceFreshness};
use crate::watch::look_schedule::LookSchedule;
use crate::watch::view::View;
use ctk_cluster::source::Loaded;
use ctnetlink::{EventBatch, EventQueue, Table};

use super::end::{Gaps, WatchEnd};
use super::record_sink::RecordSink;
use super::resolver::EntryResolver;
use super::watched_cluster::WatchedCluster;
use super::{Until, WatchArgs};
use crate::query::{EntryQuery, SourceQuery};
use crate::session::caveats::{foreign_netns, range_unknown, undecided};
use crate::session::cluster::{self, Cluster};
use crate::session::pipeline::{Counts, EntryPipeline};
use crate::terminal::messages::note;
use crate::terminal::signals;

use look::cluster_with_unknown_owners;

pub(super) struct Watch<'a> {
    args: &'a WatchArgs,
    cluster_source: WatchedCluster<'a>,
    query: &'a SourceQuery,
    table: Table,
    queue: EventQueue,
    view: View,
    freshness: FreshnessGuard,
    /// Events that were received and not applied yet.
    pending: Option<EventBatch>,
    sink: RecordSink,
    entries: &'a EntryQuery,
    began: Instant,
    schedule: LookSchedule,
    /// The view may differ from the table: at first, and after a gap, until the next complete look.
    unsynced: bool,
    overruns: u64,
    /// The cluster source is incomplete, so that nothing is judged.
    incomplete: bool,
    /// The cluster has a selected name no longer.
    is_name_missing: bool,
    stop: Arc<AtomicBool>,
}

/// Next state of the cluster.
enum Next {
    /// A newer state of a cluster that is followed.
    Newer(Box<Loaded>),
    /// The file or the rules, which have to be read again.
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
            cluster_source: WatchedCluster::new(query),
            query,
            table,
            queue,
            view: View::default(),
            freshness: FreshnessGuard::default(),
            pending: None,
            sink: RecordSink::new(args, began, &stop)?,
            entries,
            began,
            schedule: LookSchedule::new(args.interval),
            unsynced: true,
            overruns: 0,
            incomplete: false,
            is_name_missing: false,
            stop,
        })
    }

    pub fn run(mut self) -> Result<ExitStatus, CommandError> {
        signals::set_on_signals(&self.stop)?;
        let ended = match self.open() {
            Ok(cluster) => self.follow(cluster),
            Err(error) => WatchEnd::Failed(error),
        };
        let gaps = Gaps {
            overruns: self.overruns,
            unsynced: self.unsynced,
            incomplete: self.incomplete,
        };
        // The live table restores the terminal before notes are printed.
        drop(self);
        ended.status(&gaps)
    }

    fn open(&mut self) -> Result<Option<Cluster>, CommandError> {
        let interval = self.args.interval;
        let cluster = self.cluster_source.open(self.entries, interval)?;
        // The first reading is the base of later changes.
        self.cluster_source.rule_changes(cluster.as_ref());
        self.require(cluster.as_ref())?;
        Ok(cluster)
    }

    /// Checks that the source is enough for the selectors, and complete when `--until` waits for verdicts.
    fn require(&mut self, cluster: Option<&Cluster>) -> Result<(), CommandError> {
        let needs_verdicts = matches!(self.args.until, Some(Until::Stale | Until::Gone));
        let is_needed = self.entries.needs_cluster() || needs_verdicts;
        self.incomplete = self.cluster_source.require(cluster, is_needed)?;
        if needs_verdicts && self.incomplete {
            let error = "--until stale and --until gone need verdicts, and nothing can be judged";
            return Err(CommandError::new(ExitStatus::Partial, error).hint(cluster::FETCH));
        }
        Ok(())
    }

    /// Follows with one state of the cluster after the other.
    fn follow(&mut self, mut cluster: Option<Cluster>) -> WatchEnd {
        let mut first = true;
        loop {
            let next = match self.follow_cluster(cluster.as_ref(), first) {
                Ok(next) => next,
                Err(ended) => return ended,
            };
            first = false;
            match next {
                Next::Newer(loaded) => cluster = self.renew(cluster, *loaded),
                Next::Read => {
                    if let Some(time) = self.cluster_source.check_unchanged() {
                        cluster = cluster.map(|c| c.with_rules_of(self.query, time));
                        continue;
                    }
                    // A file that is half written is read again at its next change.
                    let time = self.cluster_source.modified();
                    match self.reread() {
                        Ok(read) => cluster = read,
                        Err(error) => {
                            let source = self.cluster_source.postpone(time);
                            note(format!("{source}: {}", error.text()));
                        }
                    }
                    for event in self.cluster_source.rule_changes(cluster.as_ref()) {
                        self.push_endpoint(&event, cluster.as_ref().and_then(Cluster::index));
                    }
                }
            }
        }
    }

    fn reread(&mut self) -> Result<Option<Cluster>, CommandError> {
        let read = self.cluster_source.read()?;
        self.require(read.as_ref())?;
        self.check_names(read.as_ref())?;
        Ok(read)
    }

    /// Returns the newer state of the cluster. One that lacks a selected name would select none of the watched flows: the old
    /// state stays, and nothing is judged.
    fn renew(&mut self, before: Option<Cluster>, loaded: Loaded) -> Option<Cluster> {
        let mut before = before?;
        let cluster = before.renewed(self.query, loaded);
        match self.check_names(Some(&cluster)) {
            Ok(()) => {
                self.is_name_missing = false;
                self.incomplete = !cluster.is_complete();
                Some(cluster)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_name_missing, true) {
                    note(format!("nothing is judged for now: {}", error.text()));
                }
                self.incomplete = true;
                before.doubt();
                Some(before)
            }
        }
    }

    /// Checks that the cluster has every selected name.
    ///
    /// A new file that lacks one is not used, because the watch is for the flows of just that name.
    fn check_names(&self, cluster: Option<&Cluster>) -> Result<(), CommandError> {
        EntryPipeline::new(self.entries, cluster).map(|_| ())
    }

    /// Follows with one state of the cluster, until the next one.
    fn follow_cluster(&mut self, cluster: Option<&Cluster>, first: bool) -> Result<Next, WatchEnd> {
        let entries = self.entries;
        let mut pipeline = EntryPipeline::new(entries, cluster)?.hide_own();
        self.update_freshness(&mut pipeline, cluster);
        if first {
            self.look(&mut pipeline, cluster)?;
            report_undecided(&pipeline.counts, cluster);
        } else {
            self.rejudge_all(&mut pipeline, cluster);
            if entries.needs_cluster() {
                // Other entries than before may match.
                self.look_soon(&mut pipeline, cluster)?;
            }
        }
        loop {
            self.sink.flush()?;
            if let Some(table) = self.sink.live_table() {
                let mut resolver = EntryResolver::new(&mut pipeline, &mut self.freshness);
                let entries = self.view.entries(&mut resolver);
                if table.paint(entries, self.overruns)? {
                    return Err(WatchEnd::Done);
                }
            }
            self.check_end()?;
            if let Some(loaded) = self.cluster_source.take_newer() {
                return Ok(Next::Newer(Box::new(loaded)));
            }
            if self.cluster_source.is_due() {
                return Ok(Next::Read);
            }
            self.update_freshness(&mut pipeline, cluster);
            self.take_events(&mut pipeline, cluster)?;
            if self.schedule.is_due(Instant::now()) {
                self.look(&mut pipeline, cluster)?;
            }
            self.judge_settled(&mut pipeline, cluster)?;
            self.cluster_source.request_owners();
        }
    }

    /// Sets the time as of which the cluster source is true.
    fn update_freshness(&mut self, pipeline: &mut EntryPipeline<'_>, cluster: Option<&Cluster>) {
        let freshness = self.cluster_source.freshness(cluster);
        if let (SourceFreshness::FollowedUntil(_), Some(time)) = (freshness, freshness.time()) {
            pipeline.source_is_of(time);
        }
        self.freshness.set_source(freshness);
    }

    /// Judges the entries that the source covers by now. One that is selected by verdict may not be in the view yet.
    fn judge_settled(
        &mut self,
        pipeline: &mut EntryPipeline<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<(), WatchEnd> {
        let settled = self.freshness.take_settled();
        if settled == Settled::None {
            return Ok(());
        }
        let may_match_now = self.entries.needs_cluster();
        if let Settled::Entries(keys) = settled {
            if may_match_now {
                self.freshness.mark_settled(&keys);
            }
            self.sink.set_time_to_now();
            let mut resolver = EntryResolver::new(pipeline, &mut self.freshness);
            self.view
                .rejudge(&keys, &mut resolver, &mut |record| self.sink.push(record));
        } else {
            self.rejudge_all(pipeline, cluster);
        }
        match may_match_now {
            true => self.look_soon(pipeline, cluster),
            false => Ok(()),
        }
    }

    fn rejudge_all(&mut self, pipeline: &mut EntryPipeline<'_>, cluster: Option<&Cluster>) {
        self.sink.set_time_to_now();
        let mut resolver = EntryResolver::new(pipeline, &mut self.freshness);
        self.view
            .rejudge_all(&mut resolver, &mut |record| self.sink.push(record));
        if let Some((index, cluster)) = cluster_with_unknown_owners(&self.cluster_source, cluster) {
            for flow in self.view.flows() {
                self.cluster_source
                    .note_unknown_owner(flow, index, &cluster.node);
            }
        }
    }

    fn check_end(&self) -> Result<(), WatchEnd> {
        let stale = || self.view.count(Verdict::Stale);
        let reached = match self.args.until {
            Some(Until::Stale) => stale() > 0,
            // An entry without a settled verdict may be stale.
            Some(Until::Gone) => !self.unsynced && stale() == 0 && self.view.count_open() == 0,
            Some(Until::Quiet) => self.schedule.is_quiet(self.sink.last_activity),
            None => false,
        };
        if reached || self.sink.is_full() || self.stop.load(Ordering::Relaxed) {
            return Err(WatchEnd::Done);
        }
        match self
            .args
            .time
            .is_some_and(|time| self.began.elapsed() >= time)
        {
            true if self.args.until.is_some() => Err(WatchEnd::TimedOut),
            true => Err(WatchEnd::Done),
            false => Ok(()),
        }
    }
}

/// Prints notes on the entries of the first look that the selectors could not decide.
fn report_undecided(counts: &Counts, cluster: Option<&Cluster>) {
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
