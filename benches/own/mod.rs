//! A network namespace of a bench's own, and the entries of its table.

use ctnetlink::Table;
use ctnetlink::flow::Flow;
use nix::sched::{CloneFlags, unshare};

use crate::limit::Limit;

/// Entries made with one call. Few, because the memory of this process counts as its children's peak until they have
/// replaced it.
const STEP: u32 = 10_000;

/// Moves this process into a namespace of its own. How many entries were asked for, and the limit that allows them; none
/// where that is not permitted.
pub fn begin() -> Option<(u32, Limit)> {
    let wanted = std::env::args()
        .skip(1)
        .find_map(|arg| arg.replace('_', "").parse().ok());
    let entries: u32 = wanted.unwrap_or(200_000);
    let limit = Limit::raise(entries + 1000);
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        eprintln!("skipped: no permission to make a network namespace; run as root");
        assert!(std::env::var_os("CI").is_none(), "skipped in CI");
        return None;
    }
    Some((entries, limit))
}

/// Fills the table with the flows of these numbers.
pub fn fill(table: &mut Table, numbers: std::ops::Range<u32>, flow: fn(u32) -> Flow) {
    for first in numbers.clone().step_by(STEP as usize) {
        let some = first..numbers.end.min(first + STEP);
        let results = table.insert_all(some.map(flow));
        let failed = results.iter().filter(|result| result.is_err()).count();
        assert_eq!(failed, 0, "entries that could not be inserted");
    }
}
