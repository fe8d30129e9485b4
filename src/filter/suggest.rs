//! Suggestions for an unknown word: the nearest known ones.

use strsim::levenshtein;

/// Shortest word that is searched in names. Shorter ones are part of too many names.
const MIN_PART_LEN: usize = 3;

/// Most edits between a mistyped word and its suggestion.
fn limit(word: &str) -> usize {
    (word.chars().count() / 3).max(1)
}

/// Returns the candidate with the fewest edits to `word`, when it is near enough for a typing error.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = limit(word);
    candidates
        .into_iter()
        .map(|candidate| (levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns up to `most` candidates, nearest first: those within a typing error, and those that contain `word`.
pub fn near<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<&'a str> {
    let limit = limit(word);
    let mut close: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= limit || (word.len() >= MIN_PART_LEN && candidate.contains(word))
        })
        .collect();
    close.sort_unstable();
    close.truncate(most);
    close.into_iter().map(|(_, candidate)| candidate).collect()
}

/// ` (did you mean X?)`, or nothing.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_offered() {
        let words = ["assured", "unreplied", "offload"];
        assert_eq!(nearest("asured", words), Some("assured"));
        assert_eq!(nearest("ofload", words), Some("offload"));
        assert_eq!(nearest("banana", words), None);
        let pods = ["coredns-abc", "coredns-xyz", "web-1", "cordns"];
        assert_eq!(near("coredns", pods, 2), ["cordns", "coredns-abc"]);
        assert_eq!(near("co", pods, 9), [""; 0]);
    }
}
