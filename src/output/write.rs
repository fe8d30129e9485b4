//! Appends numbers, addresses and times as text to a byte buffer.
//!
//! These functions are called up to twenty times per entry, and a listing may have a million entries; `write!` costs several
//! times as much.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ctnetlink::flow::{AddressPort, ProtocolState, Status};

use super::digits::{colon_and_port, eight_digits, nine_digits};
pub use super::digits::{ipv4, number};

/// `0x10`, without leading zeros.
pub fn hex16(out: &mut Vec<u8>, n: u16) {
    out.extend_from_slice(b"0x");
    hex_group(out, n);
}

fn hex_group(out: &mut Vec<u8>, n: u16) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |shift: u16| DIGITS[usize::from(n >> shift & 0xf)];
    let digits = [digit(12), digit(8), digit(4), digit(0)];
    let zeros = (n.leading_zeros() as usize / 4).min(3);
    out.extend_from_slice(&digits[zeros..]);
}

/// Appends the canonical text (RFC 5952), equal to the standard library's.
pub fn ipv6(out: &mut Vec<u8>, address: Ipv6Addr) {
    if let Some(mapped) = address.to_ipv4_mapped() {
        out.extend_from_slice(b"::ffff:");
        return ipv4(out, mapped);
    }
    let groups = address.segments();
    let (zeros_at, zeros) = longest_zeros(&groups);
    for (i, group) in groups.iter().enumerate() {
        if (zeros_at..zeros_at + zeros).contains(&i) {
            if i == zeros_at {
                out.extend_from_slice(b"::");
            }
            continue;
        }
        if i != 0 && i != zeros_at + zeros {
            out.push(b':');
        }
        hex_group(out, *group);
    }
}

/// Start and length of the first longest run of two or more zero groups; `(9, 0)` without such a run.
fn longest_zeros(groups: &[u16; 8]) -> (usize, usize) {
    let (mut best_at, mut best) = (9, 1);
    let mut run = 0;
    for (i, group) in groups.iter().enumerate() {
        run = if *group == 0 { run + 1 } else { 0 };
        if run > best {
            (best_at, best) = (i + 1 - run, run);
        }
    }
    if best < 2 { (9, 0) } else { (best_at, best) }
}

pub fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => ipv4(out, v4),
        IpAddr::V6(v6) => ipv6(out, v6),
    }
}

/// Appends the address as `inet_ntop` of the C library prints it: like [`address`], but `::1.2.3.4` keeps its dots.
pub fn address_like_c(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => ipv4(out, v4),
        IpAddr::V6(v6) => match v6.segments() {
            [0, 0, 0, 0, 0, 0, high, _] if high != 0 => {
                let [.., a, b, c, d] = v6.octets();
                out.extend_from_slice(b"::");
                ipv4(out, Ipv4Addr::new(a, b, c, d));
            }
            _ => ipv6(out, v6),
        },
    }
}

/// `10.0.0.1:53`, `[fd00::1]:53`, or the bare address where there is no port.
pub fn address_port(out: &mut Vec<u8>, socket: AddressPort) {
    match (socket.address, socket.port) {
        (ip, None) => address(out, ip),
        (IpAddr::V4(v4), Some(port)) => {
            ipv4(out, v4);
            colon_and_port(out, port);
        }
        (IpAddr::V6(v6), Some(port)) => {
            out.push(b'[');
            ipv6(out, v6);
            out.push(b']');
            colon_and_port(out, port);
        }
    }
}

/// Seconds as the two largest units that are not zero: `28s`, `1m58s`, `2h`, `4d23h`.
pub fn duration(out: &mut Vec<u8>, seconds: u64) {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    // Division by constants is compiled to multiplication; units from a table would be divided by.
    match seconds {
        0..MINUTE => units(out, seconds, b's', 0, b's'),
        MINUTE..HOUR => units(out, seconds / MINUTE, b'm', seconds % MINUTE, b's'),
        HOUR..DAY => units(out, seconds / HOUR, b'h', seconds % HOUR / MINUTE, b'm'),
        _ => units(out, seconds / DAY, b'd', seconds % DAY / HOUR, b'h'),
    }
}

fn units(out: &mut Vec<u8>, large: u64, large_letter: u8, small: u64, small_letter: u8) {
    number(out, large);
    out.push(large_letter);
    if small > 0 {
        number(out, small);
        out.push(small_letter);
    }
}

/// Appends nanoseconds since the Unix epoch as RFC 3339 in UTC. 64 bits reach into the year 2554.
pub fn time(out: &mut Vec<u8>, nanoseconds: u64) {
    let seconds = nanoseconds / 1_000_000_000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let [y0, y1, y2, y3, m0, m1, d0, d1] = eight_digits(year * 10_000 + month * 100 + day);
    let [_, _, h0, h1, n0, n1, s0, s1] = eight_digits(hour * 10_000 + minute * 100 + second);
    let [f0, f1, f2, f3, f4, f5, f6, f7, f8] = nine_digits(nanoseconds % 1_000_000_000);
    out.extend_from_slice(&[
        y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', n0, n1, b':', s0, s1, b'.',
        f0, f1, f2, f3, f4, f5, f6, f7, f8, b'Z',
    ]);
}

/// Year, month and day of a number of days since 1970-01-01, in the proleptic Gregorian calendar. The computation begins
/// years in March, so that the leap day is the last day.
fn date(day: u64) -> (u64, u64, u64) {
    const DAYS_BEFORE_1970: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let day = day + DAYS_BEFORE_1970;
    let in_era = day % DAYS_IN_400_YEARS;
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    // From March on, each five months have 31, 30, 31, 30, 31 days: 153.
    let month = (5 * in_year + 2) / 153;
    let day_of_month = in_year - (153 * month + 2) / 5 + 1;
    let year = day / DAYS_IN_400_YEARS * 400 + year + u64::from(month >= 10);
    (
        year,
        if month < 10 { month + 3 } else { month - 9 },
        day_of_month,
    )
}

/// Connection labels as one 128-bit number in 32 hex digits: label N is bit N.
pub fn labels(out: &mut Vec<u8>, labels: &[u8; 16]) {
    // The kernel sends an array of machine words, lowest word first. On a little-endian machine these are bytes, lowest first.
    let _ = write!(out, "0x{:032x}", u128::from_le_bytes(*labels));
}

/// A protocol state in the words of the command line: `time-wait`, or `STATE(42)` for a number without a word.
pub fn state(out: &mut Vec<u8>, state: ProtocolState) {
    state_word(out, state.name(), state.number());
}

/// [`state`] from the kernel's word and number.
pub fn state_word(out: &mut Vec<u8>, word: Option<&str>, number: u8) {
    match word {
        Some(word) => {
            let start = out.len();
            out.extend_from_slice(word.as_bytes());
            for byte in &mut out[start..] {
                *byte = state_byte(*byte);
            }
        }
        None => unknown_state(out, number),
    }
}

/// Byte of a printed state for a byte of the kernel's name of it: `TIME_WAIT` is printed as `time-wait`.
pub fn state_byte(byte: u8) -> u8 {
    match byte {
        b'_' => b'-',
        other => other.to_ascii_lowercase(),
    }
}

/// `STATE(42)`.
pub fn unknown_state(out: &mut Vec<u8>, number_: u8) {
    out.extend_from_slice(b"STATE(");
    number(out, number_);
    out.push(b')');
}

/// Names of the status bits that are set, joined by commas.
pub fn status(out: &mut Vec<u8>, status: Status) {
    for (i, name) in status.names().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
    }
}

/// `udp`, or `proto-200` for a number without a name.
pub fn protocol(out: &mut Vec<u8>, protocol: u8) {
    match ctnetlink::flow::protocol_name(protocol) {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => {
            out.extend_from_slice(b"proto-");
            number(out, protocol);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use proptest::prelude::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn times_equal_what_humantime_prints(nanoseconds in any::<u64>()) {
            let time = UNIX_EPOCH + Duration::from_nanos(nanoseconds);
            prop_assert_eq!(
                text(|out| super::time(out, nanoseconds)),
                humantime::format_rfc3339_nanos(time).to_string()
            );
        }

        #[test]
        fn ipv6_text_equals_the_standard_library(
            groups in any::<[u16; 8]>(),
            zeros in any::<u8>(),
        ) {
            let mut groups = groups;
            for (i, group) in groups.iter_mut().enumerate() {
                if zeros >> i & 1 == 1 {
                    *group = 0;
                }
            }
            let ip = Ipv6Addr::from(groups);
            prop_assert_eq!(text(|out| ipv6(out, ip)), ip.to_string());
        }
    }

    #[test]
    fn ipv6_text_with_zero_groups_equals_the_standard_library() {
        for ip in [
            "::",
            "::1",
            "::ffff:1.2.3.4",
            "::1.2.3.4",
            "1::",
            "1:0:2::3",
            "0:1::",
            "::1:0:0:1:0:0",
            "fe80::1",
            "1:2:3:4:5:6:7:8",
            "1:0:3:4:5:6:7:8",
        ] {
            let ip: Ipv6Addr = ip.parse().unwrap();
            assert_eq!(text(|out| ipv6(out, ip)), ip.to_string());
        }
    }

    #[test]
    fn addresses_for_the_conntrack_format_follow_inet_ntop() {
        for ip in [
            "::1.2.3.4",
            "::0.1.0.0",
            "::1",
            "::",
            "::ffff:1.2.3.4",
            "fd00::10",
            "10.0.0.1",
        ] {
            assert_eq!(text(|out| address_like_c(out, ip.parse().unwrap())), ip);
        }
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, expected) in [
            (0, "0s"),
            (28, "28s"),
            (60, "1m"),
            (118, "1m58s"),
            (3600, "1h"),
            (3601, "1h"),
            (3661, "1h1m"),
            (431_999, "4d23h"),
            (86_400, "1d"),
            (8_589_934, "99d10h"),
        ] {
            assert_eq!(text(|out| duration(out, seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn times_labels_and_states_are_printed_as_documented() {
        assert_eq!(
            text(|out| time(out, 1_623_073_290_396_322_047)),
            "2021-06-07T13:41:30.396322047Z"
        );
        assert_eq!(
            text(|out| time(out, u64::MAX)),
            "2554-07-21T23:34:33.709551615Z"
        );
        let bits = 0x020a_0afe_0000_0001u128;
        assert_eq!(
            text(|out| labels(out, &bits.to_le_bytes())),
            "0x0000000000000000020a0afe00000001"
        );
        let tcp = |state| ProtocolState::Tcp {
            state,
            original: Default::default(),
            reply: Default::default(),
        };
        assert_eq!(text(|out| state(out, tcp(7))), "time-wait");
        assert_eq!(text(|out| state(out, tcp(42))), "STATE(42)");
        assert_eq!(text(|out| hex16(out, 0x10)), "0x10");
        assert_eq!(text(|out| hex16(out, 0)), "0x0");
        assert_eq!(text(|out| protocol(out, 200)), "proto-200");
    }
}
