//! Connection labels: 128 bits. Rules set single bits (`ct label set 7`); OVS writes the complete value.
//!
//! A decimal number or a name of `connlabel.conf` is one bit that must be set; `0x...` is the complete value, under an optional
//! mask.

use std::str::FromStr;

use super::mark::check_mask;
use super::{BadValue, Outcome, Picks};
use ctnetlink::flow::Flow;

/// File of the iptables and conntrack tools with the names of label bits.
const NAMES: &str = "/etc/xtables/connlabel.conf";

/// labels & mask = value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    value: u128,
    mask: u128,
}

impl Label {
    fn bit(number: u32) -> Option<Self> {
        let bit = 1u128.checked_shl(number)?;
        Some(Label {
            value: bit,
            mask: bit,
        })
    }

    pub fn matches(self, labels: &[u8; 16]) -> bool {
        as_number(labels) & self.mask == self.value
    }
}

/// Labels as one number, whose lowest bit is label 0. The kernel sends the memory of `unsigned long bits[2]` (`struct
/// nf_conn_labels`).
fn as_number(labels: &[u8; 16]) -> u128 {
    let [a, b, c, d, e, f, g, h, high @ ..] = *labels;
    let low = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    u128::from(u64::from_ne_bytes(high)) << 64 | u128::from(low)
}

impl FromStr for Label {
    type Err = BadValue;

    /// # Errors
    ///
    /// A bit above 127, an unknown name, a value longer than 128 bits, a mask of 0, or value bits outside the mask.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.starts_with("0x") || text.starts_with("0X") {
            let (value, mask) = match text.split_once('/') {
                Some((value, mask)) => (hex(value)?, hex(mask)?),
                None => (hex(text)?, u128::MAX),
            };
            check_mask(text, value, mask)?;
            return Ok(Label { value, mask });
        }
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().ok().and_then(Label::bit).ok_or_else(|| {
                BadValue(format!("there is no label bit {text}; bits are 0 to 127"))
            });
        }
        let names = std::fs::read_to_string(NAMES).unwrap_or_default();
        named(&names, text).ok_or_else(|| {
            BadValue(format!(
                "unknown label {text}; accepted are a bit (0 to 127), a value (0x2a, 0x2a/0xff) or a name of {NAMES}"
            ))
        })
    }
}

fn hex(text: &str) -> Result<u128, BadValue> {
    text.strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .and_then(|digits| u128::from_str_radix(digits, 16).ok())
        .ok_or_else(|| {
            BadValue(format!(
                "{text:?} is no label value; it is 0x and up to 32 hexadecimal digits"
            ))
        })
}

/// Returns the label with this name in the text of `connlabel.conf`: `bit name` a line, `#` starts a comment.
fn named(file: &str, name: &str) -> Option<Label> {
    file.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let bit = words.next()?.parse().ok()?;
        (words.next()? == name).then(|| Label::bit(bit)).flatten()
    })
}

/// Tests the labels. The kernel sends none when no bit is set, which is undecidable.
pub(super) fn test(picks: &Picks<Label>, flow: &Flow) -> Outcome {
    Outcome::of_known(flow.labels(), |labels| {
        picks.pass(|label| label.matches(labels))
    })
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::picks;
    use super::super::tests::udp;
    use super::*;

    /// The bytes that the kernel sends for a label value.
    fn bytes(value: u128) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(value as u64).to_ne_bytes());
        bytes[8..].copy_from_slice(&((value >> 64) as u64).to_ne_bytes());
        bytes
    }

    #[test]
    fn bits_and_values_are_parsed() {
        for (text, value, mask) in [
            ("0", 1, 1),
            ("127", 1 << 127, 1 << 127),
            ("0x2a", 0x2a, u128::MAX),
            (
                "0x00000000020a0afe00000000",
                0x020a_0afe_0000_0000,
                u128::MAX,
            ),
            ("0x2a/0xff", 0x2a, 0xff),
            ("0xffffffffffffffffffffffffffffffff", u128::MAX, u128::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Label { value, mask }), "{text}");
        }
    }

    #[test]
    fn an_empty_or_impossible_label_is_refused() {
        for (text, says) in [
            ("128", "0 to 127"),
            ("99999999999", "0 to 127"),
            ("", "unknown label"),
            ("-1", "unknown label"),
            ("no-such-label", "connlabel.conf"),
            ("0x", "32 hexadecimal"),
            ("0x+1", "32 hexadecimal"),
            ("0x2a/", "32 hexadecimal"),
            ("0x2a/7", "32 hexadecimal"),
            ("0x1ffffffffffffffffffffffffffffffff", "32 hexadecimal"),
            ("0x10/0x0f", "can never match"),
            ("0x0/0x0", "compares nothing"),
        ] {
            let error = text.parse::<Label>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn names_come_from_the_file_of_the_tools() {
        let file = "# 3 commented\n0 eth0-in\n 7\tgateway # the old one\n200 toobig\nx y\n9\n";
        assert_eq!(named(file, "eth0-in"), Label::bit(0));
        assert_eq!(named(file, "gateway"), Label::bit(7));
        for name in ["commented", "toobig", "y", "old", ""] {
            assert_eq!(named(file, name), None, "{name}");
        }
    }

    #[test]
    fn a_label_selects_only_entries_that_have_it() {
        let row = |labels: Option<u128>| {
            let mut flow = udp(
                ["10.244.0.5", "203.0.113.9", "203.0.113.9", "10.244.0.5"],
                [1, 443, 443, 1],
            );
            if let Some(value) = labels {
                flow.rare_mut().labels = Some(bytes(value));
            }
            flow
        };
        let (labelled, bare) = (row(Some(0x020a_0afe_0000_0000)), row(None));
        for (text, expected) in [
            ("0x020a0afe00000000", true),
            ("0x20a0afe00000000/0xffffffff00000000", true),
            ("0x2", false),
            ("33", true),
            ("32", false),
            ("!33", false),
            ("!32", true),
        ] {
            assert_eq!(
                test(&picks(&[text]), &labelled),
                Outcome::of(expected),
                "{text}"
            );
            assert_eq!(test(&picks(&[text]), &bare), Outcome::Undecidable, "{text}");
        }
    }
}
