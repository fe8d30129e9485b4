//! Decimal numbers and IPv4 addresses as text.
//!
//! They are most of what a listing prints. The usual libraries give a text of any length, and copying that is a call that
//! costs as much as making the text. Here a text is made in a register and appended whole, which is an instruction or two;
//! then what does not count is cut off.

use std::net::Ipv4Addr;

/// One more than the largest number of eight digits.
const EIGHT_DIGITS: u64 = 100_000_000;

/// Decimal, without leading zeros.
#[inline]
pub fn number(out: &mut Vec<u8>, n: impl Into<u64>) {
    let n = n.into();
    if n >= EIGHT_DIGITS {
        return long_number(out, n);
    }
    let (text, length) = short_number(n);
    let end = out.len() + length;
    out.extend_from_slice(&text.to_le_bytes());
    out.truncate(end);
}

/// The digits of a number below 100,000,000, the first one lowest, and how many they are.
#[inline]
fn short_number(n: u64) -> (u64, usize) {
    let digits = digit_values(n);
    // Of a zero, the last digit stays.
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    ((digits | ZEROS) >> (8 * zeros), 8 - zeros as usize)
}

/// `:53`.
#[inline]
pub fn colon_and_port(out: &mut Vec<u8>, port: u16) {
    let (digits, length) = short_number(port.into());
    let text = digits << 8 | u64::from(b':');
    let end = out.len() + 1 + length;
    out.extend_from_slice(&text.to_le_bytes());
    out.truncate(end);
}

fn long_number(out: &mut Vec<u8>, n: u64) {
    number(out, n / EIGHT_DIGITS);
    out.extend_from_slice(&eight_digits(n % EIGHT_DIGITS));
}

/// A number below 1,000,000,000 with its leading zeros.
#[inline]
pub fn nine_digits(n: u64) -> [u8; 9] {
    let first = b'0' + (n / EIGHT_DIGITS) as u8;
    let [a, b, c, d, e, f, g, h] = eight_digits(n % EIGHT_DIGITS);
    [first, a, b, c, d, e, f, g, h]
}

/// A number below 100,000,000 with its leading zeros.
#[inline]
pub fn eight_digits(n: u64) -> [u8; 8] {
    (digit_values(n) | ZEROS).to_le_bytes()
}

/// Eight times the character 0.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The digits of a number below 100,000,000, one a byte, the first one lowest. Numbers are halved side by side: two of four
/// digits, four of two, eight of one. The divisions are multiplications that are exact in these ranges.
#[inline]
fn digit_values(n: u64) -> u64 {
    let fours = (n / 10_000) | ((n % 10_000) << 32);
    let hundreds = ((fours * 5243) >> 19) & 0x0000_007f_0000_007f;
    let twos = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((twos - 10 * tens) << 8)
}

/// `10.0.0.1`.
pub fn ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    let [a, b, c, d] = address.octets();
    let (low, low_bits) = two_octets(a, b);
    let (high, high_bits) = two_octets(c, d);
    let text = u128::from(low) | u128::from(high) << low_bits;
    // Without the last dot.
    let end = out.len() + (low_bits + high_bits) as usize / 8 - 1;
    out.extend_from_slice(&text.to_le_bytes());
    out.truncate(end);
}

/// Two octets with a dot behind each, and how many bits of it count: 32 to 64.
#[inline]
fn two_octets(first: u8, second: u8) -> (u64, u32) {
    let (first, first_bits) = OCTETS[usize::from(first)];
    let (second, second_bits) = OCTETS[usize::from(second)];
    let text = u64::from(first) | u64::from(second) << first_bits;
    (text, first_bits + second_bits)
}

/// Every octet as its digits and a dot, the first one lowest, and how many bits of it count.
static OCTETS: [(u32, u32); 256] = all_octets();

const fn all_octets() -> [(u32, u32); 256] {
    let mut table = [(0, 0); 256];
    let mut n = 0;
    while n < 256 {
        let [hundreds, tens, ones] = [n / 100, n / 10 % 10, n % 10];
        let (mut text, mut bits) = (0, 0);
        let characters = [
            (n >= 100, b'0' + hundreds as u8),
            (n >= 10, b'0' + tens as u8),
            (true, b'0' + ones as u8),
            (true, b'.'),
        ];
        let mut i = 0;
        while i < characters.len() {
            if characters[i].0 {
                text |= (characters[i].1 as u32) << bits;
                bits += 8;
            }
            i += 1;
        }
        table[n] = (text, bits);
        n += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn numbers_equal_the_standard_library(n in any::<u64>(), shift in 0..64u32) {
            // Shifted, so that every length comes up.
            let n = n >> shift;
            prop_assert_eq!(text(|out| number(out, n)), n.to_string());
        }

        #[test]
        fn ipv4_text_equals_the_standard_library(bits in any::<u32>()) {
            let ip = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(text(|out| ipv4(out, ip)), ip.to_string());
        }

        #[test]
        fn ports_and_fractions_keep_their_digits(port in any::<u16>(), n in 0..1_000_000_000u64) {
            prop_assert_eq!(text(|out| colon_and_port(out, port)), format!(":{port}"));
            prop_assert_eq!(text(|out| out.extend(nine_digits(n))), format!("{n:09}"));
        }
    }

    /// Every group of four digits, in both places that one can have.
    #[test]
    fn no_four_digits_are_divided_wrongly() {
        for n in 0..10_000u64 {
            assert_eq!(text(|out| number(out, n)), n.to_string());
            let high = n * 10_000 + 7;
            assert_eq!(text(|out| number(out, high)), high.to_string());
        }
    }
}
