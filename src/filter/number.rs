//! Comparisons with a number or a duration: `<30s`, `>1h`, `>=1M`, `=3`.

use std::str::FromStr;

use super::BadValue;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

impl Operator {
    fn holds(self, value: u64, bound: u64) -> bool {
        match self {
            Operator::Less => value < bound,
            Operator::AtMost => value <= bound,
            Operator::Equal => value == bound,
            Operator::AtLeast => value >= bound,
            Operator::More => value > bound,
        }
    }
}

/// Splits a comparison into its operator and the rest.
fn split(text: &str) -> Option<(Operator, &str)> {
    // The longer signs first, so that `<=` is not `<` and `=5`.
    [
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("<", Operator::Less),
        (">", Operator::More),
        ("=", Operator::Equal),
    ]
    .into_iter()
    .find_map(|(sign, operator)| Some((operator, text.strip_prefix(sign)?)))
}

/// # Errors
///
/// A comparison that no value satisfies.
fn check_bound(text: &str, operator: Operator, bound: u64) -> Result<(), BadValue> {
    if operator == Operator::Less && bound == 0 {
        return Err(BadValue(format!("nothing is {text}; write =0")));
    }
    Ok(())
}

/// A comparison with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    operator: Operator,
    bound: u64,
}

impl Count {
    pub fn holds(self, value: u64) -> bool {
        self.operator.holds(value, self.bound)
    }
}

impl FromStr for Count {
    type Err = BadValue;

    /// An operator and a whole number with `k`, `M`, `G` (powers of 1000) or `Ki`, `Mi`, `Gi` (of 1024).
    ///
    /// # Errors
    ///
    /// A missing operator, no whole number, an unknown suffix, a number above 2^64 - 1, or `<0`.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (operator, rest) = split(text).ok_or_else(|| {
            BadValue(format!(
                "{text} does not say how to compare; put one of < <= = >= > before it, as in '>=1M'"
            ))
        })?;
        let bound = number(text, rest)?;
        check_bound(text, operator, bound)?;
        Ok(Count { operator, bound })
    }
}

fn number(text: &str, rest: &str) -> Result<u64, BadValue> {
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, suffix) = rest.split_at(end);
    let unit: u64 = match suffix {
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => 0,
    };
    if digits.is_empty() || unit == 0 {
        return Err(BadValue(format!(
            "{text} is no comparison; accepted is a whole number with k, M, G, Ki, Mi or Gi, as in '>=1M'"
        )));
    }
    digits
        .parse()
        .ok()
        .and_then(|n: u64| n.checked_mul(unit))
        .ok_or_else(|| BadValue(format!("{text} is over the largest counter, {}", u64::MAX)))
}

/// A comparison with a duration.
///
/// A bound of whole seconds is compared with whole seconds, rounded down as the kernel rounds timeouts, so that `=3s` can
/// hold for an age; a bound with a fraction is compared in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    operator: Operator,
    /// Nanoseconds.
    bound: u64,
}

impl Span {
    /// `value` is in nanoseconds.
    pub fn holds(self, value: u64) -> bool {
        if self.bound.is_multiple_of(NANOS_PER_SECOND) {
            self.operator
                .holds(value / NANOS_PER_SECOND, self.bound / NANOS_PER_SECOND)
        } else {
            self.operator.holds(value, self.bound)
        }
    }

    pub fn holds_seconds(self, value: u32) -> bool {
        self.holds(u64::from(value) * NANOS_PER_SECOND)
    }
}

impl FromStr for Span {
    type Err = BadValue;

    /// An operator and a duration with units (`30s`, `1h30m`).
    ///
    /// # Errors
    ///
    /// A missing operator, no duration, a duration longer than 584 years, or `<0s`.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (operator, rest) = split(text).ok_or_else(|| {
            BadValue(format!(
                "{text} does not say how to compare; put one of < <= = >= > before it, as in '<30s'"
            ))
        })?;
        let duration = humantime::parse_duration(rest).map_err(|error| {
            BadValue(format!(
                "{text} is no comparison with a duration ({error}); accepted are 30s, 5m, 1h30m, 2d"
            ))
        })?;
        let bound = u64::try_from(duration.as_nanos())
            .map_err(|_| BadValue(format!("{text} is too long; at most 584 years")))?;
        check_bound(text, operator, bound)?;
        Ok(Span { operator, bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_compared_with_suffixed_numbers() {
        for (text, holds, fails) in [
            ("<5", &[0, 4][..], &[5, 6][..]),
            ("<=5", &[0, 5], &[6]),
            ("=3", &[3], &[2, 4]),
            (">=1M", &[1_000_000], &[999_999]),
            (">1Mi", &[1_048_577], &[1_048_576]),
            ("=2k", &[2000], &[2048]),
            ("=2Ki", &[2048], &[2000]),
            ("=1G", &[1_000_000_000], &[1]),
            ("=1Gi", &[1_073_741_824], &[1]),
            (">=0", &[0], &[]),
            ("=18446744073709551615", &[u64::MAX], &[0]),
        ] {
            let count: Count = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            for value in holds {
                assert!(count.holds(*value), "{text} {value}");
            }
            for value in fails {
                assert!(!count.holds(*value), "{text} {value}");
            }
        }
    }

    #[test]
    fn the_error_of_a_bad_counter_says_what_is_accepted() {
        for (text, says) in [
            ("5", "< <= = >= >"),
            ("==5", "whole number"),
            ("<", "whole number"),
            ("< 5", "whole number"),
            ("<-5", "whole number"),
            (">=1.5M", "whole number"),
            (">1m", "Mi or Gi"),
            (">1MB", "Mi or Gi"),
            ("<=5x", "whole number"),
            ("<0", "=0"),
            (">18446744073709551616", "largest counter"),
            (">99999999999G", "largest counter"),
        ] {
            let error = text.parse::<Count>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_duration_of_whole_seconds_is_compared_in_whole_seconds() {
        let ms = 1_000_000;
        for (text, holds, fails) in [
            ("<30s", &[0, 29_999 * ms][..], &[30_000 * ms][..]),
            ("=3s", &[3000 * ms, 3999 * ms], &[2999 * ms, 4000 * ms]),
            ("<=5m", &[300_000 * ms, 300_999 * ms], &[301_000 * ms]),
            (">1h", &[3_601_000 * ms], &[3_600_000 * ms, 3_600_999 * ms]),
            ("<1500ms", &[1499 * ms], &[1500 * ms]),
            ("=0s", &[0], &[1000 * ms]),
        ] {
            let span: Span = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            for value in holds {
                assert!(span.holds(*value), "{text} {value}");
            }
            for value in fails {
                assert!(!span.holds(*value), "{text} {value}");
            }
        }
        let longest: Span = ">1h".parse().unwrap();
        assert!(longest.holds_seconds(u32::MAX));
    }

    #[test]
    fn the_error_of_a_bad_duration_says_what_is_accepted() {
        for (text, says) in [
            ("30s", "< <= = >= >"),
            ("<30", "30s, 5m"),
            ("<", "30s, 5m"),
            ("<-1s", "30s, 5m"),
            ("<1parsec", "30s, 5m"),
            ("<0s", "=0"),
            (">600years", "584 years"),
            (">99999999999999999999years", "30s, 5m"),
        ] {
            let error = text.parse::<Span>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }
}
