//! Connection marks, under an optional mask.

use std::str::FromStr;

use super::{BadValue, Outcome, Picks};
use ctnetlink::Masked;
use ctnetlink::flow::Flow;

/// `V` or `V/MASK`, compared as the kernel does: mark & MASK = V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub Masked);

impl Mark {
    pub fn matches(self, mark: u32) -> bool {
        mark & self.0.mask == self.0.value
    }
}

impl FromStr for Mark {
    type Err = BadValue;

    /// # Errors
    ///
    /// A text that is no number, a number longer than 32 bits, a mask of 0, or value bits outside the mask, which never match.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value)?, number(mask)?),
            None => (number(text)?, u32::MAX),
        };
        check_mask(text, value.into(), mask.into())?;
        Ok(Mark(Masked { value, mask }))
    }
}

/// # Errors
///
/// A mask without bits, or a value with bits outside its mask.
pub(super) fn check_mask(text: &str, value: u128, mask: u128) -> Result<(), BadValue> {
    if mask == 0 {
        return Err(BadValue(format!(
            "{text} compares nothing: its mask has no bit"
        )));
    }
    if value & !mask != 0 {
        return Err(BadValue(format!(
            "{text} can never match: the value has bits outside of its mask; write {:#x}/{mask:#x}",
            value & mask
        )));
    }
    Ok(())
}

/// A 32-bit number, decimal or hexadecimal with `0x`.
pub(super) fn number(text: &str) -> Result<u32, BadValue> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(BadValue(format!(
            "{text:?} is no number; accepted are decimal and hexadecimal numbers (42, 0x2a)"
        )));
    }
    u32::from_str_radix(digits, radix).map_err(|_| {
        BadValue(format!(
            "{text} does not fit in 32 bits (at most 0xffffffff)"
        ))
    })
}

pub(super) fn test(picks: &Picks<Mark>, flow: &Flow) -> Outcome {
    Outcome::of_known(flow.mark, |mark| picks.pass(|other| other.matches(mark)))
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::udp;
    use super::*;

    #[test]
    fn marks_are_decimal_or_hexadecimal_with_a_mask() {
        for (text, value, mask) in [
            ("0", 0, u32::MAX),
            ("42", 42, u32::MAX),
            ("0x2a", 42, u32::MAX),
            ("0X2A", 42, u32::MAX),
            ("0xffffffff", u32::MAX, u32::MAX),
            ("0x4000/0x4000", 0x4000, 0x4000),
            ("0/0xff", 0, 0xff),
        ] {
            assert_eq!(text.parse(), Ok(Mark(Masked { value, mask })), "{text}");
        }
    }

    #[test]
    fn the_error_of_a_bad_mark_says_what_is_accepted() {
        for (text, says) in [
            ("x", "42, 0x2a"),
            ("0x", "42, 0x2a"),
            ("-1", "42, 0x2a"),
            ("+1", "42, 0x2a"),
            ("0x-1", "42, 0x2a"),
            ("1/", "42, 0x2a"),
            ("/1", "42, 0x2a"),
            ("1/2/3", "42, 0x2a"),
            ("4294967296", "32 bits"),
            ("0x100000000", "32 bits"),
            ("1/4294967296", "32 bits"),
            ("0x12/0x0f", "write 0x2/0xf"),
            ("0/0", "compares nothing"),
        ] {
            let error = text.parse::<Mark>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn an_unknown_mark_is_not_zero() {
        let mut flow = udp(
            ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.1"],
            [1, 2, 2, 1],
        );
        for text in ["0", "!0", "!7"] {
            assert_eq!(test(&picks(&[text]), &flow), Outcome::Undecidable, "{text}");
        }
        flow.mark = Some(0x4001);
        for (text, expected) in [
            ("0x4001", true),
            ("0x4000", false),
            ("0x4000/0x4000", true),
            ("!0x4000/0x4000", false),
            ("!1", true),
        ] {
            assert_eq!(
                test(&picks(&[text]), &flow),
                Outcome::of(expected),
                "{text}"
            );
        }
    }
}
