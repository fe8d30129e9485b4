//! Shares in percent, with one rule for rounding: comparisons and JSON take the exact value, text has one decimal.

/// `part` of `whole` in percent; `None` if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

/// Number with one decimal. A share that would be rounded to 0 or 100 without being so gets `<` or `>`.
pub fn rounded(percent: f64) -> String {
    match percent {
        percent if percent > 0.0 && percent < 0.1 => "<0.1".to_owned(),
        percent if percent > 99.9 && percent < 100.0 => ">99.9".to_owned(),
        percent => format!("{percent:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_one_decimal_and_is_none_or_all_only_if_it_is() {
        for (part, whole, expected) in [
            (8, 9, "88.9"),
            (0, 7, "0.0"),
            (7, 7, "100.0"),
            (1, 100_000, "<0.1"),
            (99_999, 100_000, ">99.9"),
            (63_900, 64_512, "99.1"),
            (u64::MAX, u64::MAX, "100.0"),
        ] {
            let text = percent(part, whole).map(rounded);
            assert_eq!(text.as_deref(), Some(expected), "{part} of {whole}");
        }
        assert_eq!(percent(0, 0), None);
    }

    #[test]
    fn whole_percents_compare_as_exact_numbers() {
        for n in 0..=100 {
            assert_eq!(percent(n * 7, 700), Some(n as f64));
        }
    }
}
