//! Decimal numbers and IPv4 addresses as text.
//!
//! They are most of the output of a listing. Formatting libraries return text of variable length, and the call that copies
//! it costs as much as the formatting. Here the text is made in a register and appended with a fixed length, which takes
//! one or two instructions; the buffer is then truncated to the digits that count.

use std::net::Ipv4Addr;

/// The smallest number of nine digits.
const EIGHT_DIGITS: u64 = 100_000_000;

/// Appends a number in decimal, without leading zeros.
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

/// Digits of a number below 100,000,000, the first digit in the lowest byte, and their count.
#[inline]
fn short_number(n: u64) -> (u64, usize) {
    let digits = digit_values(n);
    // The last digit of a zero is kept.
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

/// A number below 1,000,000,000 with leading zeros.
#[inline]
pub fn nine_digits(n: u64) -> [u8; 9] {
    let first = b'0' + (n / EIGHT_DIGITS) as u8;
    let [a, b, c, d, e, f, g, h] = eight_digits(n % EIGHT_DIGITS);
    [first, a, b, c, d, e, f, g, h]
}

/// A number below 100,000,000 with leading zeros.
#[inline]
pub fn eight_digits(n: u64) -> [u8; 8] {
    (digit_values(n) | ZEROS).to_le_bytes()
}

/// The character `0`, eight times.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Values of the digits of a number below 100,000,000, one per byte, the first digit in the lowest byte. The number is split
/// in parallel: two numbers of four digits, four of two, eight of one. Divisions are multiplications that are exact in
/// these ranges.
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
    // The last dot is cut off.
    let end = out.len() + (low_bits + high_bits) as usize / 8 - 1;
    out.extend_from_slice(&text.to_le_bytes());
    out.truncate(end);
}

/// Two octets, each followed by a dot, and the length of the text in bits: 32 to 64.
#[inline]
fn two_octets(first: u8, second: u8) -> (u64, u32) {
    let (first, first_bits) = OCTETS[usize::from(first)];
    let (second, second_bits) = OCTETS[usize::from(second)];
    let text = u64::from(first) | u64::from(second) << first_bits;
    (text, first_bits + second_bits)
}

/// Every octet as digits and a dot, the first digit in the lowest byte, and the length in bits.
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
            // Shifted, so that every length is tested.
            let n = n >> shift;
            prop_assert_eq!(text(|out| number(out, n)), n.to_string());
        }

        #[test]
        fn ipv4_text_equals_the_standard_library(bits in any::<u32>()) {
            let ip = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(text(|out| ipv4(out, ip)), ip.to_string());
        }

        #[test]
        fn ports_and_fractions_equal_the_standard_library(port in any::<u16>(), n in 0..1_000_000_000u64) {
            prop_assert_eq!(text(|out| colon_and_port(out, port)), format!(":{port}"));
            prop_assert_eq!(text(|out| out.extend(nine_digits(n))), format!("{n:09}"));
        }
    }

    /// Every group of four digits, in both positions.
    #[test]
    fn every_group_of_four_digits_is_split_correctly() {
        for n in 0..10_000u64 {
            assert_eq!(text(|out| number(out, n)), n.to_string());
            let high = n * 10_000 + 7;
            assert_eq!(text(|out| number(out, high)), high.to_string());
        }
    }
}
