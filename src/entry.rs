//! An entry with its names and its verdict.

use crate::attribution::Names;
use crate::verdict::{Activity, Judgement, Refreshing, Replies};
use ctnetlink::flow::Flow;

/// One row of output. `output` prints it, `select` selects by it. Names borrow from the cluster index.
#[derive(Clone, Debug)]
pub struct Entry<'c> {
    pub flow: Flow,
    /// Network namespace of the table, where tables of several are read.
    pub netns: Option<&'c str>,
    pub names: Names<'c>,
    /// `None` when no verdict was requested (`--cluster none`) and for an entry that is dying or not confirmed.
    pub judgement: Option<Judgement<'c>>,
    pub refreshing: Refreshing,
    pub replies: Replies,
}

impl<'c> Entry<'c> {
    /// An entry without names and verdict.
    #[inline]
    pub fn bare(flow: Flow) -> Self {
        let replies = Replies::of_one_observation(flow.status.is_unreplied());
        Entry {
            flow,
            netns: None,
            names: Names::default(),
            judgement: None,
            refreshing: Refreshing::Unknown,
            replies,
        }
    }

    /// Adds the result of several observations.
    pub fn add_activity(&mut self, activity: Activity) {
        self.refreshing = activity.refreshing;
        self.replies = activity.replies;
        self.judgement = self
            .judgement
            .map(|judgement| judgement.with_activity(activity));
    }
}
