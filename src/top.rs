//! Entries grouped by common values and counted (`ctk top`). Pure. Memory grows with the number of groups, which is limited,
//! and not with the table.

mod group;
mod group_names;
mod heavy_hitters;
mod key;

pub use group::{Group, Groups, Order, Ranked, SortTerm};
pub use group_names::{GroupName, GroupNames, NameId};
pub use heavy_hitters::Measure;
pub use heavy_hitters::{GroupTally, MAX_GROUPS, Missed};
pub use key::{GroupKey, KeyValue};
