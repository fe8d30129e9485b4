//! What a watch tells.

use crate::entry::Entry;
use crate::verdict::Verdict;

/// One thing that happened.
#[derive(Debug)]
pub enum Record<'c> {
    /// An entry that was there when the watch began.
    Snapshot(Entry<'c>),
    /// An entry that was made, or that matches from now on.
    New(Entry<'c>),
    /// Status, mark or another attribute changed. Also the last word of an entry that does not match any more.
    Update(Entry<'c>),
    Destroy(Entry<'c>),
    /// Its timer was refilled since the last look; seconds left then and now. The kernel makes no event of it.
    Refresh {
        entry: Entry<'c>,
        before: u32,
        after: u32,
    },
    /// The verdict changed, because the cluster did or because the entry did.
    Verdict {
        entry: Entry<'c>,
        before: Option<Verdict>,
        after: Option<Verdict>,
    },
    /// A flow goes elsewhere than it did: its last entry's endpoint, as text.
    Move {
        entry: Entry<'c>,
        before: String,
    },
    /// Events were lost; how often the kernel or the printing overran since the last one.
    Gap {
        overruns: u64,
    },
    /// The view equals a dump (again).
    Synced,
}

impl<'c> Record<'c> {
    /// The word of JSON's `type`; `None` for a move, which JSON tells by `destroy` and `new`.
    pub const fn name(&self) -> Option<&'static str> {
        Some(match self {
            Record::Snapshot(_) => "snapshot",
            Record::New(_) => "new",
            Record::Update(_) => "update",
            Record::Destroy(_) => "destroy",
            Record::Refresh { .. } => "refresh",
            Record::Verdict { .. } => "verdict",
            Record::Gap { .. } => "gap",
            Record::Synced => "synced",
            Record::Move { .. } => return None,
        })
    }

    pub fn entry(&self) -> Option<&Entry<'c>> {
        match self {
            Record::Snapshot(entry)
            | Record::New(entry)
            | Record::Update(entry)
            | Record::Destroy(entry)
            | Record::Refresh { entry, .. }
            | Record::Verdict { entry, .. }
            | Record::Move { entry, .. } => Some(entry),
            Record::Gap { .. } | Record::Synced => None,
        }
    }
}
