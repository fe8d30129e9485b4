//! Comma lists, repeated flags and negation of all selectors.
//!
//! Plain values of one flag are alternatives, negated ones all exclude. A leading `!` negates a whole list; within a list
//! each value may have its own (`8000-8100,!8080`).

use std::str::FromStr;

/// Error of a value that is invalid or can never select an entry. The text says what is wrong and what is accepted; the caller
/// adds the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub String);

impl BadValue {
    pub fn new(text: impl Into<String>) -> Self {
        BadValue(text.into())
    }
}

/// One value of a list. A negated one excludes the entries that equal it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<T> {
    pub negated: bool,
    pub value: T,
}

/// Value of a flag that was given once.
#[derive(Clone, Debug)]
pub struct List<T> {
    /// Text on the command line, for [`super::Filter::explain`].
    text: String,
    items: Vec<Item<T>>,
}

impl<T> List<T> {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn items(&self) -> &[Item<T>] {
        &self.items
    }
}

impl<T: FromStr<Err = BadValue>> FromStr for List<T> {
    type Err = BadValue;

    /// # Errors
    ///
    /// An empty value or list element, a `!` without a value, or a value that `T` refuses.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.is_empty() {
            return Err(BadValue::new("the value is empty"));
        }
        let (whole, body) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut items = Vec::new();
        for (position, part) in body.split(',').enumerate() {
            // The first `!` belongs to the list, so that a second one before the first value is stray.
            let (own, word) = match part.strip_prefix('!') {
                Some(rest) if position > 0 => (true, rest),
                _ => (false, part),
            };
            if word.starts_with('!') || (word.is_empty() && (own || body.is_empty())) {
                return Err(BadValue::new(
                    "stray `!`: one `!` goes before a value, or before a whole list",
                ));
            }
            if word.is_empty() {
                return Err(BadValue::new("empty element in the list"));
            }
            items.push(Item {
                negated: whole || own,
                value: word.parse()?,
            });
        }
        Ok(List {
            text: text.to_owned(),
            items,
        })
    }
}

/// All values of one flag.
#[derive(Clone, Debug)]
pub struct Picks<T> {
    plain: Vec<T>,
    negated: Vec<T>,
}

impl<T> Default for Picks<T> {
    fn default() -> Self {
        Picks {
            plain: Vec::new(),
            negated: Vec::new(),
        }
    }
}

impl<T> Picks<T> {
    pub fn push(&mut self, negated: bool, value: T) {
        if negated {
            self.negated.push(value);
        } else {
            self.plain.push(value);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.negated.is_empty()
    }

    pub fn plain(&self) -> &[T] {
        &self.plain
    }

    pub fn negated(&self) -> &[T] {
        &self.negated
    }

    /// Returns whether some plain value equals (when there is one) and no negated one does.
    #[inline]
    pub fn pass(&self, equals: impl Fn(&T) -> bool) -> bool {
        (self.plain.is_empty() || self.plain.iter().any(&equals))
            && !self.negated.iter().any(equals)
    }

    /// Returns the value that every passing entry equals: the only plain value, when there is exactly one.
    pub fn only(&self) -> Option<&T> {
        match self.plain.as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }

    /// Removes the plain values, for an alternative that includes them all, such as "any port".
    pub(super) fn clear_plain(&mut self) {
        self.plain.clear();
    }
}

impl<T: Clone> From<&[List<T>]> for Picks<T> {
    fn from(lists: &[List<T>]) -> Self {
        let mut picks = Picks::default();
        for item in lists.iter().flat_map(List::items) {
            picks.push(item.negated, item.value.clone());
        }
        picks
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A list parsed, for the tests of single predicates.
    pub fn picks<T: FromStr<Err = BadValue> + Clone>(texts: &[&str]) -> Picks<T> {
        let lists: Vec<List<T>> = texts
            .iter()
            .map(|text| text.parse().unwrap_or_else(|e| panic!("{text}: {e}")))
            .collect();
        Picks::from(lists.as_slice())
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Word(String);

    impl FromStr for Word {
        type Err = BadValue;
        fn from_str(text: &str) -> Result<Self, BadValue> {
            Ok(Word(text.to_owned()))
        }
    }

    #[test]
    fn negation_and_repetition_follow_the_contract() {
        // (what was typed, what passes, what fails)
        for (typed, pass, fail) in [
            (&["a"][..], &["a"][..], &["b"][..]),
            (&["a,b"], &["a", "b"], &["c"]),
            (&["a", "b"], &["a", "b"], &["c"]),
            (&["!a"], &["b"], &["a"]),
            (&["!a,b"], &["c"], &["a", "b"]),
            (&["!a,!b"], &["c"], &["a", "b"]),
            (&["a,b,!b"], &["a"], &["b", "c"]),
            (&["a,b", "!b"], &["a"], &["b", "c"]),
            (&["!a", "!b"], &["c"], &["a", "b"]),
        ] {
            let picks = picks::<Word>(typed);
            for word in pass {
                assert!(picks.pass(|w| w.0 == *word), "{typed:?} loses {word}");
            }
            for word in fail {
                assert!(!picks.pass(|w| w.0 == *word), "{typed:?} lets {word} in");
            }
        }
    }

    #[test]
    fn a_malformed_list_is_refused() {
        for (text, says) in [
            ("", "empty"),
            ("!", "stray"),
            ("!!a", "stray"),
            ("!!", "stray"),
            ("a,!", "stray"),
            ("a,!!b", "stray"),
            ("a,", "empty element"),
            (",a", "empty element"),
            ("a,,b", "empty element"),
            ("!,a", "empty element"),
            (",", "empty element"),
        ] {
            let error = text.parse::<List<Word>>().expect_err(text);
            assert!(error.0.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_is_implied_only_when_it_is_the_only_plain_one() {
        assert!(picks::<Word>(&["a"]).only().is_some());
        assert!(picks::<Word>(&["a", "!b"]).only().is_some());
        assert!(picks::<Word>(&["a,b"]).only().is_none());
        assert!(picks::<Word>(&["!a"]).only().is_none());
    }
}
