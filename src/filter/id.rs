//! Id of an entry: a hash of the kernel that may be the same when a flow is created again.

use std::str::FromStr;

use super::{BadValue, Outcome, Picks};
use ctnetlink::flow::Flow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId(pub u32);

impl FromStr for EntryId {
    type Err = BadValue;

    /// # Errors
    ///
    /// A text that is no 32-bit number, decimal or hexadecimal.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        super::mark::number(text).map(EntryId)
    }
}

pub(super) fn test(picks: &Picks<EntryId>, flow: &Flow) -> Outcome {
    Outcome::of_known(flow.id, |id| picks.pass(|other| other.0 == id))
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::udp;
    use super::*;

    #[test]
    fn ids_are_thirty_two_bits() {
        assert_eq!("3912345678".parse(), Ok(EntryId(3_912_345_678)));
        assert!("4294967296".parse::<EntryId>().is_err());
        assert!("".parse::<EntryId>().is_err());
    }

    #[test]
    fn an_entry_without_an_id_is_undecidable() {
        let mut flow = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [1, 2, 2, 1],
        );
        assert_eq!(test(&picks(&["7"]), &flow), Outcome::Undecidable);
        flow.id = Some(7);
        assert_eq!(test(&picks(&["7"]), &flow), Outcome::Pass);
        assert_eq!(test(&picks(&["!7"]), &flow), Outcome::Fail);
    }
}
