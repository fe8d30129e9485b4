//! The fields of an entry that formats print.

use std::fmt::Display;

use crate::attribution::Names;
use crate::entry::Entry;
use crate::verdict::{Reason, Refreshing, Replies, Verdict};
use ctnetlink::flow::Flow;

/// Result of `purge` or `restore` for one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemResult {
    /// `deleted`, `already-gone`, `would-delete`, ...
    pub result: &'static str,
    /// Why it failed.
    pub error: Option<String>,
}

/// An entry with its names, verdict and result.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub flow: &'a Flow,
    /// Network namespace of the table, where tables of several are printed.
    pub netns: Option<&'a str>,
    pub names: &'a Names<'a>,
    pub verdict: Option<(Verdict, Reason)>,
    pub evidence: Option<&'a dyn Display>,
    pub refreshing: Refreshing,
    pub replies: Replies,
    pub result: Option<&'a ItemResult>,
    /// Nanoseconds since the Unix epoch, for ages.
    pub now: u64,
}

impl<'a> Row<'a> {
    pub fn of(entry: &'a Entry<'a>, result: Option<&'a ItemResult>, now: u64) -> Self {
        let judgement = entry.judgement.as_ref();
        Row {
            flow: &entry.flow,
            netns: entry.netns,
            names: &entry.names,
            verdict: judgement.map(|j| (j.verdict(), j.reason)),
            evidence: judgement.map(|j| &j.evidence as &dyn Display),
            refreshing: entry.refreshing,
            replies: entry.replies,
            result,
            now,
        }
    }

    /// Age in seconds, or the lifetime of an entry that has ended; `None` without timestamps.
    pub fn age(&self) -> Option<u64> {
        const SECOND: u64 = 1_000_000_000;
        let start = self.flow.start?;
        let stop = self.flow.rare.as_ref().and_then(|rare| rare.stop);
        // Both times are cut to seconds before the subtraction, as in the conntrack tool.
        Some((stop.unwrap_or(self.now) / SECOND).saturating_sub(start / SECOND))
    }
}
