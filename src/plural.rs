//! Numbers with their nouns, for messages.

/// `1 entry`, `2 entries`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn only_one_is_singular() {
        let said = [0, 1, 2].map(|number| count(number, "entry", "entries"));
        assert_eq!(said, ["0 entries", "1 entry", "2 entries"]);
    }
}
