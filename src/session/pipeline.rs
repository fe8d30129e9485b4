//! The one path from a flow to an entry that is named, judged and selected, for every command.
//!
//! The order is that of the costs: selectors on the kernel's values, names and verdict, freshness of the cluster source,
//! selectors on names, selectors on verdicts.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::attribution::{self, FrontendMatch, Names, Party, PartyKind};
use crate::entry::Entry;
use crate::error::{CommandError, ExitStatus};
use crate::filter::protocol::TCP;
use crate::filter::{Filter, Outcome};
use crate::output;
use crate::select::{Directory, SERVICE_FLAG, SelectError, SelectErrorKind, Selection};
use crate::verdict::{Activity, Judge, Judgement, Reason, Verdict};
use ctk_cluster::index::Index;
use ctk_cluster::own;
use ctnetlink::flow::{AddressPort, Flow};

use crate::query::EntryQuery;
use crate::session::cluster::Cluster;

/// The selectors of a command line, resolved against a cluster, with counts of the entries that went through.
pub struct EntryPipeline<'c> {
    filter: Filter,
    /// `None` when nothing is selected by names or verdicts.
    selection: Option<Selection>,
    judge: Option<Judge<'c>>,
    /// Nanoseconds since the Unix epoch, for ages.
    now: u64,
    /// Buffer of the line that `--match` tests.
    line: String,
    hides_own: bool,
    prints: Prints,
    /// Network namespace of the table, where tables of several are read.
    netns: Option<&'c str>,
    pub counts: Counts,
}

/// Names that are printed of an entry. None by default, so that none counts as missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prints {
    pub client: bool,
    pub endpoint: bool,
}

/// Numbers of entries, by what the pipeline did with them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Entries looked at.
    pub scanned: u64,
    /// Entries that passed.
    pub passed: u64,
    /// Entries that lack a value which a selector needs.
    pub undecided: u64,
    /// Stale entries of a protocol that was not named.
    pub held_back: u64,
    /// Entries that `--refreshing` cannot decide on: new, made anew, or offloaded.
    pub not_compared: u64,
    /// Entries whose verdict is `unknown/source-incomplete`, and that passed every selector but those on verdicts.
    pub source_incomplete: u64,
    /// Entries whose verdict is `stale`, and that passed every selector but those on verdicts.
    pub stale: u64,
    /// Entries whose verdict is `unknown/foreign-netns`, and that passed every selector but those on verdicts.
    pub foreign_netns: u64,
    /// Entries whose verdict is `unknown/service-range-unknown`, and that passed every selector but those on verdicts.
    pub range_unknown: u64,
    /// Those of `range_unknown` that a selector on verdicts may mean.
    pub range_sought: u64,
    /// Connections of this process to the API server, which are left out.
    pub own: u64,
    /// Entries that passed and lack a name that an unread kind of object may hold.
    pub nameless: u64,
    /// Entries that passed and lead to an address whose name only unread Pods may hold.
    pub not_asked: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        for (sum, more) in [
            (&mut self.scanned, more.scanned),
            (&mut self.passed, more.passed),
            (&mut self.undecided, more.undecided),
            (&mut self.held_back, more.held_back),
            (&mut self.not_compared, more.not_compared),
            (&mut self.source_incomplete, more.source_incomplete),
            (&mut self.stale, more.stale),
            (&mut self.foreign_netns, more.foreign_netns),
            (&mut self.range_unknown, more.range_unknown),
            (&mut self.range_sought, more.range_sought),
            (&mut self.own, more.own),
            (&mut self.nameless, more.nameless),
            (&mut self.not_asked, more.not_asked),
        ] {
            *sum += more;
        }
    }
}

/// Verdicts that `unknown/service-range-unknown` can turn out to be.
const BY_RANGE: [Reason; 2] = [Reason::ServiceGone, Reason::NoFrontend];

/// Decides whether the cluster source is fresh enough for the verdict of one entry.
///
/// An entry that is younger than the source may lead to an endpoint that the source does not have yet. Its verdict `stale`
/// becomes unsettled.
pub trait Freshness<'c> {
    fn settle(&mut self, entry: &mut Entry<'c>);
}

impl<'c, F: FnMut(&mut Entry<'c>)> Freshness<'c> for F {
    fn settle(&mut self, entry: &mut Entry<'c>) {
        self(entry);
    }
}

/// The source was read before the table: an entry that came up between two looks may be younger than the source.
struct ReadBefore {
    seen: Option<Activity>,
}

impl<'c> Freshness<'c> for ReadBefore {
    #[inline]
    fn settle(&mut self, entry: &mut Entry<'c>) {
        if self.seen.is_some_and(|seen| seen.is_new) {
            let unsettled = |judgement: Judgement<'c>| judgement.unsettled(&entry.flow);
            entry.judgement = entry.judgement.map(unsettled);
        }
    }
}

/// The source is read again before the verdict has an effect.
struct ReadAgain;

impl<'c> Freshness<'c> for ReadAgain {
    fn settle(&mut self, _: &mut Entry<'c>) {}
}

impl<'c> EntryPipeline<'c> {
    /// # Errors
    /// A selected name that does not exist, or exists in two namespaces.
    pub fn new(
        entries: &'c EntryQuery,
        cluster: Option<&'c Cluster>,
    ) -> Result<Self, CommandError> {
        let empty = Index::default();
        let directory = cluster.and_then(Cluster::directory);
        let selection = Selection::resolve(
            &entries.selectors,
            directory.unwrap_or(Directory::Index(&empty)),
        )
        .map_err(|error| select_error(error, cluster))?;
        let judge = cluster.map(|cluster| Judge {
            index: cluster.index(),
            rules: cluster.node_rules(),
            node: &cluster.node,
            kube_proxy_replacement: cluster.kube_proxy_replacement(),
            zones: &entries.zones,
            source_time: cluster.time(),
        });
        Ok(EntryPipeline {
            filter: entries.filter.clone(),
            selection: (!selection.is_empty()).then_some(selection),
            judge,
            now: now(),
            line: String::new(),
            hides_own: false,
            prints: Prints::default(),
            netns: None,
            counts: Counts::default(),
        })
    }

    /// Leaves out this process's own connections to the API server. Selectors on addresses or ports may mean them, so that
    /// nothing is left out then.
    pub fn hide_own(mut self) -> Self {
        self.hides_own = !self.filter.names_places();
        self
    }

    /// Counts the entries that lack one of the names that are printed.
    pub fn for_names(mut self, prints: Prints) -> Self {
        self.prints = prints;
        self
    }

    /// Sets the network namespace of the entries that follow.
    pub fn enter(&mut self, netns: &'c str) {
        self.netns = Some(netns);
    }

    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Resets the counts and the time, before the table is dumped again.
    pub fn start_over(&mut self) {
        self.counts = Counts::default();
        self.now = now();
    }

    /// The flow may be selected later: it passes `lasting` ([`Filter::lasting`]) and the selectors on names.
    pub fn may_be_picked(&self, lasting: &Filter, flow: &Flow) -> bool {
        let by_parties = |selection: &Selection| {
            !selection.has_parties() || selection.by_parties(&self.entry(flow.clone(), None))
        };
        lasting.test(flow, self.now) == Outcome::Pass
            && self.selection.as_ref().is_none_or(by_parties)
    }

    /// The entry of a flow that passes every selector. `seen`: result of several looks at it.
    pub fn pick(
        &mut self,
        flow: Flow,
        seen: Option<Activity>,
        freshness: &mut impl Freshness<'c>,
    ) -> Option<Entry<'c>> {
        self.admit(flow, seen, freshness, Self::is_selected, |entry| entry)
    }

    /// Lends the entry of a flow that passes every selector to `show`. The cluster source was read before the table.
    #[inline]
    pub fn show<R>(
        &mut self,
        flow: Flow,
        seen: Option<Activity>,
        show: impl FnOnce(&Entry<'c>) -> R,
    ) -> Option<R> {
        let mut freshness = ReadBefore { seen };
        self.admit(flow, seen, &mut freshness, Self::is_selected, |entry| {
            show(&entry)
        })
    }

    /// The entry of a flow that passes every selector but those on verdicts, which the plan of a purge decides on.
    pub fn consider(&mut self, flow: Flow, seen: Option<Activity>) -> Option<Entry<'c>> {
        self.admit(flow, seen, &mut ReadAgain, Self::is_named, |entry| entry)
    }

    /// The path of every entry. `selects`: the selectors on names, or those on verdicts, too.
    #[inline]
    fn admit<R>(
        &mut self,
        flow: Flow,
        seen: Option<Activity>,
        freshness: &mut impl Freshness<'c>,
        selects: impl FnOnce(&mut Self, &Entry<'c>) -> bool,
        take: impl FnOnce(Entry<'c>) -> R,
    ) -> Option<R> {
        if !self.filter_passes(&flow) {
            return None;
        }
        let mut entry = Entry::bare(flow);
        entry.netns = self.netns;
        self.complete(&mut entry, seen);
        freshness.settle(&mut entry);
        selects(self, &entry).then(|| take(entry))
    }

    /// Sets the time as of which the cluster source is true, where that is later than its reading.
    pub fn source_is_of(&mut self, time: SystemTime) {
        if let Some(judge) = &mut self.judge {
            judge.source_time = Some(time);
        }
    }

    /// The entry passes the selectors on names and verdicts.
    #[inline]
    fn is_selected(&mut self, entry: &Entry<'c>) -> bool {
        if !self.is_named(entry) {
            return false;
        }
        self.count_reason(entry);
        if let Some(selection) = &self.selection
            && !selection.test(entry)
        {
            self.counts.held_back += u64::from(selection.stale_held_back(entry));
            return false;
        }
        self.counts.passed += 1;
        self.count_names(entry);
        true
    }

    /// Counts an entry that lacks a name because of what was not read.
    #[inline]
    fn count_names(&mut self, entry: &Entry<'_>) {
        let Some(judge) = &self.judge else { return };
        let Some(index) = judge.index else { return };
        let (names, known, prints) = (&entry.names, index.completeness(), self.prints);
        let endpoint = names.endpoint.as_ref().map(|endpoint| &endpoint.party);
        if !known.pods || !known.nodes {
            let lacking = (prints.client && lacks_name(names.client.as_ref()))
                || (prints.endpoint && lacks_name(endpoint));
            self.counts.nameless += u64::from(lacking);
        } else if prints.endpoint && endpoint.is_none() && entry.flow.is_dnat() {
            let to = entry.flow.reply.src;
            let of_node = judge.node.owns(Some(index), to) == Some(true);
            self.counts.not_asked += u64::from(!of_node && !index.pods_known_at(to));
        }
    }

    /// The flow passes the selectors on the kernel's values.
    #[inline]
    fn filter_passes(&mut self, flow: &Flow) -> bool {
        self.counts.scanned += 1;
        if self.hides_own && is_own(flow) {
            self.counts.own += 1;
            return false;
        }
        let outcome = self.filter.test(flow, self.now);
        self.counts.undecided += u64::from(outcome == Outcome::Undecidable);
        outcome == Outcome::Pass
    }

    /// The entry passes the selectors on names, and those on its printed line.
    #[inline]
    fn is_named(&mut self, entry: &Entry<'c>) -> bool {
        if let Some(selection) = &self.selection
            && !selection.by_names(entry)
        {
            self.counts.not_compared += u64::from(selection.refreshing_unknown(entry));
            self.counts.undecided += u64::from(selection.party_unknown(entry));
            return false;
        }
        if !self.filter.wants_text() {
            return true;
        }
        self.line.clear();
        output::wide_line(entry, &mut self.line);
        self.filter.test_text(&self.line)
    }

    /// A flow with its names and verdict, whether it is selected or not.
    pub fn entry(&self, flow: Flow, seen: Option<Activity>) -> Entry<'c> {
        let mut entry = Entry::bare(flow);
        self.complete(&mut entry, seen);
        entry
    }

    #[inline]
    fn complete(&self, entry: &mut Entry<'c>, seen: Option<Activity>) {
        if let Some(judge) = &self.judge {
            entry.names = names(&entry.flow, judge);
            entry.judgement = judge.judge(&entry.flow, entry.names.matched);
        }
        if let Some(seen) = seen {
            entry.add_activity(seen);
        }
    }

    /// Counts an entry by the reason of its verdict.
    pub fn count_reason(&mut self, entry: &Entry<'_>) {
        match entry.judgement.as_ref().map(|judgement| judgement.reason) {
            Some(Reason::SourceIncomplete) => self.counts.source_incomplete += 1,
            Some(Reason::ForeignNetns) => self.counts.foreign_netns += 1,
            Some(Reason::ServiceRangeUnknown) => {
                let selection = self.selection.as_ref();
                let sought = selection.is_some_and(|one| one.may_be_meant(entry, &BY_RANGE));
                self.counts.range_unknown += 1;
                self.counts.range_sought += u64::from(sought);
            }
            Some(reason) if reason.verdict() == Verdict::Stale => self.counts.stale += 1,
            _ => {}
        }
    }
}

/// Names behind a flow: by objects where they were read, else by the node's rules.
fn names<'c>(flow: &Flow, judge: &Judge<'c>) -> Names<'c> {
    match (judge.index, judge.rules) {
        (Some(index), rules) => {
            let matched = FrontendMatch::of(flow, index, judge.node);
            let names = attribution::names(flow, matched, index);
            match rules.filter(|_| matched.is_nothing()) {
                Some(rules) => attribution::with_forward(names, flow, rules, judge.node),
                None => names,
            }
        }
        (None, Some(rules)) => {
            attribution::names_by_rules(flow, FrontendMatch::by_rules(flow, rules, judge.node))
        }
        (None, None) => Names::default(),
    }
}

/// The name of a party inside the cluster is not known. A party outside the cluster has none.
fn lacks_name(party: Option<&Party<'_>>) -> bool {
    party.is_none_or(|party| party.name.is_none() && party.kind != PartyKind::External)
}

/// The flow is a connection of this process to the API server.
fn is_own(flow: &Flow) -> bool {
    let end = |place: AddressPort| place.port.map(|port| SocketAddr::new(place.address, port));
    let (from, to) = (flow.original.source(), flow.original.destination());
    flow.protocol() == TCP
        && end(from)
            .zip(end(to))
            .is_some_and(|(from, to)| own::is_own(from, to))
}

/// Nanoseconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Error of a selected name. With an incomplete source the name may exist all the same.
fn select_error(error: SelectError, cluster: Option<&Cluster>) -> CommandError {
    let message = error.to_string();
    name_error(error, message, cluster)
}

/// Error of a name that is an argument of the command and belongs to no flag.
pub(crate) fn argument_error(error: SelectError, cluster: Option<&Cluster>) -> CommandError {
    let message = error.message.clone();
    name_error(error, message, cluster)
}

fn name_error(error: SelectError, message: String, cluster: Option<&Cluster>) -> CommandError {
    // A Service is known from Services and slices alone, every other name from the Pods, too.
    let whole = |cluster: &Cluster| {
        let pods = cluster
            .index()
            .is_some_and(|index| index.completeness().pods);
        cluster.is_complete() && (pods || error.flag == SERVICE_FLAG)
    };
    let incomplete = !cluster.is_some_and(whole);
    let status = match error.kind {
        SelectErrorKind::NotTold => ExitStatus::Partial,
        SelectErrorKind::Unknown if incomplete => ExitStatus::Partial,
        _ => ExitStatus::Usage,
    };
    let mut failed = CommandError::new(status, message);
    if error.kind == SelectErrorKind::Unknown && incomplete {
        failed =
            failed.hint("the cluster source is not complete, so the name may exist all the same");
    }
    if let Some(hint) = error.hint {
        failed = failed.hint(hint);
    }
    failed
}
