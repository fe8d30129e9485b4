//! Who fills the table: entries counted by what they have in common. Pure, and small: memory grows with the groups, which
//! are bounded, and never with the table.

mod group;
mod heavy;
mod key;

pub use group::{Group, Groups, Order, Ranked, SortWord};
pub use heavy::Measure;
pub use heavy::{GROUPS, Missed, Tally};
pub use key::{Key, Name, NameId, Names, Part};
