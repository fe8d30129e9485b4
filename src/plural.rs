//! Numbers with their nouns, for messages.

/// Returns the number with its noun: `1 entry`, `2 entries`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn only_the_number_one_is_singular() {
        let texts = [0, 1, 2].map(|number| count(number, "entry", "entries"));
        assert_eq!(texts, ["0 entries", "1 entry", "2 entries"]);
    }
}
