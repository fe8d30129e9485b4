//! The selectors at work: from a flow to the entry that is shown, or to nothing. For every command that selects.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::cluster::index::Index;
use crate::entry::Entry;
use crate::error::{CommandError, Status};
use crate::filter::{Filter, Outcome};
use crate::flow::Flow;
use crate::label::{self, Matched};
use crate::output;
use crate::select::{SelectError, SelectErrorKind, Selection};
use crate::verdict::{Judge, Reason, Seen};

use super::context::Cluster;
use super::select::SelectArgs;

/// Every selector of a command line, resolved, with the counts of what it met.
pub struct Picker<'c> {
    filter: Filter,
    selection: Selection,
    index: Option<&'c Index>,
    judge: Option<Judge<'c>>,
    /// Nanoseconds since the Unix epoch, for ages.
    now: u64,
    line: String,
    pub counts: Counts,
}

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
    /// Entries of which `--refreshing` cannot be told: new, made anew, or offloaded.
    pub not_compared: u64,
    /// Passed entries whose verdict is `unknown/source-incomplete`.
    pub source_incomplete: u64,
    /// Passed entries whose verdict is `unknown/foreign-netns`.
    pub foreign_netns: u64,
}

impl<'c> Picker<'c> {
    /// # Errors
    /// Names that nobody has, or that two namespaces have.
    pub fn new(
        filter: Filter,
        args: &SelectArgs,
        zones: &'c [u16],
        cluster: Option<&'c Cluster>,
    ) -> Result<Self, CommandError> {
        let selectors = args.to_selectors();
        let empty = Index::default();
        let index = cluster.map(|cluster| &cluster.loaded.index);
        let selection = Selection::resolve(&selectors, index.unwrap_or(&empty))
            .map_err(|error| select_error(error, cluster))?;
        let judge = cluster.map(|cluster| Judge {
            index: Some(&cluster.loaded.index),
            rules: None,
            node: &cluster.node,
            zones,
            source_time: Some(cluster.loaded.source.time),
        });
        Ok(Picker {
            filter,
            selection,
            index,
            judge,
            now: now(),
            line: String::new(),
            counts: Counts::default(),
        })
    }

    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Before the table is looked at again.
    pub fn start_over(&mut self) {
        self.counts = Counts::default();
        self.now = now();
    }

    /// A look at this flow is worth keeping: `lasting` ([`Filter::lasting`]) and the selectors on names pass it. The others
    /// are asked when it is shown.
    pub fn may_be_picked(&self, lasting: &Filter, flow: &Flow) -> bool {
        lasting.test(flow, self.now) == Outcome::Pass
            && (!self.selection.has_parties()
                || self.selection.by_parties(&self.entry(flow.clone(), None)))
    }

    /// The entry that is shown for a flow, if it passes every selector. `seen` is what several looks at it showed.
    pub fn pick(&mut self, flow: Flow, seen: Option<Seen>) -> Option<Entry<'c>> {
        let entry = self.consider(flow, seen)?;
        if !self.selection.test(&entry) {
            self.counts.held_back += u64::from(self.selection.stale_held_back(&entry));
            return None;
        }
        self.counts.passed += 1;
        self.count_reason(&entry);
        Some(entry)
    }

    /// The entry behind a flow, if it passes every selector but those on verdicts.
    pub fn consider(&mut self, flow: Flow, seen: Option<Seen>) -> Option<Entry<'c>> {
        self.counts.scanned += 1;
        match self.filter.test(&flow, self.now) {
            Outcome::Pass => {}
            Outcome::Fail => return None,
            Outcome::Undecidable => {
                self.counts.undecided += 1;
                return None;
            }
        }
        let entry = self.entry(flow, seen);
        if !self.selection.by_names(&entry) {
            self.counts.not_compared += u64::from(self.selection.refreshing_unknown(&entry));
            return None;
        }
        if self.filter.wants_text() {
            self.line.clear();
            output::wide_line(&entry, &mut self.line);
            if !self.filter.test_text(&self.line) {
                return None;
            }
        }
        Some(entry)
    }

    /// The names and the verdict of a flow, and what several looks at it showed.
    pub fn entry(&self, flow: Flow, seen: Option<Seen>) -> Entry<'c> {
        let mut entry = Entry::bare(flow);
        if let (Some(index), Some(judge)) = (self.index, &self.judge) {
            let matched = Matched::of(&entry.flow, index, judge.node);
            entry.names = label::names(&entry.flow, matched, index);
            entry.judgement = judge.judge(&entry.flow, matched);
        }
        match seen {
            Some(seen) => entry.with_seen(seen),
            None => entry,
        }
    }

    /// Counts an entry that could not be judged.
    pub fn count_reason(&mut self, entry: &Entry<'_>) {
        match entry.judgement.map(|judgement| judgement.reason) {
            Some(Reason::SourceIncomplete) => self.counts.source_incomplete += 1,
            Some(Reason::ForeignNetns) => self.counts.foreign_netns += 1,
            _ => {}
        }
    }
}

/// Nanoseconds since the Unix epoch.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// With an incomplete source somebody may have the name all the same.
fn select_error(error: SelectError, cluster: Option<&Cluster>) -> CommandError {
    let incomplete = !cluster.is_some_and(Cluster::is_complete);
    let status = match error.kind {
        SelectErrorKind::Unknown if incomplete => Status::Partial,
        _ => Status::Usage,
    };
    let mut failed = CommandError::new(status, &error.message);
    if status == Status::Partial {
        failed =
            failed.hint("the cluster source is not complete, so the name may exist all the same");
    }
    if let Some(hint) = error.hint {
        failed = failed.hint(hint);
    }
    failed
}
