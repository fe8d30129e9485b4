//! Who fills the table: entries counted by what they have in common. Pure, and small: memory grows with the groups, which
//! are bounded, and never with the table.

mod group;
mod heavy_hitters;
mod key;

pub use group::{Group, Groups, Order, Ranked, SortTerm};
pub use heavy_hitters::Measure;
pub use heavy_hitters::{GroupTally, MAX_GROUPS, Missed};
pub use key::{GroupKey, GroupName, GroupNames, KeyValue, NameId};
