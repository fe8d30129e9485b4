//! A look at the table after a purge: which flows are back, and where do they go now?

use rustix::io::Errno;

use ctnetlink::flow::Flow;
use ctnetlink::{MAX_BATCH, Table};

use super::execute::{Report, current};
use super::plan::{Plan, Planned};

/// The flow of an entry that was deleted, or was gone already, and that has an entry again.
#[derive(Debug)]
pub struct CameBack<'p> {
    /// The entry that is gone.
    pub before: &'p Planned,
    /// The one that is there now.
    pub now: Flow,
}

/// Looks every entry that ended up by its original tuple and gives those that are back to `on_back`.
///
/// # Errors
/// The first look that failed: not all were looked up.
pub fn verify<'p>(
    table: &mut Table,
    plan: &'p Plan,
    report: &Report,
    on_back: &mut dyn FnMut(CameBack<'p>),
) -> Result<(), Errno> {
    for positions in report.ended_at.chunks(MAX_BATCH) {
        let ended = positions.iter();
        let ended = ended.filter_map(|position| plan.planned().get(*position as usize));
        for (before, now) in ended.clone().zip(current(table, ended)) {
            if let Some(now) = now? {
                on_back(CameBack { before, now });
            }
        }
    }
    Ok(())
}
