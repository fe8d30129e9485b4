//! What the formats print: one entry, taken apart.

use std::fmt::Display;

use crate::attribution::Names;

use crate::entry::Entry;
use crate::verdict::{Reason, Refreshing, Replies, Verdict};
use ctnetlink::flow::Flow;

/// What became of an entry in `purge` and `restore`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemResult {
    /// `deleted`, `already-gone`, `would-delete`, ...
    pub result: &'static str,
    /// Why it failed.
    pub error: Option<String>,
}

/// One entry with everything that a format may show of it.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub flow: &'a Flow,
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
            names: &entry.names,
            verdict: judgement.map(|j| (j.verdict(), j.reason)),
            evidence: judgement.map(|j| &j.evidence as &dyn Display),
            refreshing: entry.refreshing,
            replies: entry.replies,
            result,
            now,
        }
    }

    /// Seconds since the entry was made (or that it lived, when it has ended); `None` without timestamps.
    pub fn age(&self) -> Option<u64> {
        const SECOND: u64 = 1_000_000_000;
        let start = self.flow.start?;
        let stop = self.flow.rare.as_ref().and_then(|rare| rare.stop);
        // Whole seconds are subtracted, as the conntrack tool does.
        Some((stop.unwrap_or(self.now) / SECOND).saturating_sub(start / SECOND))
    }
}
