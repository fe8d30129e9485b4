//! A look at the table after a purge: which flows are back, and where do they go now?

use crate::flow::Flow;
use crate::netlink::{NetlinkError, Table};

use super::execute::{Report, current};
use super::plan::Plan;

/// A deleted entry's flow that has an entry again.
#[derive(Debug)]
pub struct CameBack<'p> {
    /// The entry that was deleted.
    pub before: &'p Flow,
    /// The one that is there now.
    pub now: Flow,
}

/// Looks every deleted entry up by its original tuple and gives those that are back to `on_back`.
///
/// # Errors
/// [`NetlinkError`]: not all were looked up.
pub fn verify<'p>(
    table: &mut Table,
    plan: &'p Plan,
    report: &Report,
    on_back: &mut dyn FnMut(CameBack<'p>),
) -> Result<(), NetlinkError> {
    for position in &report.deleted_at {
        let Some(planned) = plan.planned().get(*position as usize) else {
            continue;
        };
        if let Some(now) = current(table, &planned.flow)? {
            let before = &planned.flow;
            on_back(CameBack { before, now });
        }
    }
    Ok(())
}
