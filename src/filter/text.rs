//! Regular expressions on the line that is printed for an entry.

use std::str::FromStr;

use regex::Regex;

use super::{BadValue, Picks};

/// A compiled expression. A leading `!` negates it (`[!]` is a literal one). Commas belong to the expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    negated: bool,
    regex: Regex,
}

impl Pattern {
    /// Text on the command line.
    pub(super) fn text(&self) -> String {
        format!("{}{}", if self.negated { "!" } else { "" }, self.regex)
    }
}

impl FromStr for Pattern {
    type Err = BadValue;

    /// # Errors
    ///
    /// An empty expression, which would match every line, or one that does not compile.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (negated, expression) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if expression.is_empty() {
            return Err(BadValue::new(
                "the expression is empty and would match every line",
            ));
        }
        let regex = Regex::new(expression)
            .map_err(|error| BadValue(format!("bad regular expression: {error}")))?;
        Ok(Pattern { negated, regex })
    }
}

pub(super) fn picks(patterns: &[Pattern]) -> Picks<Regex> {
    let mut picks = Picks::default();
    for pattern in patterns {
        picks.push(pattern.negated, pattern.regex.clone());
    }
    picks
}

pub(super) fn test(picks: &Picks<Regex>, line: &str) -> bool {
    picks.pass(|regex| regex.is_match(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(texts: &[&str], line: &str) -> bool {
        let patterns: Vec<Pattern> = texts.iter().map(|t| t.parse().unwrap()).collect();
        test(&picks(&patterns), line)
    }

    #[test]
    fn expressions_are_alternatives_and_negated_ones_exclude() {
        let line = "udp assured shop/web-1:40123 kube-system/kube-dns:dns";
        for (texts, expected) in [
            (&["kube-dns"][..], true),
            (&["^udp .* shop/"], true),
            (&["tcp", "udp"], true),
            (&["web-[0-9]{1,3}"], true),
            (&["tcp"], false),
            (&["!tcp"], true),
            (&["udp", "!web-1"], false),
        ] {
            assert_eq!(passes(texts, line), expected, "{texts:?}");
        }
        assert!(passes(&["[!]"], "a!b"));
    }

    #[test]
    fn an_empty_or_invalid_expression_is_refused() {
        for text in ["", "!", "(", "a{2,1}", "*"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }
}
