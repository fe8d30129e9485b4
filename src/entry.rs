//! An entry as it is shown: what the kernel said, the names behind it, and the verdict.
//!
//! Here flow, label and verdict meet; `output` prints it, `select` chooses by it. Names borrow from the cluster index.

use crate::attribution::Names;
use crate::verdict::{Activity, Judgement, Refreshing, Replies};
use ctnetlink::flow::Flow;

/// One row.
#[derive(Clone, Debug)]
pub struct Entry<'c> {
    pub flow: Flow,
    pub names: Names<'c>,
    /// `None` when no verdict was sought (`--cluster none`) or the entry is not confirmed or is dying.
    pub judgement: Option<Judgement<'c>>,
    pub refreshing: Refreshing,
    pub replies: Replies,
}

impl<'c> Entry<'c> {
    /// An entry of which nothing but the kernel's word is known.
    #[inline]
    pub fn bare(flow: Flow) -> Self {
        let replies = Replies::of_one_observation(flow.status.is_unreplied());
        Entry {
            flow,
            names: Names::default(),
            judgement: None,
            refreshing: Refreshing::Unknown,
            replies,
        }
    }

    /// Takes in what several looks at the entry showed.
    pub fn see(&mut self, seen: Activity) {
        self.refreshing = seen.refreshing;
        self.replies = seen.replies;
        self.judgement = self
            .judgement
            .map(|judgement| judgement.with_activity(seen));
    }
}
