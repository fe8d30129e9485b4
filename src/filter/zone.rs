//! Conntrack zones by number. A zone of one direction is selected by its number, too.

use std::str::FromStr;

use super::{BadValue, Outcome, Picks};
use ctnetlink::flow::Flow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneId(pub u16);

impl FromStr for ZoneId {
    type Err = BadValue;

    /// # Errors
    ///
    /// A text that is no number from 0 to 65535.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        super::mark::number(text)
            .ok()
            .and_then(|number| u16::try_from(number).ok())
            .map(ZoneId)
            .ok_or_else(|| {
                BadValue(format!(
                    "{text} is no zone; zones are numbers from 0 to 65535"
                ))
            })
    }
}

/// Compares the number for any direction, as the kernel's dump filter does (`nf_ct_zone_equal_any`).
pub(super) fn test(picks: &Picks<ZoneId>, flow: &Flow) -> Outcome {
    Outcome::of(picks.pass(|zone| zone.0 == flow.zone.id))
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::udp;
    use super::*;
    use ctnetlink::flow::{Direction, Zone};

    #[test]
    fn zones_are_sixteen_bit_numbers() {
        for (text, id) in [("0", 0), ("65535", 65535), ("0x10", 16)] {
            assert_eq!(text.parse(), Ok(ZoneId(id)), "{text}");
        }
        for text in ["65536", "-1", "a", "1/2", "1-2", " "] {
            let error = text.parse::<ZoneId>().expect_err(text);
            assert!(error.0.contains("0 to 65535"), "{text}: {error}");
        }
    }

    #[test]
    fn a_zone_of_one_direction_is_found_by_its_number() {
        let mut flow = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [1, 2, 2, 1],
        );
        assert_eq!(test(&picks(&["0"]), &flow), Outcome::Pass);
        for direction in [None, Some(Direction::Original), Some(Direction::Reply)] {
            flow.zone = Zone { id: 5, direction };
            for (text, expected) in [
                ("5", true),
                ("0", false),
                ("!5", false),
                ("!0", true),
                ("4,5", true),
            ] {
                assert_eq!(
                    test(&picks(&[text]), &flow),
                    Outcome::of(expected),
                    "{text}"
                );
            }
        }
    }
}
