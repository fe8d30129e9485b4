//! The kernel's id of an entry: a hash, the same again when a flow is re-created in the same place.

use std::str::FromStr;

use super::{BadValue, Outcome, Picks};
use ctnetlink::flow::Flow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId(pub u32);

impl FromStr for EntryId {
    type Err = BadValue;

    /// # Errors
    ///
    /// Not a 32-bit number, decimal or hexadecimal.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        super::mark::number(text).map(EntryId)
    }
}

pub(super) fn test(picks: &Picks<EntryId>, flow: &Flow) -> Outcome {
    Outcome::of_known(flow.id, |id| picks.pass(|wanted| wanted.0 == id))
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
    fn an_entry_read_without_an_id_is_not_decided() {
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
